#include "text/constrain/regex/code_set.h"

#include <algorithm>

namespace moracle {

namespace {

constexpr CodeRange kSurrogates{0xD800, 0xDFFF};
constexpr char32_t kLastCode = 0x10FFFF;

}  // namespace

CodeSet::CodeSet(std::initializer_list<CodeRange> ranges) : ranges_(ranges) {
  normalize();
}

CodeSet CodeSet::all() {
  return {{0, kLastCode}};
}

void CodeSet::add(CodeRange range) {
  ranges_.push_back(range);
  normalize();
}

void CodeSet::add(const CodeSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  normalize();
}

void CodeSet::normalize() {
  std::vector<CodeRange> parts;
  for (const CodeRange& range : ranges_) {
    if (range.first < kSurrogates.first)
      parts.push_back({range.first, std::min<char32_t>(range.last, kSurrogates.first - 1)});
    if (range.last > kSurrogates.last)
      parts.push_back({std::max<char32_t>(range.first, kSurrogates.last + 1), range.last});
  }
  std::sort(parts.begin(), parts.end());
  ranges_.clear();
  for (const CodeRange& part : parts) {
    if (!ranges_.empty() && part.first <= ranges_.back().last + 1) {
      ranges_.back().last = std::max(ranges_.back().last, part.last);
    } else {
      ranges_.push_back(part);
    }
  }
}

CodeSet CodeSet::complement() const {
  CodeSet rest;
  char32_t next = 0;
  for (const CodeRange& range : ranges_) {
    if (range.first > next) rest.ranges_.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kLastCode) rest.ranges_.push_back({next, kLastCode});
  rest.normalize();
  return rest;
}

CodeSet CodeSet::without(const CodeSet& other) const {
  CodeSet outside = complement();
  outside.add(other);
  return outside.complement();
}

bool CodeSet::contains(char32_t code) const {
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const CodeRange& range) { return range.first <= code && code <= range.last; });
}

}  // namespace moracle
