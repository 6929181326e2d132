// Anonymous memory for weights and workspaces.
#pragma once

#include <cstddef>
#include <span>
#include <utility>

#include "base/result.h"

namespace moracle {

// Zeroed anonymous pages, 2 MiB-backed where the kernel grants it (huge pages raise the read rate of one core by half
// on the machines measured), and from a whole 2 MiB page on where there is at least one. Owns the mapping; movable, not
// copyable.
class PageBuffer {
 public:
  PageBuffer() = default;
  // Errors: "memory.allocate" when the system refuses the mapping.
  static Result<PageBuffer> allocate(std::size_t bytes);
  PageBuffer(PageBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  PageBuffer& operator=(PageBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }
  PageBuffer(const PageBuffer&) = delete;
  PageBuffer& operator=(const PageBuffer&) = delete;
  ~PageBuffer();

  [[nodiscard]] std::byte* data() { return data_; }
  [[nodiscard]] const std::byte* data() const { return data_; }
  [[nodiscard]] std::size_t size() const { return size_; }

  // Hands the mapping over to the caller, who calls unmap().
  [[nodiscard]] std::byte* detach() {
    size_ = 0;
    return std::exchange(data_, nullptr);
  }
  static void unmap(std::byte* data, std::size_t bytes);

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Address space that this process may still map, in bytes; SIZE_MAX where nothing limits it (RLIMIT_AS).
[[nodiscard]] std::size_t address_space_left();

// Largest resident set this process has had (VmHWM), in bytes; 0 where the system does not tell.
[[nodiscard]] std::size_t peak_resident_bytes();

// Hands out aligned slices of one span, front to back; what does not fit is a null pointer. A workspace is laid out by
// one function, which a counting arena runs first: it hands out nothing and tells how many bytes the same calls take.
class BumpArena {
 public:
  explicit BumpArena(std::span<std::byte> memory) : memory_(memory) {}
  [[nodiscard]] static BumpArena counting() {
    BumpArena arena({});
    arena.counting_ = true;
    return arena;
  }
  // A 64-byte aligned array of `count` T, or an empty span.
  template <class T>
  [[nodiscard]] std::span<T> take(std::size_t count) {
    const std::size_t begin = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    const std::size_t bytes = count * sizeof(T);
    if (counting_) {
      used_ = begin + bytes;
      return {};
    }
    if (begin > memory_.size() || bytes > memory_.size() - begin) return {};
    used_ = begin + bytes;
    return {reinterpret_cast<T*>(memory_.data() + begin), count};
  }
  [[nodiscard]] std::size_t used() const { return used_; }
  static constexpr std::size_t kAlignment = 64;
  // Bytes that `count` T cost in an arena at worst.
  template <class T>
  static constexpr std::size_t cost(std::size_t count) {
    return count * sizeof(T) + kAlignment;
  }

 private:
  std::span<std::byte> memory_;
  std::size_t used_ = 0;
  bool counting_ = false;
};

}  // namespace moracle
