#include "bench/spec_routing.h"

#include <algorithm>
#include <numeric>

#include "scheme/codes.h"

namespace moracle {

namespace {

constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15ULL;

constexpr std::uint64_t mix(std::uint64_t z) {
  z ^= z >> 30U;
  z *= 0xBF58476D1CE4E5B9ULL;
  z ^= z >> 27U;
  z *= 0x94D049BB133111EBULL;
  return z ^ (z >> 31U);
}

}  // namespace

LayerInput spec_input(const LayerShape& shape, std::int64_t tokens, std::int64_t call) {
  LayerInput input{.tokens = tokens, .hidden = shape.hidden, .top_k = shape.top_k, .x = {}, .ids = {}, .weights = {}};
  const auto unsigned_of = [](std::int64_t value) { return static_cast<std::uint64_t>(value); };
  const std::uint64_t seed =
      mix((unsigned_of(shape.experts) << 40U) + (unsigned_of(shape.top_k) << 32U) + unsigned_of(tokens));
  std::vector<std::uint64_t> scores(static_cast<std::size_t>(shape.experts));
  std::vector<std::int32_t> order(scores.size());
  std::vector<double> shares(static_cast<std::size_t>(shape.top_k));
  for (std::int64_t t = 0; t < tokens; ++t) {
    const std::uint64_t row = unsigned_of(call * tokens + t) * unsigned_of(shape.experts);
    for (std::size_t e = 0; e < scores.size(); ++e) scores[e] = mix(seed + kGolden * (1 + row + e));
    std::iota(order.begin(), order.end(), 0);
    const auto score = [&](std::int32_t e) { return scores[static_cast<std::size_t>(e)]; };
    std::partial_sort(order.begin(), order.begin() + shape.top_k, order.end(), [&](std::int32_t a, std::int32_t b) {
      return score(a) != score(b) ? score(a) > score(b) : a < b;
    });
    for (std::size_t j = 0; j < shares.size(); ++j) shares[j] = static_cast<double>(1 + (mix(score(order[j])) >> 40U));
    const double sum = std::accumulate(shares.begin(), shares.end(), 0.0);
    for (std::size_t j = 0; j < shares.size(); ++j) {
      input.ids.push_back(order[j]);
      input.weights.push_back(static_cast<float>(shares[j] / sum));
    }
  }
  const std::uint64_t values = mix(seed ^ 0x58U);
  const std::uint64_t first = unsigned_of(call * tokens) * unsigned_of(shape.hidden);
  input.x.resize(static_cast<std::size_t>(tokens * shape.hidden));
  for (std::size_t i = 0; i < input.x.size(); ++i) {
    const auto drawn = static_cast<float>(mix(values + kGolden * (1 + first + i)) >> 40U);
    input.x[i] = decode_bf16(encode_bf16((drawn - 8388608.0F) * 0x1p-22F));
  }
  return input;
}

std::int64_t spec_calls(std::int64_t tokens) {
  return tokens <= 64 ? 12 : tokens <= 512 ? 8 : 4;
}

std::uint64_t fingerprint(std::span<const std::int32_t> ids, std::uint64_t before) {
  std::uint64_t hash = before;
  for (const std::int32_t id : ids) {
    for (unsigned byte = 0; byte < 4; ++byte) {
      hash ^= static_cast<std::uint32_t>(id) >> (8 * byte) & 255U;
      hash *= 0x100000001B3ULL;
    }
  }
  return hash;
}

}  // namespace moracle
