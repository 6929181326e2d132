#include "synth/layer_shapes.h"

#include <algorithm>
#include <charconv>
#include <map>

#include "base/checked.h"

namespace moracle {

namespace {

std::vector<LayerShape> known_shapes() {
  // gpt-oss clamps its gate at 7 and scales the sigmoid by 1.702.
  const ActivationSpec oai{.fn = ActivationFn::swigluoai, .alpha = 1.702F, .beta = 1.0F, .limit = 7.0F};
  const ActivationSpec silu{};
  return {
      {"qwen3-30b-a3b", 128, 2048, 768, 8, silu, Routing::softmax_topk_renorm, false},
      {"gpt-oss-20b", 32, 2880, 2880, 4, oai, Routing::topk_softmax, true},
      {"gpt-oss-120b", 128, 2880, 2880, 4, oai, Routing::topk_softmax, true},
      {"deepseek-v3", 256, 7168, 2048, 8, silu, Routing::grouped_sigmoid_bias, false},
      {"mixtral-8x7b", 8, 4096, 14336, 2, silu, Routing::softmax_topk_renorm, false},
      {"step-3.5-flash", 288, 4096, 1280, 8, silu, Routing::sigmoid_bias_renorm, false},
  };
}

QuantKey integer(Element element, Granularity granularity, bool symmetric = true) {
  return {.element = element, .scale = ScaleType::f16, .granularity = granularity, .symmetric = symmetric};
}

QuantKey fp8(Granularity granularity) {
  return {.element = Element::e4m3, .scale = ScaleType::f32, .granularity = granularity};
}

QuantKey dynamic(QuantKey key) {
  key.dynamic = true;
  key.scale = key.element == Element::e2m1 ? key.scale : ScaleType::f32;
  return key;
}

std::vector<NamedScheme> known_schemes() {
  const auto group = [](std::int32_t cols) { return Granularity::group(cols); };
  const QuantKey int4_g128 = integer(Element::int4, group(128));
  const QuantKey int8_channel = integer(Element::int8, Granularity::channel());
  const QuantKey mxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = group(32)};
  const QuantKey nvfp4{
      .element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = group(16), .second_level = true};
  const QuantKey int8_token = dynamic(integer(Element::int8, Granularity::token()));
  return {
      {"int4-g32", {integer(Element::int4, group(32)), {}}},
      {"int4-g128", {int4_g128, {}}},
      {"int4-channel", {integer(Element::int4, Granularity::channel()), {}}},
      {"int4-g128-asym", {integer(Element::int4, group(128), false), {}}},
      {"int4-g32-actorder", {integer(Element::int4, group(32)), {}}, true},
      {"int4-a8int", {int4_g128, int8_token}},
      {"int4-a8fp8", {int4_g128, dynamic(fp8(Granularity::token()))}},
      {"int8-g128", {integer(Element::int8, group(128)), {}}},
      {"int8-w8a8", {int8_channel, int8_token}},
      {"fp8-block", {fp8(Granularity::block(128, 128)), dynamic(fp8(group(128)))}},
      {"fp8-channel", {fp8(Granularity::channel()), dynamic(fp8(Granularity::token()))}},
      {"fp8-a16", {fp8(Granularity::channel()), {}}},
      {"fp8-tensor", {fp8(Granularity::tensor()), fp8(Granularity::tensor())}},
      {"mxfp4", {mxfp4, {}}},
      {"mxfp4-a8", {mxfp4, fp8(Granularity::tensor())}},
      {"mxfp4-a4", {mxfp4, dynamic(mxfp4)}},
      {"nvfp4", {nvfp4, {}}},
      {"nvfp4-a4", {nvfp4, dynamic(nvfp4)}},
      {"bf16", {QuantKey{}, {}}},
  };
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

Error shape_error(const char* code, const std::string& wanted, const std::string& found) {
  return Error{.code = code, .where = "--shape", .wanted = wanted, .found = "'" + found + "'"};
}

}  // namespace

std::vector<std::string> layer_shape_names() {
  std::vector<std::string> names;
  for (const LayerShape& shape : known_shapes()) names.push_back(shape.name);
  return names;
}

Result<LayerShape> parse_layer_shape(const std::string& text) {
  for (const LayerShape& shape : known_shapes()) {
    if (shape.name == text) return shape;
  }
  const std::string wanted = "one of " + joined(layer_shape_names()) + ", or E=..,K=..,N=..,topk=..";
  if (text.find('=') == std::string::npos) return shape_error("shape.unknown", wanted, text);
  std::map<std::string, std::int64_t> values;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    const std::string part = text.substr(begin, end - begin);
    const std::size_t equals = part.find('=');
    std::int64_t value = 0;
    const char* last = part.data() + part.size();
    if (equals == std::string::npos) return shape_error("shape.unknown", wanted, text);
    const auto [stop, failed] = std::from_chars(part.data() + equals + 1, last, value);
    if (failed != std::errc{} || stop != last) return shape_error("shape.unknown", wanted, text);
    if (!values.emplace(part.substr(0, equals), value).second) return shape_error("shape.unknown", wanted, text);
    begin = end + 1;
  }
  LayerShape shape{.name = text};
  const auto take = [&](const char* key, std::int64_t most, std::int64_t& out) {
    const auto it = values.find(key);
    if (it == values.end() || it->second < 1 || it->second > most) return false;
    out = it->second;
    return true;
  };
  constexpr std::int64_t kWidest = 1 << 20;
  if (values.size() != 4 || !take("E", 4096, shape.experts) || !take("K", kWidest, shape.hidden) ||
      !take("N", kWidest, shape.intermediate) || !take("topk", 4096, shape.top_k) || shape.top_k > shape.experts) {
    return shape_error("shape.range", "E, K, N and topk, each once and positive, topk at most E", text);
  }
  return shape;
}

