// Bytes that a MatrixSource tells of (RawCodes, RawScales), in a thread's own memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "scheme/canonical.h"

namespace moracle {

// Keeps what it has fetched last: matrices whose rows are interleaved in a file are fetched at once.
class RawReader {
 public:
  // `wanted`, bytes that the source tells of. Where they are not there yet they are fetched with what follows them in
  // `tensor`, `most` bytes at most. 32 bytes behind them may be read.
  const std::byte* get(const MatrixSource& source, std::span<const std::byte> wanted, std::span<const std::byte> tensor,
                       std::size_t most) {
    if (!holds(wanted)) {
      const auto left =
          tensor.empty() ? wanted.size() : static_cast<std::size_t>(tensor.data() + tensor.size() - wanted.data());
      const std::span<const std::byte> fetched(wanted.data(), std::max(wanted.size(), std::min(left, most)));
      source.fetch(fetched, take(fetched.size()));
      held_ = fetched;
    }
    return bytes_.data() + (wanted.data() - held_.data());
  }
  // `count` columns of `bytes` bytes, `stride` bytes apart in the file, one after the other; in one piece where they
  // lie so there. As much behind them may be read.
  const std::byte* columns(const MatrixSource& source, const std::byte* first, std::int64_t stride, std::int64_t count,
                           std::int64_t bytes) {
    std::byte* const to = take(static_cast<std::size_t>(count * bytes));
    const std::int64_t adjacent = bytes == stride ? count : 1;
    for (std::int64_t column = 0; column < count; column += adjacent)
      source.fetch({first + column * stride, static_cast<std::size_t>(adjacent * bytes)}, to + column * bytes);
    return to;
  }

 private:
  std::byte* take(std::size_t size) {
    held_ = {};
    bytes_.resize(std::max(bytes_.size(), size + kBehind));
    return bytes_.data();
  }
  [[nodiscard]] bool holds(std::span<const std::byte> wanted) const {
    const auto before =
        reinterpret_cast<std::uintptr_t>(wanted.data()) - reinterpret_cast<std::uintptr_t>(held_.data());
    return before <= held_.size() && wanted.size() <= held_.size() - before;
  }

  static constexpr std::size_t kBehind = 32;
  std::vector<std::byte> bytes_;
  std::span<const std::byte> held_{};  // where they lie in the file
};

}  // namespace moracle
