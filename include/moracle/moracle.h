/* Moracle's C interface (C99): questions about a checkpoint, one experts layer, the engine.
 *
 *   char* json = NULL;
 *   moracle_error* error = NULL;
 *   if (moracle_explain("./Qwen3-30B-A3B-GPTQ-Int4", NULL, &json, &error) != MORACLE_OK) {
 *     fprintf(stderr, "%s\n", error->message);
 *     moracle_error_free(error);
 *     return 1;
 *   }
 *   puts(json);
 *   moracle_free(json);
 *
 * Rules that hold for every function:
 *   - It returns a status and, unless `error` is null, writes an error that the caller frees; on success null.
 *   - A handle that is null, closed, of another kind, or from before a fork() is an error of status MORACLE_INVALID.
 *   - Every struct begins with its size: set it to sizeof, and zero what is not used. Zero means the default.
 *   - Strings are UTF-8. What the library returns is freed with moracle_free; other pointers stay the caller's.
 *   - No exception leaves the library, and it never prints.
 *   - A handle may be closed from any thread, while others that were made of it are open, and while a call with it runs
 *     elsewhere.
 *   - "Any thread": calls may come from any thread at the same time. Where calls take turns, the text says so.
 */
#ifndef MORACLE_MORACLE_H_
#define MORACLE_MORACLE_H_

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define MORACLE_API __attribute__((visibility("default")))
#else
#define MORACLE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- Versions and errors ---------------------------------------------------------------------------------------- */

#define MORACLE_ABI_VERSION 1

/* The interface of the loaded library; a program built against MORACLE_ABI_VERSION runs with it or a later one of the
 * same soname. Any thread. */
MORACLE_API uint32_t moracle_abi_version(void);
/* "0.1.0"; static. Any thread. */
MORACLE_API const char* moracle_version(void);

typedef int32_t moracle_status;
enum {
  MORACLE_OK = 0,
  MORACLE_INVALID = 1,     /* the call itself is wrong: a handle, a pointer, a struct, a dtype, a range */
  MORACLE_FAILED = 2,      /* the work failed: a file, a checkpoint, a decision */
  MORACLE_NO_MEMORY = 3,   /* memory or threads ran out; a later call may work */
  MORACLE_INTERRUPTED = 4, /* a callback asked to stop */
  MORACLE_END = 5          /* there is nothing more; not an error, and none is written */
};

/* Members are never null. `code` is the stable name of the violated rule, as "tensor.shape". */
typedef struct moracle_error {
  uint32_t size;
  moracle_status status;
  const char* code;
  const char* file;
  const char* where;
  const char* wanted;
  const char* found;
  const char* advice;
  const char* message; /* all of it, for people */
} moracle_error;

/* Null is ignored. Any thread. */
MORACLE_API void moracle_error_free(moracle_error* error);
/* Frees what the library returned; null is ignored. Any thread. */
MORACLE_API void moracle_free(void* memory);

/* ---- How kernels are chosen ------------------------------------------------------------------------------------- */

enum {
  MORACLE_EXACT = 0, /* the scheme as published */
  MORACLE_FAST = 1   /* kernels may quantize activations further */
};

typedef struct moracle_policy {
  uint32_t size;
  int32_t numerics;        /* MORACLE_EXACT or MORACLE_FAST */
  int32_t batch_invariant; /* 1: only kernels that sum in one order for every batch */
  int32_t reserved;
  const char* backend;   /* must serve, or the call fails and says why; null: the oracle's choice */
  const char* preferred; /* may fall back, with a warning; null: none */
} moracle_policy;

/* Work done and work in all; nonzero ends the call with MORACLE_INTERRUPTED. May come from another thread. */
typedef int32_t (*moracle_on_progress)(void* context, uint64_t done, uint64_t total);

/* ---- Questions, answered from headers ----------------------------------------------------------------------------
 * Each answers with the JSON document of the command of its name with --json. `model` is a folder in Hugging Face
 * layout. Any thread. */

