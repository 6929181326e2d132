// Access, metrics, frames, the description: what needs no model.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "serve/api/fields.h"
#include "serve/api/openapi.h"
#include "serve/api/reply_json.h"
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

TEST(ServeAccess, KeysGuardEverythingButHealth) {
  const Access access({.keys = {{"ann", "secret-of-ann"}, {"bob", "secret-of-bob"}}});
  const auto with = [](std::string_view path, std::string_view authorization, std::string_view key = "") {
    return AccessRequest{.path = path, .host = "localhost:8080", .authorization = authorization, .api_key = key};
  };
  EXPECT_EQ(*access.check(with("/v1/models", "Bearer secret-of-bob")), "bob");
  EXPECT_EQ(*access.check(with("/v1/models", "bearer  secret-of-ann ")), "ann");
  EXPECT_EQ(*access.check(with("/v1/models", "", "secret-of-ann")), "ann");
  for (const std::string_view path : {"/", "/metrics", "/tokenize", "/v1/models", "/nothing"}) {
    EXPECT_EQ(status_of(access, with(path, "")), 401) << path;
    for (const std::string_view wrong : {"Bearer secret-of-an", "Bearer secret-of-annn", "secret-of-ann", "Bearer ",
                                         "Basic secret-of-ann", "Bearer Secret-of-ann"})
      EXPECT_EQ(status_of(access, with(path, wrong)), 401) << wrong;
  }
  EXPECT_EQ(status_of(access, with("/health", "")), 200);
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

TEST(ServeFrames, ComeInTheOrderThatClientsIndex) {
  const ReplyHead head{.id = "chatcmpl-1", .model = "m", .fingerprint = "fp", .created = 5, .seed = 9};
  const Json first = frame_json(head, {.index = 1, .opens = true}, true, {});
  EXPECT_EQ(first["object"], "chat.completion.chunk");
  EXPECT_EQ(first["choices"][0]["delta"], (Json{{"role", "assistant"}, {"content", ""}}));
  EXPECT_TRUE(first["choices"][0]["finish_reason"].is_null());
  EXPECT_EQ(first["choices"][0]["index"], 1);
  EXPECT_TRUE(first["usage"].is_null());
  const Json last = frame_json(head, {.end = ReplyEnd{.reason = "stop", .stop_reason = "x"}}, false, {});
  EXPECT_EQ(last["choices"][0]["delta"], Json::object());
  EXPECT_EQ(last["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(last["choices"][0]["stop_reason"], "x");
  EXPECT_FALSE(last.contains("usage"));
  const Json usage = usage_frame_json(head, {.prompt = 3, .completion = 4, .cached = 2, .reasoning = 1});
  EXPECT_EQ(usage["choices"], Json::array());
  EXPECT_EQ(usage["usage"]["total_tokens"], 7);
  EXPECT_EQ(usage["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
  EXPECT_EQ(usage["usage"]["completion_tokens_details"]["reasoning_tokens"], 1);
  const std::string event = event_of({{"a", "b\xff\n"}});
  EXPECT_EQ(event, "data: {\"a\":\"b\xEF\xBF\xBD\\n\"}\n\n");
}

TEST(ServeFrames, HeadersNameWhatWasIgnoredAndNothingElse) {
  EXPECT_EQ(header_list({"a", "b_c"}), "a, b_c");
  EXPECT_EQ(header_list({"x\r\nSet-Cookie: a"}), "x??Set-Cookie??a");
  EXPECT_LT(header_list(std::vector<std::string>(1000, "name")).size(), 1100U);
}

TEST(ServeDescription, IsTheTable) {
  const Json api = openapi_json("1");
  for (const auto& [endpoint, schema] :
       {std::pair{Endpoint::chat, "ChatRequest"}, {Endpoint::completions, "CompletionRequest"}}) {
    const Json& properties = api["components"]["schemas"][schema]["properties"];
    for (const RequestField& field : request_fields()) {
      const RequestField* const found = find_field(field.name, endpoint);
      EXPECT_EQ(properties.contains(std::string(field.name)), found != nullptr && found->use != FieldUse::refused)
          << field.name;
      EXPECT_FALSE(field_schema(field)["anyOf"][0].is_discarded()) << field.name;
    }
  }
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
