// verify must catch a kernel that loses a scale: each fault damages what the kernel packs, while ref keeps the truth.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <iostream>

#include "support/model_fixture.h"
#include "verify/error_bound.h"
#include "verify/verify.h"

namespace moracle::test {
namespace {

// A matrix whose panels and spec pass through `change`; nothing is fetched as stored words, so every kernel reads it.
class DamagedMatrix final : public MatrixSource {
 public:
  DamagedMatrix(std::shared_ptr<const MatrixSource> from, MatrixSpec spec,
                std::function<void(const MatrixSpec&, MatrixPanel&)> change)
      : MatrixSource(std::move(spec)), from_(std::move(from)), change_(std::move(change)) {}
  Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    MORACLE_TRY(from_->read(begin, end, out));
    change_(spec_, out);
    return Ok{};
  }

 private:
  std::shared_ptr<const MatrixSource> from_;
  std::function<void(const MatrixSpec&, MatrixPanel&)> change_;
};

// Returns false where the fault changes no number of this linear.
using Fault = std::function<bool(CanonicalLinear&)>;

void damage(CanonicalLinear& linear, MatrixSpec spec, std::function<void(const MatrixSpec&, MatrixPanel&)> change) {
  linear.weight = std::make_shared<DamagedMatrix>(linear.weight, std::move(spec), std::move(change));
}

bool first_scale_for_all_groups(CanonicalLinear& linear) {
  const MatrixSpec& spec = linear.weight->spec();
  if (!spec.key.quantized() || spec.groups < 2) return false;
  damage(linear, spec, [](const MatrixSpec& of, MatrixPanel& panel) {
    for (std::int64_t row = 0; row < panel.rows; ++row) {
      const auto first = panel.scales.begin() + row * of.groups;
      std::fill(first, first + of.groups, *first);
    }
  });
  return true;
}

bool no_scales(CanonicalLinear& linear) {
  if (!linear.weight->spec().key.quantized()) return false;
  damage(linear, linear.weight->spec(), [](const MatrixSpec&, MatrixPanel& panel) {
    // Twice the truth: another constant would be Inf or zero for some format.
    for (float& scale : panel.scales) scale *= 2.0F;
  });
  return true;
}

bool no_global_scale(CanonicalLinear& linear) {
  MatrixSpec spec = linear.weight->spec();
  if (spec.global_scale == 1.0F) return false;
  spec.global_scale = 1.0F;
  damage(linear, std::move(spec), [](const MatrixSpec&, MatrixPanel&) {});
  return true;
}

bool no_zero_points(CanonicalLinear& linear) {
  const MatrixSpec& spec = linear.weight->spec();
  if (!spec.key.quantized() || spec.key.symmetric) return false;
  damage(linear, spec, [](const MatrixSpec&, MatrixPanel& panel) {
    std::fill(panel.zeros.begin(), panel.zeros.end(), panel.zeros.empty() ? std::uint8_t{0} : panel.zeros.front());
  });
  return true;
}

bool another_input_scale(CanonicalLinear& linear) {
  if (!linear.input_scale || !linear.activation || linear.activation->dynamic) return false;
  linear.input_scale = *linear.input_scale * 1.5F;
  return true;
}

struct NamedFault {
  const char* name;
  Fault apply;
};

const std::vector<NamedFault>& faults() {
  static const std::vector<NamedFault> all = {{"first scale for all groups", first_scale_for_all_groups},
                                              {"scales twice the truth", no_scales},
                                              {"no second-level scale", no_global_scale},
                                              {"one zero point for all", no_zero_points},
                                              {"another static input scale", another_input_scale}};
  return all;
}

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> roots = {data_dir() / "families", data_dir() / "checkpoints"};
  if (shared_dir()) roots.push_back(*shared_dir() / "checkpoints");
  std::vector<std::filesystem::path> all;
  for (const auto& root : roots) {
    for (const auto& entry : std::filesystem::directory_iterator(root)) {
      if (std::filesystem::exists(entry.path() / "config.json")) all.push_back(entry.path());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

class VerifyFaultsTest : public testing::TestWithParam<std::filesystem::path> {};

// One policy on one checkpoint; false where no kernel serves it on this machine.
bool catches_every_fault(const std::shared_ptr<const Checkpoint>& checkpoint, const Policy& policy) {
  const auto plan = LoadPlan::make(checkpoint, probe_machine(), policy);
  if (!plan.ok()) return false;
  ThreadPool pool(2);
  const auto& modules = (*plan)->modules();
  const auto module = std::find_if(modules.begin(), modules.end(), [](const ModuleReport& at) {
    return at.kind == "experts" && at.decision && at.problem;
  });
  if (module == modules.end()) return false;
  const auto card = winner_of(*module->decision, *module->problem);
  if (!card.ok()) return false;
  const auto truth = (*plan)->read_experts(static_cast<std::size_t>(module - modules.begin()));
  EXPECT_TRUE(truth.ok()) << truth.error().message();
  if (!truth.ok()) return false;
  const auto compare = [&](const CanonicalExperts& packed) {
    auto verdict = compare_with_ref(**card, packed, *truth, *module->problem, 32, 1, pool);
    EXPECT_TRUE(verdict.ok()) << verdict.error().message();
    return verdict.ok() ? *verdict : LayerVerdict{};
  };
  const LayerVerdict right = compare(*truth);
  std::cout << (*card)->id << ": " << right.difference.relative << " of " << right.bound << "\n";
  EXPECT_TRUE(right.ok) << (*card)->id << ": " << right.difference.relative << " above " << right.bound;
  EXPECT_LE(right.bound, 0.05) << (*card)->id;
  for (const NamedFault& fault : faults()) {
    for (const auto part :
         {&CanonicalExperts::Expert::gate, &CanonicalExperts::Expert::up, &CanonicalExperts::Expert::down}) {
      CanonicalExperts damaged = *truth;
      if ((damaged.experts.front().*part).weight == nullptr) continue;  // up of ungated experts
      bool changed = false;
      for (auto& expert : damaged.experts) changed = fault.apply(expert.*part) || changed;
      if (!changed) continue;
      const LayerVerdict wrong = compare(damaged);
      EXPECT_FALSE(wrong.ok) << (*card)->id << ", " << fault.name << ": " << wrong.difference.relative << " within "
                             << wrong.bound;
    }
  }
  return true;
}

bool has_experts(const std::shared_ptr<const Checkpoint>& checkpoint) {
  const auto plan = LoadPlan::make(checkpoint, probe_machine(), {});
  return plan.ok() && (*plan)->info().experts > 0;
}

TEST_P(VerifyFaultsTest, EveryLostScaleIsCaught) {
  const auto checkpoint = Checkpoint::open(GetParam());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  if (!has_experts(*checkpoint)) GTEST_SKIP() << "a model without routed experts";
  Policy fast;
  fast.numerics = Numerics::fast;
  EXPECT_TRUE(catches_every_fault(*checkpoint, Policy{}));
  EXPECT_TRUE(catches_every_fault(*checkpoint, fast));
  for (const char* backend : {"amx", "avx512vnni", "avx512bf16", "avx512", "avxvnni", "avx2"})
    catches_every_fault(*checkpoint, pinned(backend));
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, VerifyFaultsTest, testing::ValuesIn(folders()), [](const auto& info) {
  std::string name = info.param.parent_path().filename().string() + "_" + info.param.filename().string();
  for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return std::to_string(info.index) + "_" + name;
});

}  // namespace
}  // namespace moracle::test
