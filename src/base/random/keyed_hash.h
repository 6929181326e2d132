// Hashes of keys that a stranger chose. The hash has a key of its own, drawn anew in every process, so that nobody can
// write a file whose keys collide.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace moracle {

struct KeyedHash {
  using is_transparent = void;

  std::size_t operator()(std::uint64_t key) const { return fold(key ^ kKey[0], kKey[1]); }
  std::size_t operator()(std::int32_t key) const { return (*this)(static_cast<std::uint64_t>(key)); }
  std::size_t operator()(std::string_view text) const {
    const char* at = text.data();
    std::size_t left = text.size();
    std::uint64_t hash = kKey[2];
    for (; left > 16; left -= 16, at += 16) hash = fold(load<8>(at) ^ kKey[0], load<8>(at + 8) ^ hash);
    std::uint64_t first = 0, last = 0;  // words of the rest; they overlap, and the size tells which it was
    if (left >= 8) {
      first = load<8>(at);
      last = load<8>(at + left - 8);
    } else if (left >= 4) {
      first = load<4>(at);
      last = load<4>(at + left - 4);
    } else if (left > 0) {
      first = load<1>(at) << 16U | load<1>(at + left / 2) << 8U | load<1>(at + left - 1);
    }
    return fold(text.size() ^ kKey[1], fold(first ^ kKey[0], last ^ hash));
  }

 private:
  static const std::array<std::uint64_t, 3> kKey;  // odd, so that none is 0

  template <std::size_t size>
  static std::uint64_t load(const char* at) {
    std::uint64_t word = 0;
    std::memcpy(&word, at, size);
    return word;
  }
  static std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64U);
  }
};

}  // namespace moracle
