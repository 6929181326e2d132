#include "synth/synthetic_experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "base/random/random.h"
#include "scheme/codes.h"

namespace moracle {

namespace {

// Rows copy their codes out of one pool of random bytes, each from its own place: random enough for a benchmark and as
// fast as memory.
constexpr std::size_t kPoolBytes = std::size_t{1} << 20;

const std::vector<std::uint8_t>& random_pool() {
  static const std::vector<std::uint8_t> pool = [] {
    std::vector<std::uint8_t> bytes(kPoolBytes);
    Random random(0x6D6F7261636C65ULL);
    for (std::size_t i = 0; i < kPoolBytes; i += 8) {
      const std::uint64_t word = random.next();
      for (std::size_t b = 0; b < 8; ++b) bytes[i + b] = static_cast<std::uint8_t>(word >> (8 * b));
    }
    return bytes;
  }();
  return pool;
}

// FP8 codes are those of normal weights whose largest, at about four times their root mean square, is the format's
// largest: how often they are small or subnormal is what kernels meet in published checkpoints.
constexpr float kE4m3Rms = 107.0F;

const std::vector<std::uint8_t>& e4m3_pool() {
  static const std::vector<std::uint8_t> pool = [] {
    std::vector<std::uint8_t> codes(kPoolBytes);
    Random random(0x6D6F7261636C66ULL);
    for (std::uint8_t& code : codes) code = encode_e4m3(std::clamp(kE4m3Rms * random.normal(), -448.0F, 448.0F));
    return codes;
  }();
  return pool;
}

// Root mean square of a drawn code, and its bits.
struct CodeForm {
  std::uint8_t mask = 0xFF;
  double rms = 1;
};
CodeForm form_of(Element element) {
  switch (element) {
    case Element::int4:
      return {.mask = 0x0F, .rms = 4.6};
    case Element::int8:
      return {.mask = 0xFF, .rms = 74};
    case Element::e4m3:
      return {.mask = 0xFF, .rms = kE4m3Rms};
    case Element::e2m1:
      return {.mask = 0x0F, .rms = 2.9};
    default:
      return {};
  }
}

float round_scale(ScaleType type, float scale) {
  switch (type) {
    case ScaleType::f16:
      return decode_f16(encode_f16(scale));
    case ScaleType::bf16:
      return decode_bf16(encode_bf16(scale));
    case ScaleType::e4m3:
      return decode_e4m3(encode_e4m3(scale));
    case ScaleType::e8m0:
      return std::exp2(std::round(std::log2(scale)));
    case ScaleType::f32:
    case ScaleType::none:
      return scale;
  }
  return scale;
}

class SyntheticMatrix final : public MatrixSource {
 public:
  SyntheticMatrix(MatrixSpec spec, std::uint64_t seed) : MatrixSource(std::move(spec)), seed_(seed) {}

  Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    out.rows = end - begin;
    out.codes.clear();
    out.scales.clear();
    out.zeros.clear();
    out.values.clear();
    for (std::int64_t row = begin; row < end; ++row) {
      if (spec_.key.quantized()) {
        read_codes(row, out);
      } else {
        read_values(row, out);
      }
    }
    return Ok{};
  }

 private:
  [[nodiscard]] const std::uint8_t* bytes_of(std::int64_t row, std::int64_t& left) const {
    const std::size_t place = mix64(seed_ ^ static_cast<std::uint64_t>(row)) % (kPoolBytes / 2);
    left = static_cast<std::int64_t>(kPoolBytes - place);
    return (spec_.key.element == Element::e4m3 ? e4m3_pool() : random_pool()).data() + place;
  }

  // Appends `count` pool bytes of a row, each mapped by `map`; wraps around where a row is longer than the pool.
  template <class Out, class Map>
  void append(std::int64_t row, std::int64_t count, std::vector<Out>& out, Map map) const {
    std::int64_t left = 0;
    const std::uint8_t* from = bytes_of(row, left);
    const std::size_t first = out.size();
    out.resize(first + static_cast<std::size_t>(count));
    for (std::int64_t done = 0; done < count; done += left) {
      const std::int64_t n = std::min(left, count - done);
      Out* to = out.data() + first + static_cast<std::size_t>(done);
      for (std::int64_t i = 0; i < n; ++i) to[i] = map(from[i]);
    }
  }

  void read_codes(std::int64_t row, MatrixPanel& out) const {
    const CodeForm form = form_of(spec_.key.element);
    append(row, spec_.cols, out.codes, [&](std::uint8_t byte) { return static_cast<std::uint8_t>(byte & form.mask); });
    const double base = 1.0 / (form.rms * std::sqrt(static_cast<double>(spec_.cols))) / spec_.global_scale;
    // Block and tensor granularities have one scale for many rows.
    std::int64_t scale_row = row;
    if (spec_.key.granularity.kind == Granularity::Kind::tensor) scale_row = 0;
    if (spec_.key.granularity.kind == Granularity::Kind::block) scale_row = row / spec_.key.granularity.rows;
    Random random(mix64(seed_ + 1) ^ static_cast<std::uint64_t>(scale_row));
    for (std::int64_t g = 0; g < spec_.groups; ++g)
      out.scales.push_back(round_scale(spec_.key.scale, static_cast<float>(base * (0.75 + 0.5 * random.uniform()))));
    if (spec_.key.symmetric) return;
    const std::uint32_t half = 1U << static_cast<unsigned>(bits_of(spec_.key.element) - 1);
    for (std::int64_t g = 0; g < spec_.groups; ++g)
      out.zeros.push_back(static_cast<std::uint8_t>(half - 2 + random.below(4)));
  }

