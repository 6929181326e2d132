// Memory, files and threads fail one call after the other beneath the C interface: the right result or a typed error,
// and a second try works.
//
// MORACLE_FAILURES=all tries every call, =callers the first from each stack of callers, =100-200 these; else some of
// each kind, evenly spread.
#include <gtest/gtest.h>
#include <moracle/moracle.h>

#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "failures/chosen_calls.h"
#include "failures/failing_calls.h"
#include "failures/small_model.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

constexpr std::int64_t kSomeCalls = 60;

template <class Struct>
Struct sized() {
  Struct made{};
  made.size = sizeof made;
  return made;
}

// A program of the C interface, which ends at the first call that fails.
class Program {
 public:
  explicit Program(const std::string& folder) : folder_(folder) {}
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
  ~Program() {
    moracle_error_free(error_);
    if (server_ != nullptr) {
      EXPECT_EQ(moracle_server_close(server_), MORACLE_OK);
    }
    if (scheduler_ != nullptr) {
      EXPECT_EQ(moracle_scheduler_close(scheduler_), MORACLE_OK);
    }
    if (engine_ != nullptr) {
      EXPECT_EQ(moracle_engine_close(engine_), MORACLE_OK);
    }
    if (dense_ != nullptr) {
      EXPECT_EQ(moracle_dense_close(dense_), MORACLE_OK);
    }
    if (experts_ != nullptr) {
      EXPECT_EQ(moracle_experts_close(experts_), MORACLE_OK);
    }
    if (checkpoint_ != nullptr) {
      EXPECT_EQ(moracle_checkpoint_close(checkpoint_), MORACLE_OK);
    }
  }

  bool ask() {
    const auto plan = sized<moracle_plan_options>();
    auto verify = sized<moracle_verify_options>();
    verify.threads = 2;
    verify.tokens = 2;
    return document([&](char** json) { return moracle_inspect(folder_.c_str(), json, &error_); }) &&
           document([&](char** json) { return moracle_explain(folder_.c_str(), nullptr, json, &error_); }) &&
           document([&](char** json) { return moracle_plan(folder_.c_str(), &plan, json, &error_); }) &&
           document([&](char** json) { return moracle_verify(folder_.c_str(), &verify, json, &error_); });
  }

  bool run_layer() {
    if (!ok(moracle_checkpoint_open(folder_.c_str(), nullptr, &checkpoint_, &error_)) ||
        !ok(moracle_experts_open(checkpoint_, 0, nullptr, &experts_, &error_)))
      return false;
    auto info = sized<moracle_experts_info>();
    if (!ok(moracle_experts_describe(experts_, &info, &error_))) return false;
    static std::vector<float> x(4096, 0.5F);
    static std::vector<float> out(4096);
    const std::int32_t id = 0;
    const float weight = 1;
    auto call = sized<moracle_experts_call>();
    call.x_dtype = call.out_dtype = call.weights_dtype = MORACLE_F32;
    call.ids_dtype = MORACLE_INT32;
    call.tokens = call.top_k = 1;
    call.x = x.data();
    call.ids = &id;
    call.weights = &weight;
    call.out = out.data();
    if (info.hidden > 4096 || !ok(moracle_experts_run(experts_, &call, &error_))) return false;
    keep(out.data(), static_cast<std::size_t>(info.hidden) * sizeof out[0]);
    return true;
  }

  bool walk_dense() {
    if (!ok(moracle_checkpoint_open(folder_.c_str(), nullptr, &checkpoint_, &error_)) ||
        !ok(moracle_dense_open(checkpoint_, nullptr, &dense_, &error_)))
      return false;
    for (;;) {
      auto tensor = sized<moracle_tensor>();
      const moracle_status status = moracle_dense_next(dense_, &tensor, &error_);
      if (status == MORACLE_END) return true;
      if (status != MORACLE_OK) return false;
      keep(tensor.data, std::min<std::size_t>(tensor.bytes, 64));
    }
  }

  bool generate() {
    auto two = sized<moracle_generate_options>();
    two.set = MORACLE_SET_MAX_TOKENS;
    two.max_tokens = 2;
    const std::int32_t id = 0;
    std::int32_t* ids = nullptr;
    std::uint64_t count = 0;
    char* reply = nullptr;
    const char* const chat = R"({"messages": [{"role": "user", "content": " ab cab "}]})";
    const bool done = open_engine() && ok(moracle_engine_template(engine_, chat, nullptr, &ids, &count, &error_)) &&
                      ok(moracle_engine_generate(engine_, &id, 1, nullptr, &two, nullptr, nullptr, &reply, &error_));
    if (done) keep(ids, count * sizeof *ids);
    moracle_free(ids);
    moracle_free(reply);
    return done;
  }

