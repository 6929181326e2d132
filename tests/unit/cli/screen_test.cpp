#include "cli/screen.h"

#include <gtest/gtest.h>

#include "cli/option_table.h"

namespace moracle::cli {
namespace {

using Lines = std::vector<std::string>;

TEST(Wrapped, BreaksAtSpacesThenPathsThenNames) {
  EXPECT_EQ(wrapped("one two three", 7), (Lines{"one two", "three"}));
  EXPECT_EQ(wrapped("model.layers.0.mlp", 13), (Lines{"model.layers.", "0.mlp"}));
  EXPECT_EQ(wrapped("gate_up_proj", 9), (Lines{"gate_up_", "proj"}));
  EXPECT_EQ(wrapped("abcdefgh", 3), (Lines{"abc", "def", "gh"}));
  EXPECT_EQ(wrapped("a\n\nb", 9), (Lines{"a", "", "b"}));
  EXPECT_EQ(wrapped("", 9), (Lines{""}));
}

TEST(Wrapped, CountsColumnsAndNotBytes) {
  EXPECT_EQ(columns_of("\xc3\xa4\xe4\xb8\xad"), 3U) << "a umlaut, and a character two columns wide";
  EXPECT_EQ(columns_of("\x1b[31mred\x1b[0m"), 3U);
  EXPECT_EQ(wrapped("\xe4\xb8\xad\xe4\xb8\xad\xe4\xb8\xad", 4), (Lines{"\xe4\xb8\xad\xe4\xb8\xad", "\xe4\xb8\xad"}));
}

TEST(Paragraph, IndentsWhatFollowsItsLead) {
  EXPECT_EQ(paragraph("  -n N", "how many", 20, 10), "  -n N    how many\n");
  EXPECT_EQ(paragraph("  --long-option NAME", "text", 24, 10), "  --long-option NAME\n          text\n");
  EXPECT_EQ(hanging("error: a b c d", 9), "error: a\n  b c d\n");
}

TEST(TextTable, TakesOutTheLeastTellingColumnsFirst) {
  TextTable table({{.title = "name", .narrow = Narrow::wrap},
                   {.title = "kind", .narrow = Narrow::drop, .rank = 1},
                   {.title = "why", .narrow = Narrow::below, .rank = 2},
                   {.title = "size", .right = true}});
  table.row({"a", "linear", "named in the config", "1 B"});
  EXPECT_EQ(table.text(40), "name  kind    why                  size\na     linear  named in the config   1 B\n");
  EXPECT_EQ(table.text(36), "name  kind    size\na     linear   1 B\n    why: named in the config\n");
  EXPECT_EQ(table.text(16),
            "name  size\na      1 B\n    why: named\n    in the\n    config\n(left out at\nthis width:\nkind)\n");
}

TEST(Nearest, IsNoneWhereNothingIsNear) {
  const Lines known = {"run", "inspect", "explain", "plan", "version"};
  EXPECT_EQ(nearest("inspec", known), "inspect");
  EXPECT_EQ(nearest("paln", known), "plan");
  EXPECT_EQ(nearest("verison", known), "version");
  EXPECT_EQ(nearest("foo", known), "");
  EXPECT_EQ(nearest("", known), "");
  EXPECT_EQ(nearest(std::string(1000, 'x'), known), "");
}

TEST(UnknownWord, OffersTheNearestOrAll) {
  CommandTable table;
  table.commands.resize(2);
  table.commands[0].name = "layer";
  table.commands[1].name = "model";
  table.options.push_back({.group = "", .flags = {"-n", "--tokens"}, .value = "N", .text = ""});
  EXPECT_EQ(unknown_word("lyer", table), "unknown command 'lyer'; did you mean 'layer'?");
  EXPECT_EQ(unknown_word("foo", table), "unknown command 'foo'; there are layer, model");
  EXPECT_EQ(unknown_word("--token=7", table), "unknown option '--token'; did you mean '--tokens'?");
  EXPECT_EQ(unknown_word("--nothing-near", table), "unknown option '--nothing-near'");
  EXPECT_EQ(unknown_word("more\x1b", {}), "unknown argument 'more\\x1b'");
}

}  // namespace
}  // namespace moracle::cli
