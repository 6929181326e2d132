#include "support/host_kernels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/cuda/common/arithmetic.h"
#include "kernels/cuda/common/tile_layout.h"

namespace moracle::test {

namespace {

using namespace cuda;

// One matrix of an expert's pack.
class PackedMatrix {
 public:
  PackedMatrix(const PackArgs& pack, const MatrixArgs& matrix, std::int64_t expert)
      : pack_(pack), matrix_(matrix), weights_(pack.weights + static_cast<std::uint64_t>(expert) * pack.expert_bytes) {}

  // Number of stored column k, without scales.
  [[nodiscard]] float number(std::int64_t row, std::int64_t k) const {
    if (pack_.records != RecordKind::none) {
      const std::uint32_t word = record_code(record_form(pack_.records), matrix_.records, weights_ + matrix_.codes,
                                             static_cast<int>(row), static_cast<int>(k));
      return decoded(&word, 0, neutral_zero(pack_.code));
    }
    const std::uint8_t* const line =
        weights_ + matrix_.codes + static_cast<std::uint64_t>(row * matrix_.padded * bits_of(pack_.code) / 8);
    const int zero = matrix_.zeros == kAbsent ? neutral_zero(pack_.code)
                                              : weights_[matrix_.zeros + static_cast<std::uint64_t>(group_at(row, k))];
    return decoded(reinterpret_cast<const std::uint32_t*>(line), static_cast<int>(k), zero);
  }
  [[nodiscard]] float decoded(const std::uint32_t* words, int i, int zero) const {
    switch (pack_.code) {
      case DeviceCode::int4:
        return decode_bf16(Int4::decode(words, i, zero, 0));
      case DeviceCode::int8:
        return decode_bf16(Int8::decode(words, i, zero, 0));
      case DeviceCode::e2m1:
        return decode_bf16(E2m1::decode(words, i, zero, 0));
      case DeviceCode::e4m3:
        return decode_bf16(E4m3::decode(words, i, zero, 0));
      case DeviceCode::bf16:
        return decode_bf16(Bf16::decode(words, i, zero, 0));
      case DeviceCode::f16:
        return sum_of_parts<F16>(words, i);
      case DeviceCode::f32:
        break;
    }
    return sum_of_parts<F32>(words, i);
  }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t k) const {
    if (pack_.records != RecordKind::none) return record_scale(static_cast<int>(row), static_cast<int>(k));
    const float global =
        matrix_.global_scale == kAbsent ? 1.0F : *reinterpret_cast<const float*>(weights_ + matrix_.global_scale);
    if (matrix_.scales == kAbsent) return global;
    return global * decode_scale(pack_.scale, weights_ + matrix_.scales, group_at(row, k));
  }
  [[nodiscard]] float bias(std::int64_t row) const {
    if (pack_.records != RecordKind::none && record_form(pack_.records).bias) {
      return f32_at(bias_offset(matrix_.records, static_cast<int>(row)));
    }
    return matrix_.bias == kAbsent ? 0.0F : reinterpret_cast<const float*>(weights_ + matrix_.bias)[row];
  }
  [[nodiscard]] std::int64_t input_column(std::int64_t k) const {
    return matrix_.order == kAbsent ? k : reinterpret_cast<const std::int32_t*>(weights_ + matrix_.order)[k];
  }
  [[nodiscard]] float input_scale() const {
    return matrix_.input_scale == kAbsent ? 1.0F : *reinterpret_cast<const float*>(weights_ + matrix_.input_scale);
  }
  [[nodiscard]] const MatrixArgs& args() const { return matrix_; }
  [[nodiscard]] InputKind input() const { return pack_.input; }