MORACLE_API moracle_status moracle_inspect(const char* model, char** json, moracle_error** error);

typedef struct moracle_explain_options {
  uint32_t size;
  uint32_t reserved;
  const char* device; /* "cpu", "cuda:0", a name that `moracle devices` lists, or a JSON file; null: "cpu" */
  const moracle_policy* policy;
} moracle_explain_options;
MORACLE_API moracle_status moracle_explain(const char* model, const moracle_explain_options* options, char** json,
                                           moracle_error** error);

typedef struct moracle_plan_options {
  uint32_t size;
  int32_t tp; /* ranks that share heads and widths; 0: 1 */
  int32_t ep; /* ranks that share experts; 0: 1 */
  int32_t reserved;
  int64_t context;    /* positions of one sequence; 0: 4096, or the model's limit where that is less */
  const char* device; /* as in moracle_explain_options */
  const moracle_policy* policy;
  const char* kv; /* as in moracle_engine_options */
} moracle_plan_options;
MORACLE_API moracle_status moracle_plan(const char* model, const moracle_plan_options* options, char** json,
                                        moracle_error** error);

/* Reads the weights. What is wrong with them is part of the document ("ok": false), not an error of the call. */
typedef struct moracle_verify_options {
  uint32_t size;
  int32_t threads;    /* 0: the cores of this machine */
  int64_t tokens;     /* of each layer; 0: 32 */
  const char* layout; /* pack experts in another device's layout and run the packed bytes here; null: none */
  const moracle_policy* policy;
  moracle_on_progress on_progress;
  void* context;      /* of on_progress */
  const char* device; /* as in moracle_engine_options */
} moracle_verify_options;
MORACLE_API moracle_status moracle_verify(const char* model, const moracle_verify_options* options, char** json,
                                          moracle_error** error);

/* What vLLM's oracles choose, by their tables: the answer to a request {"id", "oracle", "platform", "request"}, each a
 * line of `moracle explain --requests`. Any thread. Error: "request.unknown" of a name that vLLM lacks. */
MORACLE_API moracle_status moracle_explain_vllm(const char* request, char** json, moracle_error** error);

/* ---- Threads ---------------------------------------------------------------------------------------------------- */

typedef void (*moracle_task)(void* work, int64_t index);

/* The host's threads. parallel_for calls task(work, index) once for each index in [0, count), count <= threads, at the
 * same time as far as it can, and returns when all have returned. It is called by the thread that calls Moracle, whose
 * turn on the pool lasts until then; in a pool of one thread it is never called.
 * A host that calls Moracle from its own parallel work has a parallel_for that may be nested and that waits for none of
 * its busy threads, as OpenMP's then runs all on the calling one; else such calls use pools of one thread each. While
 * it waits, parallel_for takes up no other work that calls Moracle with this pool: on the thread that called it that is
 * the error "argument.nested"; on another it waits for the turn, and must not be waited for. */
typedef struct moracle_executor {
  uint32_t size;
  int32_t threads; /* 1 to 1024 */
  void* context;
  void (*parallel_for)(void* context, int64_t count, moracle_task task, void* work);
} moracle_executor;

typedef struct moracle_pool moracle_pool;
typedef struct moracle_pool_options {
  uint32_t size;
  int32_t threads;     /* the calling one among them; 0: one for each of `cpus`, or for each core of this machine */
  const int32_t* cpus; /* thread i > 0 runs on cpus[i]; the calling thread stays where it is; null: free */
  uint64_t cpu_count;  /* of `cpus` */
  const moracle_executor* executor; /* not null: the host's threads, and none of our own */
} moracle_pool_options;

/* Layers that share a pool take turns, and share its workspace. Any thread. */
MORACLE_API moracle_status moracle_pool_open(const moracle_pool_options* options, moracle_pool** pool,
                                             moracle_error** error);
MORACLE_API moracle_status moracle_pool_close(moracle_pool* pool);

/* ---- One checkpoint, and one layer of it ------------------------------------------------------------------------ */

