// The integer formats, opened from golden tensors, against independently dequantized weights.
#include <gtest/gtest.h>

#include <optional>

#include "format/format.h"
#include "scheme/canonical.h"
#include "scheme/codes.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"
#include "support/safetensors_reader.h"

namespace moracle {
namespace {

using test::GoldenFile;
using test::MemoryCheckpoint;
using test::same_bits;

const std::string kModule = "model.layers.0.mlp.up_proj";

void add(MemoryCheckpoint& checkpoint, const std::string& part, const TensorView& tensor) {
  checkpoint.add(kModule + "." + part, tensor.dtype, tensor.shape, tensor.bytes);
}

// The whole matrix [out, in], read in panels of every awkward size as well, which must agree.
std::vector<float> open_and_dequantize(const std::shared_ptr<MemoryCheckpoint>& checkpoint, std::int64_t out,
                                       std::int64_t in) {
  auto format = make_format(*checkpoint);
  if (!format.ok()) {
    ADD_FAILURE() << format.error().message();
    return {};
  }
  TensorClaims claims(checkpoint);
  const ModuleRef module{.path = kModule, .fused = {}, .out = out, .in = in};
  auto linear = test::open_whole(**format, module, claims);
  if (!linear.ok()) {
    ADD_FAILURE() << linear.error().message();
    return {};
  }
  EXPECT_TRUE(claims.unclaimed().empty());
  auto whole = dequantize(*linear->weight);
  if (!whole.ok()) {
    ADD_FAILURE() << whole.error().message();
    return {};
  }
  const MatrixSpec& spec = linear->weight->spec();
  for (const std::int64_t step : {1, 3, 16, 29}) {
    MatrixPanel panel;
    for (std::int64_t begin = 0; begin < spec.rows; begin += step) {
      const std::int64_t end = std::min(spec.rows, begin + step);
      EXPECT_TRUE(linear->weight->read(begin, end, panel).ok());
      std::vector<float> values(static_cast<std::size_t>((end - begin) * spec.cols));
      dequantize_panel(spec, panel, values);
      const auto first = whole->begin() + begin * spec.cols;
      EXPECT_TRUE(same_bits(values, std::vector<float>(first, first + (end - begin) * spec.cols))) << begin;
    }
  }
  return std::move(whole).value();
}

std::vector<float> transposed(const std::vector<float>& kn, std::size_t in, std::size_t out) {
  std::vector<float> nk(kn.size());
  for (std::size_t k = 0; k < in; ++k)
    for (std::size_t n = 0; n < out; ++n) nk[n * in + k] = kn[k * out + n];
  return nk;
}

Json gptq_config(int bits, int group, bool sym, const std::optional<std::string>& checkpoint_format, bool desc_act) {
  Json section{{"quant_method", "gptq"}, {"bits", bits}, {"group_size", group}, {"sym", sym}, {"desc_act", desc_act}};
  if (checkpoint_format) section["checkpoint_format"] = *checkpoint_format;
  return {{"quantization_config", section}};
}

TEST(FormatGolden, GptqSymmetric) {
  const GoldenFile file("marlin_gptq");
  for (const int bits : {4, 8})
    for (const int group : {-1, 32, 128})
      for (const bool act : {false, true}) {
        if (act && group < 0) continue;
        const std::string name = "w" + std::to_string(bits) + "_g" + std::to_string(group) + "_act" + (act ? "1" : "0");
        SCOPED_TRACE(name);
        auto checkpoint = std::make_shared<MemoryCheckpoint>(gptq_config(bits, group, true, "gptq", act));
        for (const char* part : {"qweight", "scales", "qzeros", "g_idx"})
          add(*checkpoint, part, file.at(name + "." + part));
        const auto found = open_and_dequantize(checkpoint, 128, 256);
        EXPECT_TRUE(same_bits(found, transposed(file.values<float>(name + ".dequant_f32"), 256, 128)));
      }
}

TEST(FormatGolden, GptqAsymmetricBothConventions) {
  const GoldenFile file("gptq_asym");
  for (const int bits : {4, 8})
    for (const auto& [version, zeros] : {std::pair<std::optional<std::string>, std::string>{"gptq", "qzeros_v1"},
                                         {std::nullopt, "qzeros_v1"},
                                         {"gptq_v2", "qzeros_v2"}}) {
      const std::string name = "w" + std::to_string(bits) + "_g32";
      SCOPED_TRACE(name + " " + zeros);
      auto checkpoint = std::make_shared<MemoryCheckpoint>(gptq_config(bits, 32, false, version, false));
      add(*checkpoint, "qweight", file.at(name + ".qweight"));
      add(*checkpoint, "scales", file.at(name + ".scales"));
      add(*checkpoint, "qzeros", file.at(name + "." + zeros));
      const auto found = open_and_dequantize(checkpoint, 128, 256);
      EXPECT_TRUE(same_bits(found, transposed(file.values<float>(name + ".dequant_f32"), 256, 128)));
    }
}

TEST(FormatGolden, Awq) {
  const GoldenFile file("marlin_awq");
  for (const int group : {32, 128}) {
    const std::string name = "g" + std::to_string(group);
    SCOPED_TRACE(name);
    auto checkpoint = std::make_shared<MemoryCheckpoint>(Json{
        {"quantization_config",
         {{"quant_method", "awq"}, {"bits", 4}, {"group_size", group}, {"zero_point", true}, {"version", "gemm"}}}});
    for (const char* part : {"qweight", "scales", "qzeros"}) add(*checkpoint, part, file.at(name + "." + part));
    const auto found = open_and_dequantize(checkpoint, 128, 256);
    EXPECT_TRUE(same_bits(found, transposed(file.values<float>(name + ".dequant_f32"), 256, 128)));
  }
}

struct MoeCase {
  const char* file;
  Json config;
  std::vector<const char*> parts;
};

Json ct_config(bool symmetric) {
  return {
      {"quantization_config",
       {{"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups",
         {{"group_0",
           {{"targets", {"Linear"}},
            {"weights",
             {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}, {"symmetric", symmetric}}},
            {"input_activations", nullptr}}}}},
        {"ignore", {"lm_head"}}}}};
}

// Rows 0 to 31 of expert 0 of both matrices, and all experts open and are finite.
TEST(FormatGolden, MoeFiles) {
  const Json awq{
      {"quantization_config",
       {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}, {"version", "gemm"}}}};
  const MoeCase cases[] = {
      {"moe_w4a16_gptq_g128", gptq_config(4, 128, true, "gptq", false), {"qweight", "scales", "qzeros"}},
      {"moe_w4a16_gptq_g32", gptq_config(4, 32, true, "gptq", false), {"qweight", "scales", "qzeros"}},
      {"moe_w4a16_gptq_actorder_g32", gptq_config(4, 32, true, "gptq", true), {"qweight", "scales", "qzeros", "g_idx"}},
      {"moe_w8a16_gptq_g128", gptq_config(8, 128, true, "gptq", false), {"qweight", "scales", "qzeros"}},
      {"moe_w4a16_awq_g128", awq, {"qweight", "scales", "qzeros"}},
      {"moe_w4a16_ct_g32_sym", ct_config(true), {"weight_packed", "weight_scale"}},
      {"moe_w4a16_ct_g32_asym", ct_config(false), {"weight_packed", "weight_scale", "weight_zero_point"}},
  };
  for (const MoeCase& c : cases)
    for (const auto& [matrix, out, in] : {std::tuple{"w13", 256, 256}, std::tuple{"w2", 256, 128}}) {
      SCOPED_TRACE(std::string(c.file) + " " + matrix);
      const GoldenFile file(c.file);
      for (std::int64_t expert = 0; expert < 8; ++expert) {
        auto checkpoint = std::make_shared<MemoryCheckpoint>(c.config);
        for (const char* part : c.parts) add(*checkpoint, part, file.part(std::string(matrix) + "." + part, expert));
        auto found = open_and_dequantize(checkpoint, out, in);
        ASSERT_EQ(found.size(), static_cast<std::size_t>(out * in));
        if (expert != 0) continue;
        found.resize(static_cast<std::size_t>(32 * in));
        EXPECT_TRUE(same_bits(found, file.values<float>("check." + std::string(matrix) + "_e0_rows0_31_f32")));
      }
    }
}

}  // namespace
}  // namespace moracle
