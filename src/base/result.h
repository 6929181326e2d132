// Errors as values. A library call that can fail on input returns Result<T>; it never prints, throws or aborts.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace moracle {

// What went wrong while reading something. `code` is a stable identifier of the violated rule ("header.length",
// "quant.group", ...), the other members are for people. Any of them may be empty but `code` and `found`.
struct Error {
  std::string code{};                  // rule, dotted: "<area>.<rule>"
  std::string file{};                  // path that was read
  std::string where{};                 // tensor name, byte offset or JSON pointer inside the file
  std::string wanted{};                // what the rule asks for
  std::string found{};                 // what was there
  std::string advice{};                // what the user can do
  std::vector<std::string> details{};  // facts that the rest follows from, a line each

  // "file: where: wanted X, found Y [rule]; advice" in one line, then the details, indented. Whatever the parts hold,
  // the text is printable(), and below kMessageBytes.
  [[nodiscard]] std::string message() const;
};

inline constexpr std::size_t kMessageBytes = 4000;

struct Ok {};

// Either a value or an Error. Result<> (of Ok) is the type of calls that only succeed or fail.
template <class T = Ok>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return *std::get_if<0>(&state_); }
  const T& value() const& { return *std::get_if<0>(&state_); }
  T&& value() && { return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & { return *std::get_if<1>(&state_); }
  const Error& error() const& { return *std::get_if<1>(&state_); }
  Error&& error() && { return std::move(*std::get_if<1>(&state_)); }

 private:
  std::variant<T, Error> state_;
};

}  // namespace moracle

#define MORACLE_CONCAT_INNER(a, b) a##b
#define MORACLE_CONCAT(a, b) MORACLE_CONCAT_INNER(a, b)

// MORACLE_TRY(call());                     returns the error of a Result<> to the caller.
// MORACLE_ASSIGN(auto x, call());          the same, and binds the value.
#define MORACLE_TRY(...)                                                        \
  do {                                                                          \
    auto moracle_try_result = (__VA_ARGS__);                                    \
    if (!moracle_try_result.ok()) return std::move(moracle_try_result).error(); \
  } while (false)
#define MORACLE_ASSIGN(declaration, ...) \
  MORACLE_ASSIGN_INNER(MORACLE_CONCAT(moracle_result_, __LINE__), declaration, __VA_ARGS__)
#define MORACLE_ASSIGN_INNER(temporary, declaration, ...)   \
  auto temporary = (__VA_ARGS__);                           \
  if (!temporary.ok()) return std::move(temporary).error(); \
  declaration = std::move(temporary).value()