 private:
  template <class Code>
  static float sum_of_parts(const std::uint32_t* words, int i) {
    float sum = 0.0F;
    for (int part = kSplitParts; part-- > 0;) sum += decode_bf16(Code::decode(words, i, 0, part));
    return sum;
  }
  [[nodiscard]] float f32_at(std::uint64_t offset) const {
    return *reinterpret_cast<const float*>(weights_ + matrix_.codes + offset);
  }
  [[nodiscard]] float record_scale(int row, int k) const {
    const RecordForm form = record_form(pack_.records);
    float scale = 1.0F;
    if (form.row_scales) scale = f32_at(row_scale_offset(matrix_.records, row, k)) / form.code_factor;
    if (form.group == 0) return scale;
    const std::uint8_t* const at = weights_ + matrix_.codes + scale_offset(form, matrix_.records, row, k);
    if (form.group == 16) return scale * decode_e5m3(*at);
    if (form.scale_bytes < 4) return scale * decode_scale(pack_.scale, at, 0);
    const float first = decode_scale(DeviceScale::bf16, at, 0);
    return (first + decode_scale(DeviceScale::bf16, at, 1)) / form.code_factor;
  }
  [[nodiscard]] std::int64_t group_at(std::int64_t row, std::int64_t k) const {
    return row * matrix_.groups + k / matrix_.group;
  }

  const PackArgs& pack_;
  const MatrixArgs& matrix_;
  const std::uint8_t* weights_;
};

// y[rows] = W x + bias, the input in the form that the kernels make of it.
std::vector<float> multiply(const PackedMatrix& matrix, const float* x) {
  const MatrixArgs& args = matrix.args();
  const InputKind kind = matrix.input();
  const auto padded = static_cast<std::size_t>(args.padded);
  std::vector<float> values(padded, 0.0F);
  for (std::int64_t k = 0; k < args.cols; ++k) values[static_cast<std::size_t>(k)] = x[matrix.input_column(k)];
  const int width = input_group(kind);
  const std::size_t group = width > 0 ? static_cast<std::size_t>(width) : padded;
  std::vector<float> scales(padded, 1.0F);
  for (std::size_t first = 0; first < padded && kind != InputKind::split; first += group) {
    const std::size_t end = std::min(padded, first + group);
    float most = 0.0F;
    for (std::size_t k = first; k < end; ++k) most = std::max(most, std::fabs(values[k]));
    const InputScale scale = input_scale(kind, most, matrix.input_scale());
    for (std::size_t k = first; k < end; ++k) {
      values[k] = decode_bf16(input_code(kind, values[k], scale));
      scales[k] = scale.scale;
    }
  }
  std::vector<float> y(static_cast<std::size_t>(args.rows));
  for (std::int64_t row = 0; row < args.rows; ++row) {
    double sum = 0.0;
    for (std::int64_t k = 0; k < args.padded; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const double product = static_cast<double>(matrix.number(row, k)) * static_cast<double>(values[at]);
      sum += product * static_cast<double>(matrix.scale(row, k) * scales[at]);
    }
    y[static_cast<std::size_t>(row)] = static_cast<float>(sum) + matrix.bias(row);
  }
  return y;
}

float score_of(RouteScore score, float logit) {
  switch (score) {
    case RouteScore::sigmoid:
      return sigmoid(logit);
    case RouteScore::sqrt_softplus:
      return std::sqrt(logit > 20.0F ? logit : std::log1p(std::exp(logit)));
    default:
      return logit;
  }
}

void softmax(std::vector<float>& values) {
  const float top = *std::max_element(values.begin(), values.end());
  float sum = 0.0F;
  for (float& value : values) sum += value = std::exp(value - top);
  for (float& value : values) value /= sum;
}

std::vector<std::int32_t> ranked(const std::vector<float>& values) {
  std::vector<std::int32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return std::pair(-values[static_cast<std::size_t>(a)], a) < std::pair(-values[static_cast<std::size_t>(b)], b);
  });
  return order;
}

