// Builds the forward pass that a spec describes, from modules that somebody provides.
#pragma once

#include <memory>
#include <string>

#include "model/blocks/mla.h"
#include "model/forward/parts.h"
#include "model/load/read_arrays.h"
#include "model/spec/spec.h"

namespace moracle {

// Provides the modules of one plan: packed for use, or laid out to learn their sizes.
class ModuleSource {
 public:
  struct Router {
    DeviceArray<float> weight{};  // [rows, hidden]
    DeviceArray<float> bias{};    // [rows] or empty
  };

  virtual ~ModuleSource() = default;
  virtual Result<Embedding> embedding(const LinearSpec& spec) = 0;
  virtual Result<std::unique_ptr<PackedLinear>> linear(const LinearSpec& spec) = 0;
  virtual Result<std::unique_ptr<PackedLinear>> head(const LinearSpec& spec) = 0;
  virtual Result<PlacedExperts> experts(const MoeSpec& spec) = 0;
  virtual Result<Router> router(const MoeSpec& spec) = 0;
  virtual Result<LatentProjection> latent(const LatentAttentionSpec& spec) = 0;
  // A tensor [rows, cols] that is read whole, brought into a form and multiplied.
  virtual Result<DeviceArray<float>> array(const std::string& module, std::int64_t rows, std::int64_t cols,
                                           ArrayForm form, float factor) = 0;
  // What the config tells.
  virtual Result<Rope> rope(const RopeSpec& spec) = 0;
};

struct BuildOptions {
  KvType kv = KvType::bf16;      // in which keys and values are kept
  bool batch_invariant = false;  // operations add in one order for any call
};

// Modules are asked for in the order in which a model runs. Errors: those of the source.
Result<TransformerParts> build_transformer(const ModelSpec& spec, ModuleSource& source, const Ops& ops,
                                           const BuildOptions& options);

}  // namespace moracle
