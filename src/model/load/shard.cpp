#include "model/load/shard.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"

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

class Sharder {
 public:
  Sharder(const Plan& plan, const RankLayout& layout)
      : plan_(plan), tp_(layout.tp), ep_(layout.ep), rules_(layout.tp) {}

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
  Result<> cut(AttentionSpec& spec) {
    MORACLE_TRY(rules_.divide(spec.heads, spec.q.path, "attention heads"));
    if (spec.kv_heads % tp_ != 0 && tp_ % spec.kv_heads != 0) {
      return rules_.tp_error(spec.k.path, "",
                             "neither divides " + std::to_string(spec.kv_heads) + " key heads nor is a multiple");
    }
    spec.kv_heads = std::max<std::int64_t>(spec.kv_heads / tp_, 1);
    const std::int64_t width = spec.heads * spec.head_dim;
    for (NormSpec& norm : spec.qk_norm) {
      if (norm.size == spec.head_dim) continue;
      norm.size = (&norm == &spec.qk_norm.front() ? spec.heads : spec.kv_heads) * spec.head_dim;
    }
    MORACLE_TRY(rows(spec.q, spec.element_gate ? 2 * width : width));
    MORACLE_TRY(rows(spec.k, spec.kv_heads * spec.head_dim));
    MORACLE_TRY(rows(spec.v, spec.kv_heads * spec.head_dim));
    if (spec.head_gate) MORACLE_TRY(rows(*spec.head_gate, spec.heads));
    return columns(spec.o, width);
  }

  Result<> cut(DeltaNetSpec& spec) {
    MORACLE_TRY(rules_.divide(spec.key_heads, spec.qkv.path, "key heads"));
    MORACLE_TRY(rules_.divide(spec.value_heads, spec.qkv.path, "value heads"));
    const auto share = [&](LinearSpec& linear) {
      return linear.path.empty() ? Result<>(Ok{}) : rows(linear, linear.out / tp_);
    };
    for (LinearSpec* linear : {&spec.qkv, &spec.z, &spec.b, &spec.a}) MORACLE_TRY(share(*linear));
    return columns(spec.out, spec.value_heads * spec.value_dim);
  }

  Result<> cut(LatentAttentionSpec& spec) {
    MORACLE_TRY(rules_.divide(spec.heads, spec.q.path, "attention heads"));
    MORACLE_TRY(rows(spec.q, spec.heads * (spec.nope + spec.rotary)));
    MORACLE_TRY(rows(spec.kv_b, spec.heads * (spec.nope + spec.value)));
    return columns(spec.o, spec.heads * spec.value);
  }

  Result<> cut(DenseSpec& spec) {
    std::int64_t width = spec.gate.out;
    MORACLE_TRY(rules_.divide(width, spec.gate.path, "columns"));
    MORACLE_TRY(rows(spec.gate, width));
    MORACLE_TRY(rows(spec.up, width));
    return columns(spec.down, width);
  }

  Result<> cut(MoeSpec& spec) {
    const StoredExperts& experts = plan_.opened(plan_.index_of(spec.experts.name)).experts;
    if (spec.experts.experts % ep_ != 0) {
      return Error{.code = "plan.ep",
                   .where = spec.experts.name,
                   .found = "ep " + std::to_string(ep_) + " does not divide " + std::to_string(spec.experts.experts) +
                            " experts"};
    }
    spec.experts.experts /= ep_;
    MORACLE_TRY(check_experts_cut(experts, tp_));
    spec.experts.intermediate /= tp_;
    return spec.shared ? cut(spec.shared->mlp) : Result<>(Ok{});
  }

  Result<> rows(LinearSpec& spec, std::int64_t out) const {
    if (out == spec.out) return Ok{};
    MORACLE_TRY(rules_.check_rows(linear(spec), spec.path, out));
    spec.out = out;
    return Ok{};
  }

  Result<> columns(LinearSpec& spec, std::int64_t in) const {
    if (in == spec.in) return Ok{};
    MORACLE_TRY(rules_.check_columns(linear(spec), spec.path, in));
    spec.in = in;
    return Ok{};
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

Result<> check_experts_cut(const StoredExperts& experts, int tp) {
  const CutRules rules(tp);
  std::int64_t width = experts.intermediate;
  MORACLE_TRY(rules.divide(width, experts.name, "columns of an expert"));
  const StoredExperts::Expert& first = experts.experts.front();
  MORACLE_TRY(rules.check_rows(first.gate, experts.name, width));
  return rules.check_columns(first.down, experts.name, width);
}

Result<ModelSpec> shard(const Plan& plan, const RankLayout& layout) {
  return Sharder(plan, layout).run();
}

}  // namespace moracle
