// Overflow-checked arithmetic: every size that is computed from input goes through here.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace moracle {

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_mul(T a, T b) {
  T out{};
  if (__builtin_mul_overflow(a, b, &out)) return std::nullopt;
  return out;
}

template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_add(T a, T b) {
  T out{};
  if (__builtin_add_overflow(a, b, &out)) return std::nullopt;
  return out;
}

// Product of all dimensions; empty when it overflows. The product of no dimensions is 1 (a scalar).
template <std::integral T>
[[nodiscard]] constexpr std::optional<T> checked_product(std::span<const T> dims) {
  T total = 1;
  for (const T dim : dims) {
    const auto next = checked_mul(total, dim);
    if (!next) return std::nullopt;
    total = *next;
  }
  return total;
}

[[nodiscard]] constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
[[nodiscard]] constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

// Explicit narrowing for index arithmetic whose range is known: casts once, in one visible place.
template <class To, class From>
[[nodiscard]] constexpr To narrow(From value) {
  return static_cast<To>(value);
}

}  // namespace moracle
