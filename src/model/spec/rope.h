// Rotary position embeddings: the tables of inverse frequencies that every published variant comes down to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/spec/config.h"

namespace moracle {

// Pair i of the first `rotary_dims` dimensions turns by position * inv_freq[i]; cos and sin are multiplied by `scale`.
struct RopeSpec {
  std::int64_t rotary_dims = 0;   // even; the remaining dimensions of a head pass unrotated
  std::vector<float> inv_freq{};  // [rotary_dims / 2]
  float scale = 1.0F;
  // What attention that follows DeepSeek multiplies its scores by: the square of yarn's factor for mscale_all_dim.
  float score_scale = 1.0F;
  std::int64_t max_positions = 0;  // what the scaling reaches, at least the config's max_position_embeddings
  std::int64_t limit = 0;          // positions from which on other frequencies would count; 0: none

  bool operator==(const RopeSpec&) const = default;
};

struct YarnSpec {
  double factor = 1.0;
  double original_positions = 0.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;  // the ramp's ends are rounded outwards to whole dimensions
};

// An architecture's side of the question; config keys override theta and rotary_factor.
struct RopeDefaults {
  double theta = 10000.0;
  double rotary_factor = 1.0;  // partial_rotary_factor
  std::int64_t head_dim = 0;   // dimensions the factor is applied to
  std::int64_t max_positions = 0;
  bool whole = false;              // partial_rotary_factor is not read
  std::string layer_type{};        // picks an entry where rope_parameters holds one per layer type
  std::optional<YarnSpec> yarn{};  // where the config has neither rope_parameters nor rope_scaling
};

// Reads "rope_scaling" where it says something, else "rope_parameters", and "rope_theta" beside either. Types: default,
// linear, yarn, llama3, dynamic, longrope, proportional. Errors: "config.unsupported" for other types, "config.type",
// "config.range".
Result<RopeSpec> parse_rope(const ModelConfig& config, const RopeDefaults& defaults);

// The same from one object of parameters alone, for architectures that keep theta and factor in lists: what the object
// lacks is the defaults'.
Result<RopeSpec> read_rope(const JsonReader& parameters, const RopeDefaults& defaults);

// inv_freq[i] = theta^(-2i/dims).
[[nodiscard]] std::vector<double> plain_frequencies(double theta, std::int64_t dims);

// YaRN (arXiv 2309.00071, section 3.2): frequencies that turn often within the original context stay, those that turn
// less than beta_slow times are divided by the factor, with a linear ramp between.
[[nodiscard]] std::vector<double> yarn_frequencies(const YarnSpec& yarn, double theta, std::int64_t dims);

struct Llama3Spec {
  double factor = 8.0;
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  double original_positions = 8192.0;
};
[[nodiscard]] std::vector<double> llama3_frequencies(const Llama3Spec& llama3, double theta, std::int64_t dims);

}  // namespace moracle