  // A request that fails says so by its end.
  bool schedule() {
    if (!open_engine() || !ok(moracle_scheduler_open(engine_, nullptr, &scheduler_, &error_))) return false;
    auto two = sized<moracle_generate_options>();
    two.set = MORACLE_SET_MAX_TOKENS;
    two.max_tokens = 2;
    auto request = sized<moracle_request>();
    request.options = &two;
    request.logprobs = 1;
    request.top_logprobs = 2;
    const std::int32_t prompt[] = {1, 2, 3, 4};
    for (const std::uint64_t count : {std::uint64_t{1}, std::uint64_t{4}}) {
      std::uint64_t id = 0;
      if (!ok(moracle_scheduler_submit(scheduler_, prompt, count, &request, &id, &error_))) return false;
    }
    const moracle_on_event on_event = [](void* context, const moracle_event* event) {
      auto& self = *static_cast<Program*>(context);
      if (event->kind == MORACLE_EVENT_TOKEN) self.keep(&event->token, sizeof event->token);
      if (event->error != nullptr) self.code_ = event->error->code;
    };
    for (std::int32_t more = 1; more != 0;)
      if (!ok(moracle_scheduler_step(scheduler_, on_event, this, &more, &error_))) return false;
    return code_.empty();
  }

  // Listens, and tells where.
  bool serve() {
    char* json = nullptr;
    if (!open_engine() || !ok(moracle_server_open(engine_, nullptr, &server_, &error_)) ||
        !ok(moracle_server_json(server_, &json, &error_)))
      return false;
    moracle_free(json);
    std::int32_t ended = 0;
    return ok(moracle_server_stop(server_, &error_)) && ok(moracle_server_wait(server_, -1, &ended, &error_));
  }

  [[nodiscard]] const std::string& made() const { return made_; }
  // Of the call or of the request that failed.
  [[nodiscard]] std::string code() const { return error_ != nullptr ? error_->code : code_; }

 private:
  static bool ok(moracle_status status) { return status == MORACLE_OK; }
  bool open_engine() {
    auto options = sized<moracle_engine_options>();
    options.threads = 2;
    return ok(moracle_engine_open(folder_.c_str(), &options, &engine_, &error_));
  }
  template <class Call>
  static bool document(const Call& call) {
    char* json = nullptr;
    const bool answered = ok(call(&json));
    EXPECT_EQ(answered, json != nullptr);
    moracle_free(json);
    return answered;
  }
  void keep(const void* bytes, std::size_t count) {
    if (made_.size() + count <= made_.capacity()) made_.append(static_cast<const char*>(bytes), count);
  }

  const std::string& folder_;
  moracle_error* error_ = nullptr;
  moracle_checkpoint* checkpoint_ = nullptr;
  moracle_experts* experts_ = nullptr;
  moracle_dense* dense_ = nullptr;
  moracle_engine* engine_ = nullptr;
  moracle_scheduler* scheduler_ = nullptr;
  moracle_server* server_ = nullptr;
  std::string code_;
  std::string made_ = std::string(std::size_t{1} << 16, '\0').substr(0, 0);
};

struct Case {
  const char* name;
  bool (Program::*work)();
  Call call;
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name << ", " << name_of(one.call);
}

class LibraryFailures : public ::testing::TestWithParam<Case> {
 protected:
  struct Outcome {
    bool done = false;
    std::string made{};
    std::string code{};
  };
  // With the `at`-th call failing; 0: with none.
  Outcome attempt(std::int64_t at) {
    Program program(path_);
    arm(GetParam().call, at);
    const bool done = (program.*GetParam().work)();
    calls_ = disarm();
    return {done, program.made(), program.code()};
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path().string();
  std::int64_t calls_ = 0;
};

TEST_P(LibraryFailures, EndInAnErrorOrTheRightResult) {
  spare_json_destructors();
  ASSERT_NO_FATAL_FAILURE(write_small_model("mixtral-awq-w4g32", path_));
  const Outcome right = attempt(0);
  ASSERT_TRUE(right.done) << right.code;
  attempt(1);  // what is made once and kept
  if (chosen_by_callers()) note_callers();
  ASSERT_TRUE(attempt(0).done);
  const std::int64_t calls = calls_;
  std::int64_t tried = 0;
  std::int64_t refused = 0;
  for (const std::int64_t at : chosen_calls(calls, kSomeCalls, noted_calls())) {
    if (HasFailure()) break;
    SCOPED_TRACE(std::string(name_of(GetParam().call)) + " " + std::to_string(at));
    const Outcome outcome = attempt(at);
    ++tried;
    if (outcome.done) {
      EXPECT_EQ(outcome.made, right.made);
    } else {
      ++refused;
      EXPECT_NE(outcome.code, "");
      EXPECT_NE(outcome.code, "internal.exception");
    }
    const Outcome second = attempt(0);
    EXPECT_TRUE(second.done && second.made == right.made) << second.code;
  }
  std::cout << GetParam().name << ": " << tried << " of " << calls << " calls of " << name_of(GetParam().call)
            << " failed, " << refused << " of them with an error\n";
}

std::vector<Case> cases() {
  std::vector<Case> made;
  for (const Call call : {Call::allocate, Call::open, Call::read, Call::map, Call::thread}) {
    made.push_back({"ask", &Program::ask, call});
    made.push_back({"layer", &Program::run_layer, call});
    made.push_back({"dense", &Program::walk_dense, call});
    made.push_back({"generate", &Program::generate, call});
    made.push_back({"schedule", &Program::schedule, call});
#ifdef MORACLE_SERVE
    made.push_back({"serve", &Program::serve, call});
#endif
  }
  return made;
}

INSTANTIATE_TEST_SUITE_P(, LibraryFailures, ::testing::ValuesIn(cases()), [](const auto& info) {
  return std::string(info.param.name) + "_" + std::string(name_of(info.param.call));
});

}  // namespace
}  // namespace moracle::test
