// The documents of the C interface are those of the command line; what is wrong with a call is an error of the call.
#include <vector>

#include "support/subprocess.h"
#include "unit/api/c_call.h"

namespace moracle::test {
namespace {

Json cli(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), MORACLE_BINARY);
  arguments.emplace_back("--json");
  const RunOutcome outcome = run_process(arguments);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return Json::parse(outcome.out, nullptr, false);
}

class CQuestions : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = checkpoint_folder(GetParam());
};

TEST_P(CQuestions, InspectIsTheCommandLines) {
  const Json document =
      document_of([&](char** json, moracle_error** error) { return moracle_inspect(folder_.c_str(), json, error); });
  EXPECT_EQ(document, cli({"inspect", folder_}));
}

TEST_P(CQuestions, ExplainIsTheCommandLines) {
  for (const char* const device : {"cpu", "h200", "zen4"}) {
    moracle_explain_options options{};
    options.size = sizeof options;
    options.device = device;
    const Json document = document_of(
        [&](char** json, moracle_error** error) { return moracle_explain(folder_.c_str(), &options, json, error); });
    EXPECT_EQ(document, cli({"explain", folder_, "--device", device}));
  }
}

TEST_P(CQuestions, PlanIsTheCommandLines) {
  moracle_plan_options options{};
  options.size = sizeof options;
  options.ep = 2;
  options.context = 256;
  const Json document = document_of(
      [&](char** json, moracle_error** error) { return moracle_plan(folder_.c_str(), &options, json, error); });
  EXPECT_EQ(document, cli({"plan", folder_, "--ep", "2", "--context", "256"}));
}

TEST_P(CQuestions, PlanCountsTheChosenNumbers) {
  std::vector<std::int64_t> bytes;
  for (const char* const kv : {"f32", "bf16", "int8"}) {
    moracle_plan_options options{};
    options.size = sizeof options;
    options.kv = kv;
    const Json document = document_of(
        [&](char** json, moracle_error** error) { return moracle_plan(folder_.c_str(), &options, json, error); });
    EXPECT_EQ(document, cli({"plan", folder_, "--kv", kv}));
    bytes.push_back(document.at("kv_cache_bytes").get<std::int64_t>());
  }
  EXPECT_EQ(bytes[0], 2 * bytes[1]);
  EXPECT_GT(bytes[1], bytes[2]);
}

TEST_P(CQuestions, VerifyIsTheCommandLines) {
  const Json document = document_of(
      [&](char** json, moracle_error** error) { return moracle_verify(folder_.c_str(), nullptr, json, error); });
  EXPECT_EQ(document, cli({"verify", folder_}));
  EXPECT_EQ(document.value("ok", false), true);
}

INSTANTIATE_TEST_SUITE_P(, CQuestions, ::testing::Values(kMixtral, kQwen, kActOrder), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(CQuestionsErrors, NameTheRule) {
  const std::string folder = checkpoint_folder(kQwen);
  char* json = nullptr;
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** error) { return moracle_inspect(nullptr, &json, error); }),
            "argument.null");
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** error) { return moracle_inspect(folder.c_str(), nullptr, error); }),
            "argument.null");
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** error) { return moracle_inspect("\xff", &json, error); }),
            "argument.utf8");
  EXPECT_EQ(code_of(MORACLE_FAILED, [&](auto** error) { return moracle_inspect("/no/folder", &json, error); }),
            "file.open");
  EXPECT_EQ(moracle_inspect("/no/folder", &json, nullptr), MORACLE_FAILED);

  moracle_plan_options plan{};
  plan.size = sizeof plan;
  plan.tp = 3;
  CallError error;
  ASSERT_EQ(moracle_plan(folder.c_str(), &plan, &json, &error.error), MORACLE_FAILED);
  EXPECT_EQ(error.code(), "plan.tp");
  EXPECT_NE(error.message().find("legal: 1"), std::string::npos) << error.message();
  plan.tp = 1;
  plan.kv = "f16";
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return moracle_plan(folder.c_str(), &plan, &json, e); }),
            "argument.name");
  plan.kv = nullptr;
  plan.tp = -1;
  EXPECT_EQ(code_of(MORACLE_INVALID, [&](auto** e) { return moracle_plan(folder.c_str(), &plan, &json, e); }),
            "argument.range");

  moracle_policy policy{};
  policy.size = sizeof policy;
  policy.numerics = 7;
  moracle_explain_options explain{};
  explain.size = sizeof explain;
  explain.policy = &policy;
  const auto explained = [&](auto** e) { return moracle_explain(folder.c_str(), &explain, &json, e); };
  EXPECT_EQ(code_of(MORACLE_INVALID, explained), "argument.range");
  policy.numerics = MORACLE_EXACT;
  policy.backend = "no-such-backend";
  EXPECT_EQ(code_of(MORACLE_FAILED, explained), "oracle.pinned");
  explain.policy = nullptr;
  explain.device = "no-such-device";
  EXPECT_EQ(code_of(MORACLE_FAILED, explained), "device.unknown");
}