typedef struct moracle_checkpoint moracle_checkpoint;

/* Validates the whole folder from its headers; reads no weight. `options` is null, or the policy that decides where
 * a layer is opened without one. Any thread. */
MORACLE_API moracle_status moracle_checkpoint_open(const char* model, const moracle_policy* policy,
                                                   moracle_checkpoint** checkpoint, moracle_error** error);
/* The document of moracle_inspect. Any thread. */
MORACLE_API moracle_status moracle_checkpoint_json(moracle_checkpoint* checkpoint, char** json, moracle_error** error);
MORACLE_API moracle_status moracle_checkpoint_close(moracle_checkpoint* checkpoint);

enum { MORACLE_F32 = 1, MORACLE_BF16 = 2, MORACLE_F16 = 3, MORACLE_INT32 = 4, MORACLE_INT64 = 5 };

typedef struct moracle_experts moracle_experts;
typedef struct moracle_experts_options {
  uint32_t size;
  int32_t tp;      /* ranks that share every expert's intermediate width; 0: 1 */
  int32_t tp_rank; /* of those, this one: from 0 */
  int32_t reserved;
  const int64_t* experts;       /* those that this rank holds, by their number in the layer; null: all */
  uint64_t expert_count;        /* of `experts` */
  const moracle_policy* policy; /* null: the checkpoint's */
  moracle_pool* pool;           /* null: one that all layers of the checkpoint share, of this machine's cores */
} moracle_experts_options;

/* Packs the routed experts of a layer, by its number in the model. Of a slice, outputs of all ranks are to be added.
 * Any thread; layers of one pool are packed in turns. Errors: "experts.layer" of a dense or absent layer, "plan.tp" of
 * a width that cannot be divided so, and those of loading. */
MORACLE_API moracle_status moracle_experts_open(moracle_checkpoint* checkpoint, int64_t layer,
                                                const moracle_experts_options* options, moracle_experts** experts,
                                                moracle_error** error);

typedef struct moracle_experts_info {
  uint32_t size;
  int32_t threads;
  int64_t layer;
  int64_t hidden;
  int64_t intermediate; /* as this rank holds it */
  int64_t experts;      /* of the layer: ids are below it */
  int64_t held;         /* of those, by this rank */
  int64_t top_k;        /* of the model; calls may have another */
  uint64_t bytes;       /* packed */
} moracle_experts_info;
/* Any thread. */
MORACLE_API moracle_status moracle_experts_describe(moracle_experts* experts, moracle_experts_info* info,
                                                    moracle_error** error);
/* The decision for this layer as this rank holds it: an entry of "layers" of moracle_explain. Any thread. */
MORACLE_API moracle_status moracle_experts_decision_json(moracle_experts* experts, char** json, moracle_error** error);
/* Enough for any call of at most so many tokens. Any thread. */
MORACLE_API moracle_status moracle_experts_workspace_bytes(moracle_experts* experts, int64_t tokens, int64_t top_k,
                                                           uint64_t* bytes, moracle_error** error);

/* out[t] = sum over k of weights[t, k] * expert ids[t, k] (x[t]). Ids are numbers in the layer; one that this rank does
 * not hold, or -1, contributes nothing. Strides are in elements from row to row; 0: rows lie side by side. `x` and
 * `out` may be the same rows. */
typedef struct moracle_experts_call {
  uint32_t size;
  int32_t x_dtype;       /* MORACLE_F32, MORACLE_BF16 or MORACLE_F16 */
  int32_t out_dtype;     /* the same */
  int32_t ids_dtype;     /* MORACLE_INT32 or MORACLE_INT64 */
  int32_t weights_dtype; /* as x_dtype */
  int32_t reserved;
  int64_t tokens;
  int64_t top_k;
  const void* x; /* [tokens, hidden] */
  int64_t x_stride;
  const void* ids; /* [tokens, top_k] */
  int64_t ids_stride;
  const void* weights; /* [tokens, top_k] */
  int64_t weights_stride;
  void* out; /* [tokens, hidden]; overwritten */
  int64_t out_stride;
  void* workspace; /* of moracle_experts_workspace_bytes, aligned to 64; null: the pool's own, which grows */
  uint64_t workspace_bytes;
} moracle_experts_call;
/* Any thread; calls on layers of one pool take turns. With a workspace, or after the first call of a size, it allocates
 * nothing. */
