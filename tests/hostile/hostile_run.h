// A model folder of a stranger, run through the program: it ends soon, in little memory, with one short error.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <regex>
#include <string>
#include <vector>

#include "support/subprocess.h"
#include "support/test_data.h"

namespace moracle::test {

inline constexpr std::size_t kErrorBytes = 4096;
// Sanitizers map terabytes of shadow memory, and make each step up to twenty times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
inline constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
inline constexpr bool kSanitized = false;
#endif
inline constexpr std::uint64_t kAddressSpace = kSanitized ? 0 : std::uint64_t{4} << 30;
inline constexpr double kCpuSeconds = kSanitized ? 40 : 2;

inline std::filesystem::path hostile_base(const std::string& base) {
  const auto checkpoint = data_dir() / "checkpoints" / base;
  return std::filesystem::exists(checkpoint) ? checkpoint : data_dir() / base;
}

// The run itself, up to three times where it took too long: what other programs do to a machine only adds to the time.
inline RunOutcome least_cpu(const std::vector<std::string>& command) {
  RunOutcome least;
  for (int i = 0; i < 3; ++i) {
    RunOutcome outcome = run_process(command, {.limit_s = 15 * kCpuSeconds, .address_space = kAddressSpace});
    if (i == 0 || outcome.cpu_s < least.cpu_s) least = std::move(outcome);
    if (least.timed_out || least.cpu_s < kCpuSeconds) break;
  }
  return least;
}

// `want` is a regular expression that the error must match; `served`: the answer may be right as well.
inline void expect_soon(const std::vector<std::string>& arguments, const std::string& want, bool served) {
  std::vector<std::string> command = {MORACLE_BINARY};
  command.insert(command.end(), arguments.begin(), arguments.end());
  const RunOutcome outcome = least_cpu(command);
  const std::string error = outcome.err.substr(0, kErrorBytes);
  EXPECT_FALSE(outcome.timed_out);
  EXPECT_LT(outcome.cpu_s, kCpuSeconds);
  EXPECT_LT(outcome.err.size(), kErrorBytes) << error;
  if (served && outcome.code == 0) return;
  EXPECT_EQ(outcome.code, 1) << error;
  EXPECT_TRUE(std::regex_search(error, std::regex(want))) << error;
}

}  // namespace moracle::test
