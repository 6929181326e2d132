// Access, metrics, frames, the description: what needs no model.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "serve/api/chat_reply.h"
#include "serve/api/completion_reply.h"
#include "serve/api/fields.h"
#include "serve/api/json_text.h"
#include "serve/api/openapi.h"
#include "serve/endpoints/endpoint.h"
#include "serve/generation.h"
#include "serve/http/access.h"
#include "serve/metrics.h"
#include "serve/service.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle::serve {
namespace {

int status_of(const Access& access, const AccessRequest& request) {
  const auto name = access.check(request);
  return name.ok() ? 200 : name.error().code == "request.key" ? 401 : 403;
}

TEST(ServeAccess, KeysGuardEverythingButHealthAndThePage) {
  const Access access({.keys = {{"ann", "secret-of-ann"}, {"bob", "secret-of-bob"}}});
  const auto with = [](std::string_view path, std::string_view authorization, std::string_view key = "") {
    return AccessRequest{.path = path, .host = "localhost:8080", .authorization = authorization, .api_key = key};
  };
  EXPECT_EQ(*access.check(with("/v1/models", "Bearer secret-of-bob")), "bob");
  EXPECT_EQ(*access.check(with("/v1/models", "bearer  secret-of-ann ")), "ann");
  EXPECT_EQ(*access.check(with("/v1/models", "", "secret-of-ann")), "ann");
  for (const std::string_view path :
       {"/metrics", "/tokenize", "/v1/models", "/nothing", "/page", "/pages/main.js", "//", "/v1/page/"}) {
    EXPECT_EQ(status_of(access, with(path, "")), 401) << path;
    for (const std::string_view wrong : {"Bearer secret-of-an", "Bearer secret-of-annn", "secret-of-ann", "Bearer ",
                                         "Basic secret-of-ann", "Bearer Secret-of-ann"})
      EXPECT_EQ(status_of(access, with(path, wrong)), 401) << wrong;
  }
  for (const char* const open : {"/health", "/livez", "/readyz", "/", "/page/main.js"})
    EXPECT_EQ(status_of(access, with(open, "")), 200) << open;
  EXPECT_EQ(status_of(access, with("/health/", "")), 401);
}

TEST(ServeAccess, HostsAndOriginsOfOthersAreRefused) {
  const Access access({.allowed_hosts = {"llm.example"}, .cors_origins = {"https://chat.example"}});
  for (const std::string_view host :
       {"localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "LOCALHOST", "llm.example:443"})
    EXPECT_EQ(status_of(access, {.path = "/", .host = host}), 200) << host;
  for (const std::string_view host :
       {"evil.example", "localhost.evil.example", "10.0.0.1", "", "127.0.0.1.evil.example"}) {
    EXPECT_EQ(status_of(access, {.path = "/", .host = host}), 403) << host;
    EXPECT_EQ(status_of(access, {.path = "/livez", .host = host}), 200) << host;
    EXPECT_EQ(status_of(access, {.path = "/readyz", .host = host}), 200) << host;
    EXPECT_EQ(status_of(access, {.path = "/readyz", .host = host, .origin = "http://evil.test"}), 403) << host;
  }
  const auto from = [](std::string_view origin) {
    return AccessRequest{.path = "/", .host = "localhost:8080", .origin = origin};
  };
  EXPECT_EQ(status_of(access, from("http://localhost:8080")), 200);
  EXPECT_EQ(status_of(access, from("https://chat.example")), 200);
  for (const std::string_view origin :
       {"http://evil.example", "null", "http://localhost:9090", "https://chat.example.evil"})
    EXPECT_EQ(status_of(access, from(origin)), 403) << origin;
  EXPECT_TRUE(access.shares_with("https://chat.example"));
  EXPECT_FALSE(access.shares_with("http://localhost:8080"));
}

TEST(ServeAccess, LoopbackIsAnAddressNotAName) {
  for (const char* const host : {"127.0.0.1", "127.8.9.1", "::1", "localhost"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const char* const host : {"127.evil.example", "127.0.0.1.evil.example", "0.0.0.0", "::", "10.0.0.1"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

TEST(ServeAccess, KeyFilesAreReadOrRefused) {
  const test::TemporaryFolder folder;
  folder.write("keys", "# people\nann: secret-of-ann\n\nsecret-of-nobody\r\n");
  const auto keys = read_keys(folder.path() / "keys");
  ASSERT_TRUE(keys.ok()) << keys.error().message();
  ASSERT_EQ(keys->size(), 2U);
  EXPECT_EQ((*keys)[0].name, "ann");
  EXPECT_EQ((*keys)[0].key, "secret-of-ann");
  EXPECT_EQ((*keys)[1].key, "secret-of-nobody");
  for (const char* const bad : {"", "# none\n", "ann:short\n", "a:12345678\na:87654321\n", "a:with space in it\n"}) {
    folder.write("bad", bad);
    const auto read = read_keys(folder.path() / "bad");
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_EQ(read.error().message().find("short\n"), std::string::npos);
  }
}

TEST(ServeMetrics, HasTheNamesThatDashboardsAskFor) {
  Metrics metrics;
  metrics.observe_first_token(0.03);
  metrics.observe_request(
      {.queue_s = 0.1, .prefill_s = 0.2, .decode_s = 1, .whole_s = 1.3, .prompt = 5, .completion = 6});
  metrics.observe_steps(std::vector<StepFigures>{{.prompt_tokens = 40, .seconds = 0.003},
                                                 {.prompt_tokens = 7, .decodes = 2, .seconds = 0.3},
                                                 {.decodes = 2, .seconds = 0.002},
                                                 {.decodes = 1, .seconds = 0.002}});
  metrics.count_success("stop");
  metrics.count_http("/v1/models", "GET", 200);
  const std::string text = metrics.text("a\"b\\c", {.running = 2, .waiting = 3, .kv_bytes = 1, .kv_budget = 4}, {});
  for (const char* const name : {"num_requests_running",
                                 "num_requests_waiting",
                                 "num_requests_waiting_by_reason",
                                 "kv_cache_usage_perc",
                                 "prefix_cache_queries_total",
                                 "prefix_cache_hits_total",
                                 "prompt_tokens_total",
                                 "prompt_tokens_cached_total",
                                 "generation_tokens_total",
                                 "num_preemptions_total",
                                 "request_success_total",
                                 "admission_rejections_total",
                                 "time_to_first_token_seconds_bucket",
                                 "inter_token_latency_seconds_bucket",
                                 "request_time_per_output_token_seconds_bucket",
                                 "e2e_request_latency_seconds_bucket",
                                 "request_queue_time_seconds_bucket",
                                 "request_prefill_time_seconds_bucket",
                                 "request_decode_time_seconds_bucket",
                                 "request_inference_time_seconds_bucket",
                                 "request_prompt_tokens_bucket",
                                 "request_generation_tokens_bucket",
                                 "iteration_tokens_total_bucket",
                                 "request_params_n_bucket",
                                 "request_params_max_tokens_bucket"})
    EXPECT_NE(text.find(std::string("\nvllm:") + name + "{"), std::string::npos) << name;
  EXPECT_NE(text.find("vllm:num_requests_running{model_name=\"a\\\"b\\\\c\",engine=\"0\"} 2\n"), std::string::npos);
  EXPECT_NE(text.find("vllm:kv_cache_usage_perc{model_name=\"a\\\"b\\\\c\",engine=\"0\"} 0.25\n"), std::string::npos);
  EXPECT_NE(text.find("le=\"+Inf\"} 1\n"), std::string::npos);
  EXPECT_NE(text.find("http_requests_total{handler=\"/v1/models\",method=\"GET\",status=\"2xx\"} 1\n"),
            std::string::npos);
  const std::string labels = "{model_name=\"a\\\"b\\\\c\",engine=\"0\"";
  for (const char* const line :
       {"vllm:iteration_tokens_total_sum@} 52", "vllm:time_to_first_token_seconds_bucket@,le=\"1.0\"} 1",
        "moracle:step_seconds_count@,phase=\"prefill\"} 1", "moracle:step_seconds_count@,phase=\"mixed\"} 1",
        "moracle:step_seconds_count@,phase=\"decode\"} 2",
        "moracle:step_seconds_bucket@,phase=\"decode\",le=\"0.001\"} 0",
        "moracle:step_seconds_bucket@,phase=\"decode\",le=\"0.0025\"} 2"}) {
    std::string wanted = std::string("\n") + line + "\n";
    wanted.replace(wanted.find('@'), 1, labels);
    EXPECT_NE(text.find(wanted), std::string::npos) << wanted;
  }
  // Every family is told once, and its samples follow it.
  std::set<std::string> families;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(families.insert(line.substr(7, line.find(' ', 7) - 7)).second) << line;
    }
  }
  EXPECT_GT(resident_bytes(), 1U << 20U);
}

TEST(ServeMetrics, ExpertsHaveTheirTokensByLayer) {
  const RoutingSnapshot routing{.all = {0, 0, 0, 5, 0, 7}};
  EXPECT_EQ(expert_metrics("m", routing, 3),
            "# HELP moracle:expert_tokens_total Tokens that an expert took.\n"
            "# TYPE moracle:expert_tokens_total counter\n"
            "moracle:expert_tokens_total{model_name=\"m\",engine=\"0\",layer=\"1\",expert=\"0\"} 5\n"
            "moracle:expert_tokens_total{model_name=\"m\",engine=\"0\",layer=\"1\",expert=\"1\"} 0\n"
            "moracle:expert_tokens_total{model_name=\"m\",engine=\"0\",layer=\"1\",expert=\"2\"} 7\n");
}

// The frames of a stream.
std::vector<Json> frames_of(const std::string& events) {
  std::vector<Json> frames;
  for (std::size_t at = 0; at < events.size();) {
    const std::size_t end = events.find("\n\n", at);
    frames.push_back(Json::parse(events.substr(at + 6, end - at - 6), nullptr, false));
    at = end + 2;
  }
  return frames;
}

const ReplyHead kHead{.id = "chatcmpl-1", .model = "m", .fingerprint = "fp", .created = 5, .seed = 9};

TEST(ServeFrames, ComeInTheOrderThatClientsIndex) {
  const auto chat = make_chat_translator({.head = kHead, .include_usage = true});
  const auto frames = frames_of(chat->frames(
      {.index = 1, .events = {ReasoningEvent{"r"}, TextEvent{"t"}, EndEvent{.by = "x"}}, .opens = true}, {}));
  ASSERT_EQ(frames.size(), 3U);
  for (const Json& frame : frames) {
    EXPECT_EQ(frame["object"], "chat.completion.chunk");
    EXPECT_EQ(frame["choices"][0]["index"], 1);
    EXPECT_TRUE(frame.at("usage").is_null());
  }
  EXPECT_EQ(frames[0]["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_TRUE(frames[0]["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(frames[1]["choices"][0]["delta"], (Json{{"content", "t"}, {"reasoning", "r"}, {"reasoning_content", "r"}}));
  EXPECT_EQ(frames[2]["choices"][0]["delta"], Json::object());
  EXPECT_EQ(frames[2]["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(frames[2]["choices"][0]["stop_reason"], "x");
  EXPECT_EQ(chat->frames({.index = 1}, {}), "") << "it says nothing";
  const std::string last = chat->last_frames({.prompt = 3, .completion = 4, .cached = 2, .reasoning = 1});
  EXPECT_TRUE(last.ends_with("data: [DONE]\n\n"));
  const Json usage = frames_of(last).front();
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 7);
  EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(usage["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
  const std::string event = event_of({{"a", "b\xff\n"}});
  EXPECT_EQ(event, "data: {\"a\":\"b\xEF\xBF\xBD\\n\"}\n\n");
}

TEST(ServeFrames, UsageIsThereWhereItIsWanted) {
  const ChoiceUpdate update{.events = {TextEvent{"t"}}};
  const auto usage = [&](TranslatorOptions options) {
    const auto frames = frames_of(make_completion_translator(std::move(options))->frames(update, {.completion = 4}));
    return frames.front().contains("usage") ? frames.front()["usage"] : Json("absent");
  };
  EXPECT_EQ(usage({.head = kHead}), "absent");
  EXPECT_EQ(usage({.head = kHead, .include_usage = true}), nullptr);
  EXPECT_EQ(usage({.head = kHead, .continuous_usage = true})["completion_tokens"], 4);
}

TEST(ServeFrames, CallsOfToolsAreDeltasAndWhole) {
  const auto chat = make_chat_translator({.head = kHead});
  const std::vector<ReplyEvent> events = {
      CallStartEvent{.index = 0, .id = "a", .name = "f"}, CallArgumentsEvent{.index = 0, .text = "{\"x\":"},
      CallStartEvent{.index = 1, .id = "b", .name = "g"}, CallArgumentsEvent{.index = 0, .text = "1}"}};
  const Json delta = frames_of(chat->frames({.events = events}, {})).front()["choices"][0]["delta"];
  EXPECT_EQ(delta["tool_calls"][0], Json::parse(R"({"index":0,"id":"a","type":"function",
                                                    "function":{"name":"f","arguments":""}})"));
  EXPECT_EQ(delta["tool_calls"][1], Json::parse(R"({"index":0,"function":{"arguments":"{\"x\":"}})"));
  EXPECT_EQ(delta["tool_calls"].size(), 4U);
  const std::vector<ChoiceUpdate> choices = {{.events = events}};
  const Json message = chat->whole(choices, {})["choices"][0]["message"];
  EXPECT_EQ(message["tool_calls"], Json::parse(R"([
      {"id":"a","type":"function","function":{"name":"f","arguments":"{\"x\":1}"}},
      {"id":"b","type":"function","function":{"name":"g","arguments":""}}])"));
}

TEST(ServeFrames, HeadersNameWhatWasIgnoredAndNothingElse) {
  EXPECT_EQ(header_list({"a", "b_c"}), "a, b_c");
  EXPECT_EQ(header_list({"x\r\nSet-Cookie: a"}), "x??Set-Cookie??a");
  EXPECT_LT(header_list(std::vector<std::string>(1000, "name")).size(), 1100U);
}

TEST(ServeDescription, IsTheTable) {
  const Json api = openapi_json("1");
  for (const auto& [endpoint, schema] :
       {std::pair{GenerationApi::chat, "ChatRequest"}, {GenerationApi::completions, "CompletionRequest"}}) {
    const Json& properties = api["components"]["schemas"][schema]["properties"];
    for (const RequestField& field : request_fields()) {
      const RequestField* const found = find_field(field.name, endpoint);
      EXPECT_EQ(properties.contains(std::string(field.name)), found != nullptr && found->use != FieldUse::refused)
          << field.name;
      EXPECT_FALSE(field_schema(field)["anyOf"][0].is_discarded()) << field.name;
    }
  }
}

TEST(ServeDescription, HasEveryRouteButThePages) {
  const Json paths = openapi_json("1")["paths"];
  std::set<std::string_view> seen;
  for (const Endpoint* const endpoint : endpoints()) {
    for (const Route& route : endpoint->routes) {
      EXPECT_TRUE(seen.insert(route.path).second) << route.path << " has two endpoints";
      EXPECT_EQ(find_route(route.path), &route);
      EXPECT_NE(route.answer == nullptr, route.begin == nullptr) << route.path;
      EXPECT_EQ(route.generation != nullptr, route.begin == begin_generation) << route.path;
      if (endpoint->describe == nullptr) continue;
      const std::string path = std::string(route.path) + (route.path.ends_with('/') ? "{id}" : "");
      EXPECT_TRUE(paths.contains(path)) << path;
      EXPECT_TRUE(paths[path].contains(route.method == "GET" ? "get" : "post")) << path;
    }
  }
  EXPECT_EQ(find_route("/v1/models/a/b")->path, "/v1/models/");
  for (const char* const path : {"", "//", "/health/", "/v1", "/page", "/page.js"})
    EXPECT_EQ(find_route(path), nullptr) << path;
}

std::string file_text(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ServeDescription, DocumentsAreMadeFromTheTable) {
  EXPECT_NE(file_text(test::source_dir() / "docs/serve.md").find(fields_markdown()), std::string::npos)
      << "put the output of `moracle api-tables fields` into docs/serve.md";
  const std::string yaml = file_text(test::source_dir() / "docs/openapi.yaml");
  const std::size_t version = yaml.find("\"version\": \"");
  ASSERT_NE(version, std::string::npos);
  const std::size_t begin = version + 12;
  EXPECT_EQ(yaml, openapi_yaml(yaml.substr(begin, yaml.find('"', begin) - begin)))
      << "put the output of `moracle api-tables openapi` into docs/openapi.yaml";
}

}  // namespace
}  // namespace moracle::serve