MORACLE_API moracle_status moracle_experts_run(moracle_experts* experts, const moracle_experts_call* call,
                                               moracle_error** error);
MORACLE_API moracle_status moracle_experts_close(moracle_experts* experts);

/* All tensors that are no routed expert's, one after the other, decoded. */
typedef struct moracle_dense moracle_dense;
typedef struct moracle_tensor {
  uint32_t size;
  int32_t dtype;
  const char* name; /* as stored; of a quantized linear "<module>.weight" */
  int32_t rank;     /* of dims */
  int32_t reserved;
  int64_t dims[4];
  const void* data; /* row-major; like `name` valid until the next call or the close */
  uint64_t bytes;
} moracle_tensor;
typedef struct moracle_dense_options {
  uint32_t size;
  int32_t dtype;      /* MORACLE_BF16 or MORACLE_F32; 0: MORACLE_BF16 */
  moracle_pool* pool; /* null: one that all layers of the checkpoint share, of this machine's cores */
} moracle_dense_options;
/* `options` may be null. Any thread. Errors: "argument.dtype". */
MORACLE_API moracle_status moracle_dense_open(moracle_checkpoint* checkpoint, const moracle_dense_options* options,
                                              moracle_dense** dense, moracle_error** error);
/* MORACLE_END behind the last. Any thread; calls on one handle take turns, and those of one pool. */
MORACLE_API moracle_status moracle_dense_next(moracle_dense* dense, moracle_tensor* tensor, moracle_error** error);
MORACLE_API moracle_status moracle_dense_close(moracle_dense* dense);

/* ---- The engine ------------------------------------------------------------------------------------------------- */

typedef struct moracle_engine moracle_engine;
typedef struct moracle_engine_options {
  uint32_t size;
  int32_t threads; /* 0: the cores of this machine */
  const moracle_policy* policy;
  moracle_on_progress on_progress; /* bytes of weights; a load ends once it is through; null: none */
  void* context;                   /* of on_progress */
  /* In what numbers keys, values and latents are kept: "f32", "bf16" or "int8"; null: bf16, with backend "ref" f32. */
  const char* kv;
  /* "cpu", or the GPU that computes the model: "cuda:0" and so on; null: "cpu". */
  const char* device;
  /* How the model writes calls of tools, such as "hermes"; null: as its chat template shows. */
  const char* tool_format;
  /* Bytes of the GPU's memory to use at most; 0: what is free less 2 %. The host computes the routed experts of those
   * layers for which there is no room. */
  uint64_t device_memory;
  /* Bytes of this machine's memory to use at most: experts for which there is no room are read from the files when they
   * are chosen. 0: nine tenths of what is free. */
  uint64_t memory;
} moracle_engine_options;

/* Validates, decides, packs; on error nothing stays behind. Any thread. */
MORACLE_API moracle_status moracle_engine_open(const char* model, const moracle_engine_options* options,
                                               moracle_engine** engine, moracle_error** error);
/* {"architecture", "format", "layers", "hidden", "vocabulary", "max_positions", "experts_per_layer",
 * "experts_per_token", "backend", "threads", "load_s", "warnings"}. Any thread. */
MORACLE_API moracle_status moracle_engine_json(moracle_engine* engine, char** json, moracle_error** error);
MORACLE_API moracle_status moracle_engine_close(moracle_engine* engine);

/* Token ids of a prompt, with the tokenizer's own post-processor. `ids` is freed with moracle_free. Any thread. */
MORACLE_API moracle_status moracle_engine_tokenize(moracle_engine* engine, const char* text, uint64_t bytes,
                                                   int32_t** ids, uint64_t* count, moracle_error** error);
