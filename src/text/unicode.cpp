#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "text/unicode_tables.h"

namespace moracle::unicode {
namespace {

template <class Row>
const Row* find_range(std::span<const Row> rows, char32_t code) {
  const auto after = std::upper_bound(rows.begin(), rows.end(), code,
                                      [](char32_t value, const Row& row) { return value < row.first; });
  if (after == rows.begin()) return nullptr;
  const Row& row = *(after - 1);
  return code <= row.last ? &row : nullptr;
}

template <class Row, std::size_t N>
const Row* find_range(const Row (&rows)[N], char32_t code) {
  return find_range(std::span<const Row>(rows), code);
}

constexpr bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

using CodePoints = std::vector<utf8proc_int32_t>;
constexpr std::size_t kLongSegment = 1024;
constexpr std::size_t kPointsPerStep = 4;
constexpr std::size_t kMarkBytes = 16;  // of a code point and of its key in order_marks

int combining_class(utf8proc_int32_t code) {
  return utf8proc_get_property(code)->combining_class;
}

// Canonical ordering of one run of marks: by combining class, equal ones as they stand.
void order_marks(std::span<utf8proc_int32_t> marks) {
  constexpr unsigned kCodeBits = 21;
  constexpr unsigned kIndexBits = 34;
  std::vector<std::uint64_t> keys;
  keys.reserve(marks.size());
  for (const auto mark : marks) {
    const auto mark_class = static_cast<std::uint64_t>(combining_class(mark));
    keys.push_back((mark_class << (kCodeBits + kIndexBits)) | (std::uint64_t{keys.size()} << kCodeBits) |
                   static_cast<std::uint64_t>(mark));
  }
  std::sort(keys.begin(), keys.end());
  for (std::size_t i = 0; i < keys.size(); ++i) {
    marks[i] = static_cast<utf8proc_int32_t>(keys[i] & ((std::uint64_t{1} << kCodeBits) - 1));
  }
}

// Appends the composed or decomposed form of `segment` (code points of well-formed text without inert ones). False: the
// budget is spent.
bool append_normalized(std::string& out, CodePoints& segment, NormalForm form, Budget& budget) {
  if (segment.size() == 1 && segment[0] < 0x80) {
    out.push_back(static_cast<char>(segment[0]));
    segment.clear();
    return budget.bytes(1);
  }
  if (!budget.steps(segment.size() / kPointsPerStep)) return false;
  for (std::size_t i = 0; i < segment.size();) {
    std::size_t end = i;
    while (end < segment.size() && combining_class(segment[end]) != 0) ++end;
    if (end - i > 1) order_marks(std::span(segment).subspan(i, end - i));
    i = std::max(end, i + 1);
  }
  if (form == NormalForm::kNfc || form == NormalForm::kNfkc) {
    const auto size = utf8proc_normalize_utf32(segment.data(), static_cast<utf8proc_ssize_t>(segment.size()),
                                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
    if (size >= 0) segment.resize(static_cast<std::size_t>(size));
  }
  const std::size_t before = out.size();
  for (const auto code : segment) append_utf8(out, static_cast<char32_t>(code));
  segment.clear();
  return budget.bytes(out.size() - before);
}

// Whether nothing before a code point combines with it: neither a mark, nor a vowel or a final consonant of Hangul.
bool starts_segment(utf8proc_int32_t code) {
  const auto kind = utf8proc_category(code);
  if (kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME) return false;
  return !(code >= 0x1160 && code <= 0x11FF) && !(code >= 0xD7B0 && code <= 0xD7FF);
}

void append_decomposed(CodePoints& segment, char32_t code, bool compatibility) {
  auto options = static_cast<int>(UTF8PROC_DECOMPOSE) | static_cast<int>(UTF8PROC_STABLE);
  if (compatibility) options |= static_cast<int>(UTF8PROC_COMPAT);
  std::array<utf8proc_int32_t, 32> parts{};  // the longest decomposition, that of U+FDFA, has 18 code points
  int boundary = 0;
  const auto size = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(),
                                            static_cast<utf8proc_option_t>(options), &boundary);
  if (size <= 0 || size > static_cast<utf8proc_ssize_t>(parts.size())) {
    segment.push_back(static_cast<utf8proc_int32_t>(code));
  } else {
    segment.insert(segment.end(), parts.begin(), parts.begin() + size);
  }
}

}  // namespace

Category category(char32_t code) {
  if (const auto* row = find_range(unicode_tables::kNewCategories, code)) return {row->major, row->minor};
  const char* name = utf8proc_category_string(static_cast<utf8proc_int32_t>(code));
  return {name[0], name[1]};
}

bool is_white_space(char32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F ||
         code == 0x3000;
}

bool is_numeric(char32_t code) {
  return category(code).major == 'N' || find_range(unicode_tables::kExtraNumeric, code) != nullptr;
}

bool is_word(char32_t code) {
  if (code == 0x200C || code == 0x200D) return true;
  // Other_Alphabetic outside the letters and marks: circled and squared Latin letters.
  if ((code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189)) {
    return true;
  }
  const Category c = category(code);
  return c.major == 'L' || c.major == 'M' || (c.major == 'N' && c.minor != 'o') || (c.major == 'P' && c.minor == 'c');
}

bool is_punctuation(char32_t code) {
  if (code < 0x80)
    return code > 0x20 && code < 0x7F &&
           (code < '0' || (code > '9' && code < 'A') || (code > 'Z' && code < 'a') || code > 'z');
  if (find_range(unicode_tables::kExtraPunctuation, code) != nullptr) return true;
  return category(code).major == 'P' && find_range(unicode_tables::kNotPunctuation, code) == nullptr;
}

bool is_accent(char32_t code) {
  if (code < 0x300) return false;
  if (find_range(unicode_tables::kExtraAccents, code) != nullptr) return true;
  return category(code).major == 'M' && find_range(unicode_tables::kNotAccents, code) == nullptr;
}

bool normalize(std::string_view text, NormalForm form, Budget& budget, std::string& out) {
  out.clear();
  if (!budget.steps(1 + text.size() / 16)) return false;
  if (is_ascii(text)) {
    if (!budget.bytes(text.size())) return false;
    out = text;
    return true;
  }
  const bool compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  out.reserve(text.size());
  CodePoints segment;
  for (std::size_t at = 0; at < text.size();) {
    const Decoded next = decode_at(text, at);
    at += next.size;
    if (next.code < 0x80) {  // an ASCII character starts a new segment: nothing before it composes with it
      if (!append_normalized(out, segment, form, budget)) return false;
      segment.push_back(static_cast<utf8proc_int32_t>(next.code));
    } else if (find_range(unicode_tables::kNormalizationInert, next.code) != nullptr) {
      if (!append_normalized(out, segment, form, budget)) return false;
      append_utf8(out, next.code);
    } else {
      const std::size_t before = segment.size();
      append_decomposed(segment, next.code, compatibility);
      if (before < kLongSegment) continue;
      // A text without ASCII is taken in parts; only a run of marks stays whole, and takes its memory before it grows.
      if (!budget.bytes((segment.size() - before) * kMarkBytes)) return false;
      if (!starts_segment(segment[before])) continue;
      const CodePoints rest(segment.begin() + static_cast<std::ptrdiff_t>(before), segment.end());
      segment.resize(before);
      if (!append_normalized(out, segment, form, budget)) return false;
      segment = rest;
    }
  }
  return append_normalized(out, segment, form, budget);
}

void append_lower(std::string& out, char32_t code) {
  if (code == 0x130) {
    out += "i\xCC\x87";
  } else if (const auto* row = find_range(unicode_tables::kLower, code)) {
    append_utf8(out, static_cast<char32_t>(static_cast<std::int32_t>(code) + row->offset));
  } else {
    append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))));
  }
}

}  // namespace moracle::unicode
