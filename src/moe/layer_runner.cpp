#include "moe/layer_runner.h"

#include <cmath>

#include "kernels/offload.h"

namespace moracle {

LayerDifference compare_outputs(const std::vector<float>& a, const std::vector<float>& b) {
  LayerDifference result;
  double difference2 = 0;
  double a2 = 0;
  double b2 = 0;
  double ab = 0;
  double sum = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    const double x = a[i];
    const double y = b[i];
    result.finite = result.finite && std::isfinite(x);
    result.reference_finite = result.reference_finite && std::isfinite(y);
    const double d = std::abs(x - y);
    result.max_abs = std::max(result.max_abs, d);
    sum += d;
    difference2 += d * d;
    a2 += x * x;
    b2 += y * y;
    ab += x * y;
  }
  if (!b.empty()) result.mean_abs = sum / static_cast<double>(b.size());
  result.relative = difference2 == 0 ? 0 : (b2 > 0 ? std::sqrt(difference2 / b2) : 1.0);
  result.cosine = a2 > 0 && b2 > 0 ? ab / std::sqrt(a2 * b2) : (a2 == b2 ? 1.0 : 0.0);
  return result;
}

Result<LayerRunner> LayerRunner::pack(const KernelCard& card, const CanonicalExperts& experts,
                                      const PackOptions& options) {
  const KernelImplementation* implementation = find_implementation(card.id);
  if (implementation == nullptr || implementation->pack_experts == nullptr) {
    return Error{.code = "oracle.not_built",
                 .where = std::string(card.id),
                 .wanted = "a kernel of this build that serves experts",
                 .found = "a card without one"};
  }
  MORACLE_ASSIGN(auto packed, pack_for_host(*implementation, experts, options));
  return LayerRunner(std::move(packed), options);
}

Result<> LayerRunner::reserve(std::int64_t tokens, std::int64_t top_k) {
  MORACLE_TRY(packed_->reserve(tokens, top_k));
  const std::size_t bytes = packed_->workspace_bytes(tokens, top_k, stream_.pool().threads());
  if (bytes <= workspace_.size()) return Ok{};
  MORACLE_ASSIGN(workspace_, PageBuffer::allocate(bytes));
  return Ok{};
}

void LayerRunner::run(const ExpertsInput& input, float* out) {
  packed_->run({.stream = stream_, .workspace = {workspace_.data(), workspace_.size()}}, input, out);
}

Result<std::optional<double>> LayerRunner::device_seconds() const {
  if (device_ == nullptr) return std::optional<double>();
  MORACLE_ASSIGN(const double seconds, device_->stage().seconds());
  return std::optional(seconds);
}

Result<const KernelCard*> reference_card(const Scheme& scheme) {
  MORACLE_ASSIGN(const Table* table, table_for(scheme));
  for (const TableRow& row : table->rows) {
    if (row.card->backend == "ref") return row.card;
  }
  return Error{.code = "oracle.no_reference",
               .where = std::string(table->name),
               .wanted = "a reference kernel in the table",
               .found = "none"};
}

}  // namespace moracle
