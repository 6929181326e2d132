#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>

namespace moracle {
namespace {

Result<int> positive(int value) {
  if (value <= 0) return Error{.code = "test.range", .found = std::to_string(value)};
  return value;
}

Result<> check(int value) {
  MORACLE_TRY(positive(value));
  return Ok{};
}

Result<int> sum(int a, int b) {
  MORACLE_ASSIGN(const int first, positive(a));
  MORACLE_ASSIGN(const int second, positive(b));
  return first + second;
}

TEST(Result, CarriesAValueOrAnError) {
  const auto good = positive(3);
  ASSERT_TRUE(good.ok());
  EXPECT_TRUE(static_cast<bool>(good));
  EXPECT_EQ(*good, 3);
  const auto bad = positive(-3);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().code, "test.range");
}

TEST(Result, MacrosHandErrorsOn) {
  EXPECT_TRUE(check(1).ok());
  EXPECT_EQ(check(0).error().found, "0");
  EXPECT_EQ(*sum(1, 2), 3);
  EXPECT_EQ(sum(-1, -2).error().found, "-1");
  EXPECT_EQ(sum(1, -2).error().found, "-2");
}

TEST(Result, MovesWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = std::move(result).value();
  EXPECT_EQ(*taken, 7);
}

// An Error is a value type as any other: a Result may hold one on either side of the fence.
TEST(Result, TellsAnErrorFromAString) {
  const Result<std::string> text(std::string("text"));
  EXPECT_TRUE(text.ok());
  const Result<std::string> error(Error{.code = "c", .found = "f"});
  EXPECT_FALSE(error.ok());
}

TEST(Error, MessageNamesEveryPartOnce) {
  const Error full{.code = "area.rule", .file = "f", .where = "w", .wanted = "x", .found = "y", .advice = "z"};
  EXPECT_EQ(full.message(), "f: w: wanted x, found y [area.rule]; z");
}

TEST(Error, MessageLeavesOutWhatIsEmpty) {
  EXPECT_EQ((Error{.code = "c", .found = "y"}.message()), "y [c]");
  EXPECT_EQ((Error{.code = "c", .file = "f", .found = "y"}.message()), "f: y [c]");
  EXPECT_EQ((Error{.code = "c", .where = "w", .wanted = "x", .found = "y"}.message()), "w: wanted x, found y [c]");
  EXPECT_EQ((Error{.code = "c", .wanted = "x", .found = "y", .advice = "z"}.message()), "wanted x, found y [c]; z");
}

TEST(Error, MessageOfAnythingIsPrintableAndShort) {
  const std::string huge = std::string("\x1b]0;title\x07\u009b\u202e\n") + std::string(std::size_t{1} << 20, 'x');
  const Error hostile{.code = huge,
                      .file = huge,
                      .where = huge,
                      .wanted = huge,
                      .found = huge,
                      .advice = huge,
                      .details = std::vector<std::string>(30, huge)};
  const std::string message = hostile.message();
  EXPECT_LT(message.size(), 4096U);
  for (const char* bad : {"\x1b", "\x07", "\u009b", "\u202e"}) EXPECT_EQ(message.find(bad), std::string::npos);
  EXPECT_NE(message.find("\\x1b]0;title"), std::string::npos) << message;
}

TEST(Error, DetailsStandOnLinesOfTheirOwn) {
  const Error error{.code = "c", .found = "y", .advice = "z", .details = {"first", "se\ncond"}};
  EXPECT_EQ(error.message(), "y [c]; z\n  first\n  se\\ncond");
}

}  // namespace
}  // namespace moracle
