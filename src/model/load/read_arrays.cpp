#include "model/load/read_arrays.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/checked.h"
#include "base/generic/count.h"
#include "kernels/input_quant.h"
#include "scheme/codes.h"

namespace moracle {

namespace {

constexpr std::int64_t kEmbeddingRows = 32;    // rows that are read together: they stay in the cache
constexpr std::int64_t kBlockBytes = 2 << 20;  // of the table: threads do not meet in one huge page
constexpr std::int64_t kReleaseBlocks = 16;    // file pages are given back on the way, not beside the whole copy

template <class T, class Encode>
void store_rows(std::span<const float> values, std::byte* to, Encode encode) {
  T* const codes = reinterpret_cast<T*>(to);  // rows of the table are aligned; a typed pointer lets the loop vectorize
  for (std::size_t i = 0; i < values.size(); ++i) codes[i] = encode(values[i]);
}

// Whether none of the numbers is infinite or NaN (all exponent bits set).
template <class T>
bool finite(std::span<const std::byte> stored, T exponent) {
  const T* const numbers = reinterpret_cast<const T*>(stored.data());  // rows of the table are aligned
  unsigned infinite = 0;
  for (std::size_t i = 0; i < stored.size() / sizeof(T); ++i)
    infinite |= static_cast<unsigned>((numbers[i] & exponent) == exponent);
  return infinite == 0;
}

// Rows [begin, end) as they lie in the file, without the way over f32. False where they lie otherwise, or where reading
// them will find something wrong.
bool copy_rows(const MatrixSource& source, std::int64_t begin, std::int64_t end, std::byte* to) {
  const MatrixSpec& spec = source.spec();
  const std::optional<RawCodes> words = spec.key.quantized() ? std::nullopt : source.raw_codes();
  if (!words || !words->by_rows() || words->row_bytes != spec.cols * words->bits / 8) return false;
  const std::span<std::byte> rows(to, count((end - begin) * words->row_bytes));
  source.fetch({words->first + begin * words->row_bytes, rows.size()}, rows.data());
  if (spec.key.element == Element::f32) return finite<std::uint32_t>(rows, 0x7F800000U);
  return finite<std::uint16_t>(rows, spec.key.element == Element::bf16 ? 0x7F80U : 0x7C00U);
}

struct EmbeddingScratch {
  MatrixPanel panel;
  std::vector<float> widened;
};

// Rows [begin, end) as numbers of `element`.
Result<> read_rows(const MatrixSource& source, Element element, std::int64_t begin, std::int64_t end, std::byte* to,
                   EmbeddingScratch& scratch) {
  if (copy_rows(source, begin, end, to)) return Ok{};
  const MatrixSpec& spec = source.spec();
  MatrixPanel& panel = scratch.panel;
  MORACLE_TRY(source.read(begin, end, panel));
  if (spec.key.quantized()) {
    scratch.widened.resize(count(panel.rows * spec.cols));
    dequantize_panel(spec, panel, scratch.widened);
    store_rows<float>(scratch.widened, to, [](float value) { return value; });
  } else if (element == Element::bf16) {
    store_rows<std::uint16_t>(panel.values, to, encode_bf16);  // exact: the values came from this width
  } else if (element == Element::f16) {
    store_rows<std::uint16_t>(panel.values, to, encode_f16);
  } else {
    store_rows<float>(panel.values, to, [](float value) { return value; });
  }
  return Ok{};
}

// to[cols, rows] = from[rows, cols]
void transpose(const float* from, std::int64_t rows, std::int64_t cols, float* to) {
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < cols; ++c) to[c * rows + r] = from[r * cols + c];
  }
}

void reshape(ArrayForm form, std::int64_t rows, std::vector<float>& numbers) {
  switch (form) {
    case ArrayForm::stored:
      return;
    case ArrayForm::one_plus:
      for (float& number : numbers) number += 1.0F;
      return;
    case ArrayForm::exponential:
      for (float& number : numbers) number = std::exp(number);
      return;
    case ArrayForm::over_root:
      for (float& number : numbers) number /= std::sqrt(static_cast<float>(rows));
      return;
    case ArrayForm::transposed:
      std::vector<float> columns(numbers.size());
      transpose(numbers.data(), rows, std::ssize(numbers) / rows, columns.data());
      numbers = std::move(columns);
      return;
  }
}

}  // namespace

void bring_into(ArrayForm form, std::int64_t rows, std::vector<float>& numbers, float factor) {
  reshape(form, rows, numbers);
  if (factor == 1.0F) return;
  for (float& number : numbers) number *= factor;
}

