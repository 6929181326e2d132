// What each format must refuse by rules of its own, tried on real checkpoints.
#include <gtest/gtest.h>

#include "support/mutations.h"

namespace moracle::test {
namespace {

using Change = std::function<void(MutableCheckpoint&)>;

Change quant(const std::string& pointer, Json value) {
  return [=](MutableCheckpoint& c) { c.quant(pointer, value); };
}
Change drop(const std::string& name) {
  return [=](MutableCheckpoint& c) { c.drop(name); };
}
template <class T>
Change poke(const std::string& name, std::size_t index, T value) {
  return [=](MutableCheckpoint& c) { c.poke(name, index, value); };
}
// A tensor of these F32 values instead.
Change floats(const std::string& name, std::vector<std::int64_t> shape, const std::vector<float>& values) {
  return [=](MutableCheckpoint& c) {
    std::vector<std::uint8_t> bytes(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    c.add(name, "F32", shape, bytes);
  };
}
// A word more in a list of the section.
Change listed(const std::string& key, const std::string& text) {
  return [=](MutableCheckpoint& c) {
    Json list = c.config["quantization_config"].value(key, Json::array());
    list.push_back(text);
    c.quant("/" + key, list);
  };
}
Change unlisted(const std::string& key, const std::string& part) {
  return [=](MutableCheckpoint& c) {
    Json kept = Json::array();
    for (const Json& text : c.config["quantization_config"][key])
      if (text.get<std::string>().find(part) == std::string::npos) kept.push_back(text);
    c.quant("/" + key, kept);
  };
}
Change both(const Change& first, const Change& second) {
  return [=](MutableCheckpoint& c) {
    first(c);
    second(c);
  };
}
// An unquantized weight in place of all parts of a module.
Change plain(const std::string& module, std::int64_t rows, std::int64_t cols) {
  return [=](MutableCheckpoint& c) {
    c.drop_all(module + ".");
    c.add(module + ".weight", "BF16", {rows, cols},
          std::vector<std::uint8_t>(static_cast<std::size_t>(rows * cols * 2), 0x3C));
  };
}

const std::string kGate = "model.layers.1.mlp.experts.3.gate_proj";
const std::string kQuery = "model.layers.0.self_attn.q_proj";
const char* const kRefused = "quant.unsupported";
constexpr float kNaN = __builtin_nanf("");

TEST(GptqMutations, Symmetric) {
  try_mutations(
      "qwen3moe-gptq-w4g128-sym",
      {{"8 bits said, 4 stored", quant("/bits", 8), "config.contradiction", {"8-bit codes", "4-bit codes"}},
       {"3 bits", quant("/bits", 3), kRefused, {"bits", "4 or 8", "3"}},
       {"bits unsaid", quant("/bits", nullptr), "config.missing", {"bits"}},
       {"bits in words", quant("/bits", "four"), "config.type", {"bits"}},
       {"groups of 64 said, 128 stored", quant("/group_size", 64), "quant.group", {"4 groups of 64", "2 groups"}},
       {"groups of 0", quant("/group_size", 0), "config.range", {"group_size"}},
       {"groups of 10^12", quant("/group_size", 1000000000000), "config.range", {"group_size"}},
       {"one scale a row said", quant("/group_size", -1), "quant.group", {"1 groups of 256", "2 groups"}},
       {"a zero point that is not neutral",
        poke(kQuery + ".qzeros", 3, 0x77777773U),
        "config.contradiction",
        {kQuery + ".qzeros", "zero points of 8", "3 for row 24"}},
       {"repacked for one kernel", quant("/checkpoint_format", "marlin"), kRefused, {"gptq or gptq_v2", "marlin"}},
       {"two versions at once",
        quant("/format", "gptq_v2"),
        "",
        {"/checkpoint_format = \"gptq\" is used, and not /quantization_config/format = \"gptq_v2\""}},
       {"words of 16 bits", quant("/pack_dtype", "int16"), kRefused, {"pack_dtype", "int16"}},
       {"a group beyond the last",
        poke(kGate + ".g_idx", 17, 2),
        "quant.act_order",
        {kGate + ".g_idx", "[0, 2)", "2 at element 17"}},
       {"a negative group", poke(kGate + ".g_idx", 0, -1), "quant.act_order", {"-1 at element 0"}},
       {"a group of one column too many",
        poke(kGate + ".g_idx", 0, 1),
        "quant.act_order",
        {"128 columns in group 0", "127"}},
       {"a short group index",
        [](auto& c) { c.add_zeros(kGate + ".g_idx", "I32", {255}); },
        "tensor.shape",
        {kGate + ".g_idx", "[256]", "[255]"}},
       {"a group index of floats", [](auto& c) { c.at(kGate + ".g_idx").dtype = "F32"; }, "tensor.dtype", {"I32"}},
       {"zero points of another shape",
        [](auto& c) { c.add_zeros(kGate + ".qzeros", "I32", {2, 17}); },
        "tensor.shape",
        {kGate + ".qzeros", "[2, 16]", "[2, 17]"}},
       {"an infinite scale",
        poke<std::uint16_t>(kGate + ".scales", 200, 0xFC00),
        "value.nan",
        {"element 200", "infinity"}},
       {"a bias of another shape",
        [](auto& c) { c.add_zeros(kGate + ".bias", "F16", {127}); },
        "tensor.shape",
        {kGate + ".bias", "[128]"}},
       {"one expert with a bias",
        [](auto& c) { c.add_zeros(kGate + ".bias", "F16", {128}); },
        "experts.scheme",
        {kGate, "with bias"}},
       {"a rule that excludes what is quantized",
        quant("/dynamic", {{"-:.*q_proj", Json::object()}}),
        "config.contradiction",
        {kQuery, "-:.*q_proj"}},
       {"a rule with 2 bits", quant("/dynamic", {{"+:.*q_proj", {{"bits", 2}}}}), kRefused, {"dynamic", "bits", "2"}},
       {"a rule of no regular expression", quant("/dynamic", {{"-:(", Json::object()}}), "config.pattern", {"("}},
       {"a rule that needs forever",
        quant("/dynamic", {{"+:(.*)*(.*)*(.*)*x", {{"bits", 4}}}}),
        "config.pattern",
        {"steps"}},
       {"a rule for nothing",
        quant("/dynamic", {{"-:vision", Json::object()}}),
        "",
        {"dynamic: \"-:vision\" matches no module"}},
       {"experts of two group sizes",
        [](auto& c) {
          c.quant("/dynamic", {{"+:.*layers\\.1\\.mlp\\.experts\\.3\\.gate_proj", {{"group_size", 64}}}});
          c.drop(kGate + ".g_idx");
          c.drop(kGate + ".qzeros");
          c.copy_all(kQuery + ".scales", "kept.");
          auto wide = c.at(kGate + ".scales").bytes;
          wide.insert(wide.end(), wide.begin(), wide.end());
          c.drop_all("kept.");
          c.add(kGate + ".scales", "F16", {4, 128}, wide);
        },
        "experts.scheme",
        {"model.layers.1.mlp.experts", kGate, "g64", "g128"}},
       {"only some blocks quantized",
        quant("/modules_in_block_to_quantize", Json::array({"self_attn.q_proj"})),
        "config.contradiction",
        {"modules_in_block_to_quantize"}},
       {"a list that is none",
        quant("/modules_in_block_to_quantize", "all"),
        "config.type",
        {"modules_in_block_to_quantize"}},
       {"one shard of a fused linear unquantized", plain(kQuery, 256, 256), "", {}}});
}

TEST(GptqMutations, ActOrderAndZeroPoints) {
  const std::string gate = "model.layers.0.mlp.experts.3.gate_proj";
  try_mutations(
      "qwen3moe-gptq-w4g32-actorder-cut",
      {{"no group index", drop(gate + ".g_idx"), "quant.incomplete", {gate + ".g_idx"}},
       {"a group twice", poke(gate + ".g_idx", 9, 7), "quant.act_order", {gate + ".g_idx", "columns in group"}},
       {"a group of 2^31 - 1", poke(gate + ".g_idx", 9, 0x7FFFFFFF), "quant.act_order", {"[0, 8)"}}});
  try_mutations("qwen3moe-gptq-w4g128-asym-v2",
                {{"no zero points", drop(kGate + ".qzeros"), "quant.incomplete", {kGate + ".qzeros"}},
                 {"zero points of floats",
                  [](auto& c) { c.at(kGate + ".qzeros").dtype = "F32"; },
                  "tensor.dtype",
                  {"I32 or U32"}},
                 {"symmetric said", quant("/sym", true), "config.contradiction", {"symmetric", "zero points of 8"}},
                 {"a zero point of 16 in the older convention",
                  [](auto& c) {
                    c.quant("/checkpoint_format", "gptq");
                    c.quant("/format", "gptq");
                    c.poke(kGate + ".qzeros", 0, 0x7777777FU);
                  },
                  "value.zero_point",
                  {kGate + ".qzeros", "at most 15 for row 0, group 0", "16"}}});
}

TEST(AwqMutations, Mixtral) {
  const std::string expert = "model.layers.3.block_sparse_moe.experts.2.w1";
  try_mutations(
      "mixtral-awq-w4g32",
      {{"another layout", quant("/version", "gemv"), kRefused, {"gemm", "gemv", "pack differently"}},
       {"8 bits", quant("/bits", 8), kRefused, {"bits", "8"}},
       {"groups of 64 said", quant("/group_size", 64), "quant.group", {"4 groups of 64", "8 groups"}},
       {"no group size", quant("/group_size", nullptr), "config.missing", {"group_size"}},
       {"zero points in words", quant("/zero_point", "yes"), "config.type", {"zero_point"}},
       {"no zero points", drop(expert + ".qzeros"), "quant.incomplete", {expert + ".qzeros"}},
       {"zero points of another shape",
        [=](auto& c) { c.add_zeros(expert + ".qzeros", "I32", {4, 16}); },
        "tensor.shape",
        {"[8, 16]", "[4, 16]"}},
       {"words along the input, as GPTQ has them",
        [=](auto& c) { c.at(expert + ".qweight").shape = {32, 128}; },
        "tensor.shape",
        {expert + ".qweight", "[256, 16]", "[32, 128]"}},
       {"called gptq", quant("/quant_method", "gptq"), "", {"quant_method = gptq, and words lie as awq packs them"}},
       {"a list that excludes what is quantized",
        listed("modules_to_not_convert", "q_proj"),
        "",
        {"\"q_proj\" excludes modules that are stored quantized"}},
       {"a list that names nothing",
        listed("modules_to_not_convert", "vision_tower"),
        "",
        {"modules_to_not_convert: \"vision_tower\" matches no module"}},
       {"a list of numbers",
        quant("/modules_to_not_convert", Json::array({7})),
        "config.type",
        {"modules_to_not_convert"}},
       {"one shard of a fused linear unquantized", plain(kQuery, 256, 256), "", {}},
       {"one projection of one expert unquantized", plain(expert, 128, 256), "experts.scheme", {expert, "bf16"}}});
}

Change weights(const std::string& key, Json value) {
  return quant("/config_groups/group_0/weights/" + key, std::move(value));
}
Change inputs(const std::string& key, Json value) {
  return quant("/config_groups/group_0/input_activations/" + key, std::move(value));
}

TEST(CompressedTensorsMutations, PackedIntegers) {
  try_mutations(
      "qwen3moe-ct-w4a16-g128-asym",
      {{"8 bits said, 4 stored", weights("num_bits", 8), "config.contradiction", {"8-bit codes", "4-bit codes"}},
       {"2 bits", weights("num_bits", 2), kRefused, {"group_0", "int2 group 128"}},
       {"floats said", weights("type", "float"), kRefused, {"float4 group 128"}},
       {"groups of 64 said", weights("group_size", 64), "quant.group", {"4 groups of 64", "2 groups"}},
       {"channels said", weights("strategy", "channel"), "quant.group", {"1 groups of 256", "2 groups"}},
       {"symmetric said", weights("symmetric", true), "config.contradiction", {"weight_zero_point", "symmetric"}},
       {"an order of columns that is not stored", weights("actorder", "group"), "quant.incomplete", {"weight_g_idx"}},
       {"an unknown order", weights("actorder", "spiral"), kRefused, {"actorder spiral"}},
       {"an unknown key", weights("rotation", "hadamard"), kRefused, {"weights/rotation", "hadamard"}},
       {"dynamic weights", weights("dynamic", true), kRefused, {"dynamic"}},
       {"no weights", quant("/config_groups/group_0/weights", nullptr), "config.missing", {"group_0/weights"}},
       {"no groups", quant("/config_groups", Json::object()), "config.missing", {"config_groups"}},
       {"an unknown format",
        both(quant("/config_groups/group_0/format", "marlin-24"), quant("/format", "marlin-24")),
        kRefused,
        {"marlin-24", "pack-quantized"}},
       {"sparse weights",
        quant("/sparsity_config", {{"format", "sparse-24-bitmask"}}),
        kRefused,
        {"sparsity_config", "sparse-24-bitmask"}},
       {"rotated weights",
        quant("/transform_config", {{"config_groups", {{"u", {{"type", "hadamard"}}}}}}),
        kRefused,
        {"transform_config"}},
       {"quantized outputs",
        quant("/config_groups/group_0/output_activations", {{"num_bits", 8}}),
        kRefused,
        {"output_activations"}},
       {"no targets", quant("/config_groups/group_0/targets", Json::array()), "config.missing", {"targets"}},
       {"targets that are not there",
        quant("/config_groups/group_0/targets", Json::array({"Conv2d"})),
        "config.contradiction",
        {"weight_packed", "no target matches"}},
       {"an ignore list with what is quantized", listed("ignore", kQuery), "config.contradiction", {kQuery}},
       {"an ignore list with a fused name",
        listed("ignore", "model.layers.0.self_attn.qkv_proj"),
        "config.contradiction",
        {kQuery, "qkv_proj"}},
       {"an ignore list of no regular expression", listed("ignore", "re:("), "config.pattern", {"("}},
       {"an ignore list with what is not there",
        listed("ignore", "model.layers.9.mlp.gate"),
        "",
        {"ignore: \"model.layers.9.mlp.gate\" matches no module"}},
       {"an ignore list without the head",
        unlisted("ignore", "lm_head"),
        "quant.incomplete",
        {"lm_head", "ignore list"}},
       {"one shard of a fused linear ignored", both(listed("ignore", kQuery), plain(kQuery, 256, 256)), "", {}},
       {"one expert ignored and unquantized",
        both(listed("ignore", kGate), plain(kGate, 128, 256)),
        "experts.scheme",
        {kGate, "bf16"}},
       {"a shape that is another",
        poke<std::int64_t>(kGate + ".weight_shape", 1, 255),
        "tensor.shape",
        {kGate + ".weight_shape", "[128, 256]", "[128, 255]"}},
       {"no zero points", drop(kGate + ".weight_zero_point"), "quant.incomplete", {kGate + ".weight_zero_point"}},
       {"zero points unpacked by half",
        [](auto& c) { c.add_zeros(kGate + ".weight_zero_point", "I32", {32, 2}); },
        "tensor.shape",
        {"[16, 2]", "[32, 2]"}},
       {"an infinite scale",
        poke<std::uint16_t>(kGate + ".weight_scale", 255, 0x7F80),
        "value.nan",
        {"element 255", "infinity"}}});
}

TEST(CompressedTensorsMutations, Int8) {
  try_mutations(
      "qwen3moe-ct-w8a8-int8",
      {{"scales of columns, not rows",
        floats(kGate + ".weight_scale", {256, 1}, std::vector<float>(256, 0.01F)),
        "tensor.shape",
        {kGate + ".weight_scale", "[128, 1]", "[256, 1]"}},
       {"one scale for all",
        floats(kGate + ".weight_scale", {1}, {0.01F}),
        "tensor.shape",
        {kGate + ".weight_scale", "[128, 1]", "[1]"}},
       {"asymmetric said", weights("symmetric", false), "quant.incomplete", {"weight_zero_point"}},
       {"zero points unasked",
        [](auto& c) { c.add(kGate + ".weight_zero_point", "I8", {128, 1}, std::vector<std::uint8_t>(128, 3)); },
        "config.contradiction",
        {kGate + ".weight_zero_point", "3 for row 0"}},
       {"one scale a tensor said", weights("strategy", "tensor"), "tensor.shape", {"weight_scale"}},
       {"4 bits said", weights("num_bits", 4), "value.range", {"-8 to 7"}},
       {"floats said", weights("type", "float"), kRefused, {"float8 channel"}},
       {"static activations without scales",
        both(inputs("dynamic", false), inputs("strategy", "tensor")),
        "quant.incomplete",
        {"input_scale"}},
       {"activations of 4 bits", inputs("num_bits", 4), kRefused, {"int4 token"}},
       {"asymmetric activations", inputs("symmetric", false), kRefused, {"asymmetric"}},
       {"activations of a whole batch", inputs("strategy", "tensor"), kRefused, {"int8 tensor dynamic"}},
       {"activations by a word nobody knows",
        inputs("dynamic", "locally"),
        kRefused,
        {"input_activations/dynamic", "true, false or local", "locally"}},
       {"a transform of no groups", quant("/transform_config", {{"config_groups", nullptr}}), "", {}},
       {"a transform told otherwise", quant("/transform_config", {{"rotation", "R1"}}), kRefused, {"transform_config"}},
       {"a transform in a word", quant("/transform_config", "hadamard"), "config.type", {"transform_config"}},
       {"sparsity in a word", quant("/sparsity_config", "2:4"), "config.type", {"sparsity_config"}},
       {"scales of the activations all the same",
        floats(kGate + ".input_scale", {1}, {0.5F}),
        "tensor.unused",
        {kGate + ".input_scale"}}});
}

TEST(CompressedTensorsMutations, Fp8Blocks) {
  try_mutations(
      "dsv3-ct-fp8-block",
      {{"blocks of 64 rows said", weights("block_structure", Json::array({64, 128})), "tensor.shape", {"weight_scale"}},
       {"blocks of 64 columns said",
        weights("block_structure", Json::array({128, 64})),
        "quant.group",
        {"groups of 64"}},
       {"blocks of one number",
        weights("block_structure", Json::array({128})),
        "config.type",
        {"two positive numbers"}},
       {"channels said", weights("strategy", "channel"), "tensor.shape", {"weight_scale"}},
       {"a code that is NaN",
        poke<std::uint8_t>(kGate + ".weight", 300, 0xFF),
        "value.nan",
        {"row 1, column 44", "NaN"}},
       {"a projection that is not in the ignore list",
        unlisted("ignore", "kv_a_proj_with_mqa"),
        "quant.incomplete",
        {"kv_a_proj_with_mqa", "ignore list"}},
       {"integer activations", inputs("type", "int"), kRefused, {"int8 group 128"}}});
}

TEST(CompressedTensorsMutations, Nvfp4) {
  const std::string global = kGate + ".weight_global_scale";
  const std::string input = kGate + ".input_global_scale";
  try_mutations("qwen3moe-ct-nvfp4-w4a4",
                {{"no global scale", drop(global), "quant.incomplete", {global}},
                 {"a global scale of zero", floats(global, {1}, {0.0F}), "value.zero_scales", {global, "positive"}},
                 {"a global scale that is NaN", floats(global, {1}, {kNaN}), "value.nan", {global, "NaN"}},
                 {"a negative global scale", floats(global, {1}, {-3.0F}), "value.range", {global, "-3"}},
                 {"a global scale without a reciprocal", floats(global, {1}, {1e-40F}), "value.range", {global}},
                 {"two global scales", floats(global, {2}, {1.0F, 1.0F}), "tensor.shape", {global, "[2]"}},
                 {"no scale of the activations", drop(input), "quant.incomplete", {input}},
                 {"a scale of the activations of zero", floats(input, {1}, {0.0F}), "value.zero_scales", {input}},
                 {"groups of 32 said", weights("group_size", 32), kRefused, {"float4 tensor_group 32"}},
                 {"one level said", weights("strategy", "group"), kRefused, {"float4 group 16"}},
                 {"activations of 8 bits", inputs("num_bits", 8), kRefused, {"nvfp4"}},
                 {"activations unquantized in the config alone",
                  quant("/config_groups/group_0/input_activations", nullptr),
                  "tensor.unused",
                  {"input_global_scale"}},
                 {"one expert without activations",
                  [](auto& c) {
                    Json group = c.config["quantization_config"]["config_groups"]["group_0"];
                    group["input_activations"] = nullptr;
                    group["targets"] = Json::array({kGate});
                    c.quant("/config_groups/group_1", group);
                    c.drop(kGate + ".input_global_scale");
                  },
                  "experts.scheme",
                  {kGate, "nvfp4, A: nvfp4"}}});
}

TEST(CompressedTensorsMutations, SharedExperts) {
  const std::string shared = "model.layers.1.mlp.shared_experts.up_proj";
  try_mutations("glm4moe-ct-w4a16-g128",
                {{"biases that the config does not ask for",
                  [](auto& c) { c.config["attention_bias"] = false; },
                  "",
                  {"biases that config.json does not ask for", "layers.0.self_attn.q_proj.bias and "}},
                 {"a shared expert that is not in the ignore list",
                  unlisted("ignore", shared),
                  "quant.incomplete",
                  {shared, "group_0", "ignore list"}},
                 {"a shared expert in the list by its fused name",
                  both(unlisted("ignore", "model.layers.1.mlp.shared_experts."),
                       both(listed("ignore", "model.layers.1.mlp.shared_experts.gate_up_proj"),
                            listed("ignore", "model.layers.1.mlp.shared_experts.down_proj"))),
                  "",
                  {}},
                 {"a shared expert in the list by a regular expression",
                  both(unlisted("ignore", "shared_experts"), listed("ignore", "re:.*shared_experts.*")),
                  "",
                  {}}});
}

Change layer(const std::string& key, Json value) {
  return quant("/global_quant_config/" + key, std::move(value));
}

TEST(QuarkMutations, StaticFp8Activations) {
  const std::string input = kGate + ".input_scale";
  const Json int8{{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 0}, {"symmetric", true}};
  try_mutations(
      "quark-mxfp4-a8fp8-qwen3_moe",
      {{"no scale of the activations", drop(input), "quant.incomplete", {input}},
       {"a scale of the activations of zero", poke<std::uint16_t>(input, 0, 0), "value.zero_scales", {input}},
       {"a scale of the activations that is NaN", poke<std::uint16_t>(input, 0, 0x7FC0), "value.nan", {input}},
       {"a negative scale of the activations", poke<std::uint16_t>(input, 0, 0xBF80), "value.range", {input, "-1"}},
       {"activations of a whole batch", layer("input_tensors/is_dynamic", true), kRefused, {"input_tensors"}},
       {"activations unquantized in the config alone",
        layer("input_tensors", nullptr),
        "tensor.unused",
        {"input_scale"}},
       {"asymmetric activations", layer("input_tensors/symmetric", false), kRefused, {"asymmetric"}},
       {"groups of 16", layer("weight/group_size", 16), kRefused, {"fp4 per_group 16"}},
       {"scales of no format", layer("weight/scale_format", nullptr), kRefused, {"fp4 per_group 32"}},
       {"weights of 3 bits", layer("weight/dtype", "int3"), kRefused, {"int3"}},
       {"an unknown key", layer("weight/rotate", 7), kRefused, {"weight/rotate"}},
       {"quantized outputs", layer("output_tensors", {{"dtype", "fp8_e4m3"}}), kRefused, {"output_tensors"}},
       {"a quantized bias", layer("bias", {{"dtype", "int8"}}), kRefused, {"bias"}},
       {"no export section", quant("/export", nullptr), "config.missing", {"export"}},
       {"weights that are not quantized really",
        quant("/export/weight_format", "fake_quantized"),
        kRefused,
        {"weight_format", "fake_quantized"}},
       {"rotations at run time", quant("/algo_config", Json::array({{{"name", "quarot"}}})), kRefused, {"quarot"}},
       {"no global config", quant("/global_quant_config", nullptr), "config.missing", {"global_quant_config"}},
       {"an exclude list without a projection",
        unlisted("exclude", kQuery),
        "quant.incomplete",
        {kQuery, "must exclude it"}},
       {"an exclude list with what is quantized", listed("exclude", kGate), "config.contradiction", {kGate}},
       {"an exclude list with what is not there",
        listed("exclude", "model.vision"),
        "",
        {"exclude: \"model.vision\" matches no module"}},
       {"an exclude list with fused names",
        both(both(unlisted("exclude", "0.self_attn.q_proj"), unlisted("exclude", "0.self_attn.k_proj")),
             both(unlisted("exclude", "0.self_attn.v_proj"), listed("exclude", "model.layers.0.self_attn.qkv_proj"))),
        "",
        {}},
       {"one layer of another scheme",
        quant("/layer_quant_config", {{kGate, {{"weight", int8}}}}),
        "tensor.dtype",
        {kGate + ".weight", "I8"}}});
}

TEST(QuarkMutations, FusedRowsThatAlternate) {
  const std::string fused = "model.layers.1.mlp.experts.3.gate_up_proj";
  try_mutations(
      "quark-mxfp4-a4-gpt_oss",
      {{"another exponent rule", layer("input_tensors/scale_calculation_mode", "floor"), kRefused, {"even rule"}},
       {"static MXFP4 activations", layer("input_tensors/is_dynamic", false), kRefused, {"input_tensors"}},
       {"a bias absent", drop(fused + ".bias"), "experts.scheme", {"with bias"}},
       {"a bias of half the rows",
        [=](auto& c) { c.add_zeros(fused + ".bias", "BF16", {128}); },
        "tensor.shape",
        {fused + ".bias"}},
       {"a router that is not excluded", unlisted("exclude", "mlp.router"), "", {}},
       {"an exponent byte of NaN",
        poke<std::uint8_t>(fused + ".weight_scale", 77, 255),
        "value.nan",
        {fused + ".weight_scale", "element 77"}},
       {"floats that are no powers of two",
        floats(fused + ".weight_scale", {256, 8}, std::vector<float>(2048, 0.3F)),
        "value.range",
        {"a power of two", "0.3"}}});
}

TEST(QuarkMutations, Int8ChannelAndToken) {
  const std::string gate = "model.layers.1.moe.experts.3.gate_proj";
  const std::string shared = "model.layers.1.share_expert.up_proj";
  try_mutations(
      "quark-int8-ptpc-step3p5",
      {{"scales of columns, not rows",
        floats(gate + ".weight_scale", {256}, std::vector<float>(256, 0.01F)),
        "tensor.shape",
        {gate + ".weight_scale", "[128, 1]", "[256]"}},
       {"one scale for all", floats(gate + ".weight_scale", {}, {0.01F}), "tensor.shape", {gate + ".weight_scale"}},
       {"scales of two dimensions", floats(gate + ".weight_scale", {128, 1}, std::vector<float>(128, 0.01F)), "", {}},
       {"zero points that are zero", [=](auto& c) { c.add_zeros(gate + ".weight_zero_point", "I8", {128}); }, "", {}},
       {"zero points that are not",
        [=](auto& c) { c.add(gate + ".weight_zero_point", "I8", {128}, std::vector<std::uint8_t>(128, 0xFF)); },
        "config.contradiction",
        {gate + ".weight_zero_point", "-1 for row 0"}},
       {"a shared expert that is not excluded",
        unlisted("exclude", shared),
        "quant.incomplete",
        {shared, "must exclude it"}},
       {"a shared expert excluded by its fused name",
        both(both(unlisted("exclude", "1.share_expert.up_proj"), unlisted("exclude", "1.share_expert.gate_proj")),
             listed("exclude", "model.layers.1.share_expert.gate_up_proj")),
        "",
        {}},
       {"a gate projection that is not excluded",
        unlisted("exclude", "model.layers.0.self_attn.g_proj"),
        "quant.incomplete",
        {"g_proj"}},
       {"activations rounded down",
        layer("input_tensors/round_method", "floor"),
        kRefused,
        {"input_tensors", "rounded by floor"}},
       {"activations scaled by powers of two",
        layer("input_tensors/scale_format", "e8m0"),
        kRefused,
        {"input_tensors", "e8m0"}},
       {"scales by input channel", layer("weight/ch_axis", 1), kRefused, {"weight"}}});
}

TEST(ModelOptMutations, Nvfp4) {
  const std::string global = kGate + ".weight_scale_2";
  try_mutations(
      "modelopt-w4a16nvfp4-qwen3_moe",
      {{"no second level", drop(global), "quant.incomplete", {global}},
       {"a second level of zero", floats(global, {}, {0.0F}), "value.zero_scales", {global}},
       {"a second level that is infinite", floats(global, {}, {__builtin_inff()}), "value.nan", {global, "infinity"}},
       {"a negative second level", floats(global, {}, {-1e-4F}), "value.range", {global}},
       {"quantized activations said, none stored",
        both(quant("/quant_algo", "NVFP4"), quant("/config_groups", nullptr)),
        "quant.incomplete",
        {"input_scale"}},
       {"a group of another size than the algorithm's",
        quant("/config_groups/group_0/weights/group_size", 32),
        "config.contradiction",
        {"group_0/weights/group_size", "16, since quant_algo is W4A16_NVFP4", "32"}},
       {"quantized activations said, but by no group", quant("/quant_algo", "NVFP4"), "", {}},
       {"two files of two minds",
        [](auto& c) { c.config["quantization_config"]["quant_algo"] = "NVFP4"; },
        "",
        {"hf_quant_config.json: /quantization/quant_algo = \"W4A16_NVFP4\" is not read: config.json says \"NVFP4\""}},
       {"an unknown algorithm", quant("/quant_algo", "NVFP3"), kRefused, {"NVFP4, W4A16_NVFP4", "NVFP3"}},
       {"no algorithm", quant("/quant_algo", nullptr), "config.missing", {"quant_algo"}},
       {"groups of 32", quant("/group_size", 32), kRefused, {"group_size", "16", "32"}},
       {"mixed precision without layers",
        quant("/quant_algo", "MIXED_PRECISION"),
        "config.missing",
        {"quantized_layers"}},
       {"an FP8 algorithm",
        both(quant("/quant_algo", "FP8"), quant("/config_groups", nullptr)),
        "tensor.dtype",
        {"F8_E4M3", "U8"}},
       {"an FP8 algorithm, and groups of four bits",
        quant("/quant_algo", "FP8"),
        "config.contradiction",
        {"group_0/weights/num_bits", "8, since quant_algo is FP8", "4"}},
       {"bits as exponent and mantissa", quant("/config_groups/group_0/weights/num_bits", Json::array({2, 1})), "", {}},
       {"an ignore list with what is quantized", listed("ignore", kQuery), "config.contradiction", {kQuery}},
       {"an ignore list with what is not there",
        listed("ignore", "vision_tower*"),
        "",
        {"excluded modules: \"vision_tower*\" matches no module"}},
       {"a projection that is not quantized", plain(kQuery, 256, 256), "quant.incomplete", {kQuery, "must exclude it"}},
       {"a projection that is not quantized, and ignored",
        both(plain(kQuery, 256, 256), listed("ignore", kQuery)),
        "",
        {}}});
}

TEST(Mxfp4Mutations, StackedBlocks) {
  const std::string stack = "model.layers.1.mlp.experts.gate_up_proj";
  try_mutations("native-mxfp4-gpt_oss",
                {{"no scales", drop(stack + "_scales"), "quant.incomplete", {stack + "_scales"}},
                 {"no blocks", drop(stack + "_blocks"), "quant.incomplete", {stack + "_blocks"}},
                 {"blocks of three dimensions",
                  [=](auto& c) { c.at(stack + "_blocks").shape = {8, 256, 128}; },
                  "tensor.shape",
                  {stack + "_blocks", "[8, 256, 8, 16]"}},
                 {"half the experts",
                  [=](auto& c) { c.at(stack + "_blocks").shape = {4, 512, 8, 16}; },
                  "experts.count",
                  {stack + "_blocks", "8 experts", "4"}},
                 {"an exponent byte of NaN",
                  poke<std::uint8_t>(stack + "_scales", 4000, 255),
                  "value.nan",
                  {stack + "_scales", "element 4000"}},
                 {"exponents that were never written",
                  [=](auto& c) {
                    auto& bytes = c.at(stack + "_scales").bytes;
                    std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
                  },
                  "value.zero_scales",
                  {stack + "_scales"}},
                 {"scales of another shape",
                  [=](auto& c) { c.at(stack + "_scales").shape = {8, 128, 16}; },
                  "tensor.shape",
                  {stack + "_scales"}},
                 {"a bias of another shape",
                  [=](auto& c) { c.at(stack + "_bias").shape = {256, 8}; },
                  "tensor.shape",
                  {stack + "_bias", "[8, 256]"}},
                 {"codes of another type",
                  [=](auto& c) { c.at(stack + "_blocks").dtype = "F8_E5M2"; },
                  "tensor.dtype",
                  {stack + "_blocks"}},
                 {"NaN in a sink",
                  poke<std::uint16_t>("model.layers.1.self_attn.sinks", 2, 0x7FC0),
                  "value.nan",
                  {"sinks", "element 2"}}});
}

}  // namespace
}  // namespace moracle::test
