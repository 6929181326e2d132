#include "support/golden_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "format/format.h"
#include "support/memory_checkpoint.h"
#include "support/open_whole.h"
#include "support/safetensors_reader.h"

namespace moracle::test {

namespace {

// Rows of other matrices, in any order.
class PickedRows final : public MatrixSource {
 public:
  using Row = std::pair<std::shared_ptr<const MatrixSource>, std::int64_t>;
  PickedRows(MatrixSpec spec, std::vector<Row> rows) : MatrixSource(std::move(spec)), rows_(std::move(rows)) {}

  Result<> read(std::int64_t begin, std::int64_t end, MatrixPanel& out) const override {
    out = MatrixPanel{};
    out.rows = end - begin;
    MatrixPanel one;
    for (std::int64_t r = begin; r < end; ++r) {
      const auto& [source, row] = rows_[narrow<std::size_t>(r)];
      MORACLE_TRY(source->read(row, row + 1, one));
      out.codes.insert(out.codes.end(), one.codes.begin(), one.codes.end());
      out.scales.insert(out.scales.end(), one.scales.begin(), one.scales.end());
      out.zeros.insert(out.zeros.end(), one.zeros.begin(), one.zeros.end());
      out.values.insert(out.values.end(), one.values.begin(), one.values.end());
    }
    return Ok{};
  }

