// Memory, files and threads fail one call after the other beneath the C interface: the right result or a typed error,
// and a second try works.
#include <gtest/gtest.h>
#include <moracle/moracle.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "failures/failing_calls.h"
#include "failures/small_model.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

// Output of a layer and tokens of the engine; empty where a call failed, with an error that was typed.
std::vector<float> attempt(const std::string& folder) {
  std::vector<float> result;
  moracle_error* error = nullptr;
  moracle_checkpoint* checkpoint = nullptr;
  moracle_experts* experts = nullptr;
  moracle_engine* engine = nullptr;
  char* reply = nullptr;
  const auto work = [&] {
    if (moracle_checkpoint_open(folder.c_str(), nullptr, &checkpoint, &error) != MORACLE_OK) return false;
    if (moracle_experts_open(checkpoint, 0, nullptr, &experts, &error) != MORACLE_OK) return false;
    moracle_experts_info info{};
    info.size = sizeof info;
    if (moracle_experts_describe(experts, &info, &error) != MORACLE_OK) return false;
    static std::vector<float> x(4096, 0.5F);
    static std::vector<float> out(4096);
    const std::int32_t id = 0;
    const float weight = 1;
    moracle_experts_call call{};
    call.size = sizeof call;
    call.x_dtype = call.out_dtype = call.weights_dtype = MORACLE_F32;
    call.ids_dtype = MORACLE_INT32;
    call.tokens = call.top_k = 1;
    call.x = x.data();
    call.ids = &id;
    call.weights = &weight;
    call.out = out.data();
    if (info.hidden > 4096 || moracle_experts_run(experts, &call, &error) != MORACLE_OK) return false;
    moracle_engine_options options{};
    options.size = sizeof options;
    options.threads = 2;
    if (moracle_engine_open(folder.c_str(), &options, &engine, &error) != MORACLE_OK) return false;
    moracle_generate_options two{};
    two.size = sizeof two;
    two.set = MORACLE_SET_MAX_TOKENS;
    two.max_tokens = 2;
    if (moracle_engine_generate(engine, &id, 1, nullptr, &two, nullptr, nullptr, &reply, &error) != MORACLE_OK)
      return false;
    result.assign(out.begin(), out.begin() + info.hidden);
    return true;
  };
  if (!work()) {
    EXPECT_NE(error, nullptr);
    if (error != nullptr) {
      EXPECT_STRNE(error->code, "");
      EXPECT_STRNE(error->code, "internal.exception") << error->message;
    }
  }
  moracle_error_free(error);
  moracle_free(reply);
  if (engine != nullptr) {
    EXPECT_EQ(moracle_engine_close(engine), MORACLE_OK);
  }
  if (experts != nullptr) {
    EXPECT_EQ(moracle_experts_close(experts), MORACLE_OK);
  }
  if (checkpoint != nullptr) {
    EXPECT_EQ(moracle_checkpoint_close(checkpoint), MORACLE_OK);
  }
  return result;
}

TEST(LibraryFailures, EndInAnErrorOrTheRightResult) {
  spare_json_destructors();
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_small_model("mixtral-awq-w4g32", folder.path()));
  const std::string path = folder.path().string();
  const std::vector<float> right = attempt(path);
  ASSERT_FALSE(right.empty());
  for (const Call kind : {Call::allocate, Call::open, Call::map, Call::thread}) {
    arm(kind, 0);
    ASSERT_EQ(attempt(path), right);
    const std::int64_t calls = disarm();
    const std::int64_t stride = std::max<std::int64_t>(1, calls / 60);
    for (std::int64_t at = 1; at <= calls && !HasFailure(); at += stride) {
      SCOPED_TRACE(std::string(name_of(kind)) + " " + std::to_string(at));
      arm(kind, at);
      const std::vector<float> made = attempt(path);
      disarm();
      EXPECT_TRUE(made.empty() || made == right);
      EXPECT_EQ(attempt(path), right);
    }
  }
}

}  // namespace
}  // namespace moracle::test