// Older callers have less of a struct, later ones more.
TEST(CQuestionsErrors, StructsHaveSizes) {
  const std::string folder = checkpoint_folder(kQwen);
  struct Later {
    moracle_explain_options known;
    std::uint64_t more;
  } later{};
  char* json = nullptr;
  const auto explained = [&](auto** error) { return moracle_explain(folder.c_str(), &later.known, &json, error); };
  for (const std::uint32_t size : {0U, 4U, 1U << 30}) {
    later.known.size = size;
    EXPECT_EQ(code_of(MORACLE_INVALID, explained), "argument.size") << size;
  }
  later.known.size = sizeof later;
  EXPECT_EQ(code_of(MORACLE_OK, explained), "");
  moracle_free(json);
  later.more = 1;
  EXPECT_EQ(code_of(MORACLE_INVALID, explained), "argument.newer");
  later.known.size = 8;  // without a device
  later.known.device = "no-such-device";
  EXPECT_EQ(code_of(MORACLE_OK, explained), "");
  moracle_free(json);
}

TEST(CQuestionsErrors, ProgressMayStop) {
  moracle_verify_options options{};
  options.size = sizeof options;
  int calls = 0;
  options.context = &calls;
  options.on_progress = [](void* context, std::uint64_t, std::uint64_t) -> std::int32_t {
    return ++*static_cast<int*>(context) == 2 ? 1 : 0;
  };
  char* json = nullptr;
  EXPECT_EQ(
      code_of(MORACLE_INTERRUPTED,
              [&](auto** error) { return moracle_verify(checkpoint_folder(kQwen).c_str(), &options, &json, error); }),
      "call.interrupted");
  EXPECT_EQ(calls, 2);
}

TEST(CVllm, AnswersALineOfRequests) {
  const std::string request = R"({
    "id": "a", "oracle": "int8",
    "platform": {"kind": "rocm", "arch": "gfx1100", "libs": "all", "capability": 110},
    "request": {
      "quant": {"weight_key": "kInt8StaticChannelSym", "activation_key": "kInt8DynamicTokenSym"},
      "activation": "silu", "routing": "Renormalize", "dtype": "bf16", "router_logits_dtype": null,
      "shape": {"hidden": 2048, "intermediate": 768, "num_experts": 992, "topk": 8},
      "parallel": {"tp": 1, "dp": 1, "pcp": 1, "sp": 1, "enable_ep": false, "all2all": "allgather_reducescatter",
                   "eplb": false},
      "moe_backend": "auto", "has_bias": true, "lora": false, "hash_routing": false, "require_decomposed": false,
      "swiglu_limit": null, "swiglu_alpha": 1.702, "swiglu_beta": 1.0, "situ": [null, null], "env": {}}})";
  const Json answer = document_of(
      [&](char** json, moracle_error** error) { return moracle_explain_vllm(request.c_str(), json, error); });
  EXPECT_EQ(answer.at("id"), "a");
  EXPECT_EQ(answer.at("result"), Json({{"backend", "TRITON"}, {"experts_class", "TritonExperts"}}));
  EXPECT_FALSE(answer.at("trace").empty());
  char* json = nullptr;
  const auto code = [&](moracle_status status, const char* line) {
    return code_of(status, [&](auto** error) { return moracle_explain_vllm(line, &json, error); });
  };
  EXPECT_EQ(code(MORACLE_INVALID, nullptr), "argument.null");
  EXPECT_EQ(code(MORACLE_FAILED, "{"), "json.syntax");
  EXPECT_EQ(code(MORACLE_FAILED, R"({"id": "a", "oracle": "none", "platform": {}, "request": {}})"), "request.unknown");
  EXPECT_EQ(json, nullptr);
}

TEST(CVersions, AreThose) {
  EXPECT_EQ(moracle_abi_version(), MORACLE_ABI_VERSION);
  EXPECT_FALSE(std::string(moracle_version()).empty());
}

}  // namespace
}  // namespace moracle::test
