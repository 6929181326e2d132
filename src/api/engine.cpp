// The C interface of the engine.
#include "api/engine.h"

#include <array>

#include "api/documents.h"
#include "api/output.h"
#include "base/printable.h"
#include "base/random/mix64.h"
#include "device/place.h"
#include "model/load/explain_plan.h"
#include "text/reply/tool_list.h"
#include "text/template/chat_fit.h"
#include "text/template/chat_templates.h"

namespace moracle::api {

namespace {

constexpr int kMaxThreads = 1024;
constexpr std::int64_t kMaxTokens = INT32_MAX;
constexpr std::uint64_t kMaxText = std::uint64_t{1} << 30;
constexpr std::uint64_t kMostStops = 1024;

Result<std::shared_ptr<OpenEngine>> open(const std::string& folder, const moracle_engine_options* given) {
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  if (options.threads < 0 || options.threads > kMaxThreads)
    return wrong_argument("range", "options.threads", "0 to 1024", std::to_string(options.threads));
  SessionOptions session;
  session.folder = folder;
  MORACLE_ASSIGN(const std::string device, read_device(options.device));
  if (options.device_memory > 0 && !names_device(device))
    return wrong_argument("value", "options.device_memory", "a GPU as options.device, as \"cuda:0\"", device);
  MORACLE_ASSIGN(Place place, place_of_work(device, "options.device", options.device_memory));
  const Machine machine = place.machine();
  session.machine = std::move(place.host);
  session.device = std::move(place.device);
  MORACLE_ASSIGN(session.policy, read_policy(options.policy));
  MORACLE_ASSIGN(session.kv, read_kv(options.kv));
  session.threads = options.threads;
  session.memory = options.memory;
  if (options.tool_format != nullptr) {
    MORACLE_ASSIGN(const std::string format, read_text(options.tool_format, "options.tool_format"));
    session.call_syntax = find_call_syntax(format);
    if (session.call_syntax == nullptr)
      return wrong_argument("name", "options.tool_format", call_syntax_names(), in_quotes(format));
  }
  Json decision;
  session.on_plan = [&](const LoadPlan& plan) { decision = explain_plan_json(plan, machine); };
  bool stopped = false;
  if (options.on_progress != nullptr) {
    session.on_progress = [&](const LoadProgress& progress) {
      stopped = options.on_progress(options.context, progress.bytes_done, progress.bytes_total) != 0;
      return !stopped;
    };
  }
  auto opened = Session::open(session);
  if (stopped) return Error{.code = "call.interrupted", .where = "open", .found = "on_progress asked to stop"};
  if (!opened.ok()) return std::move(opened).error();
  return std::make_shared<OpenEngine>(std::move(opened).value(), session.policy, std::move(decision));
}

Json engine_json(Session& session) {
  const ModelInfo& info = session.info();
  return {{"architecture", info.architecture},
          {"format", info.format},
          {"layers", info.layers},
          {"hidden", info.hidden_size},
          {"vocabulary", info.vocab_size},
          {"max_positions", info.max_context},
          {"experts_per_layer", info.experts},
          {"experts_per_token", info.experts_per_token},
          {"backend", session.backends()},
          {"threads", session.pool().threads()},
          {"load_s", session.load_seconds()},
          {"warnings", session.warnings()}};
}

Result<ChatRequest> read_chat(const char* text) {
  MORACLE_ASSIGN(const std::string json, read_text(text, "chat_json"));
  MORACLE_ASSIGN(const OrderedJson chat, parse_ordered_json(json, "chat_json"));
  const auto wrong = [](const char* key, const char* wanted) {
    return Error{.code = "chat.type", .where = std::string("/") + key, .wanted = wanted, .found = "another value"};
  };
  ChatRequest request;
  if (!chat.is_object()) return wrong("", "an object with messages");
  for (const auto& [key, value] : chat.items()) {
    if (key == "messages") {
      if (!value.is_array()) return wrong("messages", "a list");
      request.messages = value;
      open_arguments(request.messages);
    } else if (key == "tools") {
      if (!value.is_array() && !value.is_null()) return wrong("tools", "a list, or null");
      auto checked = read_tool_list(value);
      request.tools = checked.ok() ? *std::move(checked) : value;  // templates take other shapes, too
    } else if (key == "template_args") {
      if (!value.is_object()) return wrong("template_args", "an object");
      request.variables = value;
    } else if (key == "add_generation_prompt") {
      if (!value.is_boolean()) return wrong("add_generation_prompt", "true or false");
      request.add_generation_prompt = value.get<bool>();
    } else {
      return Error{.code = "chat.key",
                   .wanted = "messages, tools, template_args or add_generation_prompt",
                   .found = in_quotes(key)};
    }
  }
  return request;
}

// A sampling field as C has it.
struct CSamplingField {
  std::uint32_t bit;  // of moracle_generate_options.set
  void (*take)(const moracle_generate_options& from, SamplingChoice& to);
};

template <auto kFrom, auto kTo>
void take(const moracle_generate_options& from, SamplingChoice& to) {
  to.set(kTo, from.*kFrom);
}

using COptions = moracle_generate_options;
constexpr std::array kCSamplingFields = {
    CSamplingField{MORACLE_SET_TEMPERATURE, take<&COptions::temperature, &SamplingOptions::temperature>},
    CSamplingField{MORACLE_SET_TOP_K, take<&COptions::top_k, &SamplingOptions::top_k>},
    CSamplingField{MORACLE_SET_TOP_P, take<&COptions::top_p, &SamplingOptions::top_p>},
    CSamplingField{MORACLE_SET_MIN_P, take<&COptions::min_p, &SamplingOptions::min_p>},
    CSamplingField{MORACLE_SET_REPETITION_PENALTY,
                   take<&COptions::repetition_penalty, &SamplingOptions::repetition_penalty>},
    CSamplingField{MORACLE_SET_PRESENCE_PENALTY, take<&COptions::presence_penalty, &SamplingOptions::presence_penalty>},
    CSamplingField{MORACLE_SET_FREQUENCY_PENALTY,
                   take<&COptions::frequency_penalty, &SamplingOptions::frequency_penalty>},
};

}  // namespace

Result<GenerationChoice> read_choice(const moracle_generate_options& options) {
  GenerationChoice choice;
  const auto is_set = [&](std::uint32_t bit) { return (options.set & bit) != 0; };
  for (const CSamplingField& field : kCSamplingFields) {
    if (is_set(field.bit)) field.take(options, choice.sampling);
  }
  if (is_set(MORACLE_SET_MAX_TOKENS)) choice.max_tokens = options.max_tokens;
  choice.seed = options.seed;
  choice.ignore_eos = options.ignore_eos != 0;
  if (choice.max_tokens && (*choice.max_tokens < 1 || *choice.max_tokens > kMaxTokens))
    return wrong_argument("range", "options.max_tokens", "1 or more", std::to_string(*choice.max_tokens));
  if (options.stop_count > kMostStops)
    return wrong_argument("range", "options.stop_count", "at most 1024", std::to_string(options.stop_count));
  if (options.stop_count > 0) MORACLE_TRY(check_not_null(options.stop, "options.stop"));
  for (std::uint64_t i = 0; i < options.stop_count; ++i) {
    MORACLE_ASSIGN(choice.stop_texts.emplace_back(), read_text(options.stop[i], "options.stop"));
  }
  return choice;
}

namespace {

struct GenerateCall {
  std::span<const std::int32_t> ids{};
  std::string prompt{};
  moracle_generate_options options{};
  moracle_on_text on_text = nullptr;
  void* context = nullptr;
};

Result<Json> generate(OpenEngine& engine, const GenerateCall& call) {
  MORACLE_ASSIGN(const GenerationChoice choice, read_choice(call.options));
  MORACLE_ASSIGN(const auto turn, engine.lock().acquire());
  Session& session = engine.session();
  if (call.options.context < 0 || call.options.context > session.info().max_context) {
    return wrong_argument("range", "options.context", "0 to " + std::to_string(session.info().max_context),
                          std::to_string(call.options.context));
  }
  MORACLE_ASSIGN(const GenerationSettings settings, session.text().generation().settle(choice));
  MORACLE_TRY(check(settings.sampling));
  MORACLE_TRY(session.text().check_prompt(call.ids, call.options.context));
  MORACLE_ASSIGN(const auto state, session.model().new_sequence());
  MORACLE_ASSIGN(const ReplyRules rules, read_rules(session, call.options));
  Reply reply;
  CallOptions calls;
  // Ids of calls differ from turn to turn.
  const bool tools = rules.tools.may_call();
  if (tools) calls = {.tools = rules.tools.schemas, .id_seed = mix64(call.options.seed + call.ids.size())};
  calls.max_calls = call.options.max_calls;
  ReplyReader reader(tools ? session.text().call_format() : session.text().reply_format(), call.prompt,
                     std::move(calls));
  Completion completion{.settings = settings,
                        .max_tokens = settings.answer_tokens(static_cast<std::int64_t>(call.ids.size())),
                        .context = call.options.context};
  MORACLE_ASSIGN(completion.output, hold_options(session, rules, call.prompt, settings));
  completion.reader = &reader;
  completion.on_event = [&](ReplyEvent&& event) { reply.add(event); };
  bool stopped = false;
  const auto on_text = [&](std::string_view piece) {
    reply.text += piece;
    if (call.on_text != nullptr) stopped = call.on_text(call.context, piece.data(), piece.size()) != 0 || stopped;
  };
  MORACLE_ASSIGN(reply.generation, complete(session, *state, call.ids, completion, on_text, [&] { return stopped; }));
  reply.keep_calls(reader.calls());
  return run_json(session, reply, call.ids);
}

}  // namespace

}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_engine_open(const char* model, const moracle_engine_options* options, moracle_engine** engine,
                                   moracle_error** error) {
  return api::call(error, "open the model", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(engine, "engine"));
    *engine = nullptr;
    MORACLE_ASSIGN(const std::string folder, api::read_text(model, "model"));
    MORACLE_ASSIGN(auto opened, api::open(folder, options));
    *engine = static_cast<moracle_engine*>(api::add_handle(api::Kind::engine, std::move(opened)));
    return Ok{};
  });
}

