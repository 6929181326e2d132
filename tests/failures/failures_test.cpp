// Memory, files and threads fail one call after the other while a model is loaded and makes two tokens. Each time: the
// right tokens or a typed error, nothing kept, and a second try works.
//
// MORACLE_FAILURES=all tries every call, =callers the first from each stack of callers, =100-200 these; else some of
// each kind, evenly spread.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "base/guarded.h"
#include "failures/chosen_calls.h"
#include "failures/failing_calls.h"
#include "failures/small_model.h"
#include "generate/session.h"
#include "support/process_entries.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

constexpr std::int64_t kSomeCalls = 60;

// Made before any call fails: where memory ends while nlohmann::json copies a list of initial values into a value, it
// keeps what it has copied.
const ChatRequest& chat() {
  static const ChatRequest made = [] {
    ChatRequest request;
    request.messages = OrderedJson::array({{{"role", "user"}, {"content", " ab cab "}}});
    return request;
  }();
  return made;
}

Result<std::vector<std::int32_t>> generate_two(const std::filesystem::path& folder, const Machine& machine) {
  SessionOptions options;
  options.folder = folder;
  options.machine = machine;
  options.threads = 3;
  MORACLE_ASSIGN(const auto session, Session::open(options));
  MORACLE_ASSIGN(const ChatPrompt prompt, session->text().encode_chat(chat()));
  MORACLE_ASSIGN(const auto state, session->model().new_sequence());
  MORACLE_ASSIGN(const Generation made,
                 complete(*session, *state, prompt.ids, {.max_tokens = 2}, [](std::string_view) {}, {}));
  return made.ids;
}

// As the program guards all that it does.
Result<std::vector<std::int32_t>> attempt(const std::filesystem::path& folder, const Machine& machine) {
  return guarded("make two tokens", [&] { return generate_two(folder, machine); });
}

// What a process holds.
struct Held {
  std::int64_t blocks = live_blocks();
  std::size_t files = entries_of("/proc/self/fd");
  std::size_t threads = entries_of("/proc/self/task");
  bool operator==(const Held&) const = default;
};

// What is held once `threads` are left.
Held held_beside(std::size_t threads) {
  static_cast<void>(threads_left(threads));
  return {};
}

std::ostream& operator<<(std::ostream& out, const Held& held) {
  return out << held.blocks << " blocks, " << held.files << " files, " << held.threads << " threads";
}

struct Case {
  const char* model;
  Call call;
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.model << ", " << name_of(one.call);
}

class Failures : public ::testing::TestWithParam<Case> {
 protected:
  // Whether the attempt whose `at`-th call fails ended in an error.
  static bool try_one(const std::filesystem::path& folder, const Machine& machine, std::int64_t at,
                      const std::vector<std::int32_t>& right) {
    const Call call = GetParam().call;
    SCOPED_TRACE(std::string(name_of(call)) + " " + std::to_string(at));
    arm(call, at);
    const auto ids = attempt(folder, machine);
    disarm();
    if (ids.ok()) {
      EXPECT_EQ(*ids, right);
    } else {
      EXPECT_NE(ids.error().code, "internal.exception") << ids.error().message();
      EXPECT_FALSE(ids.error().code.empty() || ids.error().found.empty()) << ids.error().message();
    }
    const auto second = attempt(folder, machine);
    EXPECT_TRUE(second.ok() && *second == right) << (second.ok() ? "other tokens" : second.error().message());
    return !ids.ok();
  }
};

TEST_P(Failures, EndInAnErrorOrTheRightTokens) {
  const auto& [model, call] = GetParam();
  spare_json_destructors();
  const TemporaryFolder folder;
  ASSERT_NO_FATAL_FAILURE(write_small_model(model, folder.path()));
  const Machine machine = probe_machine();
  const auto right = attempt(folder.path(), machine);
  ASSERT_TRUE(right.ok() && right->size() == 2) << (right.ok() ? "too few tokens" : right.error().message());
  // What is made once and kept, of failures too.
  try_one(folder.path(), machine, 1, *right);
  if (chosen_by_callers()) note_callers();
  arm(call, 0);
  EXPECT_TRUE(attempt(folder.path(), machine).ok());
  const std::int64_t calls = disarm();
  ASSERT_GT(calls, 0);
  const std::vector<std::int64_t> chosen = chosen_calls(calls, kSomeCalls, noted_calls());
  const Held before = held_beside(1);

  std::int64_t tried = 0;
  std::int64_t refused = 0;
  for (const std::int64_t at : chosen) {
    refused += try_one(folder.path(), machine, at, *right) ? 1 : 0;
    ++tried;
    EXPECT_EQ(held_beside(1), before) << name_of(call) << " " << at;
    if (HasFailure()) break;
  }
  std::cout << model << ": " << tried << " of " << calls << " calls of " << name_of(call) << " failed, " << refused
            << " of them with an error\n";
}

INSTANTIATE_TEST_SUITE_P(
    , Failures,
    ::testing::Values(Case{"mixtral-awq-w4g32", Call::allocate}, Case{"mixtral-awq-w4g32", Call::open},
                      Case{"mixtral-awq-w4g32", Call::read}, Case{"mixtral-awq-w4g32", Call::map},
                      Case{"mixtral-awq-w4g32", Call::thread}, Case{"dsv3-ct-fp8-block", Call::allocate},
                      Case{"dsv3-ct-fp8-block", Call::map}),
    [](const auto& info) {
      std::string name = std::string(info.param.model) + "_" + std::string(name_of(info.param.call));
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

}  // namespace
}  // namespace moracle::test
