#include "text/template/syntax/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <utility>

#include "text/budgets.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

// "\r\n" and "\r" become "\n"; one line end at the very end of a template is not part of it.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t at = 0; at < source.size(); ++at) {
    if (source[at] != '\r') {
      out.push_back(source[at]);
      continue;
    }
    out.push_back('\n');
    if (at + 1 < source.size() && source[at + 1] == '\n') ++at;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

// Names are compared one by one; real ones have a few dozen bytes.
constexpr std::size_t kNameMost = 1000;

bool is_digit(char unit) {
  return unit >= '0' && unit <= '9';
}

class Lexer {
 public:
  Lexer(std::string source, const std::string& file) : source_(std::move(source)), file_(file) {}
  Result<std::vector<Token>> run();

 private:
  struct Tag {
    std::size_t begin = std::string::npos;
    char kind = 0;  // '%', '{', '#' or 'r' of a raw block
    char sign = 0;
    std::size_t inside = 0;  // behind the opening delimiter and its sign (raw: behind the whole tag)
  };

  [[nodiscard]] Tag find_tag() const;
  [[nodiscard]] std::optional<std::size_t> match_word_tag(std::size_t at, std::string_view word, char* open_sign,
                                                          bool trims) const;
  [[nodiscard]] std::size_t skip_space(std::size_t at) const;
  [[nodiscard]] bool at_text(std::size_t at, std::string_view text) const {
    return at < source_.size() && source_[at] == text[0] && source_.compare(at, text.size(), text) == 0;
  }
  void emit_data(std::string_view text, const Tag* tag);
  void advance(std::size_t to);
  Result<Ok> comment(std::size_t inside);
  Result<Ok> raw(std::size_t inside);
  Result<Ok> code(bool block);
  bool closes(bool block);
  Result<Ok> number();
  Result<Ok> string();
  Result<Ok> operation();
  Result<std::string> unescape(std::string_view body) const;
  Token& push(TokenKind kind, std::string text = {}) {
    tokens_.push_back({.kind = kind, .text = std::move(text), .line = line_});
    return tokens_.back();
  }
  Error error(std::string found) const { return syntax_error(file_, line_, std::move(found)); }
  Error limit(std::string wanted, std::string found) const {
    Error limit = error(std::move(found));
    limit.code = "template.limit";
    limit.wanted = std::move(wanted);
    return limit;
  }
  Result<Ok> check_count() const {
    if (tokens_.size() <= kTemplateTokens) return Ok{};
    return limit("at most " + std::to_string(kTemplateTokens) + " tokens", "more");
  }

  std::string source_;
  const std::string& file_;
  std::vector<Token> tokens_;
  std::string brackets_;
  std::size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
};

void Lexer::advance(std::size_t to) {
  line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(at_),
                                       source_.begin() + static_cast<std::ptrdiff_t>(to), '\n'));
  if (to > at_) line_starting_ = source_[to - 1] == '\n';
  at_ = to;
}

std::size_t Lexer::skip_space(std::size_t at) const {
  while (at < source_.size()) {
    if (const auto byte = static_cast<unsigned char>(source_[at]); byte > ' ' && byte < 0x80) break;
    std::size_t next = at;
    if (!is_space(next_point(source_, &next))) break;
    at = next;
  }
  return at;
}

// "{%- word -%}" at `at`: the position behind it. The white space that "-%}" removes belongs to it; after a closing
// tag (`trims`) so does one line end.
std::optional<std::size_t> Lexer::match_word_tag(std::size_t at, std::string_view word, char* open_sign,
                                                 bool trims) const {
  if (!at_text(at, "{%")) return std::nullopt;
  at += 2;
  *open_sign = 0;
  if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) *open_sign = source_[at++];
  at = skip_space(at);
  if (!at_text(at, word)) return std::nullopt;
  at = skip_space(at + word.size());
  if (at_text(at, "-%}")) return skip_space(at + 3);
  if (trims && at_text(at, "+%}")) return at + 3;
  if (!at_text(at, "%}")) return std::nullopt;
  at += 2;
  return trims && at < source_.size() && source_[at] == '\n' ? at + 1 : at;
}

Lexer::Tag Lexer::find_tag() const {
  for (std::size_t at = source_.find('{', at_); at != std::string::npos; at = source_.find('{', at + 1)) {
    if (at + 1 >= source_.size()) break;
    const char kind = source_[at + 1];
    if (kind != '%' && kind != '{' && kind != '#') continue;
    Tag tag{.begin = at, .kind = kind, .sign = 0, .inside = at + 2};
    if (kind == '%') {
      if (const auto behind = match_word_tag(at, "raw", &tag.sign, false)) {
        tag.kind = 'r';
        tag.inside = *behind;
        return tag;
      }
    }
    tag.sign = 0;
    if (tag.inside < source_.size() && (source_[tag.inside] == '-' || source_[tag.inside] == '+'))
      tag.sign = source_[tag.inside++];
    return tag;
  }
  return {};
}

