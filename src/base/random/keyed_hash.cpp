#include "base/random/keyed_hash.h"

#include <unistd.h>

#include <chrono>

namespace moracle {
namespace {

std::array<std::uint64_t, 3> draw_key() {
  std::array<std::uint64_t, 3> key{};
  if (getentropy(key.data(), sizeof key) != 0) {
    // No entropy at hand: where this program lies and when it started are better than a constant.
    key[0] = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
    key[1] = reinterpret_cast<std::uintptr_t>(&key);
    key[2] = static_cast<std::uint64_t>(getpid());
  }
  for (std::uint64_t& word : key) word = (word ^ 0x9E3779B97F4A7C15U) | 1U;
  return key;
}

}  // namespace

const std::array<std::uint64_t, 3> KeyedHash::kKey = draw_key();

}  // namespace moracle