void keep_best_groups(const RouteArgs& args, std::vector<float>& choice) {
  const auto width = static_cast<std::size_t>(args.shape.experts / args.shape.groups);
  std::vector<float> scores;
  for (std::size_t first = 0; first < choice.size(); first += width) {
    std::vector<float> members(choice.begin() + static_cast<std::ptrdiff_t>(first),
                               choice.begin() + static_cast<std::ptrdiff_t>(first + width));
    std::sort(members.rbegin(), members.rend());
    scores.push_back(args.shape.groups_by == RouteGroups::best || width < 2 ? members[0] : members[0] + members[1]);
  }
  const auto order = ranked(scores);
  for (std::size_t i = static_cast<std::size_t>(args.shape.top_groups); i < order.size(); ++i) {
    const std::size_t first = static_cast<std::size_t>(order[i]) * width;
    std::fill_n(choice.begin() + static_cast<std::ptrdiff_t>(first), width, -std::numeric_limits<float>::infinity());
  }
}

void route_row(const RouteArgs& args, std::int64_t token) {
  const float* const logits = args.logits + token * args.shape.experts;
  std::int32_t* const ids = args.ids + token * args.shape.top_k;
  float* const weights = args.weights + token * args.shape.top_k;
  const bool none = args.token_ids != nullptr && args.token_ids[token] < 0;
  if (none || !std::all_of(logits, logits + args.shape.experts, [](float logit) { return std::isfinite(logit); })) {
    std::fill_n(ids, args.shape.top_k, -1);
    std::fill_n(weights, args.shape.top_k, 0.0F);
    if (!none && args.bad_layer != nullptr) args.bad_layer[token] = std::min(args.bad_layer[token], args.layer);
    return;
  }
  std::vector<float> scores(logits, logits + args.shape.experts);
  if (args.shape.score == RouteScore::softmax) softmax(scores);
  for (float& score : scores) score = score_of(args.shape.score, score);
  std::vector<float> choice = scores;
  for (std::size_t e = 0; e < choice.size(); ++e) choice[e] += args.bias != nullptr ? args.bias[e] : 0.0F;
  if (args.shape.groups_by != RouteGroups::none && args.shape.groups > 1) keep_best_groups(args, choice);
  const auto order = ranked(choice);
  std::vector<float> taken;
  for (std::int32_t i = 0; i < args.shape.top_k; ++i) {
    const std::int32_t asked =
        args.fixed_ids != nullptr
            ? args.fixed_ids[static_cast<std::int64_t>(args.token_ids[token]) * args.shape.top_k + i]
            : order[static_cast<std::size_t>(i)];
    ids[i] = asked >= 0 && asked < args.shape.experts ? asked : -1;
    weights[i] = ids[i] < 0 ? 0.0F : scores[static_cast<std::size_t>(ids[i])];
    if (ids[i] >= 0 && args.shape.weight == RouteWeight::sigmoid_of_logit) weights[i] = sigmoid(logits[ids[i]]);
    if (ids[i] >= 0) taken.push_back(weights[i]);
  }
  if (args.shape.weight == RouteWeight::softmax_of_chosen && !taken.empty()) {
    softmax(taken);
    std::copy(taken.begin(), taken.end(), weights);
  }
  float sum = std::accumulate(weights, weights + args.shape.top_k, 0.0F);
  if (args.shape.renormalize == 0 || !(sum > 0.0F)) sum = 1.0F;
  for (std::int32_t i = 0; i < args.shape.top_k; ++i) weights[i] = weights[i] / sum * args.shape.factor;
  if (args.counts == nullptr || args.count_rows[token] < 0) return;
  for (std::int32_t i = 0; i < args.shape.top_k; ++i) {
    if (ids[i] >= 0) ++args.counts[args.count_rows[token] * args.count_stride + ids[i]];
  }
}

