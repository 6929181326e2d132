#include "text/template/python_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

namespace moracle::jinja {
namespace {

utf8proc_category_t category(char32_t point) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(point));
}

bool is_cased(char32_t point) {
  const auto kind = category(point);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT;
}

bool is_letter(char32_t point) {
  const auto kind = category(point);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}

// The full case mappings that change the number of code points and occur in living text; utf8proc has only the simple
// ones.
struct Expansion {
  char32_t from;
  const char* upper;
  const char* title;
};
constexpr Expansion kExpansions[] = {
    {0x00DF, "SS", "Ss"},   {0x0149, "\u02BCN", "\u02BCN"}, {0xFB00, "FF", "Ff"},
    {0xFB01, "FI", "Fi"},   {0xFB02, "FL", "Fl"},           {0xFB03, "FFI", "Ffi"},
    {0xFB04, "FFL", "Ffl"}, {0xFB05, "ST", "St"},           {0xFB06, "ST", "St"},
};

void append_upper(std::string* out, char32_t point, bool title) {
  for (const auto& [from, upper, titled] : kExpansions) {
    if (from != point) continue;
    out->append(title ? titled : upper);
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(point);
  append_utf8(*out, static_cast<char32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code)));
}

// `text` and `at` give the neighbours: a sigma that ends a word has its own form.
void append_lower(std::string* out, char32_t point, std::string_view text, std::size_t begin, std::size_t end) {
  if (point == 0x0130) {
    out->append("i\u0307");
    return;
  }
  if (point == 0x03A3) {
    bool letter_before = false, letter_after = false;
    if (begin > 0) {
      std::size_t at = previous_point(text, begin);
      letter_before = is_letter(next_point(text, &at));
    }
    if (end < text.size()) letter_after = is_letter(next_point(text, &end));
    append_utf8(*out, letter_before && !letter_after ? 0x03C2 : 0x03C3);
    return;
  }
  append_utf8(*out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(point))));
}

}  // namespace

bool is_space(char32_t point) {
  return (point >= 9 && point <= 13) || (point >= 28 && point <= 32) || point == 0x85 || point == 0xA0 ||
         point == 0x1680 || (point >= 0x2000 && point <= 0x200A) || point == 0x2028 || point == 0x2029 ||
         point == 0x202F || point == 0x205F || point == 0x3000;
}

bool is_word(char32_t point) {
  if (point < 0x80) {
    const char32_t lower = point | 0x20U;
    return (lower >= 'a' && lower <= 'z') || (point >= '0' && point <= '9') || point == '_';
  }
  const auto kind = category(point);
  return point == '_' || is_letter(point) || (kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO);
}

bool is_printable(char32_t point) {
  if (point == ' ') return true;
  const auto kind = category(point);
  return kind != UTF8PROC_CATEGORY_CN && kind < UTF8PROC_CATEGORY_ZS;
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) append_upper(&out, next_point(text, &at), false);
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next_point(text, &at);
    append_lower(&out, point, text, begin, at);
  }
  return out;
}

std::string to_title(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next_point(text, &at);
    if (inside) {
      append_lower(&out, point, text, begin, at);
    } else {
      append_upper(&out, point, true);
    }
    inside = is_cased(point);
  }
  return out;
}

std::string to_capitalized(std::string_view text) {
  std::string out;
  if (text.empty()) return out;
  std::size_t at = 0;
  append_upper(&out, next_point(text, &at), true);
  while (at < text.size()) {
    const std::size_t begin = at;
    const char32_t point = next_point(text, &at);
    append_lower(&out, point, text, begin, at);
  }
  return out;
}

std::string swap_case(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next_point(text, &at);
    if (category(point) == UTF8PROC_CATEGORY_LU) {
      append_lower(&out, point, text, begin, at);
    } else if (category(point) == UTF8PROC_CATEGORY_LL) {
      append_upper(&out, point, false);
    } else {
      append_utf8(out, point);
    }
  }
  return out;
}

namespace {

bool in_class(char32_t point, TextClass wanted) {
  const auto kind = category(point);
  switch (wanted) {
    case TextClass::alnum:
      return is_word(point) && point != '_';
    case TextClass::alpha:
      return is_letter(point);
    case TextClass::ascii:
      return point < 0x80;
    case TextClass::decimal:
      return kind == UTF8PROC_CATEGORY_ND;
    case TextClass::digit: {
      const bool superscript = point == 0xB2 || point == 0xB3 || point == 0xB9 || (point >= 0x2070 && point <= 0x2089);
      return kind == UTF8PROC_CATEGORY_ND || superscript;
    }
    case TextClass::numeric:
      return kind >= UTF8PROC_CATEGORY_ND && kind <= UTF8PROC_CATEGORY_NO;
    case TextClass::printable:
      return is_printable(point);
    case TextClass::space:
      return is_space(point);
  }
  return false;
}

}  // namespace

bool has_class(std::string_view text, TextClass wanted) {
  for (std::size_t at = 0; at < text.size();) {
    if (!in_class(next_point(text, &at), wanted)) return false;
  }
  return !text.empty() || wanted == TextClass::ascii || wanted == TextClass::printable;
}

bool has_case(std::string_view text, TextCase wanted) {
  bool cased = false, after_cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t point = next_point(text, &at);
    const auto kind = category(point);
    const bool is_upper = kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LT;
    if (wanted == TextCase::lower && is_upper) return false;
    if (wanted == TextCase::upper && (kind == UTF8PROC_CATEGORY_LL || kind == UTF8PROC_CATEGORY_LT)) return false;
    if (wanted == TextCase::title && is_cased(point) && is_upper == after_cased) return false;
    after_cased = is_cased(point);
    cased = cased || after_cased;
  }
  return cased;
}

std::string_view strip(std::string_view text, Side side, const std::string_view* characters) {
  std::u32string set = characters ? to_points(*characters) : std::u32string();
  std::sort(set.begin(), set.end());
  const auto goes = [&](char32_t point) {
    return characters ? std::binary_search(set.begin(), set.end(), point) : is_space(point);
  };
  std::size_t begin = 0, end = text.size();
  while (side != Side::right && begin < end) {
    std::size_t at = begin;
    if (!goes(next_point(text, &at))) break;
    begin = at;
  }
  while (side != Side::left && end > begin) {
    const std::size_t start = previous_point(text, end);
    std::size_t at = start;
    if (!goes(next_point(text, &at))) break;
    end = start;
  }
  return text.substr(begin, end - begin);
}

std::string_view next_line(std::string_view text, std::size_t* at, bool keep_ends) {
  const std::size_t start = *at;
  while (*at < text.size()) {
    const std::size_t end = *at;
    const char32_t point = next_point(text, at);
    const bool ends = (point >= 10 && point <= 13) || (point >= 0x1C && point <= 0x1E) || point == 0x85 ||
                      point == 0x2028 || point == 0x2029;
    if (!ends) continue;
    if (point == '\r' && *at < text.size() && text[*at] == '\n') ++*at;
    return text.substr(start, (keep_ends ? *at : end) - start);
  }
  return text.substr(start);
}

}  // namespace moracle::jinja
