#include "base/json_scanner.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/files/lfs_pointer.h"
#include "base/unicode/utf8.h"

namespace moracle {

namespace {

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

std::string hex_byte(unsigned char byte) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  return {kDigits[byte >> 4], kDigits[byte & 15]};
}

// What is often there in place of a JSON file, and what to do then.
struct Impostor {
  std::string_view start, found, advice;
};
constexpr std::array<Impostor, 2> kImpostors{
    Impostor{kLfsStart, kLfsFound, kLfsAdvice},
    Impostor{"<", "a page of HTML or XML in place of the file", "look at the page, then download the file again"},
};
constexpr Impostor kEmptyFile{"", "an empty file", "download it again"};

// What begins with `text`, nothing but space before it; null: it may be JSON.
const Impostor* impostor_of(std::string_view text) {
  if (text.empty()) return &kEmptyFile;
  const auto found = std::find_if(kImpostors.begin(), kImpostors.end(),
                                  [&](const Impostor& impostor) { return text.starts_with(impostor.start); });
  return found == kImpostors.end() ? nullptr : &*found;
}

}  // namespace

Error JsonScanner::error(std::string wanted) const {
  std::string found = "the end";
  std::string_view advice = "the file is damaged; download it again";
  if (at_ < text_.size()) {
    const unsigned char byte = byte_at(text_, at_);
    found = "byte 0x" + hex_byte(byte);
    if (byte > 0x20 && byte < 0x7F) found += std::string(" '") + text_[at_] + "'";
  }
  const bool at_start = base_ == 0 && text_.find_first_not_of(" \n\t\r") >= at_;
  if (const Impostor* const impostor = at_start ? impostor_of(text_.substr(std::min(at_, text_.size()))) : nullptr) {
    found = impostor->found;
    advice = impostor->advice;
  }
  return Error{.code = syntax_code_,
               .file = file_,
               .where = "byte " + std::to_string(base_ + at_),
               .wanted = std::move(wanted),
               .found = std::move(found),
               .advice = std::string(advice)};
}

void JsonScanner::skip_space() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r')) {
    ++at_;
  }
}

std::uint64_t JsonScanner::position() {
  skip_space();
  return base_ + at_;
}

bool JsonScanner::accept(char c) {
  skip_space();
  if (at_ >= text_.size() || text_[at_] != c) return false;
  ++at_;
  return true;
}

Result<> JsonScanner::expect(char c) {
  if (!accept(c)) return error(std::string("'") + c + "'");
  return Ok{};
}

Result<> JsonScanner::expect_end() {
  skip_space();
  if (at_ < text_.size()) return error("nothing after the closing brace");
  return Ok{};
}

Result<std::uint32_t> JsonScanner::hex4() {
  std::uint32_t value = 0;
  if (text_.size() - at_ < 4) {
    at_ = text_.size();
    return error("four hexadecimal digits");
  }
  const char* const begin = text_.data() + at_;
  const auto [end, code] = std::from_chars(begin, begin + 4, value, 16);
  if (code != std::errc{} || end != begin + 4) return error("four hexadecimal digits");
  at_ += 4;
  return value;
}

// What follows a backslash.
Result<> JsonScanner::escape(std::string& out) {
  constexpr std::string_view kNames = "\"\\/bfnrt";
  constexpr std::string_view kValues = "\"\\/\b\f\n\r\t";
  if (at_ >= text_.size()) return error("an escape sequence");
  if (const auto index = kNames.find(text_[at_]); index != std::string_view::npos) {
    out += kValues[index];
    ++at_;
    return Ok{};
  }
  if (text_[at_] != 'u') return error("an escape sequence");
  ++at_;
  MORACLE_ASSIGN(std::uint32_t code_point, hex4());
  if (code_point >= 0xDC00 && code_point < 0xE000) return error("a leading surrogate first");
  if (code_point >= 0xD800 && code_point < 0xDC00) {
    if (!text_.substr(at_).starts_with("\\u")) return error("the second half of a surrogate pair");
    at_ += 2;
    MORACLE_ASSIGN(const std::uint32_t trail, hex4());
    if (trail < 0xDC00 || trail >= 0xE000) return error("the second half of a surrogate pair");
    code_point = 0x10000 + ((code_point - 0xD800) << 10) + (trail - 0xDC00);
  }
  unicode::append_utf8(out, code_point);
  return Ok{};
}

