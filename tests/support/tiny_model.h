// A random unquantized model of a few kilobytes, written as a checkpoint folder, and its forward pass in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_writer.h"
#include "support/temporary_folder.h"

namespace moracle::test {

struct TinyTensor {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

// How publishers spell the same model.
struct TinyNames {
  std::string root = "model.";
  std::string moe = "mlp";  // "block_sparse_moe"
  std::string gate = "gate_proj", up = "up_proj", down = "down_proj";
  bool stacked = false;
};

struct TinyModel {
  Json config;
  std::map<std::string, TinyTensor> tensors;
  TinyNames names;

  [[nodiscard]] std::int64_t at(const char* key) const { return config.at(key).get<std::int64_t>(); }

  void write(const std::filesystem::path& folder) const {
    std::ofstream(folder / "config.json") << config.dump(1);
    std::vector<TensorSpec> specs;
    for (const auto& [name, tensor] : tensors) specs.push_back({name, Dtype::f32, tensor.shape});
    auto writer = SafetensorsWriter::create(folder / "model.safetensors", specs);
    ASSERT_TRUE(writer.ok()) << writer.error().message();
    for (const auto& [name, tensor] : tensors) {
      ASSERT_TRUE(writer->write(name, std::as_bytes(std::span(tensor.values))).ok());
    }
    ASSERT_TRUE(writer->finish().ok());
  }
};

// Fills in a model of the given config: all weights its family needs, under the given names.
class TinyBuilder {
 public:
  TinyBuilder(Json config, TinyNames names, unsigned seed = 1) : rng_(seed) {
    model_.config = std::move(config);
    model_.names = std::move(names);
  }

  TinyModel build() {
    const std::int64_t hidden = model_.at("hidden_size");
    const std::string& root = model_.names.root;
    add(root + "embed_tokens.weight", {model_.at("vocab_size"), hidden}, 1.0F);
    if (!model_.config.value("tie_word_embeddings", false)) add("lm_head.weight", {model_.at("vocab_size"), hidden});
    add_norm(root + "norm.weight", hidden);
    for (std::int64_t l = 0; l < model_.at("num_hidden_layers"); ++l) {
      add_layer(root + "layers." + std::to_string(l) + ".", l);
    }
    return std::move(model_);
  }

 private:
  void add_layer(const std::string& layer, std::int64_t index) {
    const std::int64_t hidden = model_.at("hidden_size");
    const std::int64_t q = model_.at("num_attention_heads") * model_.at("head_dim");
    const std::int64_t kv = model_.at("num_key_value_heads") * model_.at("head_dim");
    add_norm(layer + "input_layernorm.weight", hidden);
    add_norm(layer + "post_attention_layernorm.weight", hidden);
    const std::map<std::string, std::pair<std::int64_t, std::int64_t>> projections{
        {"q_proj", {q, hidden}}, {"k_proj", {kv, hidden}}, {"v_proj", {kv, hidden}}, {"o_proj", {hidden, q}}};
    for (const auto& [name, size] : projections) {
      add(layer + "self_attn." + name + ".weight", {size.first, size.second});
      if (model_.config.value("attention_bias", false)) add(layer + "self_attn." + name + ".bias", {size.first}, 0.3F);
    }
    const bool qwen = model_.config.at("model_type") == "qwen3_moe";
    if (qwen) {
      add_norm(layer + "self_attn.q_norm.weight", model_.at("head_dim"));
      add_norm(layer + "self_attn.k_norm.weight", model_.at("head_dim"));
    }
    const auto dense = model_.config.value("mlp_only_layers", std::vector<std::int64_t>{});
    if (std::find(dense.begin(), dense.end(), index) != dense.end()) {
      add_mlp(layer + "mlp.", "gate_proj", "up_proj", "down_proj", model_.at("intermediate_size"));
    } else {
      add_moe(layer + model_.names.moe + ".", qwen ? "num_experts" : "num_local_experts",
              qwen ? "moe_intermediate_size" : "intermediate_size");
    }
  }

  void add_mlp(const std::string& path, const std::string& gate, const std::string& up, const std::string& down,
               std::int64_t width) {
    const std::int64_t hidden = model_.at("hidden_size");
    add(path + gate + ".weight", {width, hidden});
    add(path + up + ".weight", {width, hidden});
    add(path + down + ".weight", {hidden, width});
  }

  void add_moe(const std::string& path, const char* experts_key, const char* width_key) {
    const std::int64_t experts = model_.at(experts_key);
    const std::int64_t hidden = model_.at("hidden_size");
    const std::int64_t width = model_.at(width_key);
    add(path + "gate.weight", {experts, hidden}, 2.0F);
    const TinyNames& names = model_.names;
    for (std::int64_t e = 0; e < experts; ++e) {
      add_mlp(path + "experts." + std::to_string(e) + ".", names.gate, names.up, names.down, width);
    }
    if (!names.stacked) return;
    TinyTensor gate_up{{experts, 2 * width, hidden}, {}};
    TinyTensor down{{experts, hidden, width}, {}};
    for (std::int64_t e = 0; e < experts; ++e) {
      const std::string one = path + "experts." + std::to_string(e) + ".";
      move_to(gate_up, one + names.gate + ".weight");
      move_to(gate_up, one + names.up + ".weight");
      move_to(down, one + names.down + ".weight");
    }
    model_.tensors[path + "experts.gate_up_proj"] = std::move(gate_up);
    model_.tensors[path + "experts.down_proj"] = std::move(down);
  }

