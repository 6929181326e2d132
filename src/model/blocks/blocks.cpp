#include "model/blocks/blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>

#include "base/checked.h"
#include "base/first_error.h"
#include "base/generic/count.h"
#include "scheme/codes.h"

namespace moracle {

namespace {

constexpr std::int64_t kEmbeddingRows = 32;    // rows that are read together: they stay in the cache
constexpr std::int64_t kTaskBytes = 2 << 20;   // of the table: threads do not meet in one huge page
constexpr std::int64_t kTasksPerRelease = 16;  // file pages are given back on the way, not beside the whole copy

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
Result<> read_embedding(const MatrixSource& source, Element element, std::int64_t begin, std::int64_t end,
                        std::byte* to, EmbeddingScratch& scratch) {
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

}  // namespace

const KvSpan* ForwardContext::kv_spans(std::size_t layer, std::span<KvSpan> memory) const {
  const std::size_t kind = spans.front().state->layout()->place(layer).kind;
  for (std::size_t s = 0; s < spans.size(); ++s) {
    const SequenceSpan& span = spans[s];
    memory[s] = {
        .begin = span.begin, .count = span.count, .start = span.start, .table = span.state->table(kind).data()};
  }
  return memory.data();
}

void Norm::run(const ForwardContext& context, std::int64_t rows, const float* x, float* y) const {
  context.ops.rms_norm(context.run_context({}), {.rows = narrow<std::int32_t>(rows),
                                                 .cols = narrow<std::int32_t>(std::ssize(weight)),
                                                 .eps = eps,
                                                 .x = x,
                                                 .weight = weight.data(),
                                                 .out = y});
}

Result<Embedding> Embedding::lay_out(const MatrixSpec& spec) {
  Embedding embedding;
  embedding.width_ = spec.cols;
  // A quantized table is widened: it is read one row a token, so its size matters more than its speed, but no
  // publisher quantizes it together with the experts.
  if (!spec.key.quantized()) embedding.element_ = spec.key.element;
  MORACLE_ASSIGN(embedding.table_,
                 PageBuffer::allocate(count(spec.rows) * count(spec.cols) * embedding.element_bytes()));
  return embedding;
}

Result<Embedding> Embedding::load(const MatrixSource& source, ThreadPool& pool) {
  const MatrixSpec& spec = source.spec();
  MORACLE_ASSIGN(Embedding embedding, lay_out(spec));
  const std::int64_t row_bytes = spec.cols * narrow<std::int64_t>(embedding.element_bytes());
  const std::int64_t task_rows = round_up(std::max<std::int64_t>(1, kTaskBytes / row_bytes), kEmbeddingRows);
  FirstError errors;
  std::vector<EmbeddingScratch> scratch(count(pool.threads()));
  pool.parallel_for(ceil_div(spec.rows, task_rows), [&](std::int64_t task, int thread) {
    const std::int64_t last = std::min((task + 1) * task_rows, spec.rows);
    for (std::int64_t begin = task * task_rows; begin < last && !errors.failed(); begin += kEmbeddingRows) {
      const std::int64_t end = std::min(begin + kEmbeddingRows, last);
      errors.keep(begin, read_embedding(source, embedding.element_, begin, end,
                                        embedding.table_.data() + count(begin * row_bytes), scratch[count(thread)]));
    }
    if (task % kTasksPerRelease == kTasksPerRelease - 1) source.release();
  });
  MORACLE_TRY(errors.take());
  return embedding;
}

void Embedding::lookup(const ForwardContext& context, float* out) const {
  EmbedArgs args{};
  args.pack.weights = reinterpret_cast<const std::uint8_t*>(table_.data());
  args.pack.code = element_ == Element::f32    ? DeviceCode::f32
                   : element_ == Element::bf16 ? DeviceCode::bf16
                                               : DeviceCode::f16;
  args.matrix.cols = args.matrix.padded = narrow<std::int32_t>(width_);
  args.tokens = narrow<std::int32_t>(context.tokens);
  args.ids = context.ids;
  args.out = out;
  context.ops.embed(context.run_context({}), args);
}

std::size_t linear_workspace(std::initializer_list<const PackedLinear*> linears, std::int64_t tokens, int threads) {
  std::size_t most = 0;
  for (const PackedLinear* linear : linears) {
    if (linear != nullptr) most = std::max(most, linear->workspace_bytes(tokens, threads));
  }
  return most;
}

void run_linears(const RunContext& context, std::initializer_list<LinearRun> linears, std::int64_t tokens,
                 const float* x) {
  std::array<LinearRun, kMostTogether> present{};
  const auto end = std::copy_if(linears.begin(), linears.end(), present.begin(),
                                [](const LinearRun& of) { return of.linear != nullptr; });
  present.front().linear->run_fused(context, {present.begin(), end}, tokens, x);
}

std::size_t DenseMlp::bytes() const {
  return parts_.gate->bytes() + parts_.up->bytes() + parts_.down->bytes();
}

std::size_t DenseMlp::workspace_bytes(std::int64_t tokens, int threads) const {
  return 2 * BumpArena::cost<float>(count(tokens * parts_.intermediate)) + BumpArena::kAlignment +
         linear_workspace({parts_.gate.get(), parts_.up.get(), parts_.down.get()}, tokens, threads);
}

void DenseMlp::run(const ForwardContext& context, const float* x, float* out) const {
  const std::int64_t tokens = context.tokens;
  const std::int64_t width = parts_.intermediate;
  BumpArena arena(context.workspace);
  float* gate = arena.take<float>(count(tokens * width)).data();
  float* up = arena.take<float>(count(tokens * width)).data();
  const RunContext run = context.run_context(arena.take<std::byte>(
      linear_workspace({parts_.gate.get(), parts_.up.get(), parts_.down.get()}, tokens, context.threads())));
  run_linears(run, {{parts_.gate.get(), gate}, {parts_.up.get(), up}}, tokens, x);
  context.ops.gated_activation(
      run, {.count = tokens * width, .activation = parts_.activation, .gate = gate, .up = up, .out = gate});
  parts_.down->run(run, tokens, gate, out);
}

std::size_t MoeFeedForward::bytes() const {
  return parts_.routed.bytes() + (parts_.shared ? parts_.shared->bytes() : 0) +
         (parts_.shared_gate != nullptr ? parts_.shared_gate->bytes() : 0);
}

std::size_t MoeFeedForward::rest_bytes(std::int64_t tokens, int threads) const {
  const std::size_t gate = parts_.shared_gate != nullptr ? parts_.shared_gate->workspace_bytes(tokens, threads) : 0;
  return std::max(parts_.shared->workspace_bytes(tokens, threads), gate);
}

std::size_t MoeFeedForward::workspace_bytes(std::int64_t tokens, int threads) const {
  const std::size_t routed = parts_.routed.workspace_bytes(tokens, threads);
  if (!parts_.shared) return routed;
  return std::max(routed, BumpArena::cost<float>(count(tokens * parts_.hidden)) +
                              BumpArena::cost<float>(count(tokens)) + BumpArena::kAlignment +
                              rest_bytes(tokens, threads));
}

void MoeFeedForward::run(const ForwardContext& context, const float* x, float* out) const {
  parts_.routed.run(context.run_context(context.workspace), context.tokens, x, context.ids, out, context.clock,
                    context.tally);
  if (parts_.shared) {
    context.enter(Phase::shared_experts);
    add_shared(context, x, out);
  }
}

void MoeFeedForward::add_shared(const ForwardContext& context, const float* x, float* out) const {
  const std::int64_t tokens = context.tokens;
  const std::int64_t hidden = parts_.hidden;
  BumpArena arena(context.workspace);
  float* const shared = arena.take<float>(count(tokens * hidden)).data();
  float* const gate = arena.take<float>(count(tokens)).data();
  ForwardContext rest = context;
  rest.workspace = arena.take<std::byte>(rest_bytes(tokens, context.threads()));
  parts_.shared->run(rest, x, shared);
  if (parts_.shared_gate == nullptr) {
    context.ops.add(rest.run_context({}), {.count = tokens * hidden, .x = shared, .sum = out});
    return;
  }
  parts_.shared_gate->run(rest.run_context(rest.workspace), tokens, x, gate);
  context.ops.add_gated(rest.run_context({}), {.rows = tokens, .cols = hidden, .gate = gate, .x = shared, .sum = out});
}

}  // namespace moracle
