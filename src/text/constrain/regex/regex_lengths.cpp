#include <algorithm>
#include <string_view>
#include <utility>

#include "base/unicode/utf8.h"
#include "text/constrain/regex/regex_syntax.h"

namespace moracle {

namespace {

using Kind = RegexNode::Kind;

constexpr std::int64_t kMany = std::int64_t{1} << 40;

std::int64_t times(std::int64_t length, std::int64_t repeats) {
  return length == 0 ? 0 : std::min(length * std::min(repeats, kMany), kMany);
}

bool inside(const LengthRange& inner, const LengthRange& outer) {
  return inner.least >= outer.least && (!outer.most || (inner.most && *inner.most <= *outer.most));
}

// `least` and `most` less `length` on each side.
LengthRange less(LengthRange range, std::int64_t length) {
  range.least = std::max<std::int64_t>(range.least - length, 0);
  if (range.most) *range.most -= length;
  return range;
}

// A repeat of one character.
std::optional<RegexNode> bounded_repeat(RegexNode node, LengthRange range) {
  const LengthRange unit = length_of(node.parts.front());
  if (unit.least != 1 || unit.most != 1) return std::nullopt;
  node.least = std::max(node.least, range.least);
  if (range.most) node.most = std::min(node.most.value_or(*range.most), *range.most);
  if (node.most && *node.most < node.least) return RegexNode{.kind = Kind::set};
  return node;
}

// The one part whose length varies takes what the others leave.
std::optional<RegexNode> bounded_sequence(RegexNode node, const LengthRange& range) {
  std::int64_t fixed = 0;
  RegexNode* varies = nullptr;
  for (RegexNode& part : node.parts) {
    const LengthRange length = length_of(part);
    if (length.most == length.least) {
      fixed += length.least;
    } else if (varies != nullptr) {
      return std::nullopt;
    } else {
      varies = &part;
    }
  }
  if (varies == nullptr) return RegexNode{.kind = Kind::set};  // a length out of range
  const LengthRange rest = less(range, fixed);
  if (rest.most && *rest.most < 0) return RegexNode{.kind = Kind::set};
  auto part = bounded(*varies, rest);
  if (!part) return std::nullopt;
  *varies = std::move(*part);
  return node;
}

}  // namespace

LengthRange length_of(const RegexNode& node) {
  LengthRange sum{.least = 0, .most = 0};
  switch (node.kind) {
    case Kind::set:
      return {.least = 1, .most = 1};
    case Kind::sequence:
      for (const RegexNode& part : node.parts) {
        const LengthRange length = length_of(part);
        sum.least = std::min(sum.least + length.least, kMany);
        sum.most = sum.most && length.most ? std::optional(std::min(*sum.most + *length.most, kMany)) : std::nullopt;
      }
      return sum;
    case Kind::either:
      sum = node.parts.empty() ? sum : length_of(node.parts.front());
      for (const RegexNode& part : node.parts) {
        const LengthRange length = length_of(part);
        sum.least = std::min(sum.least, length.least);
        sum.most = sum.most && length.most ? std::optional(std::max(*sum.most, *length.most)) : std::nullopt;
      }
      return sum;
    case Kind::repeat: {
      const LengthRange length = length_of(node.parts.front());
      sum.least = times(length.least, node.least);
      const bool open = !length.most || (!node.most && *length.most > 0);
      sum.most =
          open && node.most != 0 ? std::nullopt : std::optional(times(length.most.value_or(0), node.most.value_or(0)));
      return sum;
    }
  }
  return sum;
}

std::optional<RegexNode> bounded(const RegexNode& node, LengthRange range) {
  if (inside(length_of(node), range)) return node;
  switch (node.kind) {
    case Kind::set:
      return RegexNode{.kind = Kind::set};
    case Kind::sequence:
      return bounded_sequence(node, range);
    case Kind::repeat:
      return bounded_repeat(node, range);
    case Kind::either: {
      RegexNode either{.kind = Kind::either};
      for (const RegexNode& part : node.parts) {
        auto fitting = bounded(part, range);
        if (!fitting) return std::nullopt;
        either.parts.push_back(std::move(*fitting));
      }
      return either;
    }
  }
  return std::nullopt;
}

namespace {

// Positions in a text of characters, each once, sorted.
using Places = std::vector<std::size_t>;

void unite(Places& places, const Places& others) {
  places.insert(places.end(), others.begin(), others.end());
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
}

Places ends_of(const RegexNode& node, const std::u32string& text, Places places) {
  Places ends;
  switch (node.kind) {
    case Kind::set:
      for (const std::size_t place : places) {
        if (place < text.size() && node.set.contains(text[place])) ends.push_back(place + 1);
      }
      return ends;
    case Kind::sequence:
      for (const RegexNode& part : node.parts) places = ends_of(part, text, std::move(places));
      return places;
    case Kind::either:
      for (const RegexNode& part : node.parts) unite(ends, ends_of(part, text, places));
      return ends;
    case Kind::repeat:
      // A turn beyond the text's length finds no place that was not found before.
      for (std::int64_t turn = 0; !places.empty(); ++turn) {
        if (turn >= node.least) {
          const std::size_t before = ends.size();
          unite(ends, places);
          if (turn > node.least && ends.size() == before) break;
        }
        if (node.most && turn >= *node.most) break;
        places = ends_of(node.parts.front(), text, std::move(places));
      }
      return ends;
  }
  return ends;
}

}  // namespace

bool matches(const RegexNode& node, std::string_view utf8) {
  const std::u32string text = unicode::to_points(utf8);
  const Places ends = ends_of(node, text, {0});
  return !ends.empty() && ends.back() == text.size();
}

}  // namespace moracle
