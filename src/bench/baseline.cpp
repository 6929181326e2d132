#include "bench/baseline.h"

#include <algorithm>

#include "base/checked.h"
#include "base/clock.h"
#include "base/random/random.h"
#include "scheme/codes.h"
#include "synth/synthetic_experts.h"

namespace moracle {

namespace {

constexpr std::int64_t kRowsPerJob = 64;

// The value of each float code; integers are computed.
std::vector<float> code_table(Element element) {
  std::vector<float> table;
  if (element == Element::e2m1) {
    for (unsigned code = 0; code < 16; ++code) table.push_back(decode_e2m1(static_cast<std::uint8_t>(code)));
  } else if (element == Element::e4m3) {
    for (unsigned code = 0; code < 256; ++code) table.push_back(decode_e4m3(static_cast<std::uint8_t>(code)));
  }
  return table;
}

// Group width that the loop uses: whole rows where a scale spans more, and blocks of 128 rows count as groups.
std::int64_t loop_group(const QuantKey& key, std::int64_t cols) {
  const std::int64_t group = group_columns(key, cols);
  return cols % group == 0 ? group : cols;
}

void fill(PageBuffer& buffer, ThreadPool& pool) {
  constexpr std::size_t kPiece = std::size_t{1} << 20;
  const auto pieces = static_cast<std::int64_t>((buffer.size() + kPiece - 1) / kPiece);
  pool.parallel_for(pieces, [&](std::int64_t piece, int) {
    const std::size_t begin = static_cast<std::size_t>(piece) * kPiece;
    Random random(static_cast<std::uint64_t>(piece));
    for (std::size_t i = begin; i + 8 <= std::min(buffer.size(), begin + kPiece); i += 8) {
      const std::uint64_t word = random.next() & 0xBFBFBFBFBFBFBFBFULL;  // no NaN among 8-bit floats
      __builtin_memcpy(buffer.data() + i, &word, sizeof word);
    }
  });
}

}  // namespace

Result<DequantizeBaseline> DequantizeBaseline::make(const LayerShape& shape, const NamedScheme& scheme,
                                                    const Machine& machine, const cpu::CalibrationOps& ops,
                                                    std::int64_t most_tokens, ThreadPool& pool) {
  LayerShape one = shape;
  one.experts = 1;
  one.top_k = 1;
  MORACLE_ASSIGN(const NamedScheme bf16, find_scheme("bf16"));
  const Problem problem = layer_problem(one, bf16);
  MORACLE_ASSIGN(const Table* table, table_for(bf16.scheme));
  const Decision decision = decide(problem, machine, {}, *table);
  MORACLE_ASSIGN(const KernelCard* card, winner_of(decision, problem));
  MORACLE_ASSIGN(const CanonicalExperts expert, synthetic_experts(one, bf16, 1, {0}));
  MORACLE_ASSIGN(LayerRunner dense, LayerRunner::pack(*card, expert, {.pool = pool, .activation = shape.activation}));
  MORACLE_TRY(dense.reserve(most_tokens, 1));

  DequantizeBaseline result(shape, std::move(dense), ops, pool);
  const QuantKey& key = scheme.scheme.weight;
  result.bits_ = bits_of(key.element);
  result.zero_ = result.bits_ == 8 ? 128.0F : 8.0F;
  result.table_ = code_table(key.element);
  const std::int64_t elements = 3 * shape.hidden * shape.intermediate;
  result.bytes_of_expert_ = elements * result.bits_ / 8;
  result.group_[0] = result.group_[1] = loop_group(key, shape.hidden);
  result.group_[2] = loop_group(key, shape.intermediate);
  const std::int64_t groups =
      2 * shape.hidden * shape.intermediate / result.group_[0] + shape.hidden * shape.intermediate / result.group_[2];
  result.scales_.assign(static_cast<std::size_t>(groups), 1.0F / 512.0F);
  MORACLE_ASSIGN(result.codes_,
                 PageBuffer::allocate(static_cast<std::size_t>(result.bytes_of_expert_ * shape.experts)));
  fill(result.codes_, pool);
  MORACLE_ASSIGN(result.expanded_, PageBuffer::allocate(static_cast<std::size_t>(elements) * 2));
  Random random(2);
  result.input_ = {.tokens = most_tokens, .hidden = shape.hidden, .top_k = 1, .x = {}, .ids = {}, .weights = {}};
  result.input_.x.resize(static_cast<std::size_t>(most_tokens * shape.hidden));
  for (float& value : result.input_.x) value = random.normal();
  result.input_.ids.assign(static_cast<std::size_t>(most_tokens), 0);
  result.input_.weights.assign(static_cast<std::size_t>(most_tokens), 1.0F);
  result.out_.resize(static_cast<std::size_t>(most_tokens * shape.hidden));
  return result;
}

void DequantizeBaseline::expand(std::int64_t expert) {
  const auto* codes = reinterpret_cast<const std::uint8_t*>(codes_.data()) + expert * bytes_of_expert_;
  const float* scales = scales_.data();
  auto* out = reinterpret_cast<std::uint16_t*>(expanded_.data());
  for (int part = 0; part < 3; ++part) {
    const std::int64_t rows = part < 2 ? shape_.intermediate : shape_.hidden;
    const std::int64_t cols = part < 2 ? shape_.hidden : shape_.intermediate;
    const std::int64_t group = group_[part];
    pool_->parallel_for(ceil_div(rows, kRowsPerJob), [&](std::int64_t job, int) {
      const std::int64_t begin = job * kRowsPerJob;
      const cpu::ExpandArgs args{.codes = codes + begin * cols * bits_ / 8,
                                 .scales = scales + begin * (cols / group),
                                 .table = table_.empty() ? nullptr : table_.data(),
                                 .zero = zero_,
                                 .rows = std::min(kRowsPerJob, rows - begin),
                                 .cols = cols,
                                 .group = group,
                                 .out = out + begin * cols};
      (bits_ == 4 ? ops_->expand4 : ops_->expand8)(args);
    });
    codes += rows * cols * bits_ / 8;
    scales += rows * (cols / group);
    out += rows * cols;
  }
}

double DequantizeBaseline::run(std::span<const std::int64_t> tokens_of_expert) {
  const Stopwatch watch;
  for (std::size_t expert = 0; expert < tokens_of_expert.size(); ++expert) {
    if (tokens_of_expert[expert] == 0) continue;
    expand(static_cast<std::int64_t>(expert));
    dense_.run(input_.view(tokens_of_expert[expert]), out_.data());
  }
  return watch.seconds();
}

}  // namespace moracle