void run_experts(const RoutedExperts& args) {
  const std::int64_t hidden = args.down.rows;
  for (std::int64_t token = 0; token < args.tokens; ++token) {
    float* const out = args.out + token * hidden;
    std::fill_n(out, hidden, 0.0F);
    for (std::int64_t choice = 0; choice < args.top_k; ++choice) {
      const std::int64_t slot = token * args.top_k + choice;
      const std::int32_t id = args.ids[slot];
      if (id < 0 || id >= args.experts) continue;
      const float* const x = args.x + token * args.gate.cols;
      std::vector<float> h = multiply({args.pack, args.gate, id}, x);
      const std::vector<float> up = multiply({args.pack, args.up, id}, x);
      for (std::size_t i = 0; i < h.size(); ++i) h[i] = gated(args.activation, h[i], up[i]);
      const std::vector<float> y = multiply({args.pack, args.down, id}, h.data());
      for (std::int64_t k = 0; k < hidden; ++k) out[k] += args.weights[slot] * y[static_cast<std::size_t>(k)];
    }
  }
}

}  // namespace

void run_on_host(const ExpertsArgs& args) {
  run_experts(args.routed);
}

void run_on_host(const StreamedExpertsArgs& args) {
  run_experts(args.routed);
}

void run_on_host(const LinearArgs& args) {
  for (std::int32_t p = 0; p < args.count; ++p) {
    const LinearPart& part = args.parts[p];
    for (std::int64_t token = 0; token < args.tokens; ++token) {
      const auto y = multiply({part.pack, part.matrix, 0}, args.x + token * part.matrix.cols);
      std::copy(y.begin(), y.end(), part.y + token * part.matrix.rows);
    }
  }
}

void run_on_host(const EmbedArgs& args) {
  const PackedMatrix matrix(args.pack, args.matrix, 0);
  for (std::int64_t token = 0; token < args.tokens; ++token) {
    for (std::int64_t k = 0; k < args.matrix.cols; ++k) {
      const std::int64_t row = args.ids[token];
      if (row < 0) {
        args.out[token * args.matrix.cols + k] = 0.0F;
        continue;
      }
      args.out[token * args.matrix.cols + matrix.input_column(k)] = matrix.number(row, k) * matrix.scale(row, k);
    }
  }
}

void run_on_host(const RmsNormArgs& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const float* const x = args.x + row * args.cols;
    double squares = 0.0;
    for (std::int64_t k = 0; k < args.cols; ++k) squares += static_cast<double>(x[k]) * static_cast<double>(x[k]);
    const auto scale = static_cast<float>(1.0 / std::sqrt(squares / args.cols + static_cast<double>(args.eps)));
    for (std::int64_t k = 0; k < args.cols; ++k) args.out[row * args.cols + k] = x[k] * scale * args.weight[k];
  }
}

void run_on_host(const AddArgs& args) {
  for (std::int64_t i = 0; i < args.count; ++i) args.sum[i] += args.x[i];
}

void run_on_host(const AddNormArgs& args) {
  run_on_host(AddArgs{.count = std::int64_t{args.rows} * args.cols, .x = args.x, .sum = args.sum});
  run_on_host(RmsNormArgs{
      .rows = args.rows, .cols = args.cols, .eps = args.eps, .x = args.sum, .weight = args.weight, .out = args.out});
}

void run_on_host(const RouteArgs& args) {
  if (args.norm.x != nullptr) run_on_host(args.norm);
  const std::int64_t experts = args.shape.experts;
  for (std::int64_t i = 0; args.x != nullptr && i < args.tokens * experts; ++i) {
    const float* const x = args.x + i / experts * args.hidden;
    const float bias = args.router_bias != nullptr ? args.router_bias[i % experts] : 0.0F;
    args.logits[i] = std::inner_product(x, x + args.hidden, args.router + i % experts * args.hidden, 0.0F) + bias;
  }
  for (std::int64_t token = 0; token < args.tokens; ++token) route_row(args, token);
}

void run_on_host(const RankArgs& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    if (args.bad != nullptr && args.bad[row] != 0) continue;
    const std::vector<float> values(args.x + row * args.cols, args.x + (row + 1) * args.cols);
    const auto order = ranked(values);
    for (std::int64_t i = 0; i < args.k; ++i) {
      const std::int32_t best = order[static_cast<std::size_t>(i)];
      args.out[row * args.k + i] = {.value = values[static_cast<std::size_t>(best)], .row = best};
    }
  }
}

}  // namespace moracle::test
