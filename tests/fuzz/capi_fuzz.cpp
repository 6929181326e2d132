// The C interface under any order of calls: a model folder described in JSON (support/model_folder.h), and a list of
// calls on it, [NAME, NUMBER or TEXT, ...]. Handles are picked among those that were made, closed ones, ones of another
// kind and none at all. Every call answers with what it promises, or with an error that is typed.
#include <moracle/moracle.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/unicode/utf8.h"
#include "config_words.h"
#include "fuzz_input.h"
#include "json_mutator.h"
#include "support/http_client.h"
#include "support/model_folder.h"
#include "support/small_tokenizer.h"
#include "support/temporary_folder.h"

namespace {

using moracle::Json;
using moracle::fuzz::require;

constexpr std::size_t kMostBytes = std::size_t{2} << 20;
constexpr std::size_t kMostCalls = 24;
constexpr std::int64_t kMostBuffer = std::int64_t{1} << 20;
constexpr int kPatienceMs = 2000;  // of a client with its server

// One call's arguments, as far as they are there; others are 0, or no text.
class Arguments {
 public:
  explicit Arguments(const Json& call) : call_(call) {}

  std::int64_t number() {
    const Json& value = next();
    return value.is_number_integer() ? value.get<std::int64_t>() : 0;
  }
  std::int32_t small() { return static_cast<std::int32_t>(number()); }
  // A number that costs time or memory where it is in range: at most `most`, unless it is beyond all ranges.
  std::int64_t cheap(std::int64_t most) {
    const std::int64_t value = number();
    return value > (std::int64_t{1} << 40) ? value : std::min(value, most);
  }
  // Null where the argument is no text. Lives as long as the call.
  const char* text() {
    const Json& value = next();
    return value.is_string() ? value.get_ref<const std::string&>().c_str() : nullptr;
  }
  std::string text_or(const char* usual) {
    const char* const given = text();
    return given == nullptr ? usual : given;
  }
  std::string json() { return next().dump(-1, ' ', false, Json::error_handler_t::replace); }
  template <class T>
  std::vector<T> numbers() {
    std::vector<T> made;
    const Json& value = next();
    if (!value.is_array()) return made;
    for (const Json& element : value)
      made.push_back(element.is_number_integer() ? static_cast<T>(element.get<std::int64_t>()) : T{});
    return made;
  }

 private:
  const Json& next() {
    static const Json kNothing;
    ++at_;
    return at_ < call_.size() ? call_[at_] : kNothing;
  }
  const Json& call_;
  std::size_t at_ = 0;  // the name
};

template <class Struct>
Struct sized() {
  Struct made{};
  made.size = sizeof made;
  return made;
}

// A program that calls the interface, and holds it to its promises.
class Caller {
 public:
  explicit Caller(std::string folder) : folder_(std::move(folder)) {}
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;
  ~Caller() {
    for (auto handle = handles_.rbegin(); handle != handles_.rend(); ++handle) handle->close(handle->value);
  }

  void call(const Json& words) {
    static const std::map<std::string, void (Caller::*)(Arguments&), std::less<>> kCalls{
        {"inspect", &Caller::inspect},   {"explain", &Caller::explain},
        {"plan", &Caller::plan},         {"verify", &Caller::verify},
        {"pool", &Caller::pool},         {"checkpoint", &Caller::checkpoint},
        {"describe", &Caller::describe}, {"experts", &Caller::experts},
        {"run", &Caller::run},           {"dense", &Caller::dense},
        {"next", &Caller::next},         {"engine", &Caller::engine},
        {"tokenize", &Caller::tokenize}, {"template", &Caller::chat_template},
        {"generate", &Caller::generate}, {"scheduler", &Caller::scheduler},
        {"submit", &Caller::submit},     {"step", &Caller::step},
        {"cancel", &Caller::cancel},     {"serve", &Caller::serve},
        {"ask", &Caller::ask},           {"stop", &Caller::stop},
        {"vllm", &Caller::explain_vllm}, {"wait", &Caller::wait},
        {"close", &Caller::close},
    };
    if (!words.is_array() || words.empty() || !words[0].is_string()) return;
    const auto found = kCalls.find(words[0].get_ref<const std::string&>());
    Arguments arguments(words);
    if (found != kCalls.end()) (this->*found->second)(arguments);
  }

 private:
  struct Opened {
    void* value;
    moracle_status (*close)(void*);
  };

