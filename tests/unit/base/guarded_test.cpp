#include "base/guarded.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <new>
#include <stdexcept>
#include <system_error>

namespace moracle {
namespace {

template <class Throw>
Error error_of(Throw thrower) {
  const Result<int> result = guarded("load the weights", [&]() -> Result<int> {
    thrower();
    return 1;
  });
  EXPECT_FALSE(result.ok());
  return result.ok() ? Error{} : result.error();
}

TEST(Guarded, HandsResultsOn) {
  EXPECT_EQ(*guarded("count", [] { return Result<int>(3); }), 3);
  const auto refused = guarded("count", [] { return Result<int>(Error{.code = "a.b", .found = "c"}); });
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "a.b");
}

TEST(Guarded, MemoryThatRunsOutNamesWhatItWasFor) {
  for (const Error& error :
       {error_of([] { throw std::bad_alloc(); }), error_of([] { throw std::length_error("vector"); }),
        error_of([] { throw std::system_error(std::make_error_code(std::errc::not_enough_memory)); })}) {
    EXPECT_EQ(error.code, "memory.exhausted");
    EXPECT_EQ(error.where, "load the weights");
    EXPECT_NE(error.wanted.find("load the weights"), std::string::npos);
    EXPECT_FALSE(error.advice.empty());
  }
}

TEST(Guarded, ThreadsThatDoNotStartAreThreads) {
  const Error error =
      error_of([] { throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)); });
  EXPECT_EQ(error.code, "threads.start");
  EXPECT_NE(error.advice.find("--threads"), std::string::npos);
}

TEST(Guarded, FilesAreNamed) {
  const Error error = error_of([] { static_cast<void>(std::filesystem::file_size("/nowhere/at/all")); });
  EXPECT_EQ(error.code, "file.open");
  EXPECT_EQ(error.file, "/nowhere/at/all");
}

TEST(Guarded, OtherExceptionsAreFaultsOfTheProgram) {
  EXPECT_EQ(error_of([] { throw std::runtime_error("odd"); }).found, "odd");
  EXPECT_EQ(error_of([] { throw std::runtime_error("odd"); }).code, "internal.exception");
  EXPECT_EQ(error_of([] { throw 7; }).code, "internal.exception");
  EXPECT_EQ(error_of([] { throw std::system_error(std::make_error_code(std::errc::broken_pipe)); }).code,
            "system.failed");
}

}  // namespace
}  // namespace moracle