/* Text of ids, without special tokens; ends in a zero that `bytes` does not count. An id that the model has beyond its
 * tokenizer's is no text. Any thread. Error: "model.token" of an id that the model lacks. */
MORACLE_API moracle_status moracle_engine_detokenize(moracle_engine* engine, const int32_t* ids, uint64_t count,
                                                     char** text, uint64_t* bytes, moracle_error** error);
/* What the chat template makes of {"messages": [..], "tools": [..], "add_generation_prompt": true,
 * "template_args": {..}}, as text (may be null) and as ids. Arguments of calls in messages may be JSON as text. Any
 * thread. */
MORACLE_API moracle_status moracle_engine_template(moracle_engine* engine, const char* chat_json, char** text,
                                                   int32_t** ids, uint64_t* count, moracle_error** error);

/* Bits of moracle_generate_options.set; what is not set is the publisher's, else off. */
enum {
  MORACLE_SET_TEMPERATURE = 1,
  MORACLE_SET_TOP_K = 2,
  MORACLE_SET_TOP_P = 4,
  MORACLE_SET_MIN_P = 8,
  MORACLE_SET_REPETITION_PENALTY = 16,
  MORACLE_SET_PRESENCE_PENALTY = 32,
  MORACLE_SET_FREQUENCY_PENALTY = 64,
  MORACLE_SET_MAX_TOKENS = 128
};
typedef struct moracle_generate_options {
  uint32_t size;
  uint32_t set;       /* MORACLE_SET_... */
  double temperature; /* 0: greedy */
  double top_p;
  double min_p;
  double repetition_penalty;
  double presence_penalty;
  double frequency_penalty;
  int64_t top_k; /* 0: all */
  int64_t max_tokens;
  int64_t context; /* most tokens of prompt and answer; 0: what the model can hold */
  uint64_t seed;
  int32_t ignore_eos; /* 1: end tokens end nothing */
  int32_t reserved;
  const char* const* stop; /* texts that end the answer, beside the publisher's */
  uint64_t stop_count;
  /* What the answer is held to, as JSON; reasoning before it is free. At most one of both; null: any answer.
   * {"type": "json_object"}, or {"type": "json_schema", "json_schema": {"schema": {..}}}, as OpenAI's API has it. */
  const char* response_format;
  /* One of {"json": {..}}, {"json_object": true}, {"regex": ".."} and {"choice": ["..", ..]}. */
  const char* structured_outputs;
  /* What the answer may call, the JSON list of tools that its template had; null: nothing. Beside a form, an answer
   * calls or has the form. For moracle_engine_generate alone. */
  const char* tools;
  int64_t max_calls; /* that end the answer; 0: as many as the model makes */
  /* Whether the answer calls, as JSON: "auto", "none", "required", or {"type": "function", "function": {"name": ".."}};
   * null: "auto". */
  const char* tool_choice;
} moracle_generate_options;

/* Text as it is settled, never half a character; not zero-terminated. Nonzero ends the answer. */
typedef int32_t (*moracle_on_text)(void* context, const char* text, uint64_t bytes);

/* Generates from `ids` (not empty). `reply` gets {"text", "reasoning", "answer", "prompt_ids", "ids", "finish_reason",
 * "interrupted", "backend", "timing", "peak_rss_bytes", "tool_calls"}; "finish_reason" is "stop", "length" or
 * "tool_calls", and "interrupted" is true where `on_text` ended the answer. "tool_calls" is null, or [{"id", "type":
 * "function", "function": {"name", "arguments"}}], whose arguments are JSON as text; one that is cut is left out.
 * `prompt` is the text of the ids where a template made them, and tells where reasoning begins; null: none. `on_text`
 * may be null; generate, a scheduler's calls and a server's opening on this engine are refused within it
 * ("argument.nested"). Any thread; calls on one engine take turns. An answer that is held to a form is whole where it
 * ends by "stop". A form that cannot be held is the error "schema.*", "regex.*" or "constrain.*", whose `where` is the
 * option with a JSON pointer. */