  // The status of a call; its error is held to the promises.
  template <class Call>
  static moracle_status check(const Call& call) {
    moracle_error* error = nullptr;
    const moracle_status status = call(&error);
    require(status >= MORACLE_OK && status <= MORACLE_END);
    require((error != nullptr) == (status != MORACLE_OK && status != MORACLE_END));
    if (error == nullptr) return status;
    require(error->size == sizeof *error && error->status == status && *error->code != '\0');
    require(std::string_view(error->code) != "internal.exception" && moracle::unicode::is_utf8(error->message));
    moracle_error_free(error);
    return status;
  }
  // A call that answers with a document.
  template <class Call>
  static void document(const Call& call) {
    char* json = nullptr;
    const moracle_status status = check([&](moracle_error** error) { return call(&json, error); });
    require((json != nullptr) == (status == MORACLE_OK));
    if (json != nullptr) require(!Json::parse(json, nullptr, false).is_discarded());
    moracle_free(json);
  }
  // A call that opens a handle of `Handle`.
  template <class Handle, class Call>
  void open(moracle_status (*close)(Handle*), const Call& call) {
    static moracle_status (*const kClose)(Handle*) = close;
    Handle* handle = nullptr;
    const moracle_status status = check([&](moracle_error** error) { return call(&handle, error); });
    require((handle != nullptr) == (status == MORACLE_OK));
    if (handle != nullptr)
      handles_.push_back({handle, [](void* value) { return kClose(static_cast<Handle*>(value)); }});
  }
  // By number among those that were ever made; others were never.
  template <class Handle>
  Handle* pick(Arguments& arguments) const {
    const std::int64_t number = arguments.number();
    if (number >= 0 && number < static_cast<std::int64_t>(handles_.size()))
      return static_cast<Handle*>(handles_[static_cast<std::size_t>(number)].value);
    return reinterpret_cast<Handle*>(static_cast<std::uintptr_t>(number) + 1);  // -1: null
  }
  static moracle_policy policy_of(Arguments& arguments) {
    auto policy = sized<moracle_policy>();
    policy.backend = arguments.text();
    policy.numerics = arguments.small();
    policy.batch_invariant = arguments.small();
    return policy;
  }

  void inspect(Arguments& /*arguments*/) {
    document([&](char** json, moracle_error** error) { return moracle_inspect(folder_.c_str(), json, error); });
  }
  void explain(Arguments& arguments) {
    auto options = sized<moracle_explain_options>();
    options.device = device_of(arguments);
    const moracle_policy policy = policy_of(arguments);
    options.policy = &policy;
    document(
        [&](char** json, moracle_error** error) { return moracle_explain(folder_.c_str(), &options, json, error); });
  }
  void explain_vllm(Arguments& arguments) {
    const std::string request = arguments.json();
    document([&](char** json, moracle_error** error) { return moracle_explain_vllm(request.c_str(), json, error); });
  }
  void plan(Arguments& arguments) {
    auto options = sized<moracle_plan_options>();
    options.tp = arguments.small();
    options.ep = arguments.small();
    options.context = arguments.number();
    options.kv = arguments.text();
    options.device = device_of(arguments);
    document([&](char** json, moracle_error** error) { return moracle_plan(folder_.c_str(), &options, json, error); });
  }
  void verify(Arguments& arguments) {
    auto options = sized<moracle_verify_options>();
    options.threads = static_cast<std::int32_t>(std::min<std::int64_t>(arguments.small(), 2));
    options.tokens = arguments.cheap(4);
    options.layout = arguments.text();
    document(
        [&](char** json, moracle_error** error) { return moracle_verify(folder_.c_str(), &options, json, error); });
  }
  // A name, and no file of this machine's.
  static const char* device_of(Arguments& arguments) {
    const char* const name = arguments.text();
    return name != nullptr && std::string_view(name).find_first_of("/.") != std::string_view::npos ? "none" : name;
  }

