// Moracle's C++20 interface: moracle.h with owners, spans and values. Header only; link libmoracle.
//
//   auto engine = moracle::Engine::open("./Qwen3-30B-A3B-GPTQ-Int4");
//   if (!engine) { std::cerr << engine.error().message << "\n"; return 1; }
//   auto reply = engine->generate("The purpose of a package manager is to", {.max_tokens = 64},
//                                 [](std::string_view piece) { std::cout << piece; return true; });
//
// Nothing here throws but what the standard library throws. Thread rules are those of moracle.h.
#pragma once

#include <moracle/moracle.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moracle {

struct Error {
  moracle_status status = MORACLE_FAILED;
  std::string code{}, file{}, where{}, wanted{}, found{}, advice{}, message{};
};

// A value, or why there is none.
template <class T>
class Expected {
 public:
  Expected(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Expected(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)
  [[nodiscard]] explicit operator bool() const { return state_.index() == 0; }
  [[nodiscard]] T& operator*() { return *std::get_if<0>(&state_); }
  [[nodiscard]] const T& operator*() const { return *std::get_if<0>(&state_); }
  [[nodiscard]] T* operator->() { return std::get_if<0>(&state_); }
  [[nodiscard]] const T* operator->() const { return std::get_if<0>(&state_); }
  [[nodiscard]] const Error& error() const { return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

struct Policy {
  bool fast = false;             // kernels may quantize activations further than published
  bool batch_invariant = false;  // only kernels with one order of summation for every batch
  std::string backend{};         // must serve; empty: the oracle's choice
  std::string preferred{};       // may fall back; empty: none
};

namespace detail {

inline Error take(moracle_error* error) {
  Error copy{.status = error->status,
             .code = error->code,
             .file = error->file,
             .where = error->where,
             .wanted = error->wanted,
             .found = error->found,
             .advice = error->advice,
             .message = error->message};
  moracle_error_free(error);
  return copy;
}

// call(char** text, moracle_error** error) as text that is owned.
template <class Call>
Expected<std::string> text_of(const Call& call) {
  char* text = nullptr;
  moracle_error* error = nullptr;
  if (call(&text, &error) != MORACLE_OK) return take(error);
  const std::unique_ptr<char, void (*)(void*)> owner(text, moracle_free);
  return std::string(text);
}

// What a callback throws must not cross the library: the work ends, and the exception goes on behind it.
struct ProgressCall {
  const std::function<bool(std::uint64_t, std::uint64_t)>& on_progress;
  std::exception_ptr thrown{};

  [[nodiscard]] moracle_on_progress function() const { return on_progress ? &forward : nullptr; }
  void rethrow() const {
    if (thrown) std::rethrow_exception(thrown);
  }
  static std::int32_t forward(void* context, std::uint64_t done, std::uint64_t total) {
    auto& to = *static_cast<ProgressCall*>(context);
    try {
      return !to.thrown && to.on_progress(done, total) ? 0 : 1;
    } catch (...) {
      to.thrown = std::current_exception();
      return 1;
    }
  }
};

// What moracle.h wants, for as long as `policy` lives.
struct CPolicy {
  explicit CPolicy(const Policy& policy)
      : value{.size = sizeof(moracle_policy),
              .numerics = policy.fast ? MORACLE_FAST : MORACLE_EXACT,
              .batch_invariant = policy.batch_invariant ? 1 : 0,
              .reserved = 0,
              .backend = policy.backend.empty() ? nullptr : policy.backend.c_str(),
              .preferred = policy.preferred.empty() ? nullptr : policy.preferred.c_str()} {}
  moracle_policy value;
};

template <class T, moracle_status (*close)(T*)>
class Handle {
 public:
  explicit Handle(T* handle) : handle_(handle) {}
  [[nodiscard]] T* get() const { return handle_.get(); }

 private:
  struct Close {
    void operator()(T* handle) const { close(handle); }
  };
  std::unique_ptr<T, Close> handle_;
};

}  // namespace detail

// Work done and work in all; false ends the call. May come from another thread.
using OnProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

// ---- Questions: the documents of the commands of these names with --json -------------------------------------------

inline Expected<std::string> inspect(const std::string& model) {
  return detail::text_of(
      [&](char** json, moracle_error** error) { return moracle_inspect(model.c_str(), json, error); });
}

inline Expected<std::string> explain(const std::string& model, const std::string& device = "cpu",
                                     const Policy& policy = {}) {
  const detail::CPolicy how(policy);
  moracle_explain_options options{};
  options.size = sizeof options;
  options.device = device.c_str();
  options.policy = &how.value;
  return detail::text_of(
      [&](char** json, moracle_error** error) { return moracle_explain(model.c_str(), &options, json, error); });
}

// The answer to a line of `moracle explain --requests`: what vLLM's oracle chooses.
inline Expected<std::string> explain_vllm(const std::string& request) {
  return detail::text_of(
      [&](char** json, moracle_error** error) { return moracle_explain_vllm(request.c_str(), json, error); });
}

struct PlanQuestion {
  std::string device = "cpu";
  int tp = 1;
  int ep = 1;
  std::int64_t context = 0;  // 0: 4096, or the model's limit where that is less
  Policy policy{};
  std::string kv{};  // "f32", "bf16", "int8"; empty: bf16, with backend "ref" f32
};
inline Expected<std::string> plan(const std::string& model, const PlanQuestion& question = {}) {
  const detail::CPolicy how(question.policy);
  moracle_plan_options options{};
  options.size = sizeof options;
  options.tp = question.tp;
  options.ep = question.ep;
  options.context = question.context;
  options.device = question.device.c_str();
  options.policy = &how.value;
  if (!question.kv.empty()) options.kv = question.kv.c_str();
  return detail::text_of(
      [&](char** json, moracle_error** error) { return moracle_plan(model.c_str(), &options, json, error); });
}

struct VerifyQuestion {
  int threads = 0;          // 0: the cores of this machine
  std::int64_t tokens = 0;  // of each layer; 0: 32
  Policy policy{};
  std::string layout{};  // pack in another device's layout and run the packed bytes here; empty: none
  std::string device{};  // "cuda:0" and so on, which computes the experts; empty: "cpu"
  OnProgress on_progress{};
};
inline Expected<std::string> verify(const std::string& model, const VerifyQuestion& question = {}) {
  const detail::CPolicy how(question.policy);
  moracle_verify_options options{};
  options.size = sizeof options;
  options.threads = question.threads;
  options.tokens = question.tokens;
  options.policy = &how.value;
  if (!question.layout.empty()) options.layout = question.layout.c_str();
  if (!question.device.empty()) options.device = question.device.c_str();
  detail::ProgressCall progress{.on_progress = question.on_progress};
  options.on_progress = progress.function();
  options.context = &progress;
  auto answer = detail::text_of(
      [&](char** json, moracle_error** error) { return moracle_verify(model.c_str(), &options, json, error); });
  progress.rethrow();
  return answer;
}

// ---- One layer -----------------------------------------------------------------------------------------------------

struct PoolOptions {
  int threads = 0;                   // the calling one among them; 0: one for each of `cpus`, or for each core
  std::vector<std::int32_t> cpus{};  // thread i > 0 runs on cpus[i]; empty: free
  const moracle_executor* executor = nullptr;  // the host's threads, and none of our own
};

// Threads that layers share.
class Pool {
 public:
  static Expected<Pool> open(const PoolOptions& options = {}) {
    moracle_pool_options how{};
    how.size = sizeof how;
    how.threads = options.threads;
    how.cpus = options.cpus.empty() ? nullptr : options.cpus.data();
    how.cpu_count = options.cpus.size();
    how.executor = options.executor;
    moracle_pool* handle = nullptr;
    moracle_error* error = nullptr;
    if (moracle_pool_open(&how, &handle, &error) != MORACLE_OK) return detail::take(error);
    return Pool(handle);
  }
  [[nodiscard]] moracle_pool* handle() const { return handle_.get(); }

 private:
  explicit Pool(moracle_pool* handle) : handle_(handle) {}
  detail::Handle<moracle_pool, moracle_pool_close> handle_;
};

struct Slice {
  int tp = 1;
  int tp_rank = 0;
  std::vector<std::int64_t> experts{};  // numbers in the layer; empty: all
};

class Experts {
 public:
  [[nodiscard]] moracle_experts* handle() const { return handle_.get(); }
  [[nodiscard]] Expected<moracle_experts_info> info() const {
    moracle_experts_info info{};
    info.size = sizeof info;
    moracle_error* error = nullptr;
    if (moracle_experts_describe(handle(), &info, &error) != MORACLE_OK) return detail::take(error);
    return info;
  }
  [[nodiscard]] Expected<std::string> decision_json() const {
    return detail::text_of(
        [&](char** json, moracle_error** error) { return moracle_experts_decision_json(handle(), json, error); });
  }
  // Enough for any call of at most so many tokens.
  [[nodiscard]] Expected<std::uint64_t> workspace_bytes(std::int64_t tokens, std::int64_t top_k) const {
    std::uint64_t bytes = 0;
    moracle_error* error = nullptr;
    if (moracle_experts_workspace_bytes(handle(), tokens, top_k, &bytes, &error) != MORACLE_OK)
      return detail::take(error);
    return bytes;
  }
  // x and out [tokens, hidden], ids and weights [tokens, top_k]; a span of another size is the error "argument.shape".
  // Other types and strides: the run below.
  std::optional<Error> run(std::int64_t tokens, std::int64_t top_k, std::span<const float> x,
                           std::span<const std::int32_t> ids, std::span<const float> weights,
                           std::span<float> out) const {
    const auto held = info();
    if (!held) return held.error();
    if (auto wrong = check_size("x", x.size(), tokens, held->hidden)) return wrong;
    if (auto wrong = check_size("out", out.size(), tokens, held->hidden)) return wrong;
    if (auto wrong = check_size("ids", ids.size(), tokens, top_k)) return wrong;
    if (auto wrong = check_size("weights", weights.size(), tokens, top_k)) return wrong;
    moracle_experts_call call{};
    call.size = sizeof call;
    call.x_dtype = call.out_dtype = call.weights_dtype = MORACLE_F32;
    call.ids_dtype = MORACLE_INT32;
    call.tokens = tokens;
    call.top_k = top_k;
    call.x = x.data();
    call.ids = ids.data();
    call.weights = weights.data();
    call.out = out.data();
    return run(call);
  }
  std::optional<Error> run(const moracle_experts_call& call) const {
    moracle_error* error = nullptr;
    if (moracle_experts_run(handle(), &call, &error) == MORACLE_OK) return std::nullopt;
    return detail::take(error);
  }

 private:
  friend class Checkpoint;
  explicit Experts(moracle_experts* handle) : handle_(handle) {}
  static std::optional<Error> check_size(const char* where, std::size_t found, std::int64_t rows, std::int64_t cols) {
    const auto wanted_rows = static_cast<std::uint64_t>(rows), wanted_cols = static_cast<std::uint64_t>(cols);
    if (rows >= 0 && cols > 0 && found % wanted_cols == 0 && found / wanted_cols == wanted_rows) return std::nullopt;
    Error error{.status = MORACLE_INVALID, .code = "argument.shape"};
    error.where = where;
    error.wanted = "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
    error.found = std::to_string(found) + " numbers";
    error.message = error.where + ": wanted " + error.wanted + ", found " + error.found + " [argument.shape]";
    return error;
  }
  detail::Handle<moracle_experts, moracle_experts_close> handle_;
};

class Checkpoint {
 public:
  static Expected<Checkpoint> open(const std::string& model, const Policy& policy = {}) {
    const detail::CPolicy how(policy);
    moracle_checkpoint* handle = nullptr;
    moracle_error* error = nullptr;
    if (moracle_checkpoint_open(model.c_str(), &how.value, &handle, &error) != MORACLE_OK) return detail::take(error);
    return Checkpoint(handle);
  }
  [[nodiscard]] moracle_checkpoint* handle() const { return handle_.get(); }
  [[nodiscard]] Expected<std::string> inspect() const {
    return detail::text_of(
        [&](char** json, moracle_error** error) { return moracle_checkpoint_json(handle(), json, error); });
  }
  [[nodiscard]] Expected<Experts> experts(std::int64_t layer, const Slice& slice = {},
                                          const std::optional<Policy>& policy = {},
                                          moracle_pool* pool = nullptr) const {
    const detail::CPolicy how(policy.value_or(Policy{}));
    moracle_experts_options options{};
    options.size = sizeof options;
    options.tp = slice.tp;
    options.tp_rank = slice.tp_rank;
    options.experts = slice.experts.empty() ? nullptr : slice.experts.data();
    options.expert_count = slice.experts.size();
    options.policy = policy ? &how.value : nullptr;
    options.pool = pool;
    moracle_experts* experts = nullptr;
    moracle_error* error = nullptr;
    if (moracle_experts_open(handle(), layer, &options, &experts, &error) != MORACLE_OK) return detail::take(error);
    return Experts(experts);
  }
  // visit(const moracle_tensor&) for each tensor that is no routed expert's; false ends the walk.
  template <class Visit>
  std::optional<Error> dense(std::int32_t dtype, const Visit& visit, moracle_pool* pool = nullptr) const {
    moracle_dense_options options{};
    options.size = sizeof options;
    options.dtype = dtype;
    options.pool = pool;
    moracle_dense* walk = nullptr;
    moracle_error* error = nullptr;
    if (moracle_dense_open(handle(), &options, &walk, &error) != MORACLE_OK) return detail::take(error);
    const detail::Handle<moracle_dense, moracle_dense_close> owner(walk);
    for (;;) {
      moracle_tensor tensor{};
      tensor.size = sizeof tensor;
      const moracle_status status = moracle_dense_next(walk, &tensor, &error);
      if (status == MORACLE_END) return std::nullopt;
      if (status != MORACLE_OK) return detail::take(error);
      if (!visit(std::as_const(tensor))) return std::nullopt;
    }
  }

 private:
  explicit Checkpoint(moracle_checkpoint* handle) : handle_(handle) {}
  detail::Handle<moracle_checkpoint, moracle_checkpoint_close> handle_;
};

// ---- The engine ----------------------------------------------------------------------------------------------------

// What is empty is the publisher's, else off.
struct GenerateOptions {
  std::optional<std::int64_t> max_tokens{};
  std::optional<double> temperature{};
  std::optional<std::int64_t> top_k{};
  std::optional<double> top_p{};
  std::optional<double> min_p{};
  std::uint64_t seed = 0;
  bool ignore_eos = false;
  std::vector<std::string> stop{};
  std::optional<double> repetition_penalty{};
  std::optional<double> presence_penalty{};
  std::optional<double> frequency_penalty{};
  std::int64_t context = 0;  // most tokens of prompt and answer; 0: what the model can hold
  // What the answer is held to, JSON as moracle.h has it; at most one of both.
  std::string response_format{};
  std::string structured_outputs{};
  std::string tools{};         // that the answer may call, the JSON list that its template had; empty: none
  std::int64_t max_calls = 0;  // that end the answer; 0: no bound
  std::string tool_choice{};   // whether the answer calls, JSON as moracle.h has it; empty: "auto"
};

namespace detail {

// The C struct of options; refers to their texts.
struct CGenerateOptions {
  explicit CGenerateOptions(const GenerateOptions& options) {
    for (const std::string& stop : options.stop) stops.push_back(stop.c_str());
    value.size = sizeof value;
    set(MORACLE_SET_MAX_TOKENS, value.max_tokens, options.max_tokens);
    set(MORACLE_SET_TEMPERATURE, value.temperature, options.temperature);
    set(MORACLE_SET_TOP_K, value.top_k, options.top_k);
    set(MORACLE_SET_TOP_P, value.top_p, options.top_p);
    set(MORACLE_SET_MIN_P, value.min_p, options.min_p);
    set(MORACLE_SET_REPETITION_PENALTY, value.repetition_penalty, options.repetition_penalty);
    set(MORACLE_SET_PRESENCE_PENALTY, value.presence_penalty, options.presence_penalty);
    set(MORACLE_SET_FREQUENCY_PENALTY, value.frequency_penalty, options.frequency_penalty);
    value.context = options.context;
    value.seed = options.seed;
    value.ignore_eos = options.ignore_eos ? 1 : 0;
    value.stop = stops.data();
    value.stop_count = stops.size();
    if (!options.response_format.empty()) value.response_format = options.response_format.c_str();
    if (!options.structured_outputs.empty()) value.structured_outputs = options.structured_outputs.c_str();
    if (!options.tools.empty()) value.tools = options.tools.c_str();
    value.max_calls = options.max_calls;
    if (!options.tool_choice.empty()) value.tool_choice = options.tool_choice.c_str();
  }
  CGenerateOptions(const CGenerateOptions&) = delete;
  CGenerateOptions& operator=(const CGenerateOptions&) = delete;

  moracle_generate_options value{};

 private:
  template <class To, class From>
  void set(std::uint32_t bit, To& to, const From& from) {
    if (!from) return;
    to = *from;
    value.set |= bit;
  }
  std::vector<const char*> stops{};
};

}  // namespace detail

struct Prompt {
  std::string text{};
  std::vector<std::int32_t> ids{};
};

struct ServeOptions {
  std::string listen = "127.0.0.1";  // an IP address, "localhost" or "unix:PATH"
  int port = 8080;                   // 0: any that is free
  std::vector<std::string> names{};  // that requests may give as model; empty: the folder's
  std::vector<std::string> keys{};   // "name:key" each; empty: requests need none
  std::vector<std::string> hosts{};  // host names that requests may come by, beside loopback
  std::vector<std::string> origins{};
  bool everybody = false;  // may ask without a key, also at an address that others reach
  bool any_model = false;
  bool strict = false;
  double drain_s = 0;  // for replies under way at the end; 0: 30; below 0: none
  moracle_scheduler_options scheduler{};
};

// A server that serves; the end of the object ends it now.
class Server {
 public:
  [[nodiscard]] moracle_server* handle() const { return handle_.get(); }
  // {"address", "names", "batch_invariant"}
  [[nodiscard]] Expected<std::string> describe() const {
    return detail::text_of(
        [&](char** json, moracle_error** error) { return moracle_server_json(handle(), json, error); });
  }
  // Lets what is under way finish; a second call ends it now.
  std::optional<Error> stop() const {
    moracle_error* error = nullptr;
    if (moracle_server_stop(handle(), &error) == MORACLE_OK) return std::nullopt;
    return detail::take(error);
  }
  // Whether it has ended within so many seconds; below 0: as long as it takes.
  [[nodiscard]] Expected<bool> wait(double seconds = -1) const {
    std::int32_t ended = 0;
    moracle_error* error = nullptr;
    if (moracle_server_wait(handle(), seconds, &ended, &error) != MORACLE_OK) return detail::take(error);
    return ended != 0;
  }

 private:
  friend class Engine;
  explicit Server(moracle_server* handle) : handle_(handle) {}
  detail::Handle<moracle_server, moracle_server_close> handle_;
};

class Engine {
 public:
  // `kv`: in what numbers keys, values and latents are kept, as in PlanQuestion. `device`: "cuda:0" and so on, the GPU
  // that computes the model. `on_progress` gets bytes of weights. `tool_format`: how the model writes calls of tools;
  // empty: as its template shows. `device_memory`: bytes of the GPU's memory to use at most; 0: what is free less 2 %.
  // `memory`: of this machine's, where experts for which there is no room are read from the files when they are chosen;
  // 0: nine tenths of what is free.
  static Expected<Engine> open(const std::string& model, int threads = 0, const Policy& policy = {},
                               const std::string& kv = {}, const std::string& device = "cpu",
                               const OnProgress& on_progress = {}, const std::string& tool_format = {},
                               std::uint64_t device_memory = 0, std::uint64_t memory = 0) {
    const detail::CPolicy how(policy);
    moracle_engine_options options{};
    options.size = sizeof options;
    options.threads = threads;
    options.policy = &how.value;
    if (!kv.empty()) options.kv = kv.c_str();
    options.device = device.c_str();
    if (!tool_format.empty()) options.tool_format = tool_format.c_str();
    options.device_memory = device_memory;
    options.memory = memory;
    detail::ProgressCall progress{.on_progress = on_progress};
    options.on_progress = progress.function();
    options.context = &progress;
    moracle_engine* handle = nullptr;
    moracle_error* error = nullptr;
    const moracle_status status = moracle_engine_open(model.c_str(), &options, &handle, &error);
    Expected<Engine> opened =
        status == MORACLE_OK ? Expected<Engine>(Engine(handle)) : Expected<Engine>(detail::take(error));
    progress.rethrow();
    return opened;
  }
  [[nodiscard]] moracle_engine* handle() const { return handle_.get(); }
  // {"architecture", "format", "layers", "hidden", "vocabulary", "max_positions", "experts_per_layer",
  // "experts_per_token", "backend", "threads", "load_s", "warnings"}
  [[nodiscard]] Expected<std::string> describe() const {
    return detail::text_of(
        [&](char** json, moracle_error** error) { return moracle_engine_json(handle(), json, error); });
  }
  // Text of ids, without special tokens. Error: "model.token" of an id that the model lacks.
  [[nodiscard]] Expected<std::string> detokenize(std::span<const std::int32_t> ids) const {
    char* text = nullptr;
    std::uint64_t bytes = 0;
    moracle_error* error = nullptr;
    if (moracle_engine_detokenize(handle(), ids.data(), ids.size(), &text, &bytes, &error) != MORACLE_OK)
      return detail::take(error);
    const std::unique_ptr<char, void (*)(void*)> owner(text, moracle_free);
    return std::string(text, static_cast<std::size_t>(bytes));
  }

  [[nodiscard]] Expected<Prompt> tokenize(std::string_view text) const {
    return prompt_of(std::string(text), [&](char**, std::int32_t** ids, std::uint64_t* count, moracle_error** error) {
      return moracle_engine_tokenize(handle(), text.data(), text.size(), ids, count, error);
    });
  }
  // {"messages": [..], "tools": [..], ...} by the model's chat template.
  [[nodiscard]] Expected<Prompt> chat(const std::string& chat_json) const {
    return prompt_of("", [&](char** text, std::int32_t** ids, std::uint64_t* count, moracle_error** error) {
      return moracle_engine_template(handle(), chat_json.c_str(), text, ids, count, error);
    });
  }
  // The document of `moracle run --json`. `on_text` gets text as it is settled and returns false to stop; it may be
  // empty.
  Expected<std::string> generate(const Prompt& prompt, const GenerateOptions& options = {},
                                 const std::function<bool(std::string_view)>& on_text = {}) const {
    const detail::CGenerateOptions how(options);
    // What the callback throws must not cross the library: it ends the answer, and goes on here.
    struct Caller {
      const std::function<bool(std::string_view)>& on_text;
      std::exception_ptr thrown{};
    } caller{on_text};
    const moracle_on_text forward = [](void* context, const char* text, std::uint64_t bytes) -> std::int32_t {
      auto& to = *static_cast<Caller*>(context);
      try {
        return to.on_text({text, static_cast<std::size_t>(bytes)}) ? 0 : 1;
      } catch (...) {
        to.thrown = std::current_exception();
        return 1;
      }
    };
    auto reply = detail::text_of([&](char** json, moracle_error** error) {
      return moracle_engine_generate(handle(), prompt.ids.data(), prompt.ids.size(), prompt.text.c_str(), &how.value,
                                     on_text ? forward : nullptr, &caller, json, error);
    });
    if (caller.thrown) std::rethrow_exception(caller.thrown);
    return reply;
  }
  Expected<std::string> generate(std::string_view text, const GenerateOptions& options = {},
                                 const std::function<bool(std::string_view)>& on_text = {}) const {
    auto prompt = tokenize(text);
    if (!prompt) return prompt.error();
    return generate(*prompt, options, on_text);
  }

  // What `moracle serve` serves, on threads of the library.
  [[nodiscard]] Expected<Server> serve(const ServeOptions& options = {}) const {
    const auto texts = [](const std::vector<std::string>& list) {
      std::vector<const char*> made;
      for (const std::string& text : list) made.push_back(text.c_str());
      return made;
    };
    const auto names = texts(options.names), keys = texts(options.keys), hosts = texts(options.hosts),
               origins = texts(options.origins);
    moracle_scheduler_options scheduler = options.scheduler;
    scheduler.size = sizeof scheduler;
    moracle_server_options how{};
    how.size = sizeof how;
    how.port = options.port;
    how.listen = options.listen.c_str();
    how.names = names.data();
    how.name_count = names.size();
    how.keys = keys.data();
    how.key_count = keys.size();
    how.hosts = hosts.data();
    how.host_count = hosts.size();
    how.origins = origins.data();
    how.origin_count = origins.size();
    how.everybody = options.everybody ? 1 : 0;
    how.any_model = options.any_model ? 1 : 0;
    how.strict = options.strict ? 1 : 0;
    how.drain_s = options.drain_s;
    how.scheduler = &scheduler;
    moracle_server* server = nullptr;
    moracle_error* error = nullptr;
    if (moracle_server_open(handle(), &how, &server, &error) != MORACLE_OK) return detail::take(error);
    return Server(server);
  }

 private:
  explicit Engine(moracle_engine* handle) : handle_(handle) {}

  template <class Call>
  static Expected<Prompt> prompt_of(std::string usual, const Call& call) {
    char* text = nullptr;
    std::int32_t* ids = nullptr;
    std::uint64_t count = 0;
    moracle_error* error = nullptr;
    if (call(&text, &ids, &count, &error) != MORACLE_OK) return detail::take(error);
    const std::unique_ptr<void, void (*)(void*)> text_owner(text, moracle_free);
    const std::unique_ptr<void, void (*)(void*)> ids_owner(ids, moracle_free);
    return Prompt{.text = text == nullptr ? std::move(usual) : std::string(text), .ids = {ids, ids + count}};
  }

  detail::Handle<moracle_engine, moracle_engine_close> handle_;
};

// ---- Many requests at once -----------------------------------------------------------------------------------------

struct RequestOptions {
  GenerateOptions generate{};
  std::optional<std::int32_t> logprobs{};  // wanted, with so many alternatives of each token
  std::int64_t min_tokens = 0;
  std::int64_t priority = 0;
  std::string key{};
  std::string salt{};
  std::string prompt{};  // the text of the ids, of requests that are held to a form
};

// What a request is told is moracle.h's moracle_event.
class Scheduler {
 public:
  static Expected<Scheduler> open(const Engine& engine, moracle_scheduler_options options = {}) {
    options.size = sizeof options;
    moracle_scheduler* handle = nullptr;
    moracle_error* error = nullptr;
    if (moracle_scheduler_open(engine.handle(), &options, &handle, &error) != MORACLE_OK) return detail::take(error);
    return Scheduler(handle);
  }
  [[nodiscard]] moracle_scheduler* handle() const { return handle_.get(); }

  // The number of the request.
  [[nodiscard]] Expected<std::uint64_t> submit(std::span<const std::int32_t> ids,
                                               const RequestOptions& options = {}) const {
    const detail::CGenerateOptions how(options.generate);
    moracle_request request{};
    request.size = sizeof request;
    request.logprobs = options.logprobs ? 1 : 0;
    request.top_logprobs = options.logprobs.value_or(0);
    request.min_tokens = options.min_tokens;
    request.priority = options.priority;
    request.options = &how.value;
    request.key = options.key.c_str();
    request.salt = options.salt.c_str();
    request.prompt = options.prompt.c_str();
    std::uint64_t id = 0;
    moracle_error* error = nullptr;
    if (moracle_scheduler_submit(handle(), ids.data(), ids.size(), &request, &id, &error) != MORACLE_OK)
      return detail::take(error);
    return id;
  }
  // One step; whether there is more to do. What on_event throws goes on here, when all events of the step are told.
  Expected<bool> step(const std::function<void(const moracle_event&)>& on_event) const {
    struct Caller {
      const std::function<void(const moracle_event&)>& on_event;
      std::exception_ptr thrown{};
    } caller{on_event};
    const moracle_on_event forward = [](void* context, const moracle_event* event) {
      auto& to = *static_cast<Caller*>(context);
      try {
        to.on_event(*event);
      } catch (...) {
        to.thrown = std::current_exception();
      }
    };
    std::int32_t more = 0;
    moracle_error* error = nullptr;
    if (moracle_scheduler_step(handle(), forward, &caller, &more, &error) != MORACLE_OK) return detail::take(error);
    if (caller.thrown) std::rethrow_exception(caller.thrown);
    return more != 0;
  }
  // Whether such a request waited or ran.
  [[nodiscard]] Expected<bool> cancel(std::uint64_t id) const {
    std::int32_t found = 0;
    moracle_error* error = nullptr;
    if (moracle_scheduler_cancel(handle(), id, &found, &error) != MORACLE_OK) return detail::take(error);
    return found != 0;
  }

 private:
  explicit Scheduler(moracle_scheduler* handle) : handle_(handle) {}
  detail::Handle<moracle_scheduler, moracle_scheduler_close> handle_;
};

}  // namespace moracle