moracle_status moracle_engine_json(moracle_engine* engine, char** json, moracle_error** error) {
  return api::call(error, "describe the engine", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(json, "json"));
    *json = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenEngine>(engine));
    *json = api::copy_json(api::engine_json(opened->session()));
    return Ok{};
  });
}

moracle_status moracle_engine_close(moracle_engine* engine) {
  return api::close(api::Kind::engine, engine);
}

moracle_status moracle_engine_tokenize(moracle_engine* engine, const char* text, uint64_t bytes, int32_t** ids,
                                       uint64_t* count, moracle_error** error) {
  return api::call(error, "tokenize", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(ids, "ids"));
    MORACLE_TRY(api::check_not_null(count, "count"));
    *ids = nullptr;
    *count = 0;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenEngine>(engine));
    MORACLE_TRY(api::check_not_null(text, "text"));
    if (bytes > api::kMaxText) return api::wrong_argument("range", "bytes", "at most 1 GiB", std::to_string(bytes));
    MORACLE_ASSIGN(const auto made, opened->session().text().encode_prompt({text, static_cast<std::size_t>(bytes)}));
    *ids = api::copy_ids(made);
    *count = made.size();
    return Ok{};
  });
}

moracle_status moracle_engine_detokenize(moracle_engine* engine, const int32_t* ids, uint64_t count, char** text,
                                         uint64_t* bytes, moracle_error** error) {
  return api::call(error, "detokenize", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(text, "text"));
    *text = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenEngine>(engine));
    if (count > 0) MORACLE_TRY(api::check_not_null(ids, "ids"));
    if (count > api::kMaxIds) return api::wrong_argument("range", "count", "at most 2^31", std::to_string(count));
    const ModelText& model = opened->session().text();
    const std::span<const std::int32_t> given(ids, static_cast<std::size_t>(count));
    MORACLE_TRY(model.check_ids(given));
    MORACLE_ASSIGN(const std::string made, model.tokenizer().decode(given));
    *text = api::copy_text(made);
    if (bytes != nullptr) *bytes = made.size();
    return Ok{};
  });
}

