#include "text/reply/json_cursor.h"

#include <charconv>
#include <utility>

namespace moracle {
namespace {

constexpr std::size_t kDeepest = 64;
constexpr std::size_t kHexDigits = 4;
constexpr std::string_view kReplacement = "\\ufffd";

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

std::string_view word_of(char first) {
  for (const std::string_view word : {"true", "false", "null"}) {
    if (word.front() == first) return word;
  }
  return {};
}

// A control character, as JSON spells it.
void escape_control(char c, std::string& out) {
  constexpr std::string_view kHex = "0123456789abcdef";
  switch (c) {
    case '\n':
      out += "\\n";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\r':
      out += "\\r";
      return;
    default: {
      const auto code = static_cast<unsigned char>(c);
      out += "\\u00";
      out += kHex[code >> 4U];
      out += kHex[code & 0xFU];
    }
  }
}

}  // namespace

bool JsonCursor::push(char c, std::string& out) {
  switch (place_) {
    case Place::number:
      return push_number(c, out);
    case Place::word:
      return push_word(c, out);
    case Place::text:
      return push_text(c, out);
    case Place::escape:
      return push_escape(c, out);
    case Place::hex:
      return push_hex(c, out);
    default:
      break;
  }
  if (is_space(c)) {
    (separator_.empty() ? out : separator_) += c;
    return true;
  }
  switch (place_) {
    case Place::value:
    case Place::value_or_end:
      return begin_value(c, out);
    case Place::key:
    case Place::key_or_end:
      return begin_key(c, out);
    case Place::colon:
      if (c != ':') return false;
      out += c;
      place_ = Place::value;
      return true;
    default:
      return push_behind(c, out);
  }
}

bool JsonCursor::begin_value(char c, std::string& out) {
  if (c == ']' && place_ == Place::value_or_end) {
    end_bracket(c, out);
    return true;
  }
  const bool bracket = c == '{' || c == '[';
  word_ = word_of(c);
  // The outermost value has brackets.
  if (stack_.empty() ? !bracket : !bracket && c != '"' && c != '-' && !is_digit(c) && word_.empty()) return false;
  if (bracket && stack_.size() == kDeepest) return false;
  out += std::exchange(separator_, {});
  out += c;
  if (bracket) {
    stack_ += c;
    place_ = c == '{' ? Place::key_or_end : Place::value_or_end;
  } else if (c == '"') {
    place_ = Place::text;
    is_key_ = false;
  } else if (!word_.empty()) {
    place_ = Place::word;
    word_.remove_prefix(1);
  } else {
    place_ = Place::number;
    digits_ = c == '-' ? Digits::sign : c == '0' ? Digits::zero : Digits::whole;
  }
  return true;
}

bool JsonCursor::begin_key(char c, std::string& out) {
  if (c == '}' && place_ == Place::key_or_end) {
    end_bracket(c, out);
    return true;
  }
  if (c != '"') return false;
  out += std::exchange(separator_, {});
  out += c;
  place_ = Place::text;
  is_key_ = true;
  return true;
}

bool JsonCursor::push_behind(char c, std::string& out) {
  if (stack_.empty()) return false;
  const bool object = stack_.back() == '{';
  if (c == ',') {
    separator_ += c;
    place_ = object ? Place::key : Place::value;
    return true;
  }
  if (c != (object ? '}' : ']')) return false;
  end_bracket(c, out);
  return true;
}

void JsonCursor::end_bracket(char c, std::string& out) {
  out += c;
  stack_.pop_back();
  place_ = Place::behind;
}

bool JsonCursor::push_number(char c, std::string& out) {
  const Digits was = digits_;
  const bool whole = was == Digits::zero || was == Digits::whole;
  const bool ends = whole || was == Digits::fraction || was == Digits::power;
  if (is_digit(c) && was != Digits::zero) {
    if (was == Digits::sign) digits_ = c == '0' ? Digits::zero : Digits::whole;
    if (was == Digits::dot) digits_ = Digits::fraction;
    if (was == Digits::exponent || was == Digits::exponent_sign) digits_ = Digits::power;
  } else if (c == '.' && whole) {
    digits_ = Digits::dot;
  } else if ((c == 'e' || c == 'E') && (whole || was == Digits::fraction)) {
    digits_ = Digits::exponent;
  } else if ((c == '+' || c == '-') && was == Digits::exponent) {
    digits_ = Digits::exponent_sign;
  } else {
    if (!ends) return false;
    place_ = Place::behind;
    if (push(c, out)) return true;
    place_ = Place::number;
    return false;
  }
  out += c;
  return true;
}

bool JsonCursor::push_word(char c, std::string& out) {
  if (word_.front() != c) return false;
  out += c;
  word_.remove_prefix(1);
  if (word_.empty()) place_ = Place::behind;
  return true;
}

void JsonCursor::drop_high(std::string& out) {
  if (!std::exchange(high_, {}).empty()) out += kReplacement;
}

bool JsonCursor::push_text(char c, std::string& out) {
  if (c == '\\') {
    place_ = Place::escape;
    return true;
  }
  drop_high(out);
  if (c == '"') place_ = is_key_ ? Place::colon : Place::behind;
  if (static_cast<unsigned char>(c) < 0x20) {
    escape_control(c, out);
  } else {
    out += c;
  }
  return true;
}

bool JsonCursor::push_escape(char c, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\/bfnrt";
  if (c == 'u') {
    place_ = Place::hex;
    return true;
  }
  drop_high(out);
  place_ = Place::text;
  if (kEscaped.find(c) == std::string_view::npos) {
    out += "\\\\";
    return push_text(c, out);
  }
  out += '\\';
  out += c;
  return true;
}

bool JsonCursor::push_hex(char c, std::string& out) {
  const bool is_hex = is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
  if (!is_hex) {
    drop_high(out);
    out += "\\\\u" + std::exchange(hex_, {});
    place_ = Place::text;
    return push_text(c, out);
  }
  hex_ += c;
  if (hex_.size() == kHexDigits) end_hex(out);
  return true;
}

void JsonCursor::end_hex(std::string& out) {
  std::uint32_t code = 0;
  std::from_chars(hex_.data(), hex_.data() + hex_.size(), code, 16);
  const std::string escape = "\\u" + std::exchange(hex_, {});
  const bool is_low = code >= 0xDC00 && code < 0xE000;
  place_ = Place::text;
  if (is_low && !high_.empty()) {
    out += std::exchange(high_, {}) + escape;
    return;
  }
  drop_high(out);
  if (code >= 0xD800 && code < 0xDC00) {
    high_ = escape;
  } else {
    out += is_low ? std::string(kReplacement) : escape;
  }
}

void JsonCursor::close(std::string& out, std::size_t depth) {
  if (in_string()) {
    drop_high(out);
    hex_.clear();
    out += '"';
    place_ = is_key_ ? Place::colon : Place::behind;
  }
  if (place_ == Place::number &&
      (digits_ == Digits::sign || (digits_ >= Digits::dot && digits_ != Digits::fraction && digits_ != Digits::power)))
    out += '0';
  if (place_ == Place::word) out += word_;
  if (place_ == Place::colon) out += ":null";
  if (place_ == Place::value && separator_.empty() && !stack_.empty()) out += "null";
  separator_.clear();
  for (; stack_.size() > depth; stack_.pop_back()) out += stack_.back() == '{' ? '}' : ']';
  place_ = Place::behind;
}

}  // namespace moracle