MORACLE_API moracle_status moracle_engine_generate(moracle_engine* engine, const int32_t* ids, uint64_t count,
                                                   const char* prompt, const moracle_generate_options* options,
                                                   moracle_on_text on_text, void* context, char** reply,
                                                   moracle_error** error);

/* ---- Many requests at once --------------------------------------------------------------------------------------
 * Continuous batching: each step is one forward pass over the next tokens of all running requests. A request gives the
 * same tokens and log-probabilities whatever else runs, as far as the kernels are batch-invariant (moracle_policy). */

typedef struct moracle_scheduler moracle_scheduler;
typedef struct moracle_scheduler_options {
  uint32_t size;
  int32_t share_prefixes;  /* 1: among keys, too: who asks can tell by the time what others asked */
  int32_t no_prefix_reuse; /* 1: no prompt is taken from an earlier one */
  int32_t reserved;
  int64_t context;     /* most tokens of a prompt and its answer; 0: what the model can hold */
  int64_t max_running; /* requests; 0: 32, on a GPU 64 */
  int64_t max_queue;   /* waiting requests; 0: 1024 */
} moracle_scheduler_options;

/* Keeps the engine. Its memory for keys and values is the engine's. Any thread. */
MORACLE_API moracle_status moracle_scheduler_open(moracle_engine* engine, const moracle_scheduler_options* options,
                                                  moracle_scheduler** scheduler, moracle_error** error);
/* Requests that have not ended are dropped untold. */
MORACLE_API moracle_status moracle_scheduler_close(moracle_scheduler* scheduler);

typedef struct moracle_request {
  uint32_t size;
  int32_t logprobs;     /* 1: natural logarithms of the softmax of the raw logits are told */
  int32_t top_logprobs; /* alternatives of each token, 0 to 20 */
  int32_t reserved;
  int64_t min_tokens;                      /* nothing ends the answer before so many */
  int64_t priority;                        /* among the waiting requests of one key: lower first */
  const moracle_generate_options* options; /* its context is 0: the scheduler's counts */
  const char* key;                         /* requests of one key share that key's turns; null: "" */
  const char* salt;                        /* a prefix is reused among requests of one key and salt; null: "" */
  const char* prompt;                      /* as for moracle_engine_generate: of requests that are held to a form */
} moracle_request;
/* Queues a request and tells its number, from 1. Any thread; calls on one engine take turns. Errors: "model.token",
 * "model.context", "scheduler.kv" of what can never run, "scheduler.queue" of a full queue, "sampling.range". */
MORACLE_API moracle_status moracle_scheduler_submit(moracle_scheduler* scheduler, const int32_t* ids, uint64_t count,
                                                    const moracle_request* request, uint64_t* id,
                                                    moracle_error** error);

enum { MORACLE_EVENT_START = 1, MORACLE_EVENT_TOKEN = 2, MORACLE_EVENT_END = 3 };
enum {
  MORACLE_END_STOP = 1,      /* an end token or a stop text */
  MORACLE_END_LENGTH = 2,    /* max_tokens */
  MORACLE_END_CANCELLED = 3, /* by moracle_scheduler_cancel */
  MORACLE_END_ERROR = 4      /* `error` says why */
};
/* Valid during the callback. */
typedef struct moracle_event {
  uint32_t size;
  int32_t kind; /* MORACLE_EVENT_... */
  uint64_t request;
  int32_t token; /* of MORACLE_EVENT_TOKEN: the next of the answer, the one that ends it included */
  int32_t has_logprob;
  double logprob;
  const int32_t* top_ids; /* best first */
  const double* top_logprobs;
  uint64_t top_count;
  const char* text; /* settled by this event, never half a character; not zero-terminated */
  uint64_t bytes;
  int32_t end; /* of MORACLE_EVENT_END: MORACLE_END_... */
  int32_t reserved;
  const moracle_error* error; /* of MORACLE_END_ERROR, else null */
  int64_t prompt_tokens;      /* of MORACLE_EVENT_END */
  int64_t completion_tokens;  /* the same, with the token that ended the answer */
  int64_t cached_tokens;      /* of the prompt, taken from earlier ones; of START and END */
} moracle_event;
/* May submit and cancel, on the same scheduler too; a step on it is refused ("argument.nested"). */
typedef void (*moracle_on_event)(void* context, const moracle_event* event);