moracle_status moracle_engine_template(moracle_engine* engine, const char* chat_json, char** text, int32_t** ids,
                                       uint64_t* count, moracle_error** error) {
  return api::call(error, "apply the chat template", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(ids, "ids"));
    MORACLE_TRY(api::check_not_null(count, "count"));
    *ids = nullptr;
    *count = 0;
    if (text != nullptr) *text = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenEngine>(engine));
    MORACLE_ASSIGN(const ChatRequest request, api::read_chat(chat_json));
    MORACLE_ASSIGN(const ChatPrompt made, opened->session().text().encode_chat(request));
    int32_t* const copy = api::copy_ids(made.ids);
    if (text != nullptr) {
      try {
        *text = api::copy_text(made.text);
      } catch (...) {
        moracle_free(copy);
        throw;
      }
    }
    *ids = copy;
    *count = made.ids.size();
    return Ok{};
  });
}

moracle_status moracle_engine_generate(moracle_engine* engine, const int32_t* ids, uint64_t count, const char* prompt,
                                       const moracle_generate_options* options, moracle_on_text on_text, void* context,
                                       char** reply, moracle_error** error) {
  return api::call(error, "generate", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(reply, "reply"));
    *reply = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenEngine>(engine));
    if (count == 0 || count > api::kMaxIds)
      return api::wrong_argument("range", "count", "1 to 2^31", std::to_string(count));
    MORACLE_TRY(api::check_not_null(ids, "ids"));
    api::GenerateCall call{.ids = {ids, static_cast<std::size_t>(count)}, .on_text = on_text, .context = context};
    if (prompt != nullptr) {
      MORACLE_ASSIGN(call.prompt, api::read_text(prompt, "prompt"));
    }
    MORACLE_ASSIGN(call.options, api::read_struct(options, "options"));
    MORACLE_ASSIGN(const Json document, api::generate(*opened, call));
    *reply = api::copy_json(document);
    return Ok{};
  });
}

}  // extern "C"
