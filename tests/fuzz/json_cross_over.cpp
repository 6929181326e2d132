// libFuzzer's cross-over of targets whose inputs are JSON.
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

#include "fuzz_input.h"
#include "json_mutator.h"

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* one, std::size_t one_size,
                                                 const std::uint8_t* other, std::size_t other_size, std::uint8_t* out,
                                                 std::size_t most, unsigned seed) {
  std::mt19937 rng(seed);
  const std::string_view text(reinterpret_cast<const char*>(one), one_size);
  const std::string_view from(reinterpret_cast<const char*>(other), other_size);
  return moracle::fuzz::give_back(moracle::fuzz::cross_json(text, from, rng), out, most);
}