  void pool(Arguments& arguments) {
    auto options = sized<moracle_pool_options>();
    options.threads = static_cast<std::int32_t>(arguments.cheap(2));
    const auto cpus = arguments.numbers<std::int32_t>();
    options.cpus = cpus.empty() ? nullptr : cpus.data();
    options.cpu_count = std::min<std::uint64_t>(cpus.size(), 2);
    open<moracle_pool>(&moracle_pool_close, [&](moracle_pool** made, moracle_error** error) {
      return moracle_pool_open(&options, made, error);
    });
  }
  void checkpoint(Arguments& arguments) {
    const moracle_policy policy = policy_of(arguments);
    open<moracle_checkpoint>(&moracle_checkpoint_close, [&](moracle_checkpoint** made, moracle_error** error) {
      return moracle_checkpoint_open(folder_.c_str(), &policy, made, error);
    });
  }
  void describe(Arguments& arguments) {
    auto* const handle = pick<void>(arguments);
    document([&](char** json, moracle_error** error) {
      return moracle_checkpoint_json(static_cast<moracle_checkpoint*>(handle), json, error);
    });
    document([&](char** json, moracle_error** error) {
      return moracle_experts_decision_json(static_cast<moracle_experts*>(handle), json, error);
    });
    document([&](char** json, moracle_error** error) {
      return moracle_engine_json(static_cast<moracle_engine*>(handle), json, error);
    });
  }
  void experts(Arguments& arguments) {
    auto* const checkpoint = pick<moracle_checkpoint>(arguments);
    const std::int64_t layer = arguments.number();
    auto options = sized<moracle_experts_options>();
    options.tp = arguments.small();
    options.tp_rank = arguments.small();
    const auto held = arguments.numbers<std::int64_t>();
    options.experts = held.empty() ? nullptr : held.data();
    options.expert_count = held.size();
    options.pool = pick<moracle_pool>(arguments);
    const moracle_policy policy = policy_of(arguments);
    options.policy = &policy;
    open<moracle_experts>(&moracle_experts_close, [&](moracle_experts** made, moracle_error** error) {
      return moracle_experts_open(checkpoint, layer, &options, made, error);
    });
  }

  // Rows of so many bytes as a caller has to bring; nothing where that is more than a test holds.
  static std::optional<std::vector<std::byte>> rows_of(std::int64_t rows, std::int64_t width, std::int64_t stride,
                                                       std::int64_t bytes) {
    if (rows <= 0 || width <= 0) return std::vector<std::byte>(1);
    const std::int64_t step = std::max(stride, width);
    if (rows > kMostBuffer || step > kMostBuffer || ((rows - 1) * step + width) * bytes > kMostBuffer) return {};
    return std::vector<std::byte>(static_cast<std::size_t>(((rows - 1) * step + width) * bytes), std::byte{1});
  }
  static std::int64_t bytes_of(std::int32_t dtype) {
    if (dtype == MORACLE_BF16 || dtype == MORACLE_F16) return 2;
    return dtype == MORACLE_INT64 ? 8 : 4;
  }
  void run(Arguments& arguments) {
    auto* const experts = pick<moracle_experts>(arguments);
    auto info = sized<moracle_experts_info>();
    check([&](moracle_error** error) { return moracle_experts_describe(experts, &info, error); });
    auto call = sized<moracle_experts_call>();
    call.tokens = arguments.number();
    call.top_k = arguments.number();
    for (std::int32_t* const dtype : {&call.x_dtype, &call.out_dtype, &call.ids_dtype, &call.weights_dtype})
      *dtype = arguments.small();
    for (std::int64_t* const stride : {&call.x_stride, &call.out_stride, &call.ids_stride, &call.weights_stride})
      *stride = arguments.number();
    const auto ids = arguments.numbers<std::int32_t>();
    const std::int64_t workspace_bytes = arguments.number();
    auto x = rows_of(call.tokens, info.hidden, call.x_stride, bytes_of(call.x_dtype));
    auto out = rows_of(call.tokens, info.hidden, call.out_stride, bytes_of(call.out_dtype));
    auto id_rows = rows_of(call.tokens, call.top_k, call.ids_stride, bytes_of(call.ids_dtype));
    auto weights = rows_of(call.tokens, call.top_k, call.weights_stride, bytes_of(call.weights_dtype));
    if (!x || !out || !id_rows || !weights) return;
    std::fill(id_rows->begin(), id_rows->end(), std::byte{0});
    std::copy_n(reinterpret_cast<const std::byte*>(ids.data()), std::min(ids.size() * sizeof ids[0], id_rows->size()),
                id_rows->begin());
    call.x = x->data();
    call.out = out->data();
    call.ids = id_rows->data();
    call.weights = weights->data();
    std::uint64_t enough = 0;
    check([&](moracle_error** error) {
      return moracle_experts_workspace_bytes(experts, call.tokens, call.top_k, &enough, error);
    });
    struct alignas(64) Line {
      std::array<std::byte, 64> bytes;
    };
    std::vector<Line> workspace(static_cast<std::size_t>(std::clamp<std::int64_t>(workspace_bytes, 0, kMostBuffer)) /
                                sizeof(Line));
    if (!workspace.empty()) {
      call.workspace = workspace.data();
      call.workspace_bytes = workspace.size() * sizeof(Line);
    }
    check([&](moracle_error** error) { return moracle_experts_run(experts, &call, error); });
  }