  void move_to(TinyTensor& stack, const std::string& name) {
    const auto node = model_.tensors.extract(name);
    stack.values.insert(stack.values.end(), node.mapped().values.begin(), node.mapped().values.end());
  }

  // Values of size about gain / sqrt(columns), so that activations keep their size from layer to layer.
  void add(const std::string& name, std::vector<std::int64_t> shape, float gain = 1.0F) {
    const auto columns = static_cast<float>(shape.size() == 1                         ? 1
                                            : name.find("embed") != std::string::npos ? 1
                                                                                      : shape.back());
    std::normal_distribution<float> normal(0.0F, gain / std::sqrt(columns));
    std::int64_t count = 1;
    for (const std::int64_t dim : shape) count *= dim;
    TinyTensor tensor{std::move(shape), std::vector<float>(static_cast<std::size_t>(count))};
    for (float& value : tensor.values) value = normal(rng_);
    model_.tensors[name] = std::move(tensor);
  }
  void add_norm(const std::string& name, std::int64_t size) {
    add(name, {size}, 0.2F);
    for (float& value : model_.tensors[name].values) value += 1.0F;
  }

  TinyModel model_;
  std::mt19937 rng_;
};

inline Json tiny_qwen3_moe() {
  return Json{{"model_type", "qwen3_moe"}, {"hidden_size", 32},
              {"num_hidden_layers", 2},    {"num_attention_heads", 4},
              {"num_key_value_heads", 2},  {"head_dim", 16},
              {"vocab_size", 48},          {"max_position_embeddings", 256},
              {"rms_norm_eps", 1e-6},      {"num_experts", 6},
              {"num_experts_per_tok", 2},  {"moe_intermediate_size", 24},
              {"intermediate_size", 40},   {"norm_topk_prob", true},
              {"rope_theta", 10000.0},     {"torch_dtype", "float32"}};
}

inline Json tiny_mixtral() {
  Json config = tiny_qwen3_moe();
  config["model_type"] = "mixtral";
  config["num_local_experts"] = config["num_experts"];
  config["intermediate_size"] = 24;
  config.erase("num_experts");
  config.erase("moe_intermediate_size");
  return config;
}

// The forward pass of one sequence, from the published definitions, one token and one head at a time, in double.
// `inv_freq` and `rope_scale` are given, so that scaled variants can be tested with frequencies computed elsewhere.
class TinyForward {
 public:
  TinyForward(const TinyModel& model, std::vector<double> inv_freq, double rope_scale = 1.0, std::int64_t window = 0)
      : model_(model), inv_freq_(std::move(inv_freq)), rope_scale_(rope_scale), window_(window) {}

  // Logits [ids, vocabulary].
  std::vector<float> run(const std::vector<std::int32_t>& ids) {
    const std::string& root = model_.names.root;
    const auto hidden = static_cast<std::size_t>(model_.at("hidden_size"));
    const auto& table = model_.tensors.at(root + "embed_tokens.weight");
    std::vector<Vector> x;
    for (const std::int32_t id : ids) {
      const auto* const row = table.values.data() + static_cast<std::size_t>(id) * hidden;
      x.emplace_back(row, row + hidden);
    }
    for (std::int64_t l = 0; l < model_.at("num_hidden_layers"); ++l)
      layer(root + "layers." + std::to_string(l) + ".", x);
    const bool tied = model_.config.value("tie_word_embeddings", false);
    std::vector<float> logits;
    for (const Vector& row : x) {
      for (const double logit : linear(tied ? root + "embed_tokens" : "lm_head", norm(root + "norm", row))) {
        logits.push_back(static_cast<float>(logit));
      }
    }
    return logits;
  }

 private:
  using Vector = std::vector<double>;

  [[nodiscard]] Vector product(const float* weights, std::size_t rows, const Vector& x) const {
    Vector y(rows, 0.0);
    for (std::size_t r = 0; r < rows; ++r) {
      for (std::size_t k = 0; k < x.size(); ++k) y[r] += static_cast<double>(weights[r * x.size() + k]) * x[k];
    }
    return y;
  }
  [[nodiscard]] Vector linear(const std::string& path, const Vector& x) const {
    const TinyTensor& weight = model_.tensors.at(path + ".weight");
    Vector y = product(weight.values.data(), static_cast<std::size_t>(weight.shape[0]), x);
    const auto bias = model_.tensors.find(path + ".bias");
    for (std::size_t r = 0; bias != model_.tensors.end() && r < y.size(); ++r) {
      y[r] += static_cast<double>(bias->second.values[r]);
    }
    return y;
  }
  [[nodiscard]] Vector norm(const std::string& path, Vector x) const {
    const TinyTensor& weight = model_.tensors.at(path + ".weight");
    double square = 0.0;
    for (const double value : x) square += value * value;
    const double rms =
        std::sqrt(square / static_cast<double>(x.size()) + model_.config.at("rms_norm_eps").get<double>());
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<double>(weight.values[i]) * x[i] / rms;
    return x;
  }
  static double silu(double x) { return x / (1.0 + std::exp(-x)); }

