// Grouped-query attention over paged keys and values.
#pragma once

#include <memory>
#include <vector>

#include "model/run/blocks.h"

namespace moracle {

// Softmax is computed block by block with a running maximum (Milakov and Gimelshein, arXiv 1805.02867), so that memory
// does not grow with the context: over sections of kSectionTokens positions, whose results are merged in their order.
// Sections of one query may be computed by several threads. Each query's result depends on its own sequence alone and
// sums in one fixed order: the same bits whatever else is in the batch, however a prompt was cut, and for any number of
// threads.
class Attention final : public Mixer {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> q, k, v, o;
    std::unique_ptr<PackedLinear> head_gate{};  // null, or [heads, hidden]: a sigmoid gate on each head's output
    bool element_gate = false;   // q gives [q | gate] for each head: a sigmoid gate on each element of the output
    Norm q_norm{}, k_norm{};     // weight empty: none; [head_dim]: each head; else the whole vector
    std::vector<float> sinks{};  // [heads] or empty
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;
    std::int64_t head_dim = 0;
    std::int64_t rotary_dims = 0;  // 0: no rope
    std::int64_t window = 0;
    float clip = 0.0F;      // bound on q, k and v after the norms; 0: none
    std::size_t rope = 0;   // index into ForwardContext::ropes
    std::size_t layer = 0;  // index into the sequence state
    KvType kv = KvType::f32;
  };
  explicit Attention(Parts parts);

  [[nodiscard]] LayerState state() const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Buffers;
  struct Tile;
  struct Section;
  struct Sums;
  struct Scratch;

  // A block's share of a layer: keys as [kv_heads, head_dim, 64], transposed so that the scores of 64 positions are
  // one row of a product; values as [kv_heads, 64, head_dim]; with int8, scales of keys, then of values, f32
  // [kv_heads, 64] each.
  struct Share;
  [[nodiscard]] Share share_of(std::byte* block, std::int64_t kv_head) const;
  [[nodiscard]] std::size_t linear_bytes(std::int64_t tokens, int threads) const;
  [[nodiscard]] std::int64_t tile_rows() const { return tile_queries_ * group_; }
  // From one head's query to the next one's in what q gives.
  [[nodiscard]] std::int64_t query_stride() const {
    return parts_.element_gate ? 2 * parts_.head_dim : parts_.head_dim;
  }

  void norm_and_rotate(const ForwardContext& context, const Buffers& buffers) const;
  void clip(float* vector, std::int64_t size) const;
  void append(const ForwardContext& context, const Buffers& buffers) const;
  [[nodiscard]] Section section(const Tile& tile, std::int64_t kv_head, std::int64_t index) const;
  [[nodiscard]] bool shares_sections(const Buffers& buffers, int threads) const;
  // Each task one head of one tile, from the first section to the last.
  void attend_tiles(const ForwardContext& context, const Buffers& buffers) const;
  // Each task one section; what they give is merged when all are done.
  void attend_sections(const ForwardContext& context, const Buffers& buffers) const;
  void attend(const ForwardContext& context, const Section& section, const Buffers& buffers, Scratch& scratch,
              Sums& sums) const;
  void attend_block(const ForwardContext& context, const Section& section, std::int64_t block, Scratch& scratch,
                    Sums& sums) const;
  void multiply(const ForwardContext& context, std::int64_t m, std::int64_t n, std::int64_t k, const float* a,
                std::int64_t lda, const std::byte* b, float* c, bool accumulate, const std::byte* next) const;
  // Adds what a section gave to what the sections before it gave; with the last one, the result is finished.
  void merge(const ForwardContext& context, const Section& section, const Buffers& buffers, const Sums& sums) const;
  void gate(const ForwardContext& context, const Buffers& buffers, std::int64_t token, std::int64_t head,
            float* out) const;
  void finish(const ForwardContext& context, const Buffers& buffers, std::int64_t token, std::int64_t head) const;

  Parts parts_;
  std::int64_t group_ = 1;         // query heads that share a key head
  std::int64_t tile_queries_ = 1;  // positions of one task
};

}  // namespace moracle