  void dense(Arguments& arguments) {
    auto* const checkpoint = pick<moracle_checkpoint>(arguments);
    auto options = sized<moracle_dense_options>();
    options.dtype = arguments.small();
    options.pool = pick<moracle_pool>(arguments);
    open<moracle_dense>(&moracle_dense_close, [&](moracle_dense** made, moracle_error** error) {
      return moracle_dense_open(checkpoint, &options, made, error);
    });
  }
  void next(Arguments& arguments) {
    auto* const dense = pick<moracle_dense>(arguments);
    moracle_status status = MORACLE_OK;
    for (std::int64_t i = arguments.cheap(100); i > 0 && status == MORACLE_OK; --i) {
      auto tensor = sized<moracle_tensor>();
      status = check([&](moracle_error** error) { return moracle_dense_next(dense, &tensor, error); });
      if (status != MORACLE_OK) break;
      std::int64_t bytes = bytes_of(tensor.dtype);
      for (std::int32_t dim = 0; dim < tensor.rank; ++dim) bytes *= tensor.dims[dim];
      require(tensor.rank <= 4 && tensor.bytes == static_cast<std::uint64_t>(bytes) && *tensor.name != '\0');
      const auto* const data = static_cast<const unsigned char*>(tensor.data);
      if (bytes > 0) sink_ = data[0] ^ data[bytes - 1];
    }
  }

  void engine(Arguments& arguments) {
    auto options = sized<moracle_engine_options>();
    options.threads = static_cast<std::int32_t>(std::min<std::int64_t>(arguments.small(), 2));
    options.kv = arguments.text();
    const moracle_policy policy = policy_of(arguments);
    options.policy = &policy;
    open<moracle_engine>(&moracle_engine_close, [&](moracle_engine** made, moracle_error** error) {
      return moracle_engine_open(folder_.c_str(), &options, made, error);
    });
  }
  void tokenize(Arguments& arguments) {
    auto* const engine = pick<moracle_engine>(arguments);
    const char* const given = arguments.text();
    const std::string_view text = given == nullptr ? std::string_view() : given;
    std::int32_t* ids = nullptr;
    std::uint64_t count = 0;
    check([&](moracle_error** error) {
      return moracle_engine_tokenize(engine, given, text.size(), &ids, &count, error);
    });
    moracle_free(ids);
    const auto back = arguments.numbers<std::int32_t>();
    char* made = nullptr;
    std::uint64_t bytes = 0;
    check([&](moracle_error** error) {
      return moracle_engine_detokenize(engine, back.data(), back.size(), &made, &bytes, error);
    });
    if (made != nullptr) require(std::string_view(made).size() <= bytes);
    moracle_free(made);
  }
  void chat_template(Arguments& arguments) {
    auto* const engine = pick<moracle_engine>(arguments);
    const char* const chat = arguments.text();
    char* text = nullptr;
    std::int32_t* ids = nullptr;
    std::uint64_t count = 0;
    check([&](moracle_error** error) { return moracle_engine_template(engine, chat, &text, &ids, &count, error); });
    moracle_free(text);
    moracle_free(ids);
  }
  static moracle_generate_options options_of(Arguments& arguments) {
    auto options = sized<moracle_generate_options>();
    options.set = static_cast<std::uint32_t>(arguments.number()) | MORACLE_SET_MAX_TOKENS;
    options.max_tokens = arguments.cheap(4);
    options.temperature = static_cast<double>(arguments.number()) / 10;
    options.top_k = arguments.number();
    options.top_p = static_cast<double>(arguments.number()) / 10;
    options.repetition_penalty = static_cast<double>(arguments.number()) / 10;
    options.seed = static_cast<std::uint64_t>(arguments.number());
    return options;
  }
  void generate(Arguments& arguments) {
    auto* const engine = pick<moracle_engine>(arguments);
    const auto ids = arguments.numbers<std::int32_t>();
    auto options = options_of(arguments);
    const char* const prompt = arguments.text();
    options.response_format = arguments.text();
    options.structured_outputs = arguments.text();
    options.tools = arguments.text();
    options.tool_choice = arguments.text();
    options.max_calls = arguments.number();
    options.ignore_eos = arguments.small();
    document([&](char** json, moracle_error** error) {
      return moracle_engine_generate(engine, ids.data(), ids.size(), prompt, &options, nullptr, nullptr, json, error);
    });
  }

