// What docs/kernels-cuda.md says of the schemes that are streamed is what the cards say.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "kernels/cuda/host/cards.h"
#include "oracle/scheme_rule.h"
#include "support/test_data.h"

namespace moracle {
namespace {

bool is_float(ScaleType scale) {
  return scale == ScaleType::f32 || scale == ScaleType::f16 || scale == ScaleType::bf16;
}

// Every scheme that a rule covers, its groups and blocks of the widths that the kernels can fold.
std::vector<Scheme> schemes_of(const SchemeRule& rule) {
  std::vector<ScaleType> scales{rule.scale};
  if (is_float(rule.scale)) scales = {ScaleType::f32, ScaleType::f16, ScaleType::bf16};
  std::vector<std::int32_t> widths{rule.cols};
  const bool wide = rule.granularity == Granularity::Kind::group || rule.granularity == Granularity::Kind::block;
  if (wide && rule.cols == 0) widths.assign(kPortableGroups.begin(), kPortableGroups.end());
  std::vector<Scheme> schemes;
  for (const ScaleType scale : scales) {
    for (const std::int32_t width : widths) {
      for (const bool symmetric : {true, false}) {
        if (!symmetric && !rule.allow_asymmetric) continue;
        Scheme scheme;
        scheme.weight = {.element = rule.element,
                         .scale = scale,
                         .granularity = {.kind = rule.granularity, .cols = width},
                         .symmetric = symmetric,
                         .second_level = rule.second_level};
        if (rule.granularity == Granularity::Kind::block) scheme.weight.granularity.rows = width;
        if (rule.activation) scheme.activation = rule.activation_key;
        schemes.push_back(scheme);
      }
    }
  }
  return schemes;
}

bool serves(const KernelCard& card, const Scheme& scheme) {
  if (!scheme.weight.symmetric && !card.zero_points) return false;
  return std::any_of(card.schemes.begin(), card.schemes.end(),
                     [&](const SchemeRule& rule) { return scheme_matches(rule, card.group_sizes, scheme); });
}

std::string streamed_share(const KernelCard& card) {
  int all = 0;
  int streamed = 0;
  for (const SchemeRule& rule : card.schemes) {
    for (const Scheme& scheme : schemes_of(rule)) {
      EXPECT_TRUE(serves(card, scheme)) << card.id << " " << to_string(scheme);
      ++all;
      if (std::any_of(kSm90StreamCards.begin(), kSm90StreamCards.end(),
                      [&](const KernelCard* stream) { return serves(*stream, scheme); }))
        ++streamed;
    }
  }
  if (streamed == 0) return "none";
  return streamed == all ? "all" : "some";
}

// The cells of the row that begins with `name`.
std::vector<std::string> row_of(const std::string& name) {
  std::ifstream file(test::source_dir() / "docs" / "kernels-cuda.md");
  std::vector<std::string> cells;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `" + name + "` |")) continue;
    for (std::size_t at = 1; at < line.size();) {
      const std::size_t end = std::min(line.find(" |", at), line.size());
      cells.push_back(end > at ? line.substr(at + 1, end - at - 1) : "");
      at = end + 2;
    }
  }
  return cells;
}

TEST(ServedDocs, TellOfEveryCard) {
  for (const KernelCard* const card : kPortableCards) {
    SCOPED_TRACE(card->id);
    const std::vector<std::string> cells = row_of(std::string(card->id));
    ASSERT_EQ(cells.size(), 4U);
    const std::string share = streamed_share(*card);
    EXPECT_EQ(cells[2], share);
    EXPECT_EQ(cells[1].empty(), share == "none") << "what is streamed";
    EXPECT_EQ(cells[3].empty(), share == "all") << "why the rest is not";
  }
}

}  // namespace
}  // namespace moracle
