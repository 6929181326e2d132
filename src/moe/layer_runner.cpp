#include "moe/layer_runner.h"

#include <cmath>
#include <utility>

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
    result.ref_finite = result.ref_finite && std::isfinite(y);
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
                                      const PackOptions& options, std::shared_ptr<DeviceWorkspace> workspace) {
  const KernelImplementation* implementation = find_implementation(card.id);
  if (implementation == nullptr || implementation->pack_experts == nullptr) {
    return Error{.code = "oracle.not_built",
                 .where = std::string(card.id),
                 .wanted = "a kernel of this build that serves experts",
                 .found = "a card without one"};
  }
  MORACLE_ASSIGN(auto packed, implementation->pack_experts(experts, options));
  if (workspace == nullptr) workspace = std::make_shared<DeviceWorkspace>(options.device);
  return LayerRunner(place(card, std::move(packed), experts.hidden, std::move(workspace)), options.pool);
}

Result<> LayerRunner::reserve(std::int64_t tokens, std::int64_t top_k) {
  if (DeviceWorkspace* const gpu = experts_.parts().front().elsewhere.get(); gpu != nullptr) {
    MORACLE_TRY(
        reserve_calls(*gpu, tokens, top_k, [&](std::int64_t call) { return experts_.call_bytes(*gpu, call, top_k); }));
  }
  const std::size_t bytes = experts_.workspace_bytes(tokens, top_k, stream_.pool().threads());
  if (bytes <= workspace_.size()) return Ok{};
  MORACLE_ASSIGN(workspace_, PageBuffer::allocate(bytes));
  return Ok{};
}

void LayerRunner::run(const ExpertsInput& input, float* out) {
  const RunContext context{.stream = stream_, .workspace = {workspace_.data(), workspace_.size()}};
  experts_.begin(context, input, out);
  experts_.finish(context, input.tokens, input.top_k, out);
}

Result<std::optional<double>> LayerRunner::device_seconds() const {
  const DeviceWorkspace* const gpu = experts_.parts().front().elsewhere.get();
  if (gpu == nullptr) return std::optional<double>();
  MORACLE_ASSIGN(const double seconds, gpu->seconds());
  return std::optional(seconds);
}

Result<const KernelCard*> find_ref_card(const Scheme& scheme) {
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