  void scheduler(Arguments& arguments) {
    auto* const engine = pick<moracle_engine>(arguments);
    auto options = sized<moracle_scheduler_options>();
    options.context = arguments.number();
    options.max_running = arguments.number();
    options.max_queue = arguments.number();
    options.no_prefix_reuse = arguments.small();
    open<moracle_scheduler>(&moracle_scheduler_close, [&](moracle_scheduler** made, moracle_error** error) {
      return moracle_scheduler_open(engine, &options, made, error);
    });
  }
  void submit(Arguments& arguments) {
    auto* const scheduler = pick<moracle_scheduler>(arguments);
    const auto ids = arguments.numbers<std::int32_t>();
    auto request = sized<moracle_request>();
    request.logprobs = arguments.small();
    request.top_logprobs = arguments.small();
    request.min_tokens = arguments.number();
    request.priority = arguments.number();
    request.key = arguments.text();
    const auto options = options_of(arguments);
    request.options = &options;
    std::uint64_t id = 0;
    const moracle_status status = check([&](moracle_error** error) {
      return moracle_scheduler_submit(scheduler, ids.data(), ids.size(), &request, &id, error);
    });
    require((id != 0) == (status == MORACLE_OK));
  }
  void step(Arguments& arguments) {
    auto* const scheduler = pick<moracle_scheduler>(arguments);
    const auto on_event = [](void* /*context*/, const moracle_event* event) {
      require(event->size == sizeof *event && event->request != 0);
      require((event->error != nullptr) == (event->end == MORACLE_END_ERROR));
      require(moracle::unicode::is_utf8(std::string_view(event->text, event->bytes)));
    };
    std::int32_t more = 1;
    for (std::int64_t i = arguments.cheap(8); i > 0 && more != 0; --i)
      check([&](moracle_error** error) { return moracle_scheduler_step(scheduler, on_event, nullptr, &more, error); });
  }
  void cancel(Arguments& arguments) {
    auto* const scheduler = pick<moracle_scheduler>(arguments);
    const auto id = static_cast<std::uint64_t>(arguments.number());
    std::int32_t found = 0;
    check([&](moracle_error** error) { return moracle_scheduler_cancel(scheduler, id, &found, error); });
  }