  void read_values(std::int64_t row, MatrixPanel& out) const {
    const float scale = 1.0F / (74.0F * std::sqrt(static_cast<float>(spec_.cols)));
    append(row, spec_.cols, out.values, [&](std::uint8_t byte) {
      return decode_bf16(encode_bf16(scale * static_cast<float>(static_cast<int>(byte) - 128)));
    });
  }

  std::uint64_t seed_;
};

// Every group owns group_cols columns, in random order.
std::vector<std::int32_t> shuffled_groups(std::int64_t cols, std::int64_t group_cols, std::uint64_t seed) {
  std::vector<std::int32_t> g_idx(static_cast<std::size_t>(cols));
  for (std::size_t k = 0; k < g_idx.size(); ++k)
    g_idx[k] = static_cast<std::int32_t>(static_cast<std::int64_t>(k) / group_cols);
  Random random(seed);
  for (std::size_t k = g_idx.size() - 1; k > 0; --k)
    std::swap(g_idx[k], g_idx[random.below(static_cast<std::uint32_t>(k + 1))]);
  return g_idx;
}

struct Recipe {
  const LayerShape& shape;
  const NamedScheme& scheme;
};

CanonicalLinear make_linear(const Recipe& recipe, const char* part, std::int64_t expert, std::int64_t rows,
                            std::int64_t cols, std::uint64_t seed, std::uint64_t order_seed) {
  const QuantKey& key = recipe.scheme.scheme.weight;
  MatrixSpec spec{.name = "synthetic.experts." + std::to_string(expert) + "." + part,
                  .rows = rows,
                  .cols = cols,
                  .key = key,
                  .group_cols = group_columns(key, cols)};
  if (key.quantized()) spec.groups = ceil_div(cols, spec.group_cols);
  if (key.second_level) spec.global_scale = 1.0F / 1024.0F;  // block scales then fall where E4M3 has full precision
  if (recipe.scheme.act_order) spec.g_idx = shuffled_groups(cols, spec.group_cols, order_seed);
  CanonicalLinear linear{.weight = std::make_shared<SyntheticMatrix>(std::move(spec), seed),
                         .bias = {},
                         .activation = recipe.scheme.scheme.activation,
                         .input_scale = {}};
  if (linear.activation && !linear.activation->dynamic) linear.input_scale = 1.0F / 64.0F;
  if (recipe.shape.bias) {
    Random random(mix64(seed));
    for (std::int64_t row = 0; row < rows; ++row) linear.bias.push_back(0.1F * random.normal());
  }
  return linear;
}

Result<> check_groups(const LayerShape& shape, const QuantKey& key) {
  if (key.granularity.kind != Granularity::Kind::group) return Ok{};
  for (const std::int64_t cols : {shape.hidden, shape.intermediate}) {
    if (cols % key.granularity.cols == 0) continue;
    return Error{.code = "quant.group",
                 .where = shape.name,
                 .wanted = "a dimension that is a multiple of the group size " + std::to_string(key.granularity.cols),
                 .found = std::to_string(cols),
                 .advice = "choose a scheme with smaller groups"};
  }
  return Ok{};
}

}  // namespace

Result<CanonicalExperts> synthetic_experts(const LayerShape& shape, const NamedScheme& scheme, std::uint64_t seed,
                                           const std::vector<std::int32_t>& chosen) {
  MORACLE_TRY(check_groups(shape, scheme.scheme.weight));
  const Problem problem = layer_problem(shape, scheme);
  CanonicalExperts result{.name = "synthetic.experts",
                          .hidden = shape.hidden,
                          .intermediate = shape.intermediate,
                          .scheme = scheme.scheme,
                          .zero_points = problem.zero_points,
                          .act_order = scheme.act_order,
                          .bias = shape.bias,
                          .experts = {}};
  const Recipe recipe{shape, scheme};
  for (const std::int32_t expert : chosen) {
    const std::uint64_t base = mix64(seed) ^ mix64(static_cast<std::uint64_t>(expert) * 8);
    // gate and up see the same inputs, so a quantizer gives them the same order.
    result.experts.push_back(
        {.gate = make_linear(recipe, "gate", expert, shape.intermediate, shape.hidden, base + 1, base + 4),
         .up = is_gated(shape.activation.fn)
                   ? make_linear(recipe, "up", expert, shape.intermediate, shape.hidden, base + 2, base + 4)
                   : CanonicalLinear{},
         .down = make_linear(recipe, "down", expert, shape.hidden, shape.intermediate, base + 3, base + 5)});
  }
  return result;
}

}  // namespace moracle
