#include "model/load/parallel_cut.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "model/load/parameters.h"

namespace moracle {

namespace {

// Finer than this, a block of scales that a cut divides is no longer worth its scales.
constexpr std::int64_t kFinestBlock = 32;

// What forbids a tensor-parallel cut of single weights.
class CutRules {
 public:
  explicit CutRules(int tp) : tp_(tp) {}

  [[nodiscard]] Error tp_error(const std::string& module, std::string wanted, const std::string& found) const {
    return {.code = "plan.tp",
            .where = module,
            .wanted = std::move(wanted),
            .found = "tp " + std::to_string(tp_) + " " + found};
  }

  Result<> divide(std::int64_t& value, const std::string& module, const char* what) const {
    if (value % tp_ != 0) return tp_error(module, "", "does not divide " + std::to_string(value) + " " + what);
    value /= tp_;
    return Ok{};
  }

  Result<> check_rows(const StoredLinear& linear, const std::string& module, std::int64_t out) const {
    const Granularity& granularity = linear.spec.key.granularity;
    if (tp_ == 1 || granularity.kind != Granularity::Kind::block) return Ok{};
    return check_block(module, out, granularity.rows, "rows");
  }

  Result<> check_columns(const StoredLinear& linear, const std::string& module, std::int64_t in) const {
    const MatrixSpec& spec = linear.spec;
    if (tp_ == 1 || !spec.key.quantized()) return Ok{};
    if (linear.act_order) {
      return tp_error(module, "input columns in the order of their groups",
                      "gives a rank columns of every group (act-order)");
    }
    const Granularity& granularity = spec.key.granularity;
    if (granularity.kind == Granularity::Kind::block) return check_block(module, in, granularity.cols, "columns");
    if (granularity.kind != Granularity::Kind::group || in % spec.group_cols == 0) return Ok{};
    return tp_error(module, "whole groups of " + std::to_string(spec.group_cols) + " columns a rank",
                    "leaves " + std::to_string(in) + " columns a rank");
  }

 private:
  // A block that the cut divides is kept as smaller blocks of the same scale, down to a limit.
  [[nodiscard]] Result<> check_block(const std::string& module, std::int64_t share, std::int64_t block,
                                     const char* what) const {
    if (std::gcd(share, block) >= std::min(kFinestBlock, block)) return Ok{};
    return tp_error(module,
                    "shares of which " + std::to_string(kFinestBlock) + " or more " + what + " divide a block of " +
                        std::to_string(block),
                    "leaves " + std::to_string(share) + " " + what + " a rank");
  }
  int tp_;
};

class ParallelCut {
 public:
  ParallelCut(const Plan& plan, const RankLayout& layout)
      : plan_(plan), tp_(layout.tp), ep_(layout.ep), rules_(layout.tp) {}

  // What visit_parameters() asks for.
  using LinearPart = std::unique_ptr<PackedLinear>;
  Result<> divide(std::int64_t& size, const std::string& module, const char* what) const {
    return rules_.divide(size, module, what);
  }
  Result<> divide_kv_heads(std::int64_t& heads, const std::string& module) const {
    if (heads % tp_ != 0 && tp_ % heads != 0) {
      return rules_.tp_error(module, "", "neither divides " + std::to_string(heads) + " key heads nor is a multiple");
    }
    heads = std::max<std::int64_t>(heads / tp_, 1);
    return Ok{};
  }
  Result<> rows(LinearSpec& spec, const LinearPart& /*part*/, std::int64_t out) const {
    if (out == spec.out) return Ok{};
    MORACLE_TRY(rules_.check_rows(linear(spec), spec.path, out));
    spec.out = out;
    return Ok{};
  }
  Result<> columns(LinearSpec& spec, const LinearPart& /*part*/, std::int64_t in) const {
    if (in == spec.in) return Ok{};
    MORACLE_TRY(rules_.check_columns(linear(spec), spec.path, in));
    spec.in = in;
    return Ok{};
  }
  static Result<> whole(const LinearSpec& /*spec*/, const LinearPart& /*part*/) { return Ok{}; }
  static Result<> shared_gate(const LinearSpec& /*spec*/, const LinearPart& /*part*/) { return Ok{}; }
  static Result<> norm(NormSpec& spec, const Norm& /*part*/, std::int64_t size) {
    spec.size = size;
    return Ok{};
  }
  static Result<> tensor(const std::string& /*module*/, const std::string& /*name*/, std::string_view /*kind*/,
                         const std::vector<std::int64_t>& /*shape*/, ArrayForm /*form*/,
                         const DeviceArray<float>& /*part*/) {
    return Ok{};
  }
  Result<> absorbed(LatentAttentionSpec& spec, const LatentProjection& /*part*/, std::int64_t out) const {
    return rows(spec.kv_b, nullptr, out);
  }
  static Result<> router(const MoeSpec& /*spec*/, const MoeLayer::Parts& /*parts*/) { return Ok{}; }
  static Result<> correction_bias(const MoeSpec& /*spec*/, const DeviceArray<float>& /*part*/) { return Ok{}; }
  Result<> experts(MoeSpec& spec, const PlacedExperts& /*part*/) const {
    const StoredExperts& experts = plan_.opened(plan_.index_of(spec.experts.name)).experts;
    MORACLE_TRY(check_experts_cut(experts, {.tp = tp_, .ep = ep_}));
    spec.experts.experts /= ep_;
    spec.experts.intermediate /= tp_;
    return Ok{};
  }

  Result<ModelSpec> run() {
    ModelSpec spec = plan_.spec();
    spec.embedding.out = ceil_div(spec.embedding.out, std::int64_t{tp_});
    if (!spec.head.path.empty()) spec.head.out = spec.embedding.out;
    for (LayerSpec& layer : spec.layers) {
      MORACLE_TRY(std::visit([&](auto& mixer) { return cut(mixer); }, layer.mixer));
      MORACLE_TRY(std::visit([&](auto& feed_forward) { return cut(feed_forward); }, layer.feed_forward));
    }
    return spec;
  }

 private:
  static Result<> cut(AbsentSpec& /*spec*/) { return Ok{}; }
  template <class Spec>
  Result<> cut(Spec& spec) {
    auto parts = parts_of(spec);
    return visit_parameters(*this, spec, parts);
  }

  [[nodiscard]] const StoredLinear& linear(const LinearSpec& spec) const {
    return plan_.opened(plan_.index_of(spec.path)).linear;
  }

  const Plan& plan_;
  int tp_;
  int ep_;
  CutRules rules_;
};

}  // namespace

Result<> check_experts_cut(const StoredExperts& experts, const RankLayout& layout) {
  const std::size_t count = experts.experts.size();
  if (count % narrow<std::size_t>(layout.ep) != 0) {
    return Error{.code = "plan.ep",
                 .where = experts.name,
                 .found = "ep " + std::to_string(layout.ep) + " does not divide " + std::to_string(count) + " experts"};
  }
  const CutRules rules(layout.tp);
  std::int64_t width = experts.intermediate;
  MORACLE_TRY(rules.divide(width, experts.name, "columns of an expert"));
  const StoredExperts::Expert& first = experts.experts.front();
  MORACLE_TRY(rules.check_rows(first.gate, experts.name, width));
  return rules.check_columns(first.down, experts.name, width);
}

Result<ModelSpec> parallel_cut(const Plan& plan, const RankLayout& layout) {
  return ParallelCut(plan, layout).run();
}

}  // namespace moracle
