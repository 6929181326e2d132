#include "generate/stop_texts.h"

#include <gtest/gtest.h>

namespace moracle {
namespace {

// The pieces given out for each push, joined by '|', then what finish() gives.
std::string through(StopTexts stops, const std::vector<std::string>& pieces) {
  std::string text;
  for (const std::string& piece : pieces) text += stops.push(piece) + "|";
  return text + stops.finish() + (stops.reached() ? "!" : "");
}

TEST(StopTexts, WithoutAnyEverythingPasses) {
  EXPECT_EQ(through(StopTexts({}), {"a", "", "bc"}), "a||bc|");
  EXPECT_EQ(through(StopTexts({""}), {"a"}), "a|");
}

TEST(StopTexts, TextEndsBeforeTheStop) {
  EXPECT_EQ(through(StopTexts({"END"}), {"one END two"}), "one |!");
  EXPECT_EQ(through(StopTexts({"END"}), {"END"}), "|!");
}

TEST(StopTexts, ABeginningIsHeldBackUntilItIsOne) {
  EXPECT_EQ(through(StopTexts({"END"}), {"one E", "N", "D", "two"}), "one ||||!");
  EXPECT_EQ(through(StopTexts({"END"}), {"one E", "N", "X"}), "one ||ENX|");
  EXPECT_EQ(through(StopTexts({"aab"}), {"a", "a", "a", "b"}), "||a||!");
  EXPECT_EQ(through(StopTexts({"END"}), {"one EN"}), "one |EN");
}

TEST(StopTexts, TheFirstOfSeveralCounts) {
  EXPECT_EQ(through(StopTexts({"late", "la"}), {"x late"}), "x |!");
  EXPECT_EQ(through(StopTexts({"two", "one"}), {"a one two"}), "a |!");
  EXPECT_EQ(through(StopTexts({"abcd", "bc"}), {"ab", "c"}), "|a|!");
}

}  // namespace
}  // namespace moracle