  // One head of a projected vector, normed where the model does, and rotated.
  [[nodiscard]] Vector head(const Vector& all, std::size_t index, const std::string& norm_path,
                            std::size_t position) const {
    const auto dim = static_cast<std::size_t>(model_.at("head_dim"));
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(index * dim);
    Vector v(begin, begin + static_cast<std::ptrdiff_t>(dim));
    if (model_.tensors.contains(norm_path + ".weight")) v = norm(norm_path, v);
    const std::size_t half = inv_freq_.size();
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * inv_freq_[i];
      const double a = v[i];
      const double b = v[i + half];
      v[i] = (a * std::cos(angle) - b * std::sin(angle)) * rope_scale_;
      v[i + half] = (b * std::cos(angle) + a * std::sin(angle)) * rope_scale_;
    }
    return v;
  }

  void layer(const std::string& path, std::vector<Vector>& x) const {
    std::vector<Vector> normed;
    for (const Vector& row : x) normed.push_back(norm(path + "input_layernorm", row));
    const std::vector<Vector> mixed = attention(path + "self_attn.", normed);
    for (std::size_t t = 0; t < x.size(); ++t) {
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += mixed[t][i];
      const Vector added = feed_forward(path, norm(path + "post_attention_layernorm", x[t]));
      for (std::size_t i = 0; i < x[t].size(); ++i) x[t][i] += added[i];
    }
  }

  [[nodiscard]] std::vector<Vector> attention(const std::string& path, const std::vector<Vector>& x) const {
    const auto heads = static_cast<std::size_t>(model_.at("num_attention_heads"));
    const std::size_t group = heads / static_cast<std::size_t>(model_.at("num_key_value_heads"));
    const auto dim = static_cast<std::size_t>(model_.at("head_dim"));
    std::vector<Vector> k;
    std::vector<Vector> v;
    std::vector<Vector> out;
    for (std::size_t t = 0; t < x.size(); ++t) {
      k.push_back(linear(path + "k_proj", x[t]));
      v.push_back(linear(path + "v_proj", x[t]));
      const Vector q = linear(path + "q_proj", x[t]);
      Vector joined;
      for (std::size_t h = 0; h < heads; ++h) {
        const Vector query = head(q, h, path + "q_norm", t);
        const std::size_t first =
            window_ == 0 || t + 1 < static_cast<std::size_t>(window_) ? 0 : t + 1 - static_cast<std::size_t>(window_);
        Vector sum(dim, 0.0);
        double total = 0.0;
        for (std::size_t j = first; j <= t; ++j) {
          const Vector key = head(k[j], h / group, path + "k_norm", j);
          double score = 0.0;
          for (std::size_t d = 0; d < dim; ++d) score += query[d] * key[d];
          const double weight = std::exp(score / std::sqrt(static_cast<double>(dim)));
          total += weight;
          for (std::size_t d = 0; d < dim; ++d) sum[d] += weight * v[j][h / group * dim + d];
        }
        for (const double value : sum) joined.push_back(value / total);
      }
      out.push_back(linear(path + "o_proj", joined));
    }
    return out;
  }

  [[nodiscard]] Vector mlp(const std::string& path, const Vector& x) const {
    const Vector gate = linear(path + model_.names.gate, x);
    Vector up = linear(path + model_.names.up, x);
    for (std::size_t i = 0; i < up.size(); ++i) up[i] *= silu(gate[i]);
    return linear(path + model_.names.down, up);
  }

  [[nodiscard]] Vector feed_forward(const std::string& layer, const Vector& x) const {
    const std::string path = layer + model_.names.moe + ".";
    if (!model_.tensors.contains(path + "gate.weight")) return mlp(layer + "mlp.", x);
    Vector p = linear(path + "gate", x);
    double total = 0.0;
    for (double& value : p) total += value = std::exp(value);
    for (double& value : p) value /= total;
    Vector out(x.size(), 0.0);
    double chosen = 0.0;
    const bool renormalize =
        model_.config.at("model_type") == "mixtral" || model_.config.value("norm_topk_prob", false);
    for (std::int64_t n = 0; n < model_.at("num_experts_per_tok"); ++n) {
      const auto best = std::max_element(p.begin(), p.end());
      const Vector y = mlp(path + "experts." + std::to_string(best - p.begin()) + ".", x);
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += *best * y[i];
      chosen += *best;
      *best = -1.0;
    }
    for (double& value : out) value /= renormalize ? chosen : 1.0;
    return out;
  }

  const TinyModel& model_;
  std::vector<double> inv_freq_;
  double rope_scale_;
  std::int64_t window_;
};

}  // namespace moracle::test