 private:
  std::vector<Row> rows_;
};

Json section(Json values) {
  return {{"quantization_config", std::move(values)}};
}
Json gptq(int bits, int group, bool desc_act) {
  return section(
      {{"quant_method", "gptq"}, {"bits", bits}, {"group_size", group}, {"sym", true}, {"desc_act", desc_act}});
}
Json ct(const char* format, Json weights, Json activations) {
  Json group{{"targets", {"Linear"}}, {"weights", std::move(weights)}, {"input_activations", std::move(activations)}};
  return section(
      {{"quant_method", "compressed-tensors"}, {"format", format}, {"config_groups", {{"group_0", std::move(group)}}}});
}
Json ct_int4(bool symmetric) {
  return ct("pack-quantized",
            {{"num_bits", 4}, {"type", "int"}, {"strategy", "group"}, {"group_size", 32}, {"symmetric", symmetric}},
            nullptr);
}
Json quark(Json weight, Json input) {
  return section({{"quant_method", "quark"},
                  {"export", {{"pack_method", "reorder"}, {"weight_format", "real_quantized"}}},
                  {"global_quant_config", {{"weight", std::move(weight)}, {"input_tensors", std::move(input)}}}});
}
Json mx(const char* dtype, bool dynamic) {
  return {{"dtype", dtype},
          {"qscheme", "per_group"},
          {"group_size", 32},
          {"scale_format", "e8m0"},
          {"is_dynamic", dynamic}};
}

// One module of the file as the format opens it; rows [begin, begin + out) of it where `half` is not negative.
Result<CanonicalLinear> open_module(const GoldenLayer& layer, const GoldenFile& file, const char* matrix,
                                    std::int64_t expert, std::int64_t out, std::int64_t in, int half) {
  const std::string path = "model.layers.0.mlp.experts." + std::to_string(expert) + "." + matrix;
  auto checkpoint = std::make_shared<MemoryCheckpoint>(layer.config);
  for (const GoldenPart& part : layer.parts) {
    TensorView view = file.part(std::string(matrix) + "." + part.golden, expert);
    if (half >= 0 && !view.shape.empty()) {
      const std::size_t bytes = view.bytes.size() / 2;
      view.bytes = view.bytes.subspan(static_cast<std::size_t>(half) * bytes, bytes);
      view.shape[0] /= 2;
      if (view.shape == std::vector<std::int64_t>{1}) view.shape.clear();
    }
    checkpoint->add(path + "." + part.name, part.dtype.value_or(view.dtype), view.shape, view.bytes);
  }
  MORACLE_ASSIGN(const auto format, make_format(*checkpoint));
  TensorClaims claims(checkpoint);
  MORACLE_ASSIGN(CanonicalLinear linear,
                 test::open_whole(*format, ModuleRef{.path = path, .fused = {}, .out = out, .in = in}, claims));
  EXPECT_TRUE(claims.unclaimed().empty()) << claims.unclaimed()[0];
  return linear;
}

// Gate and up of w13's parts: every second row, or half and half.
CanonicalLinear pick(const std::vector<CanonicalLinear>& parts, bool interleaved, int which) {
  const std::int64_t part_rows = parts[0].weight->spec().rows;
  std::vector<PickedRows::Row> rows;
  for (std::int64_t i = 0; i < kGoldenIntermediate; ++i) {
    const std::int64_t row = interleaved ? 2 * i + which : which * kGoldenIntermediate + i;
    rows.emplace_back(parts[narrow<std::size_t>(row / part_rows)].weight, row % part_rows);
  }
  MatrixSpec spec = rows[0].first->spec();
  spec.rows = kGoldenIntermediate;
  for (const CanonicalLinear& part : parts) {  // else a row could not be taken from the other half
    EXPECT_TRUE(!interleaved || part.weight->spec().global_scale == spec.global_scale);
    EXPECT_TRUE(!interleaved || part.input_scale == parts[0].input_scale);
  }
  const CanonicalLinear& own = parts[parts.size() > 1 && !interleaved ? narrow<std::size_t>(which) : 0];
  return {.weight = std::make_shared<PickedRows>(std::move(spec), std::move(rows)),
          .activation = own.activation,
          .input_scale = own.input_scale};
}

Result<CanonicalExperts::Expert> open_expert(const GoldenLayer& layer, const GoldenFile& file, std::int64_t e,
                                             bool interleaved) {
  std::vector<CanonicalLinear> parts;
  const std::int64_t rows = layer.halves ? kGoldenIntermediate : 2 * kGoldenIntermediate;
  for (int half = 0; half < (layer.halves ? 2 : 1); ++half) {
    MORACLE_ASSIGN(CanonicalLinear part,
                   open_module(layer, file, "w13", e, rows, kGoldenHidden, layer.halves ? half : -1));
    parts.push_back(std::move(part));
  }
  CanonicalExperts::Expert expert;
  MORACLE_ASSIGN(expert.down, open_module(layer, file, "w2", e, kGoldenHidden, kGoldenIntermediate, -1));
  expert.gate = pick(parts, interleaved, 0);
  expert.up = pick(parts, interleaved, 1);
  return expert;
}

}  // namespace

std::vector<GoldenLayer> golden_layers() {
  const Json int8_token{{"num_bits", 8}, {"type", "int"}, {"strategy", "token"}, {"dynamic", true}};
  const Json fp8_token{{"num_bits", 8}, {"type", "float"}, {"strategy", "token"}, {"dynamic", true}};
  const Json nvfp4{{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}};
  const std::vector<GoldenPart> gptq_parts{{"qweight", "qweight"}, {"scales", "scales"}, {"qzeros", "qzeros"}};
  std::vector<GoldenPart> ordered_parts = gptq_parts;
  ordered_parts.push_back({"g_idx", "g_idx"});
  const std::vector<GoldenPart> packed{{"weight_packed", "weight_packed"}, {"weight_scale", "weight_scale"}};
  std::vector<GoldenPart> packed_zeros = packed;
  packed_zeros.push_back({"weight_zero_point", "weight_zero_point"});
  const GoldenPart fp8{"weight", "weight_u8", Dtype::f8_e4m3};
  const std::vector<GoldenPart> mx_parts{{"weight", "weight"}, {"weight_scale", "weight_scale"}};
  const std::vector<GoldenPart> mx6_parts{{"weight", "weight_u8"}, {"weight_scale", "weight_scale"}};
  const std::vector<GoldenPart> nv_parts{
      {"weight", "weight"}, {"weight_scale", "weight_scale_u8", Dtype::f8_e4m3}, {"weight_scale_2", "weight_scale_2"}};
  std::vector<GoldenPart> nv_inputs = nv_parts;
  nv_inputs.push_back({"input_scale", "input_scale"});
  return {
      {"moe_w4a16_gptq_g128", gptq(4, 128, false), gptq_parts, "W: int4 g128 sym"},
      {"moe_w4a16_gptq_g32", gptq(4, 32, false), gptq_parts, "W: int4 g32 sym"},
      {"moe_w4a16_gptq_actorder_g32", gptq(4, 32, true), ordered_parts, "W: int4 g32 sym"},
      {"moe_w8a16_gptq_g128", gptq(8, 128, false), gptq_parts, "W: int8 g128 sym"},
      {"moe_w4a16_awq_g128",
       section({{"quant_method", "awq"}, {"bits", 4}, {"group_size", 128}, {"zero_point", true}, {"version", "gemm"}}),
       gptq_parts, "W: int4 g128 asym"},
      {"moe_w4a16_ct_g32_sym", ct_int4(true), packed, "W: int4 g32 sym"},
      {"moe_w4a16_ct_g32_asym", ct_int4(false), packed_zeros, "W: int4 g32 asym"},
      {"moe_w8a8_int8_channel_token",
       ct("int-quantized", {{"num_bits", 8}, {"type", "int"}, {"strategy", "channel"}}, int8_token),
       {{"weight", "weight"}, {"weight_scale", "weight_scale_ct"}},
       "W: int8 channel, A: int8 token dynamic"},
      {"moe_fp8_tensor_static",
       section({{"quant_method", "fp8"}, {"activation_scheme", "static"}}),
       {fp8, {"weight_scale", "weight_scale"}, {"input_scale", "input_scale"}},
       "W: fp8 tensor, A: fp8 tensor static",
       true},
      {"moe_fp8_channel_token",
       ct("float-quantized", {{"num_bits", 8}, {"type", "float"}, {"strategy", "channel"}}, fp8_token),
       {fp8, {"weight_scale", "weight_scale"}},
       "W: fp8 channel, A: fp8 token dynamic"},
      {"moe_fp8_block128",
       section({{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}, {"weight_block_size", {128, 128}}}),
       {fp8, {"weight_scale_inv", "weight_scale_inv"}},
       "W: fp8 block 128x128, A: fp8 g128 dynamic"},
      {"moe_mxfp4_w4a16", quark(mx("fp4", false), nullptr), mx_parts, "W: mxfp4"},
      {"moe_mxfp4_w4a8_static_fp8",
       quark(mx("fp4", false), {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"is_dynamic", false}}),
       {mx_parts[0], mx_parts[1], {"input_scale", "input_scale"}},
       "W: mxfp4, A: fp8 tensor static"},
      {"moe_mxfp4_w4a4", quark(mx("fp4", false), mx("fp4", true)), mx_parts, "W: mxfp4, A: mxfp4 dynamic"},
      {"moe_nvfp4_w4a16", section({{"quant_method", "modelopt"}, {"quant_algo", "W4A16_NVFP4"}}), nv_parts, "W: nvfp4",
       true},
      {"moe_nvfp4_w4a4", section({{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}), nv_inputs,
       "W: nvfp4, A: nvfp4 dynamic", true},
      {"moe_mxfp8_w8a8",
       section({{"quant_method", "modelopt"}, {"quant_algo", "MXFP8"}}),
       {fp8, {"weight_scale", "weight_scale"}},
       "W: mxfp8, A: mxfp8 dynamic"},
      {"moe_mxfp6_e2m3_w6a6", quark(mx("fp6_e2m3", false), mx("fp6_e2m3", true)), mx6_parts,
       "W: mxfp6 e2m3, A: mxfp6 e2m3 dynamic"},
      {"moe_mxfp6_e3m2_w6a16", quark(mx("fp6_e3m2", false), nullptr), mx6_parts, "W: mxfp6 e3m2"},
  };
}

std::optional<CanonicalExperts> open_golden(const GoldenLayer& layer, bool interleaved) {
  const GoldenFile file(layer.file);
  const GoldenFile common("moe_common");
  CanonicalExperts experts;
  experts.name = layer.file;
  experts.hidden = kGoldenHidden;
  experts.intermediate = kGoldenIntermediate;
  for (std::int64_t e = 0; e < kGoldenExperts; ++e) {
    auto expert = open_expert(layer, file, e, interleaved);
    if (!expert.ok()) {
      ADD_FAILURE() << expert.error().message();
      return std::nullopt;
    }
    experts.experts.push_back(std::move(*expert));
    experts.act_order = experts.act_order || !experts.experts.back().gate.weight->spec().g_idx.empty();
  }
  experts.interleaved = interleaved;
  experts.scheme = experts.experts[0].gate.scheme();
  experts.zero_points = !experts.scheme.weight.symmetric;
  if (!interleaved) return experts;
  experts.bias = true;
  const auto b13 = common.bf16("w13_bias_bf16");
  const auto b2 = common.bf16("w2_bias_bf16");
  for (std::size_t e = 0; e < experts.experts.size(); ++e) {
    CanonicalExperts::Expert& expert = experts.experts[e];
    for (std::size_t i = 0; i < kGoldenIntermediate; ++i) {
      expert.gate.bias.push_back(b13[e * 2 * kGoldenIntermediate + 2 * i]);
      expert.up.bias.push_back(b13[e * 2 * kGoldenIntermediate + 2 * i + 1]);
    }
    expert.down.bias.assign(b2.begin() + static_cast<std::ptrdiff_t>(e * kGoldenHidden),
                            b2.begin() + static_cast<std::ptrdiff_t>((e + 1) * kGoldenHidden));
  }
  return experts;
}

}  // namespace moracle::test