Embedding lay_out_embedding(const MatrixSpec& spec) {
  // A quantized table is widened: it is read one row a token, so its size matters more than its speed, but no
  // publisher quantizes it together with the experts.
  Embedding embedding{.element = spec.key.quantized() ? Element::f32 : spec.key.element, .width = spec.cols};
  embedding.table.size = spec.rows * embedding.row_bytes();
  return embedding;
}

Result<Embedding> read_embedding(const MatrixSource& source, ThreadPool& pool, WeightStore& store) {
  const MatrixSpec& spec = source.spec();
  Embedding embedding = lay_out_embedding(spec);
  const std::int64_t row_bytes = embedding.row_bytes();
  const std::int64_t block_rows = round_up(std::max<std::int64_t>(1, kBlockBytes / row_bytes), kEmbeddingRows);
  std::vector<EmbeddingScratch> scratch(count(pool.threads()));
  const auto read_block = [&](WeightSink& sink, std::int64_t block, int worker) -> Result<> {
    const std::int64_t first = block * block_rows;
    const std::int64_t last = std::min(first + block_rows, spec.rows);
    std::byte* const to = sink.stage(count(first * row_bytes), count((last - first) * row_bytes), worker).data();
    for (std::int64_t begin = first; begin < last; begin += kEmbeddingRows) {
      const std::int64_t end = std::min(begin + kEmbeddingRows, last);
      MORACLE_TRY(read_rows(source, embedding.element, begin, end, to + count((begin - first) * row_bytes),
                            scratch[count(worker)]));
    }
    if (block % kReleaseBlocks == kReleaseBlocks - 1) source.release();
    return sink.commit(worker);
  };
  const auto read = [&](WeightSink& sink) {
    return on_workers(sink, pool, ceil_div(spec.rows, block_rows),
                      [&](std::int64_t block, int worker) { return read_block(sink, block, worker); });
  };
  MORACLE_ASSIGN(embedding.table,
                 store.fill<std::byte>(embedding.table.size, count(block_rows * row_bytes), pool.threads(), read));
  return embedding;
}

LatentProjection lay_out_latent(const LatentAttentionShape& shape) {
  LatentProjection projection;
  projection.keys.size = shape.heads * shape.qk_nope_head_dim * shape.kv_lora_rank;
  projection.values.size = shape.heads * shape.kv_lora_rank * shape.v_head_dim;
  return projection;
}

Result<LatentProjection> read_latent(const CanonicalLinear& linear, const LatentAttentionShape& shape, ThreadPool& pool,
                                     WeightStore& store) {
  const MatrixSource& source = *linear.weight;
  const std::int64_t rank = shape.kv_lora_rank;
  const std::int64_t key_floats = shape.qk_nope_head_dim * rank;
  const std::int64_t value_floats = rank * shape.v_head_dim;
  LatentProjection projection = lay_out_latent(shape);
  if (linear.activation) projection.input = input_quant(*linear.activation, linear.input_scale);
  struct Scratch {
    MatrixPanel panel;
    std::vector<float> rows;
  };
  std::vector<Scratch> scratch(count(pool.threads()));
  const auto floats = [](WeightSink& sink, std::int64_t offset, std::int64_t size, int worker) {
    return reinterpret_cast<float*>(
        sink.stage(count(offset) * sizeof(float), count(size) * sizeof(float), worker).data());
  };
  const auto read_head = [&](WeightSink& sink, std::int64_t head, int worker) -> Result<> {
    auto& [panel, rows] = scratch[count(worker)];
    MORACLE_TRY(source.read(head * shape.kv_head_dim(), (head + 1) * shape.kv_head_dim(), panel));
    rows.resize(count(shape.kv_head_dim() * rank));
    dequantize_panel(source.spec(), panel, rows);
    std::copy_n(rows.data(), key_floats, floats(sink, head * key_floats, key_floats, worker));
    MORACLE_TRY(sink.commit(worker));
    float* const values = floats(sink, projection.keys.size + head * value_floats, value_floats, worker);
    transpose(rows.data() + key_floats, shape.v_head_dim, rank, values);
    return sink.commit(worker);
  };
  const std::int64_t size = projection.keys.size + projection.values.size;
  const auto read = [&](WeightSink& sink) {
    return on_workers(sink, pool, shape.heads,
                      [&](std::int64_t head, int worker) { return read_head(sink, head, worker); });
  };
  const std::size_t block_bytes = count(std::max(key_floats, value_floats)) * sizeof(float);
  MORACLE_ASSIGN(const DeviceArray<float> both, store.fill<float>(size, block_bytes, pool.threads(), read));
  projection.keys.data = both.data;
  projection.values.data = both.data + projection.keys.size;
  return projection;
}

}  // namespace moracle
