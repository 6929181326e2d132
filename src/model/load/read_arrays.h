// Arrays of a model's blocks: read from a checkpoint on the host, brought into the form that operations read, and put
// into the store of a device.
#pragma once

#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "model/blocks/mla.h"
#include "model/load/weight_store.h"
#include "scheme/canonical.h"

namespace moracle {

// What becomes of the numbers of a tensor.
enum class ArrayForm : std::uint8_t {
  stored,
  one_plus,     // 1 + w
  exponential,  // exp(w)
  transposed,   // [cols, rows] of [rows, cols]
  over_root,    // w / sqrt(rows)
};
// `rows` is read where the form needs it; `factor` is what all are multiplied by at last.
void bring_into(ArrayForm form, std::int64_t rows, std::vector<float>& numbers, float factor = 1.0F);

// Sizes without numbers.
[[nodiscard]] Embedding lay_out_embedding(const MatrixSpec& spec);
[[nodiscard]] LatentProjection lay_out_latent(const LatentAttentionShape& shape);

// The whole token table. Errors: those of MatrixSource::read and of the store.
Result<Embedding> read_embedding(const MatrixSource& source, ThreadPool& pool, WeightStore& store);
// From rows that are, head by head, [keys (qk_nope_head_dim) | values (v_head_dim)] of `kv_lora_rank` columns. Errors:
// those of MatrixSource::read and of the store.
Result<LatentProjection> read_latent(const CanonicalLinear& linear, const LatentAttentionShape& shape, ThreadPool& pool,
                                     WeightStore& store);

}  // namespace moracle
