// A GPU through the C interface: the object of the tests, over host memory, in place of libmoracle_cuda.so.
#include <cstdlib>
#include <string>

#include "support/subprocess.h"
#include "unit/api/c_call.h"

namespace moracle::test {
namespace {

// Before the library looks for it, which it does once.
const int kNamed = ::setenv("MORACLE_CUDA_LIBRARY", MORACLE_HOST_OBJECT, 1);

class CDevices : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(kNamed, 0); }
  // The status of opening an engine, which is closed again.
  static std::string code_of_engine(moracle_status status, const moracle_engine_options& options) {
    moracle_engine* engine = nullptr;
    const std::string code = code_of(status, [&](moracle_error** error) {
      return moracle_engine_open(checkpoint_folder(kQwen).c_str(), &options, &engine, error);
    });
    if (engine != nullptr) {
      EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
    }
    return code;
  }
  static moracle_engine_options on(const char* device) {
    moracle_engine_options options{};
    options.size = sizeof options;
    options.threads = 2;
    options.device = device;
    return options;
  }
  static Json program(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), MORACLE_BINARY);
    arguments.emplace_back("--json");
    const RunOutcome outcome = run_process(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  }
  const std::string folder_ = checkpoint_folder(kQwen);
};

TEST_F(CDevices, ComputesTheExperts) {
  const auto options = on("cuda:0");
  moracle_engine* engine = nullptr;
  CallError error;
  ASSERT_EQ(moracle_engine_open(folder_.c_str(), &options, &engine, &error.error), MORACLE_OK) << error.message();
  const Json described =
      document_of([&](char** json, moracle_error** failed) { return moracle_engine_json(engine, json, failed); });
  EXPECT_NE(described.at("backend").dump().find("portable"), std::string::npos) << described;
  const std::string prompt = "The old man";
  std::int32_t* ids = nullptr;
  std::uint64_t count = 0;
  ASSERT_EQ(moracle_engine_tokenize(engine, prompt.data(), prompt.size(), &ids, &count, nullptr), MORACLE_OK);
  moracle_generate_options how{};
  how.size = sizeof how;
  how.set = MORACLE_SET_MAX_TOKENS | MORACLE_SET_TEMPERATURE;
  how.max_tokens = 6;
  const Json reply = document_of([&](char** json, moracle_error** failed) {
    return moracle_engine_generate(engine, ids, count, prompt.c_str(), &how, nullptr, nullptr, json, failed);
  });
  moracle_free(ids);
  const Json said = program({"run", folder_, "-p", prompt, "-n", "6", "--temperature", "0", "--device", "cuda:0"});
  EXPECT_EQ(reply.at("ids"), said.at("ids"));
  EXPECT_EQ(reply.at("backend"), said.at("backend"));
  EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
}

TEST_F(CDevices, AnswersQuestions) {
  moracle_explain_options explain{};
  explain.size = sizeof explain;
  explain.device = "cuda:0";
  EXPECT_EQ(document_of([&](char** json, moracle_error** error) {
              return moracle_explain(folder_.c_str(), &explain, json, error);
            }),
            program({"explain", folder_, "--device", "cuda:0"}));
  moracle_plan_options plan{};
  plan.size = sizeof plan;
  plan.device = "cuda:0";
  EXPECT_EQ(document_of(
                [&](char** json, moracle_error** error) { return moracle_plan(folder_.c_str(), &plan, json, error); }),
            program({"plan", folder_, "--device", "cuda:0"}));
  moracle_verify_options verify{};
  verify.size = sizeof verify;
  verify.tokens = 4;
  verify.device = "cuda:0";
  const Json verified = document_of(
      [&](char** json, moracle_error** error) { return moracle_verify(folder_.c_str(), &verify, json, error); });
  EXPECT_EQ(verified.at("ok"), true) << verified;
}

TEST_F(CDevices, ThatAreNotHereAreErrors) {
  EXPECT_EQ(code_of_engine(MORACLE_FAILED, on("cuda:7")), "device.unknown");
  EXPECT_EQ(code_of_engine(MORACLE_FAILED, on("cuda:x")), "device.unknown");
  EXPECT_EQ(code_of_engine(MORACLE_FAILED, on("no-such-device")), "device.unknown");
  EXPECT_EQ(code_of_engine(MORACLE_FAILED, on("h200")), "device.elsewhere");
  EXPECT_EQ(code_of_engine(MORACLE_OK, on("cpu")), "");
}

TEST_F(CDevices, AreNoMembersOfEarlierStructs) {
  auto earlier = on("no-such-device");
  earlier.size = offsetof(moracle_engine_options, device);
  EXPECT_EQ(code_of_engine(MORACLE_OK, earlier), "");
}

TEST_F(CDevices, LoadsEndWhereProgressSaysSo) {
  auto options = on(nullptr);
  int calls = 0;
  options.context = &calls;
  options.on_progress = [](void* context, std::uint64_t /*done*/, std::uint64_t /*total*/) -> std::int32_t {
    ++*static_cast<int*>(context);
    return 1;
  };
  EXPECT_EQ(code_of_engine(MORACLE_INTERRUPTED, options), "call.interrupted");
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace moracle::test