/* One step, then what it and the calls before it brought, request by request in order. `more` becomes 1 where another
 * step has something to do. Any thread; calls on one engine take turns, and those on one scheduler until their events
 * are told. */
MORACLE_API moracle_status moracle_scheduler_step(moracle_scheduler* scheduler, moracle_on_event on_event,
                                                  void* context, int32_t* more, moracle_error** error);
/* Ends a request and frees what it holds; its MORACLE_EVENT_END comes with the next step. `found` (may be null) becomes
 * 0 where no such request waits or runs. Any thread; calls on one engine take turns. */
MORACLE_API moracle_status moracle_scheduler_cancel(moracle_scheduler* scheduler, uint64_t id, int32_t* found,
                                                    moracle_error** error);

/* ---- The server ------------------------------------------------------------------------------------------------- */

/* What `moracle serve` serves: OpenAI's API over HTTP, on threads of the library. */
typedef struct moracle_server moracle_server;
typedef struct moracle_server_options {
  uint32_t size;
  int32_t port;               /* 0: any that is free, which moracle_server_json tells */
  const char* listen;         /* an IP address, "localhost" or "unix:PATH"; null: 127.0.0.1 */
  const char* const* names;   /* that requests may give as model; none: the folder's */
  uint64_t name_count;        /* of `names` */
  const char* const* keys;    /* "name:key" each, one of which a request has to bear; none: it needs none */
  uint64_t key_count;         /* of `keys` */
  const char* const* hosts;   /* host names that requests may come by, beside loopback; "*": any */
  uint64_t host_count;        /* of `hosts` */
  const char* const* origins; /* whose pages may ask, "https://chat.example" */
  uint64_t origin_count;      /* of `origins` */
  int32_t everybody;          /* 1: may ask without a key, also at an address that others reach */
  int32_t any_model;          /* 1: requests are served whatever model they name */
  int32_t strict;             /* 1: unknown fields are refused */
  int32_t reserved;
  double drain_s; /* for replies that are under way at the end; 0: 30; below 0: none */
  const moracle_scheduler_options* scheduler;
} moracle_server_options;

/* Serves once it returns, and keeps the engine. Its steps take turns with other calls on the engine: a long answer of
 * moracle_engine_generate holds replies up. Any thread. Errors: "server.listen" of a port that is taken,
 * "server.address", "access.open" of an address that others reach without keys, "access.keys", "server.absent" of a
 * library that was built without Boost. */
MORACLE_API moracle_status moracle_server_open(moracle_engine* engine, const moracle_server_options* options,
                                               moracle_server** server, moracle_error** error);
/* {"address", "names", "batch_invariant"}; the address is "http://127.0.0.1:8080" or "unix:PATH". Any thread. */
MORACLE_API moracle_status moracle_server_json(moracle_server* server, char** json, moracle_error** error);
/* Refuses what is new, and ends once replies that are under way are told, or after drain_s; a second call ends it now.
 * Returns at once. Any thread. */
MORACLE_API moracle_status moracle_server_stop(moracle_server* server, moracle_error** error);
/* Waits for the end, so many seconds; below 0: as long as it takes. `ended` becomes 1 where it has ended; the error is
 * the one that ended it. Any thread. */
MORACLE_API moracle_status moracle_server_wait(moracle_server* server, double seconds, int32_t* ended,
                                               moracle_error** error);
/* Ends it now, and returns when nothing listens any more. From a callback of a call on its engine: MORACLE_INVALID. */
MORACLE_API moracle_status moracle_server_close(moracle_server* server);

#ifdef __cplusplus
}
#endif

#endif /* MORACLE_MORACLE_H_ */
