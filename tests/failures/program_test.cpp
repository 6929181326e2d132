// The program as it is, with one of its calls failing: exit code 0 and the right text, or 1 and one line with a code.
//
// MORACLE_FAILURES=all tries every call, =100-200 these; else some of each kind, evenly spread.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <regex>
#include <string>
#include <vector>

#include "failures/chosen_calls.h"
#include "failures/failing_calls.h"
#include "failures/small_model.h"
#include "support/subprocess.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

constexpr std::int64_t kSomeCalls = 40;

struct Case {
  Call call;
  bool for_good;  // all later calls, too
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << name_of(one.call) << (one.for_good ? ", for good" : "");
}

class ProgramFailures : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(write_small_model("mixtral-awq-w4g32", folder_.path())); }

  [[nodiscard]] RunOutcome run(std::int64_t at) const {
    const auto& [call, for_good] = GetParam();
    std::vector<std::string> arguments{"/usr/bin/env", "LD_PRELOAD=" MORACLE_FAILING_CALLS,
                                       "FAIL_CALL=" + std::string(name_of(call)), "FAIL_AT=" + std::to_string(at),
                                       "FAIL_REPORT=" + (folder_.path() / "calls").string()};
    if (for_good) arguments.emplace_back("FAIL_FOR_GOOD=1");
    for (const char* argument : {MORACLE_BINARY, "run", folder_.path().c_str(), "-p", "ab cab", "-n", "2", "--chat",
                                 "--threads", "3", "--temperature", "0"}) {
      arguments.emplace_back(argument);
    }
    return run_process(arguments, {.limit_s = 60});
  }

  [[nodiscard]] std::int64_t calls() const {
    std::ifstream file(folder_.path() / "calls");
    std::int64_t number = 0;
    file >> number;
    return number;
  }

  TemporaryFolder folder_;
};

// One line that begins as all errors do and has a code; before it, notes and warnings.
bool is_error(const std::string& text) {
  static const std::regex kError(R"((moracle: (?!error:)[^\n]*\n)*moracle: error: [^\n]*\[[a-z_]+\.[a-z_]+\][^\n]*\n)");
  return std::regex_match(text, kError);
}

TEST_P(ProgramFailures, EndInOneErrorOrTheRightText) {
  const RunOutcome right = run(0);
  ASSERT_EQ(right.code, 0) << right.err;
  const std::int64_t all_calls = calls();
  ASSERT_GT(all_calls, 0);
  std::int64_t tried = 0;
  std::int64_t refused = 0;
  for (const std::int64_t at : chosen_calls(all_calls, kSomeCalls)) {
    SCOPED_TRACE("call " + std::to_string(at) + " of " + std::to_string(all_calls));
    const RunOutcome outcome = run(at);
    ++tried;
    EXPECT_FALSE(outcome.timed_out);
    if (outcome.code == 0) {
      EXPECT_EQ(outcome.out, right.out);
    } else {
      ++refused;
      EXPECT_EQ(outcome.code, 1) << outcome.err;
      EXPECT_TRUE(is_error(outcome.err)) << outcome.err;
    }
  }
  std::cout << name_of(GetParam().call) << ": " << tried << " of " << all_calls << " calls failed, " << refused
            << " of them with an error\n";
}

INSTANTIATE_TEST_SUITE_P(, ProgramFailures,
                         ::testing::Values(Case{Call::allocate, false}, Case{Call::open, false},
                                           Case{Call::read, false}, Case{Call::map, false}, Case{Call::thread, false},
                                           Case{Call::allocate, true}, Case{Call::open, true}, Case{Call::read, true},
                                           Case{Call::map, true}, Case{Call::thread, true}),
                         [](const auto& info) {
                           return std::string(name_of(info.param.call)) + (info.param.for_good ? "_for_good" : "");
                         });

}  // namespace
}  // namespace moracle::test