void Lexer::emit_data(std::string_view text, const Tag* tag) {
  if (tag != nullptr && tag->sign == '-') {
    text = strip(text, Side::right);
  } else if (tag != nullptr && tag->sign != '+' && tag->kind != '{') {
    const std::size_t newline = text.rfind('\n');
    const std::size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if ((begin > 0 || line_starting_) && strip(text.substr(begin), Side::both).empty()) text = text.substr(0, begin);
  }
  if (!text.empty()) push(TokenKind::data, std::string(text));
}

Result<std::vector<Token>> Lexer::run() {
  while (at_ < source_.size()) {
    MORACLE_TRY(check_count());
    const Tag tag = find_tag();
    if (tag.begin == std::string::npos) {
      emit_data(std::string_view(source_).substr(at_), nullptr);
      advance(source_.size());
      break;
    }
    emit_data(std::string_view(source_).substr(at_, tag.begin - at_), &tag);
    advance(tag.inside);
    if (tag.kind == '#') {
      MORACLE_TRY(comment(tag.inside));
    } else if (tag.kind == 'r') {
      MORACLE_TRY(raw(tag.inside));
    } else {
      push(tag.kind == '%' ? TokenKind::block_begin : TokenKind::variable_begin);
      MORACLE_TRY(code(tag.kind == '%'));
    }
  }
  push(TokenKind::end);
  return std::move(tokens_);
}

Result<Ok> Lexer::comment(std::size_t inside) {
  const std::size_t end = source_.find("#}", inside);
  if (end == std::string::npos) return error("a comment without its end");
  std::size_t behind = end + 2;
  const char sign = end > inside ? source_[end - 1] : '\0';
  if (sign == '-') {
    behind = skip_space(behind);
  } else if (sign != '+' && behind < source_.size() && source_[behind] == '\n') {
    ++behind;
  }
  advance(behind);
  return Ok{};
}

Result<Ok> Lexer::raw(std::size_t inside) {
  for (std::size_t at = source_.find("{%", inside); at != std::string::npos; at = source_.find("{%", at + 1)) {
    Tag tag{.begin = at, .kind = '%', .sign = 0, .inside = at};
    const auto behind = match_word_tag(at, "endraw", &tag.sign, true);
    if (!behind) continue;
    emit_data(std::string_view(source_).substr(inside, at - inside), &tag);
    advance(*behind);
    return Ok{};
  }
  return error("a raw block without its end");
}

// Consumes the closing delimiter, where the text is at one.
bool Lexer::closes(bool block) {
  const std::string_view delimiter = block ? "%}" : "}}";
  std::size_t behind = 0;
  if (source_[at_] == '-' && at_text(at_ + 1, delimiter)) {
    behind = skip_space(at_ + 3);
  } else if (block && source_[at_] == '+' && at_text(at_ + 1, delimiter)) {
    behind = at_ + 3;
  } else if (at_text(at_, delimiter)) {
    behind = at_ + 2;
    if (block && behind < source_.size() && source_[behind] == '\n') ++behind;
  } else {
    return false;
  }
  push(block ? TokenKind::block_end : TokenKind::variable_end);
  advance(behind);
  return true;
}

Result<Ok> Lexer::code(bool block) {
  brackets_.clear();
  while (at_ < source_.size()) {
    MORACLE_TRY(check_count());
    if (brackets_.empty() && closes(block)) return Ok{};
    const std::size_t behind_space = skip_space(at_);
    if (behind_space > at_) {
      advance(behind_space);
      continue;
    }
    if (is_digit(source_[at_])) {
      MORACLE_TRY(number());
      continue;
    }
    std::size_t end = at_;
    for (std::size_t next = at_; next < source_.size() && is_word(next_point(source_, &next));) end = next;
    if (end - at_ > kNameMost)
      return limit("a name of at most " + std::to_string(kNameMost) + " bytes", "a longer one");
    if (end > at_) {
      push(TokenKind::name, source_.substr(at_, end - at_));
      advance(end);
    } else if (source_[at_] == '\'' || source_[at_] == '"') {
      MORACLE_TRY(string());
    } else {
      MORACLE_TRY(operation());
    }
  }
  return error(block ? "a block without '%}'" : "an expression without '}}'");
}