std::vector<std::string> scheme_names() {
  std::vector<std::string> names;
  for (const NamedScheme& scheme : known_schemes()) names.push_back(scheme.name);
  return names;
}

Result<NamedScheme> find_scheme(const std::string& name) {
  for (const NamedScheme& scheme : known_schemes()) {
    if (scheme.name == name) return scheme;
  }
  return Error{.code = "scheme.unknown",
               .where = "--scheme",
               .wanted = "one of " + joined(scheme_names()),
               .found = "'" + name + "'"};
}

std::int64_t group_columns(const QuantKey& key, std::int64_t cols) {
  switch (key.granularity.kind) {
    case Granularity::Kind::none:
      return 0;
    case Granularity::Kind::group:
    case Granularity::Kind::block:
      return key.granularity.cols;
    case Granularity::Kind::tensor:
    case Granularity::Kind::channel:
    case Granularity::Kind::token:
      return cols;
  }
  return cols;
}

std::int64_t published_bytes(const QuantKey& key, std::int64_t rows, std::int64_t cols) {
  const std::int64_t codes = ceil_div(rows * cols * bits_of(key.element), 8);
  if (!key.quantized()) return codes;
  const std::int64_t scale = key.scale == ScaleType::f32                                    ? 4
                             : key.scale == ScaleType::e4m3 || key.scale == ScaleType::e8m0 ? 1
                                                                                            : 2;
  std::int64_t scale_rows = rows;
  if (key.granularity.kind == Granularity::Kind::tensor) scale_rows = 1;
  if (key.granularity.kind == Granularity::Kind::block) scale_rows = ceil_div(rows, key.granularity.rows);
  return codes + scale * scale_rows * ceil_div(cols, group_columns(key, cols)) + (key.second_level ? 4 : 0);
}

Problem layer_problem(const LayerShape& shape, const NamedScheme& scheme) {
  return {.kind = ProblemKind::experts,
          .scheme = scheme.scheme,
          .experts = shape.experts,
          .top_k = shape.top_k,
          .hidden = shape.hidden,
          .intermediate = shape.intermediate,
          .activation = shape.activation,
          .bias = shape.bias,
          .zero_points = scheme.scheme.weight.quantized() && !scheme.scheme.weight.symmetric,
          .act_order = scheme.act_order};
}

}  // namespace moracle
