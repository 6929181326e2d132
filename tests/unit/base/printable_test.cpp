#include "base/printable.h"

#include <gtest/gtest.h>

#include <string>

#include "base/json.h"
#include "base/unicode/utf8.h"

namespace moracle {
namespace {

using namespace std::string_literals;

TEST(Printable, LeavesTextAlone) {
  for (const char* text : {"", "model.layers.0.mlp", "päth/日本語/🙂", "a\\x1b", "back\\slash 'quoted' \"too\""}) {
    EXPECT_EQ(printable(text), text);
  }
}

TEST(Printable, ShowsWhatATerminalWouldObey) {
  EXPECT_EQ(printable("a\x1b[2Jb"), "a\\x1b[2Jb");
  EXPECT_EQ(printable("\a\b\r\x7f"), "\\x07\\x08\\x0d\\x7f");
  EXPECT_EQ(printable("one\ntwo\tthree"), "one\\ntwo\\tthree");
  EXPECT_EQ(printable("nul\0l"s), "nul\\x00l");
  EXPECT_EQ(printable("\u009b31m"), "\\xc2\\x9b31m") << "C1: what ESC [ is in eight bits";
  EXPECT_EQ(printable("\u0085\u00a0"), "\\xc2\\x85\u00a0");
  for (const char* mark : {"\u061c", "\u200e", "\u200f", "\u202a", "\u202b", "\u202c", "\u202d", "\u202e", "\u2066",
                           "\u2067", "\u2068", "\u2069", "\u2028", "\u2029", "\ufeff"}) {
    EXPECT_EQ(printable(mark).front(), '\\') << mark;
  }
  EXPECT_EQ(printable("\u200d\u2065\u206a"), "\u200d\u2065\u206a");
}

TEST(Printable, ShowsBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("\xff"), "\\xff");
  EXPECT_EQ(printable("\xc0\x80"), "\\xc0\\x80") << "overlong";
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_EQ(printable("\xe2\x82"), "\\xe2\\x82") << "cut";
  EXPECT_EQ(printable("\x9b"), "\\x9b");
}

TEST(Printable, CutsAtACharacterAndTellsTheSize) {
  EXPECT_EQ(printable(std::string(10, 'a'), 10), "aaaaaaaaaa");
  EXPECT_EQ(printable(std::string(11, 'a'), 10), "aaaaaaaaaa... (11 bytes)");
  EXPECT_EQ(printable("aaa\u00e4\u00e4", 4), "aaa... (7 bytes)");
  EXPECT_EQ(printable("\x1b\x1b", 7), "\\x1b... (2 bytes)");
  EXPECT_LT(printable(std::string(std::size_t{16} << 20, '\x1b')).size(), 340U);
}

TEST(Printable, ChangesNothingTheSecondTime) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const std::string once = printable(all, 10000);
  EXPECT_EQ(printable(once, 10000), once);
  EXPECT_TRUE(unicode::is_utf8(once));
}

TEST(Printable, PathsKeepTheirEnds) {
  EXPECT_EQ(printable_path("/models/a/config.json"), "/models/a/config.json");
  const std::string cut = printable_path("/models/" + std::string(4000, 'x') + "/config.json");
  EXPECT_LT(cut.size(), 310U);
  EXPECT_TRUE(cut.starts_with("/models/xxx")) << cut;
  EXPECT_TRUE(cut.ends_with("xxx/config.json")) << cut;
  EXPECT_EQ(printable_path("a\x1b"), "a\\x1b");
  EXPECT_LT(printable_path(std::string(4000, '\x1b')).size(), 1000U);
}

TEST(Printable, NamesStandInQuotes) {
  EXPECT_EQ(in_quotes("w"), "'w'");
  EXPECT_EQ(in_quotes("\x1b"), "'\\x1b'");
  EXPECT_TRUE(in_quotes(std::string(1000, 'n')).ends_with("n...'"));
}

TEST(Printable, JsonIsTheSameDocument) {
  const Json document{{"\u009b\u202e", "a\x7f\x1b\u00e4\n"}, {"list", {1, "\u2028"}}};
  const std::string shown = printable_json(document.dump(2));
  EXPECT_EQ(shown.find("\u009b"), std::string::npos);
  EXPECT_EQ(shown.find("\u202e"), std::string::npos);
  EXPECT_EQ(shown.find('\x7f'), std::string::npos);
  EXPECT_NE(shown.find("\\u202e"), std::string::npos) << shown;
  EXPECT_EQ(Json::parse(shown), document);
  EXPECT_EQ(printable_json(Json{{"a", {1, 2}}}.dump(2)), (Json{{"a", {1, 2}}}.dump(2)));
}

}  // namespace
}  // namespace moracle
