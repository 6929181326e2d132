// Checkpoints as third-party tools wrote them: every module opens, dequantizes to finite numbers, and no tensor is
// left.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/json.h"
#include "checkpoint/checkpoint.h"
#include "format/format.h"
#include "scheme/canonical.h"
#include "support/open_whole.h"
#include "support/test_data.h"

namespace moracle {
namespace {

struct Summary {
  std::set<std::string> schemes;
  std::size_t modules = 0;
  double largest = 0.0;
};

void look_at(const CanonicalLinear& linear, Summary& summary) {
  const auto values = dequantize(*linear.weight);
  ASSERT_TRUE(values.ok()) << values.error().message();
  double sum = 0.0;
  for (const float value : *values) {
    ASSERT_TRUE(std::isfinite(value)) << linear.weight->spec().name;
    sum += std::fabs(static_cast<double>(value));
  }
  EXPECT_GT(sum, 0.0) << linear.weight->spec().name;
  summary.largest = std::max(summary.largest, sum / static_cast<double>(values->size()));
  summary.schemes.insert(to_string(linear.scheme()));
  ++summary.modules;
}

bool is_matrix(const TensorView& tensor) {
  return tensor.shape.size() == 2;
}

// Opens whatever is stored: experts by the layouts of the families, all other modules by the stems of their tensors.
void open_all(const std::filesystem::path& folder, Summary& summary) {
  const auto checkpoint = Checkpoint::open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message();
  const auto format = make_format(**checkpoint);
  ASSERT_TRUE(format.ok()) << format.error().message();
  TensorClaims claims(*checkpoint);
  const Json& config = (*checkpoint)->config();
  const auto number = [&](std::initializer_list<const char*> keys) {
    for (const char* key : keys)
      if (config.contains(key)) return config[key].get<std::int64_t>();
    return std::int64_t{0};
  };
  for (std::int64_t layer = 0; layer < number({"num_hidden_layers"}); ++layer) {
    const std::string prefix = "model.layers." + std::to_string(layer) + ".";
    const std::string qwen = prefix + "mlp.experts.{e}.";
    const std::string mixtral = prefix + "block_sparse_moe.experts.{e}.";
    ExpertsRef ref{.name = prefix + "mlp.experts", .layouts = {}};
    ref.layouts.push_back({.gate = mixtral + "w1", .up = mixtral + "w3", .down = mixtral + "w2"});
    ref.layouts.push_back({.gate = qwen + "gate_proj", .up = qwen + "up_proj", .down = qwen + "down_proj"});
    const std::string step = prefix + "moe.experts.{e}.";
    const std::string oss = prefix + "mlp.experts.";
    ref.layouts.push_back({.gate = step + "gate_proj", .up = step + "up_proj", .down = step + "down_proj"});
    ref.layouts.push_back({.gate_up = oss + "{e}.gate_up_proj", .stacked_down = oss + "{e}.down_proj"});
    ref.layouts.back().interleaved = true;
    ref.layouts.push_back({.gate_up = oss + "gate_up_proj", .stacked_down = oss + "down_proj"});
    ref.layouts.back().interleaved = true;
    ref.layouts.back().transposed = true;
    ref.experts = number({"num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts"});
    ref.hidden = number({"hidden_size"});
    ref.intermediate = number({"moe_intermediate_size", "intermediate_size"});
    const auto& tensors = (*checkpoint)->tensors();
    if (tensors.lower_bound(prefix + "mlp.gate_proj.") != tensors.lower_bound(prefix + "mlp.gate_proj/")) continue;
    const auto experts = test::open_whole(**format, ref, claims);
    ASSERT_TRUE(experts.ok()) << experts.error().message();
    for (const auto& expert : experts->experts)
      for (const CanonicalLinear* linear : {&expert.gate, &expert.up, &expert.down}) look_at(*linear, summary);
  }
  // The rest: shapes from the tensors themselves, as the family would give them.
  std::set<std::string> stems;
  for (const std::string& name : claims.unclaimed()) stems.insert(name.substr(0, name.rfind('.')));
  for (const std::string& stem : stems) {
    ModuleRef module{.path = stem, .fused = {}};
    if (const TensorView* weight = claims.find(stem + ".weight"); weight != nullptr && is_matrix(*weight)) {
      module.out = weight->shape[0];
      module.in = weight->shape[1] * (weight->dtype == Dtype::u8 ? 2 : 1);
    } else if (const TensorView* packed = claims.find(stem + ".weight_packed"); packed != nullptr) {
      module.out = packed->shape[0];
      module.in = packed->shape[1] * (packed->dtype == Dtype::u8 ? 2 : 8);
    } else if (const TensorView* codes = claims.find(stem + ".qweight"); codes != nullptr) {
      const TensorView* scales = claims.find(stem + ".scales");
      ASSERT_NE(scales, nullptr);
      module.out = scales->shape[1];
      module.in = codes->shape[1] == module.out ? codes->shape[0] * 8 : codes->shape[0];
    } else {
      continue;  // norms
    }
    // Embeddings are tables, no linears.
    const auto stored = stem == "model.embed_tokens" ? open_plain(module, claims) : (*format)->open(module, claims);
    ASSERT_TRUE(stored.ok()) << stored.error().message();
    const auto linear = stored->read();
    ASSERT_TRUE(linear.ok()) << linear.error().message();
    look_at(*linear, summary);
  }
  for (const std::string& name : claims.unclaimed()) {
    EXPECT_EQ((*checkpoint)->find(name)->shape.size(), 1U + (name.find("conv1d") != std::string::npos ? 2U : 0U))
        << name;
    EXPECT_EQ(name.find("scale"), std::string::npos) << name;
    EXPECT_EQ(name.find("zero"), std::string::npos) << name;
  }
  EXPECT_TRUE((*format)->warnings().empty()) << (*format)->warnings()[0];
}

struct Case {
  const char* folder;
  std::set<std::string> schemes;
};

void check(const std::filesystem::path& root, const Case& c) {
  SCOPED_TRACE(c.folder);
  Summary summary;
  open_all(root / c.folder, summary);
  EXPECT_EQ(summary.schemes, c.schemes);
  EXPECT_GT(summary.modules, 50U);
  EXPECT_LT(summary.largest, 1.0);  // trained weights are small: a wrong zero point or scale is not
}

TEST(FormatCheckpoints, InTheTree) {
  const auto root = test::data_dir() / "checkpoints";
  check(root, {"mixtral-awq-w4g32", {"W: int4 g32 asym", "W: f16"}});
  check(root, {"qwen3moe-gptq-w4g128-sym", {"W: int4 g128 sym", "W: bf16"}});
  check(root, {"qwen3moe-gptq-w4g32-actorder-cut", {"W: int4 g32 sym", "W: bf16"}});
}

TEST(FormatCheckpoints, InTheLargerCollection) {
  const auto shared = test::shared_dir();
  if (!shared) GTEST_SKIP() << "the larger reference collection is not here";
  const auto root = *shared / "checkpoints";
  check(root, {"qwen3moe-gptq-w4g128-asym-v2", {"W: int4 g128 asym", "W: bf16"}});
  check(root, {"qwen3moe-ct-w4a16-g128-asym", {"W: int4 g128 asym", "W: bf16"}});
  check(root, {"glm4moe-ct-w4a16-g128", {"W: int4 g128 sym", "W: bf16"}});
  check(root, {"qwen35moe-ct-w4a16-g128", {"W: int4 g128 sym", "W: bf16"}});
  const std::string int8 = "W: int8 channel, A: int8 token dynamic";
  check(root, {"qwen3moe-ct-w8a8-int8", {int8, "W: bf16"}});
  check(root, {"quark-int8-ptpc-step3p5", {int8, "W: bf16"}});
  check(root, {"dsv3-ct-fp8-block", {"W: fp8 block 128x128, A: fp8 g128 dynamic", "W: bf16"}});
  check(root, {"qwen3moe-ct-nvfp4-w4a4", {"W: nvfp4, A: nvfp4 dynamic", "W: bf16"}});
  check(root, {"native-mxfp4-gpt_oss", {"W: mxfp4", "W: bf16"}});
  check(root, {"quark-mxfp4-a8fp8-qwen3_moe", {"W: mxfp4, A: fp8 tensor static", "W: bf16"}});
  check(root, {"quark-mxfp4-a4-gpt_oss", {"W: mxfp4, A: mxfp4 dynamic", "W: bf16"}});
  check(root, {"modelopt-w4a16nvfp4-qwen3_moe", {"W: nvfp4", "W: bf16"}});
}

}  // namespace
}  // namespace moracle