Result<Ok> Lexer::number() {
  const std::size_t begin = at_;
  const auto digits = [&](std::size_t at, auto&& accepts) {
    std::size_t end = at;
    while (end < source_.size() && (accepts(source_[end]) || (source_[end] == '_' && end + 1 < source_.size() &&
                                                              accepts(source_[end + 1]) && end > begin)))
      ++end;
    return end;
  };
  const auto clean = [&](std::size_t from, std::size_t to) {
    std::string text = source_.substr(from, to - from);
    text.erase(std::remove(text.begin(), text.end(), '_'), text.end());
    return text;
  };
  std::size_t end = digits(begin, is_digit);
  const bool after_dot = begin > 0 && source_[begin - 1] == '.';
  bool real = false;
  if (!after_dot) {
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      end = digits(end + 1, is_digit);
      real = true;
    }
    std::size_t exponent = end;
    if (exponent < source_.size() && (source_[exponent] | 0x20) == 'e') {
      ++exponent;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        end = digits(exponent, is_digit);
        real = true;
      }
    }
  }
  if (real) {
    push(TokenKind::real).real = std::strtod(clean(begin, end).c_str(), nullptr);
    advance(end);
    return Ok{};
  }
  int base = 10;
  std::size_t first = begin;
  if (source_[begin] == '0' && begin + 2 < source_.size()) {
    const char mark = static_cast<char>(source_[begin + 1] | 0x20);
    const int found = mark == 'x' ? 16 : mark == 'o' ? 8 : mark == 'b' ? 2 : 10;
    const auto accepts = [found](char unit) {
      return found == 16 ? std::isxdigit(static_cast<unsigned char>(unit)) != 0 : unit >= '0' && unit < '0' + found;
    };
    if (found != 10 && digits(begin + 2, accepts) > begin + 2) {
      base = found;
      first = begin + 2;
      end = digits(first, accepts);
    }
  }
  if (base == 10 && source_[begin] == '0') end = digits(begin, [](char unit) { return unit == '0'; });
  const std::string text = clean(first, end);
  std::int64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (parsed.ec != std::errc{}) return error("an integer of more than 64 bits");
  push(TokenKind::integer).integer = value;
  advance(end);
  return Ok{};
}

Result<Ok> Lexer::string() {
  const char quote = source_[at_];
  std::size_t end = at_ + 1;
  while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
  if (end >= source_.size()) return error("a string without its end");
  MORACLE_ASSIGN(std::string text, unescape(std::string_view(source_).substr(at_ + 1, end - at_ - 1)));
  push(TokenKind::string, std::move(text));
  advance(end + 1);
  return Ok{};
}

Result<std::string> Lexer::unescape(std::string_view body) const {
  std::string out;
  const auto code = [&](std::size_t* at, std::size_t count, int base, bool exact) -> std::optional<char32_t> {
    const std::string_view digits = body.substr(*at, std::min(count, body.size() - *at));
    std::uint32_t value = 0;
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    const auto used = static_cast<std::size_t>(parsed.ptr - digits.data());
    if (used == 0 || (exact && used != count)) return std::nullopt;
    if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000)) return std::nullopt;
    *at += used;
    return static_cast<char32_t>(value);
  };
  for (std::size_t at = 0; at < body.size();) {
    if (body[at] != '\\' || at + 1 >= body.size()) {
      out.push_back(body[at++]);
      continue;
    }
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kCodes = "\a\b\f\n\r\t\v\\'\"";
    const char escape = body[at + 1];
    if (const std::size_t found = kNames.find(escape); found != std::string_view::npos) {
      out.push_back(kCodes[found]);
      at += 2;
    } else if (escape == '\n') {
      at += 2;
    } else if (escape == 'x' || escape == 'u' || escape == 'U' || (escape >= '0' && escape <= '7')) {
      const bool octal = escape <= '7';
      at += octal ? 1 : 2;
      const auto point = octal ? code(&at, 3, 8, false)
                               : code(&at,
                                      escape == 'x'   ? 2
                                      : escape == 'u' ? 4
                                                      : 8,
                                      16, true);
      if (!point) return error("a character escape that names no character");
      append_utf8(out, *point);
    } else if (escape == 'N') {
      return error("a character named by \\N, which is not supported");
    } else {
      out.push_back(body[at++]);
    }
  }
  return out;
}

Result<Ok> Lexer::operation() {
  static constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                    "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                    ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
  for (const std::string_view candidate : kOperators) {
    if (!at_text(at_, candidate)) continue;
    const char first = candidate[0];
    if (first == '(' || first == '[' || first == '{')
      brackets_.push_back(first == '(' ? ')' : first == '[' ? ']' : '}');
    if (first == ')' || first == ']' || first == '}') {
      if (brackets_.empty() || brackets_.back() != first)
        return error("'" + std::string(candidate) + "' without its opening");
      brackets_.pop_back();
    }
    push(TokenKind::op, std::string(candidate));
    advance(at_ + candidate.size());
    return Ok{};
  }
  return error("the character '" + std::string(1, source_[at_]) + "'");
}

}  // namespace

Error syntax_error(const std::string& file, int line, std::string found) {
  return {.code = "template.syntax", .file = file, .where = "line " + std::to_string(line), .found = std::move(found)};
}

Result<std::vector<Token>> tokenize(std::string_view source, const std::string& file) {
  if (unicode::find_invalid_utf8(source)) return syntax_error(file, 1, "text that is not UTF-8");
  return Lexer(normalize_newlines(source), file).run();
}

}  // namespace moracle::jinja
