// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): the keys and values of all heads come from one latent.
#pragma once

#include <memory>
#include <optional>

#include "model/run/blocks.h"

namespace moracle {

// What makes keys and values of a latent, kept apart by head so that it can be absorbed: q k = (q W_k) c, and the sum
// over positions is taken of latents, before W_v. f32, because these products are not worth a kernel of their own: a
// model of 671 billion weights has one in this many hundredths of them here.
struct LatentProjection {
  PageBuffer keys;    // [heads, nope, latent]
  PageBuffer values;  // [heads, latent, value]
  // Of a scheme that quantizes activations: what the linear would do to the latent that it reads.
  std::optional<QuantKey> activation{};
  std::optional<float> input_scale{};

  // From rows that are, head by head, [keys (nope) | values (value)] of `latent` columns. Errors: those of
  // MatrixSource::read, "memory.allocate".
  static Result<LatentProjection> load(const CanonicalLinear& linear, std::int64_t heads, std::int64_t nope,
                                       std::int64_t value, ThreadPool& pool);
  // The same size without the numbers: for those who only ask for bytes().
  static Result<LatentProjection> lay_out(std::int64_t heads, std::int64_t nope, std::int64_t value,
                                          std::int64_t latent);
  [[nodiscard]] std::size_t bytes() const { return keys.size() + values.size(); }
};

// The state holds a latent and one rotated key, shared by all heads, for each position. Softmax and its guarantees are
// those of Attention: the same bits whatever else is in the batch, however a prompt was cut, for any number of threads.
class LatentAttention final : public Mixer {
 public:
  struct Parts {
    std::unique_ptr<PackedLinear> q_a{};  // null: `q` reads the input itself
    Norm q_norm{};
    std::unique_ptr<PackedLinear> q{};     // to [heads, nope + rotary]
    std::unique_ptr<PackedLinear> kv_a{};  // to [latent + rotary]
    Norm kv_norm{};
    LatentProjection kv_b{};
    std::unique_ptr<PackedLinear> o{};
    std::int64_t heads = 0;
    std::int64_t nope = 0;
    std::int64_t rotary = 0;
    std::int64_t value = 0;
    std::int64_t latent = 0;
    bool interleaved = true;  // pairs to be rotated lie side by side, not half a head apart
    float scale = 1.0F;       // of the scores
    std::size_t rope = 0;     // index into ForwardContext::ropes
    std::size_t layer = 0;    // index into the sequence state
    KvType kv = KvType::f32;
  };
  explicit LatentAttention(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] LayerState state() const override;
  [[nodiscard]] std::size_t bytes() const override;
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t tokens, int threads) const override;
  void run(const ForwardContext& context, const float* x, float* out) const override;

 private:
  struct Buffers;
  struct Query;
  struct Scratch;
  struct Chunk;
  struct Section;
  struct Sums;

  // Numbers of one position's state, and of one head's query once it is absorbed: latent, then rotated part.
  [[nodiscard]] std::int64_t width() const { return parts_.latent + parts_.rotary; }
  [[nodiscard]] std::int64_t query_width() const { return parts_.nope + parts_.rotary; }
  [[nodiscard]] std::size_t linear_bytes(std::int64_t tokens, int threads) const;

  void rotate(const ForwardContext& context, std::int64_t token, const float* from, float* to) const;
  void append(const ForwardContext& context, const Buffers& buffers) const;
  void absorb(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const;
  void attend(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const;
  // Each task some heads of one query, from the first section to the last.
  void attend_heads(const ForwardContext& context, const Chunk& chunk, std::int64_t tile, const Buffers& buffers) const;
  // Each task one section; what they give is merged when all are done.
  void attend_sections(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const;
  void attend_section(const ForwardContext& context, const Section& section, Scratch& scratch, Sums& sums) const;
  void attend_block(const ForwardContext& context, const Query& query, std::int64_t block, Scratch& scratch,
                    Sums& sums) const;
  // The numbers of a block's first positions, [positions, width]; widened to `room` where they are kept otherwise.
  [[nodiscard]] const float* rows_of(const ForwardContext& context, std::byte* block, std::int64_t positions,
                                     float* room) const;
  void merge(const ForwardContext& context, const Sums& added, bool first, Sums& sums) const;
  // Divides what was summed, and puts it where the absorbed queries were.
  void finish(const ForwardContext& context, Sums& sums, float* rows) const;
  void project_values(const ForwardContext& context, const Chunk& chunk, const Buffers& buffers) const;

  Parts parts_;
};

}  // namespace moracle