Result<std::string> JsonScanner::string() {
  if (!accept('"')) return error("a string");
  std::string out;
  for (;;) {
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' && byte_at(text_, at_) >= 0x20) {
      const std::size_t length = byte_at(text_, at_) < 0x80 ? 1 : unicode::utf8_length(text_, at_);
      if (length == 0) return error("valid UTF-8");
      at_ += length;
    }
    out.append(text_, begin, at_ - begin);
    if (at_ >= text_.size()) return error("the closing quote of a string");
    if (byte_at(text_, at_) < 0x20) return error("no control byte in a string");
    if (text_[at_++] == '"') return out;
    MORACLE_TRY(escape(out));
  }
}

bool JsonScanner::digits() {
  const std::size_t begin = at_;
  while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
  return at_ != begin;
}

Result<std::string_view> JsonScanner::number() {
  skip_space();
  const std::size_t begin = at_;
  if (at_ < text_.size() && text_[at_] == '-') ++at_;
  if (at_ < text_.size() && text_[at_] == '0') {
    ++at_;  // no digit may follow a leading zero: the caller's next token fails then
  } else if (!digits()) {
    return error("a number");
  }
  if (at_ < text_.size() && text_[at_] == '.') {
    ++at_;
    if (!digits()) return error("a digit");
  }
  if (at_ < text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
    ++at_;
    if (at_ < text_.size() && (text_[at_] == '+' || text_[at_] == '-')) ++at_;
    if (!digits()) return error("a digit");
  }
  return text_.substr(begin, at_ - begin);
}

Result<std::int64_t> JsonScanner::count() {
  const std::uint64_t byte = position();
  MORACLE_ASSIGN(const std::string_view token, number());
  std::int64_t value = 0;
  const char* const end = token.data() + token.size();
  // NOLINTNEXTLINE(bugprone-suspicious-stringview-data-usage): from_chars takes the end, not a terminated string
  const auto [stop, code] = std::from_chars(token.data(), end, value);
  if (code != std::errc{} || stop != end || token.front() == '-') {
    return Error{.code = "number.range",
                 .file = file_,
                 .where = "byte " + std::to_string(byte),
                 .wanted = "an integer from 0 to 2^63 - 1",
                 .found = std::string(token.substr(0, 40)),
                 .advice = "the file is damaged or hostile; download it again"};
  }
  return value;
}

char JsonScanner::peek() {
  skip_space();
  return at_ < text_.size() ? text_[at_] : '\0';
}

bool JsonScanner::literal(std::string_view word) {
  skip_space();
  if (!text_.substr(at_).starts_with(word)) return false;
  at_ += word.size();
  return true;
}

Result<> JsonScanner::skip_value(int max_depth) {
  const char next = peek();
  if (at_ >= text_.size()) return error("a value");
  if ((next == '{' || next == '[') && max_depth <= 0) {
    Error deep = error("less nesting");
    deep.code = "json.depth";
    return deep;
  }
  if (next == '{') return object([&](const std::string&, std::uint64_t) { return skip_value(max_depth - 1); });
  if (next == '[') return array([&](std::size_t) { return skip_value(max_depth - 1); });
  if (next == '"') {
    MORACLE_TRY(string());
    return Ok{};
  }
  if (literal("true") || literal("false") || literal("null")) return Ok{};
  MORACLE_TRY(number());
  return Ok{};
}

Result<> JsonScanner::object(FunctionRef<Result<>(std::string, std::uint64_t)> member) {
  MORACLE_TRY(expect('{'));
  if (accept('}')) return Ok{};
  do {
    const std::uint64_t byte = position();
    MORACLE_ASSIGN(std::string key, string());
    MORACLE_TRY(expect(':'));
    MORACLE_TRY(member(std::move(key), byte));
  } while (accept(','));
  if (!accept('}')) return error("',' or '}'");
  return Ok{};
}

Result<> JsonScanner::array(FunctionRef<Result<>(std::size_t)> element) {
  MORACLE_TRY(expect('['));
  if (accept(']')) return Ok{};
  std::size_t index = 0;
  do {
    MORACLE_TRY(element(index++));
  } while (accept(','));
  if (!accept(']')) return error("',' or ']'");
  return Ok{};
}

}  // namespace moracle
