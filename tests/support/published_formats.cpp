#include "support/published_formats.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>

namespace moracle::test {

namespace {

using Tensor = MutableCheckpoint::Tensor;
using Section = std::function<Json(const std::vector<std::string>&)>;

Section constant(const Json& section) {
  return [section](const std::vector<std::string>& /*others*/) { return section; };
}

Section ct(const std::string& format, const Json& weights, const Json& inputs = nullptr) {
  return [=](const std::vector<std::string>& others) {
    return Json{{"quant_method", "compressed-tensors"},
                {"format", format},
                {"ignore", others},
                {"config_groups",
                 {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", inputs}}}}}};
  };
}

Section quark(const Json& weight) {
  return [=](const std::vector<std::string>& others) {
    return Json{{"quant_method", "quark"},
                {"export", {{"weight_format", "real_quantized"}, {"pack_method", "reorder"}}},
                {"exclude", others},
                {"global_quant_config", {{"weight", weight}, {"input_tensors", nullptr}}}};
  };
}

Section modelopt(const std::string& algorithm) {
  return [=](const std::vector<std::string>& others) {
    return Json{{"quant_method", "modelopt"}, {"quant_algo", algorithm}, {"ignore", others}};
  };
}

Json gptq_section(unsigned bits, bool symmetric, const char* version, bool act_order) {
  return {{"quant_method", "gptq"}, {"bits", bits},          {"group_size", 32},
          {"sym", symmetric},       {"desc_act", act_order}, {"checkpoint_format", version}};
}

PublishedFormat gptq(const std::string& name, const Words& w) {
  return {
      .name = name,
      .write = [=](Random& r, std::int64_t out, std::int64_t in) { return gptq_words(r, out, in, w); },
      .section = constant(gptq_section(w.bits, !w.asymmetric, w.stored_less == 0 ? "gptq_v2" : "gptq", w.reordered))};
}

// For a format of bytes, and with a static scale of inputs.
auto bytes(const ByteCodes& b, bool input = false) {
  return [=](Random& r, std::int64_t out, std::int64_t in) {
    PublishedMatrix matrix = byte_matrix(r, out, in, b);
    if (input) matrix.parts["input_scale"] = scale_tensor("F32", {}, {Scale{.exponent = -4}});
    return matrix;
  };
}

std::vector<PublishedFormat> integer_formats() {
  const auto auto_round = [](const char* packing) {
    return constant(
        {{"quant_method", "auto-round"}, {"packing_format", packing}, {"bits", 4}, {"group_size", 32}, {"sym", true}});
  };
  const Json int4{{"num_bits", 4}, {"type", "int"}, {"symmetric", true}, {"strategy", "group"}, {"group_size", 32}};
  const Json int8{{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "channel"}};
  const Json by_token{{"num_bits", 8}, {"type", "int"}, {"symmetric", true}, {"strategy", "token"}, {"dynamic", true}};
  const auto sym = [](Random& r, std::int64_t out, std::int64_t in) { return gptq_words(r, out, in, {}); };
  const ByteCodes by_row{&kInt8, "I8", "BF16", 1, 0, one_a_row_of_one, -10};
  ByteCodes quark_by_row = by_row;
  quark_by_row.shape = one_a_row;
  return {
      gptq("gptq-4", {}),
      gptq("gptq-8", {.bits = 8}),
      gptq("gptq-4-zeros", {.asymmetric = true}),
      gptq("gptq-8-zeros-v2", {.bits = 8, .asymmetric = true, .stored_less = 0}),
      gptq("gptq-4-order", {.reordered = true}),
      {.name = "awq",
       .write = awq_words,
       .section = constant(
           {{"quant_method", "awq"}, {"bits", 4}, {"group_size", 32}, {"zero_point", true}, {"version", "gemm"}})},
      {.name = "auto-round-gptq", .write = sym, .section = auto_round("auto_round:auto_gptq")},
      {.name = "auto-round-awq",
       .write = awq_words,
       .section = constant({{"quant_method", "auto-round"},
                            {"packing_format", "auto_round:auto_awq"},
                            {"bits", 4},
                            {"group_size", 32},
                            {"sym", false}})},
      {.name = "ct-int4", .write = ct_words, .section = ct("pack-quantized", int4)},
      {.name = "ct-int8", .write = bytes(by_row), .section = ct("int-quantized", int8)},
      {.name = "ct-w4a8", .write = ct_words, .section = ct("pack-quantized", int4, by_token), .quantizes_inputs = true},
      {.name = "quark-int8",
       .write = bytes(quark_by_row),
       .section = quark({{"dtype", "int8"}, {"qscheme", "per_channel"}, {"ch_axis", 0}, {"symmetric", true}})},
      {.name = "quark-int4",
       .write = quark_words,
       .section = quark(
           {{"dtype", "int4"}, {"qscheme", "per_group"}, {"group_size", 32}, {"ch_axis", 1}, {"symmetric", true}})},
  };
}

std::vector<PublishedFormat> fp8_formats() {
  const Json by_channel{{"num_bits", 8}, {"type", "float"}, {"symmetric", true}, {"strategy", "channel"}};
  const Json mx{{"num_bits", 8},       {"type", "float"},  {"symmetric", true},
                {"strategy", "group"}, {"group_size", 32}, {"scale_dtype", "torch.uint8"}};
  const auto mxfp8 = [](Random& r, std::int64_t out, std::int64_t in) {
    return mx_matrix(r, out, in, kE4m3, 8, "F8_E4M3", "weight");
  };
  const ByteCodes of_tensor{&kE4m3, "F8_E4M3", "F32", 0, 0, no_dimension};
  const ByteCodes of_row{&kE4m3, "F8_E4M3", "BF16", 1, 0, one_a_row_of_one};
  const ByteCodes of_block{&kE4m3, "F8_E4M3", "F32", 128, 128, of_blocks_apart};
  const ByteCodes deepseek{&kE4m3, "F8_E4M3", "F32", 128, 128, of_blocks, -5, "weight_scale_inv"};
  return {
      {.name = "auto-round-fp8",
       .write = bytes(of_row),
       .section = constant({{"quant_method", "auto-round"},
                            {"packing_format", "auto_round:fp8"},
                            {"bits", 8},
                            {"data_type", "fp"},
                            {"act_bits", 16}})},
      {.name = "auto-round-fp8-static",
       .write = bytes(of_row, true),
       .section = constant({{"quant_method", "auto-round"},
                            {"packing_format", "auto_round:fp8_static"},
                            {"bits", 8},
                            {"data_type", "fp"},
                            {"act_bits", 8},
                            {"act_data_type", "fp"},
                            {"act_dynamic", false}}),
       .quantizes_inputs = true},
      {.name = "ct-fp8", .write = bytes(of_row), .section = ct("float-quantized", by_channel)},
      {.name = "ct-mxfp8", .write = mxfp8, .section = ct("mxfp8-quantized", mx)},
      {.name = "quark-fp8",
       .write = bytes(of_tensor),
       .section = quark({{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}, {"symmetric", true}})},
      {.name = "modelopt-fp8", .write = bytes(of_tensor, true), .section = modelopt("FP8"), .quantizes_inputs = true},
      {.name = "modelopt-fp8-blocks", .write = bytes(of_block), .section = modelopt("FP8_PB_WO")},
      {.name = "modelopt-mxfp8", .write = mxfp8, .section = modelopt("MXFP8"), .quantizes_inputs = true},
      {.name = "fp8-blocks",
       .write = bytes(deepseek),
       .section =
           [](const std::vector<std::string>& others) {
             return Json{{"quant_method", "fp8"},
                         {"activation_scheme", "dynamic"},
                         {"weight_block_size", {128, 128}},
                         {"modules_to_not_convert", others}};
           },
       .quantizes_inputs = true},
  };
}

std::vector<PublishedFormat> fp4_formats() {
  const Json fp4{{"num_bits", 4}, {"type", "float"}, {"symmetric", true}};
  const auto grouped = [&](const char* strategy, int size) {
    Json weights = fp4;
    weights.update({{"strategy", strategy}, {"group_size", size}});
    return weights;
  };
  const auto quark_mx = [](const char* dtype) {
    return quark({{"dtype", dtype},
                  {"qscheme", "per_group"},
                  {"group_size", 32},
                  {"ch_axis", -1},
                  {"scale_format", "e8m0"},
                  {"symmetric", true}});
  };
  const auto mx = [](const CodeElement& element, unsigned bits, const char* codes) {
    return [=, &element](Random& r, std::int64_t out, std::int64_t in) {
      return mx_matrix(r, out, in, element, bits, "U8", codes);
    };
  };
  const auto nvfp4 = [](const char* codes, const char* global, bool divides, const Shape& shape) {
    return [=](Random& r, std::int64_t out, std::int64_t in) {
      return nvfp4_matrix(r, out, in, codes, global, divides, shape);
    };
  };
  return {
      {.name = "auto-round-mxfp4",
       .write = mx(kE2m1, 4, "weight_packed"),
       .section = constant({{"quant_method", "auto-round"},
                            {"bits", 4},
                            {"data_type", "mx_fp"},
                            {"group_size", 32},
                            {"act_bits", 16}})},
      {.name = "auto-round-nvfp4",
       .write = nvfp4("weight_packed", "weight_global_scale", true, {1}),
       .section = constant({{"quant_method", "auto-round"},
                            {"bits", 4},
                            {"data_type", "nv_fp"},
                            {"group_size", 16},
                            {"act_bits", 16}})},
      {.name = "ct-nvfp4",
       .write = nvfp4("weight_packed", "weight_global_scale", true, {1}),
       .section = ct("nvfp4-pack-quantized", grouped("tensor_group", 16))},
      {.name = "ct-mxfp4",
       .write = mx(kE2m1, 4, "weight_packed"),
       .section = ct("mxfp4-pack-quantized", grouped("group", 32))},
      {.name = "quark-mxfp4", .write = mx(kE2m1, 4, "weight"), .section = quark_mx("fp4")},
      {.name = "quark-mxfp6", .write = mx(kE2m3, 6, "weight"), .section = quark_mx("fp6_e2m3")},
      {.name = "quark-nvfp4",
       .write = nvfp4("weight", "weight_scale_2", false, {}),
       .section = quark(Json::array({{{"dtype", "fp4"}, {"qscheme", "per_group"}, {"group_size", 16}},
                                     {{"dtype", "fp8_e4m3"}, {"qscheme", "per_tensor"}}}))},
      {.name = "modelopt-nvfp4",
       .write = nvfp4("weight", "weight_scale_2", false, {}),
       .section = modelopt("W4A16_NVFP4")},
      {.name = "mxfp4",
       .write = mx(kE2m1, 4, "blocks"),
       .section =
           [](const std::vector<std::string>& others) {
             return Json{{"quant_method", "mxfp4"}, {"modules_to_not_convert", others}};
           },
       .stacked = true},
  };
}

std::vector<PublishedFormat> plain_formats() {
  std::vector<PublishedFormat> formats;
  for (const auto& [name, dtype] : {std::pair{"bf16", "BF16"}, {"fp16", "F16"}, {"fp32", "F32"}})
    formats.push_back(
        {.name = name,
         .write = [dtype = std::string(dtype)](Random& r, std::int64_t out,
                                               std::int64_t in) { return plain_matrix(r, out, in, dtype); },
         .section = constant(nullptr)});
  return formats;
}

// --- Models --------------------------------------------------------------------------------------------------------

constexpr std::array<const char*, 3> kProjections{"gate_proj", "up_proj", "down_proj"};

std::int64_t dim(const Tensor& tensor, std::size_t axis) {
  return tensor.shape[axis].get<std::int64_t>();
}

// The routed experts below one path.
struct Layer {
  std::string path;  // "model.layers.0.mlp.experts"
  std::int64_t experts = 0, rows = 0, hidden = 0;
};

std::vector<Layer> layers_of(const MutableCheckpoint& c) {
  std::map<std::string, Layer> layers;
  MutableCheckpoint copy = c;
  for (const std::string& name : c.names()) {
    const std::size_t at = name.find(".experts.");
    if (at == std::string::npos || name.ends_with("bias")) continue;
    const std::string path = name.substr(0, at + 8);
    const std::string rest = name.substr(at + 9);
    Layer& layer = layers[path];
    layer.path = path;
    if (rest.starts_with("gate_up_proj")) {
      layer = {path, dim(copy.at(name), 0), dim(copy.at(name), 1) / 2, dim(copy.at(name), 2)};
    } else if (rest.ends_with("up_proj.weight") || rest.ends_with("w3.weight")) {
      layer = {path, layer.experts + 1, dim(copy.at(name), 0), dim(copy.at(name), 1)};
    }
  }
  std::vector<Layer> all;
  for (const auto& [path, layer] : layers)
    if (layer.rows > 0) all.push_back(layer);  // draft heads of fixtures have a tensor or two
  return all;
}

// Rows of a matrix said twice, or its columns.
Tensor doubled(const Tensor& t, bool columns) {
  const auto rows = static_cast<std::size_t>(columns ? dim(t, 0) : 1);
  const std::size_t width = t.bytes.size() / rows;
  Tensor twice = t;
  twice.bytes.clear();
  twice.shape[columns ? 1 : 0] = 2 * dim(t, columns ? 1 : 0);
  for (std::size_t r = 0; r < rows; ++r)
    for (int copy = 0; copy < 2; ++copy) {
      const auto begin = t.bytes.begin() + static_cast<std::ptrdiff_t>(r * width);
      twice.bytes.insert(twice.bytes.end(), begin, begin + static_cast<std::ptrdiff_t>(width));
    }
  return twice;
}

// Experts of 16 rows become twice as wide, and so do shared ones that are measured by them.
void widen(MutableCheckpoint& c, std::vector<Layer>& layers) {
  bool narrow = false;
  for (Layer& layer : layers) {
    narrow |= layer.rows < 32;
    layer.rows = std::max<std::int64_t>(layer.rows, 32);
  }
  if (!narrow) return;
  Json& text = c.config.contains("text_config") ? c.config["text_config"] : c.config;
  text["moe_intermediate_size"] = 32;
  for (const std::string& name : c.names())
    if (name.find(".shared_experts.") != std::string::npos)
      c.at(name) = doubled(c.at(name), name.ends_with("down_proj.weight"));
}

// Rows of gate and up behind each other, or by turns.
template <class T>
std::vector<T> paired(const std::vector<T>& gate, const std::vector<T>& up, std::size_t rows, bool by_turns) {
  std::vector<T> both = gate;
  both.insert(both.end(), up.begin(), up.end());
  if (!by_turns) return both;
  const std::size_t width = gate.size() / rows;
  for (std::size_t r = 0; r < rows; ++r)
    for (std::size_t i = 0; i < width; ++i) {
      both[2 * r * width + i] = gate[r * width + i];
      both[(2 * r + 1) * width + i] = up[r * width + i];
    }
  return both;
}

// The parts of a layer's experts in stacks, as the blocks of gpt-oss; biases go with them.
void add_stacked(MutableCheckpoint& c, const Layer& layer, const std::vector<std::array<PublishedMatrix, 3>>& experts,
                 bool by_turns) {
  const auto rows = static_cast<std::size_t>(layer.rows);
  const auto bias_of = [&](std::size_t e, const char* projection) {
    const std::string name = layer.path + "." + std::to_string(e) + "." + projection + ".bias";
    Bytes found = c.has(name) ? c.at(name).bytes : Bytes{};
    if (c.has(name)) c.drop(name);
    return found;
  };
  std::map<std::string, Bytes> stacks;
  const auto append = [&](const std::string& name, const Bytes& more) {
    stacks[name].insert(stacks[name].end(), more.begin(), more.end());
  };
  for (std::size_t e = 0; e < experts.size(); ++e) {
    const auto& [gate, up, down] = experts[e];
    for (const auto& [part, suffix] : {std::pair{"blocks", "_blocks"}, {"weight_scale", "_scales"}}) {
      append(std::string("gate_up_proj") + suffix,
             paired(gate.parts.at(part).bytes, up.parts.at(part).bytes, rows, by_turns));
      append(std::string("down_proj") + suffix, down.parts.at(part).bytes);
    }
    const Bytes gate_bias = bias_of(e, "gate_proj");
    append("gate_up_proj_bias", paired(gate_bias, bias_of(e, "up_proj"), rows, by_turns));
    append("down_proj_bias", bias_of(e, "down_proj"));
  }
  const auto count = static_cast<std::int64_t>(experts.size());
  const auto add = [&](const std::string& name, const char* dtype, const Shape& shape) {
    if (!stacks[name].empty()) c.add(layer.path + "." + name, dtype, shape, stacks[name]);
  };
  add("gate_up_proj_blocks", "U8", {count, 2 * layer.rows, layer.hidden / 32, 16});
  add("gate_up_proj_scales", "U8", {count, 2 * layer.rows, layer.hidden / 32});
  add("gate_up_proj_bias", "BF16", {count, 2 * layer.rows});
  add("down_proj_blocks", "U8", {count, layer.hidden, layer.rows / 32, 16});
  add("down_proj_scales", "U8", {count, layer.hidden, layer.rows / 32});
  add("down_proj_bias", "BF16", {count, layer.hidden});
}

// Modules with matrices.
std::vector<std::string> linears_of(const MutableCheckpoint& c) {
  constexpr std::string_view kWeight = ".weight";
  std::vector<std::string> names;
  MutableCheckpoint copy = c;
  for (const std::string& name : c.names())
    if (name.ends_with(kWeight) && copy.at(name).shape.size() == 2)
      names.push_back(name.substr(0, name.size() - kWeight.size()));
  return names;
}

}  // namespace

const std::vector<PublishedFormat>& published_formats() {
  static const std::vector<PublishedFormat> kAll = [] {
    std::vector<PublishedFormat> all;
    for (const auto& some : {integer_formats(), fp8_formats(), fp4_formats(), plain_formats()})
      all.insert(all.end(), some.begin(), some.end());
    return all;
  }();
  return kAll;
}

const PublishedFormat& published_format(const std::string& name) {
  for (const PublishedFormat& format : published_formats())
    if (format.name == name) return format;
  ADD_FAILURE() << "no format " << name;
  return published_formats().front();
}

PublishedPair publish(const MutableCheckpoint& family, const PublishedFormat& format) {
  MutableCheckpoint bare = family;
  std::vector<Layer> layers = layers_of(family);
  EXPECT_FALSE(layers.empty());
  for (const std::string& name : family.names())
    if (name.find(".experts.") != std::string::npos && !name.ends_with(".bias")) bare.drop(name);
  widen(bare, layers);
  PublishedPair pair{bare, bare};
  const Json section = format.section(linears_of(bare));
  if (!section.is_null()) pair.stored.config["quantization_config"] = section;
  const bool by_turns = family.config["model_type"] == "gpt_oss";
  Random random(1);
  for (const Layer& layer : layers) {
    std::vector<std::array<PublishedMatrix, 3>> experts(static_cast<std::size_t>(layer.experts));
    for (std::size_t e = 0; e < experts.size(); ++e)
      for (std::size_t p = 0; p < kProjections.size(); ++p) {
        const bool down = p == 2;
        const std::int64_t out = down ? layer.hidden : layer.rows;
        const std::int64_t in = down ? layer.rows : layer.hidden;
        const PublishedMatrix& matrix = experts[e][p] = format.write(random, out, in);
        const std::string module = layer.path + "." + std::to_string(e) + "." + kProjections[p];
        pair.plain.add(module + ".weight", "F32", {out, in}, bytes_of(matrix.values));
        if (format.stacked) continue;
        for (const auto& [part, tensor] : matrix.parts)
          pair.stored.add(module + "." + part, tensor.dtype, tensor.shape.get<Shape>(), tensor.bytes);
      }
    if (format.stacked) add_stacked(pair.stored, layer, experts, by_turns);
  }
  return pair;
}

}  // namespace moracle::test
