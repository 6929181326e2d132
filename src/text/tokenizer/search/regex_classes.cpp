#include "text/tokenizer/search/regex_classes.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "text/unicode_tables.h"

namespace moracle {
namespace {

// U+180E is white space for PCRE2's \s and not for Oniguruma's, so \s is spelled out.
constexpr std::string_view kSpaces =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

std::string range_text(char32_t first, char32_t last) {
  return first == last ? code_text(first) : code_text(first) + "-" + code_text(last);
}

// Ranges of the category (one or two letters) that were assigned after the oldest PCRE2's Unicode.
std::string new_in_category(std::string_view name) {
  std::string text;
  for (const auto& row : unicode_tables::kNewCategories) {
    if (row.major == name[0] && (name.size() == 1 || row.minor == name[1])) text += range_text(row.first, row.last);
  }
  return text;
}

std::string category_items(std::string_view name) {
  return fmt::format("\\p{{{}}}", name) + new_in_category(name);
}

std::string word_items() {
  // Alphabetic, M, Nd, Pc, and the superscripts and fractions of Latin-1, which Oniguruma counts in.
  return category_items("L") + category_items("M") + category_items("Nd") + category_items("Nl") +
         category_items("Pc") +
         R"(\x{24b6}-\x{24e9}\x{1f130}-\x{1f149}\x{1f150}-\x{1f169}\x{1f170}-\x{1f189}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
}

ClassText maybe_complement(std::string items, bool negated) {
  ClassText text{.items = std::move(items), .extra = {}};
  if (!negated) return text;
  return {.items = "", .extra = {text.render(true)}};
}

std::string simplified(std::string_view name) {
  std::string out;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    out.push_back(c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c);
  }
  return out;
}

std::string_view category_of_name(std::string_view name) {
  static constexpr std::string_view kShort[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc", "Me", "N", "Nd",
                                                "Nl", "No", "P",  "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po", "S", "Sm",
                                                "Sc", "Sk", "So", "Z",  "Zs", "Zl", "Zp", "Cc", "Cf", "Co"};
  static constexpr std::pair<std::string_view, std::string_view> kLong[] = {{"letter", "L"},
                                                                            {"uppercaseletter", "Lu"},
                                                                            {"lowercaseletter", "Ll"},
                                                                            {"titlecaseletter", "Lt"},
                                                                            {"modifierletter", "Lm"},
                                                                            {"otherletter", "Lo"},
                                                                            {"mark", "M"},
                                                                            {"nonspacingmark", "Mn"},
                                                                            {"spacingmark", "Mc"},
                                                                            {"enclosingmark", "Me"},
                                                                            {"number", "N"},
                                                                            {"decimalnumber", "Nd"},
                                                                            {"letternumber", "Nl"},
                                                                            {"othernumber", "No"},
                                                                            {"punctuation", "P"},
                                                                            {"connectorpunctuation", "Pc"},
                                                                            {"dashpunctuation", "Pd"},
                                                                            {"openpunctuation", "Ps"},
                                                                            {"closepunctuation", "Pe"},
                                                                            {"initialpunctuation", "Pi"},
                                                                            {"finalpunctuation", "Pf"},
                                                                            {"otherpunctuation", "Po"},
                                                                            {"symbol", "S"},
                                                                            {"mathsymbol", "Sm"},
                                                                            {"currencysymbol", "Sc"},
                                                                            {"modifiersymbol", "Sk"},
                                                                            {"othersymbol", "So"},
                                                                            {"separator", "Z"},
                                                                            {"spaceseparator", "Zs"},
                                                                            {"lineseparator", "Zl"},
                                                                            {"paragraphseparator", "Zp"},
                                                                            {"control", "Cc"},
                                                                            {"format", "Cf"},
                                                                            {"privateuse", "Co"}};
  for (const auto category : kShort) {
    if (simplified(category) == name) return category;
  }
  for (const auto& [long_name, category] : kLong) {
    if (long_name == name) return category;
  }
  return {};
}

}  // namespace

void ClassText::add(const ClassText& other) {
  items += other.items;
  extra.insert(extra.end(), other.extra.begin(), other.extra.end());
}

std::string ClassText::render(bool negated) const {
  if (extra.empty()) {
    if (items.empty()) return negated ? "(?s:.)" : "(?!)";
    return (negated ? "[^" : "[") + items + "]";
  }
  std::string alternatives = items.empty() ? "" : "[" + items + "]";
  for (const auto& expression : extra) {
    if (!alternatives.empty()) alternatives += '|';
    alternatives += expression;
  }
  return negated ? "(?:(?!" + alternatives + ")(?s:.))" : "(?:" + alternatives + ")";
}

std::string code_text(char32_t code) {
  return fmt::format("\\x{{{:x}}}", static_cast<std::uint32_t>(code));
}

std::optional<ClassText> escape_class(char letter) {
  const bool negated = letter >= 'A' && letter <= 'Z';
  switch (letter) {
    case 'd':
    case 'D':
      return maybe_complement(category_items("Nd"), negated);
    case 's':
    case 'S':
      return maybe_complement(std::string(kSpaces), negated);
    case 'w':
    case 'W':
      return maybe_complement(word_items(), negated);
    case 'h':
    case 'H':
      return maybe_complement("0-9a-fA-F", negated);
    default:
      return std::nullopt;
  }
}

std::optional<PropertyClass> property_class(std::string_view name, bool negated) {
  if (!name.empty() && name.front() == '^') {
    name.remove_prefix(1);
    negated = !negated;
  }
  const std::string key = simplified(name);
  if (const auto category = category_of_name(key); !category.empty()) {
    const bool cased = category == "Lu" || category == "Ll" || category == "Lt";
    return PropertyClass{maybe_complement(category_items(category), negated), cased};
  }
  for (std::size_t i = 0; i < std::size(unicode_tables::kScripts); ++i) {
    if (key != unicode_tables::kScripts[i]) continue;
    std::string items = fmt::format("\\p{{{}}}", unicode_tables::kScripts[i]);
    for (const auto& row : unicode_tables::kNewScripts) {
      if (row.script == i) items += range_text(row.first, row.last);
    }
    return PropertyClass{maybe_complement(std::move(items), negated), false};
  }
  return std::nullopt;
}

std::optional<ClassText> posix_class(std::string_view name) {
  const bool negated = !name.empty() && name.front() == '^';
  if (negated) name.remove_prefix(1);
  if (name == "digit") return maybe_complement(category_items("Nd"), negated);
  if (name == "space") return maybe_complement(std::string(kSpaces), negated);
  if (name == "word") return maybe_complement(word_items(), negated);
  if (name == "xdigit") return maybe_complement("0-9a-fA-F", negated);
  if (name == "cntrl") return maybe_complement(category_items("Cc"), negated);
  if (name == "punct") return maybe_complement(category_items("P") + category_items("S"), negated);
  return std::nullopt;
}

}  // namespace moracle
