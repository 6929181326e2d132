// Follows a JSON value while it is written. Each value has its own, which one thread at a time uses.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace moracle {

// Takes an object or an array byte by byte. What it gives out is the beginning of a JSON value at each byte, and the
// whole value once it is complete. Control characters in strings are escaped, a backslash that escapes nothing stands
// for itself, and half a surrogate becomes U+FFFD.
class JsonCursor {
 public:
  // False: the byte can follow in no JSON value; nothing was taken. `out` gets what is certain by now.
  [[nodiscard]] bool push(char c, std::string& out);
  // Behind the last bracket of the value.
  [[nodiscard]] bool complete() const { return place_ == Place::behind && stack_.empty(); }
  // What makes a whole value of all that was given out; with `depth`, only the values inside so many brackets.
  void close(std::string& out, std::size_t depth = 0);

  [[nodiscard]] std::size_t depth() const { return stack_.size(); }
  [[nodiscard]] bool in_string() const { return place_ >= Place::text; }
  [[nodiscard]] bool in_key() const { return in_string() && is_key_; }
  [[nodiscard]] bool in_number() const { return place_ == Place::number; }
  [[nodiscard]] bool expects_value() const { return place_ == Place::value || place_ == Place::value_or_end; }
  [[nodiscard]] bool behind_value() const { return place_ == Place::behind; }

 private:
  enum class Place : std::uint8_t {
    value,
    value_or_end,
    key,
    key_or_end,
    colon,
    behind,  // a value
    number,
    word,
    text,  // this and the following: in a string
    escape,
    hex,
  };
  // Of a number's digits.
  enum class Digits : std::uint8_t { sign, zero, whole, dot, fraction, exponent, exponent_sign, power };

  bool begin_value(char c, std::string& out);
  bool begin_key(char c, std::string& out);
  bool push_behind(char c, std::string& out);
  bool push_number(char c, std::string& out);
  bool push_word(char c, std::string& out);
  bool push_text(char c, std::string& out);
  bool push_escape(char c, std::string& out);
  bool push_hex(char c, std::string& out);
  void end_hex(std::string& out);
  void end_bracket(char c, std::string& out);
  void drop_high(std::string& out);

  Place place_ = Place::value;
  bool is_key_ = false;
  Digits digits_ = Digits::sign;
  std::string_view word_;   // the rest of true, false or null
  std::string stack_;       // open brackets
  std::string separator_;   // a comma and space, until a value follows
  std::string hex_, high_;  // digits of an escape, and the first half of a pair
};

}  // namespace moracle