  void serve(Arguments& arguments) {
    auto* const engine = pick<moracle_engine>(arguments);
    auto options = sized<moracle_server_options>();
    const char* const listen = arguments.text();
    // A socket among the files of the test, and no name or address of another machine's.
    const std::string here = "unix:" + folder_ + "/socket";
    const bool other = listen != nullptr && std::string_view(listen).find_first_of("/:") != std::string_view::npos;
    options.listen = other ? here.c_str() : listen;
    options.port = static_cast<std::int32_t>(std::min<std::int64_t>(arguments.number(), 0));  // any that is free
    const char* const name = arguments.text();
    const char* const key = arguments.text();
    options.names = &name;
    options.name_count = name == nullptr ? 0 : 1;
    options.keys = &key;
    options.key_count = key == nullptr ? 0 : 1;
    options.drain_s = static_cast<double>(arguments.cheap(1)) / 20;
    options.strict = arguments.small();
    auto scheduling = sized<moracle_scheduler_options>();
    scheduling.context = arguments.number();
    scheduling.max_running = arguments.number();
    scheduling.max_queue = arguments.number();
    options.scheduler = &scheduling;
    open<moracle_server>(&moracle_server_close, [&](moracle_server** made, moracle_error** error) {
      return moracle_server_open(engine, &options, made, error);
    });
  }
  // A request over the network to a server that says where it listens: its answer is HTTP, or there is none.
  void ask(Arguments& arguments) {
    auto* const server = pick<moracle_server>(arguments);
    char* json = nullptr;
    check([&](moracle_error** error) { return moracle_server_json(server, &json, error); });
    if (json == nullptr) return;
    const std::string address = Json::parse(json).at("address");
    moracle_free(json);
    constexpr std::string_view kHere = "http://127.0.0.1:";
    if (address.rfind(kHere, 0) != 0) return;
    const std::string route = arguments.text_or("/v1/completions");
    const std::string body = arguments.text_or(R"({"prompt": [1], "max_tokens": 2})");
    moracle::test::HttpClient client(static_cast<std::uint16_t>(std::stoi(address.substr(kHere.size()))));
    if (!client.send(moracle::test::post_text(route, body)) || arguments.number() != 0) return;  // gone again
    const auto answer = client.answer(true, kPatienceMs);
    require(answer.status == 0 || answer.head.rfind("HTTP/1.1 ", 0) == 0);
  }
  void stop(Arguments& arguments) {
    auto* const server = pick<moracle_server>(arguments);
    check([&](moracle_error** error) { return moracle_server_stop(server, error); });
  }
  void wait(Arguments& arguments) {
    auto* const server = pick<moracle_server>(arguments);
    const double seconds = static_cast<double>(std::clamp<std::int64_t>(arguments.number(), 0, 10)) / 1000;
    std::int32_t ended = 0;
    check([&](moracle_error** error) { return moracle_server_wait(server, seconds, &ended, error); });
    require(ended == 0 || ended == 1);
  }

  // By any of the functions that close; the handle stays among those that are picked.
  void close(Arguments& arguments) {
    auto* const handle = pick<void>(arguments);
    switch (arguments.number()) {
      case 0:
        moracle_pool_close(static_cast<moracle_pool*>(handle));
        break;
      case 1:
        moracle_checkpoint_close(static_cast<moracle_checkpoint*>(handle));
        break;
      case 2:
        moracle_experts_close(static_cast<moracle_experts*>(handle));
        break;
      case 3:
        moracle_dense_close(static_cast<moracle_dense*>(handle));
        break;
      case 4:
        moracle_engine_close(static_cast<moracle_engine*>(handle));
        break;
      case 6:
        moracle_server_close(static_cast<moracle_server*>(handle));
        break;
      default:
        moracle_scheduler_close(static_cast<moracle_scheduler*>(handle));
    }
  }

  std::string folder_;
  std::vector<Opened> handles_;
  volatile unsigned char sink_ = 0;  // reads of tensors are not left out
};

constexpr std::string_view kCallWords =
    "inspect explain plan verify pool checkpoint describe experts run dense next engine tokenize template generate "
    "scheduler submit step cancel serve ask stop wait close ref avx2 avx512 amx f32 bf16 int8 cpu h100 h200 marlin "
    "cuda:0 abc vllm";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moracle::test::TemporaryFolder kFolder;
  static const bool kWritten = [] {
    kFolder.write("tokenizer.json", moracle::test::small_tokenizer().dump());
    kFolder.write("chat_template.jinja", "{% for message in messages %}{{ message.content }} {% endfor %}");
    return true;
  }();
  require(kWritten);
  const auto description =
      moracle::parse_json(std::string_view(reinterpret_cast<const char*>(data), size), "description");
  if (!description.ok() || !description->is_object() || !description->contains("calls")) return -1;
  const Json& calls = (*description)["calls"];
  if (!calls.is_array()) return -1;
  const auto folder = moracle::test::make_folder(*description, kMostBytes);
  if (!folder) return -1;
  moracle::test::write_folder(*folder, kFolder.path());
  Caller caller(kFolder.path().string());
  for (std::size_t i = 0; i < std::min(calls.size(), kMostCalls); ++i) caller.call(calls[i]);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  static const moracle::fuzz::JsonVocabulary kWords{.keys = moracle::fuzz::words_of(moracle::fuzz::kConfigKeys),
                                                    .strings = moracle::fuzz::words_of(kCallWords)};
  std::mt19937 rng(seed);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // Folders are the target of fuzz_config; here it is their use.
  static constexpr std::array kParts{"calls", "calls", "calls", "calls", "files", "tensors"};
  return moracle::fuzz::give_back(moracle::fuzz::mutate_member(text, kParts[rng() % kParts.size()], kWords, rng), data,
                                  most);
}
