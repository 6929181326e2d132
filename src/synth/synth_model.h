// The tensors and small files of a synthetic checkpoint, described before anything is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors_writer.h"
#include "synth/layer_shapes.h"

namespace moracle {

// How a tensor's bytes are made.
struct SynthFill {
  enum class Kind : std::uint8_t {
    bits,         // uniformly random bytes
    word,         // one 32-bit word repeated
    near_middle,  // random nibbles 6..9
    f16_scales,   // f16 around `value`, from 3/4 to 5/4 of it
    e8m0_scales,  // the same, rounded to powers of two
    e4m3_scales,  // the same, in E4M3
    bf16_normal,  // bf16, mean 0, standard deviation `value`
    bf16_ones,
    group_index,  // i32 column -> group, in order or shuffled by `seed`
  };
  Kind kind = Kind::bits;
  double value = 0;
  std::uint32_t word = 0;
  std::int64_t group = 0;  // columns of a group
  bool shuffled = false;
  std::uint64_t seed = 0;
};

struct SynthTensor {
  TensorSpec spec;
  SynthFill fill;
};

struct SynthFile {
  std::string name;
  std::string text;
};

// Everything but the bytes of the weights.
struct SynthModel {
  std::vector<SynthTensor> tensors;
  std::vector<SynthFile> files;  // config.json, tokenizer.json, ...
};

[[nodiscard]] std::vector<std::string> synth_model_names();
[[nodiscard]] std::vector<std::string> synth_scheme_names();

// `layers` 0: the real number. Errors: "synth.unsupported", "synth.layers".
Result<SynthModel> describe_synth_model(const std::string& architecture, const std::string& scheme, std::int64_t layers,
                                        std::uint64_t seed);

// A valid byte-level BPE of exactly `vocabulary` tokens: the 256 bytes, the two special ones, and fillers.
[[nodiscard]] std::string synth_tokenizer(std::int64_t vocabulary, std::int64_t bos, std::int64_t eos);

}  // namespace moracle
