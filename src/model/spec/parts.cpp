#include "model/spec/parts.h"

#include <algorithm>
#include <cstring>

#include "format/rules/spelling.h"

namespace moracle {

namespace {

bool is_root(const TensorClaims& claims, std::string_view root, std::string_view embedding) {
  return claims.has_module(std::string(root).append(embedding));
}

// Whether two tensors hold the same numbers, by pages of both all over their lengths: whole matrices are too long to
// be read for a warning.
bool look_alike(const TensorView* a, const TensorView* b) {
  if (a == nullptr || b == nullptr || a->dtype != b->dtype || a->shape != b->shape) return false;
  constexpr std::size_t kPages = 64;
  constexpr std::size_t kPage = 4096;
  const std::size_t size = a->bytes.size();
  for (std::size_t i = 0; i < kPages; ++i) {
    const std::size_t begin = size <= kPage ? 0 : (size - kPage) / (kPages - 1) * i;
    const std::size_t count = std::min(kPage, size - begin);
    if (std::memcmp(a->bytes.data() + begin, b->bytes.data() + begin, count) != 0) return false;
  }
  return true;
}

// A head that is stored is used, whatever the config says of tying it; the name of the head that is wanted where none
// is and the config ties none. Empty: the embedding's.
std::string find_head(const ModelConfig& config, const CommonConfig& common, const TensorClaims& claims,
                      const std::string& root, const std::string& embedding) {
  constexpr std::string_view kHead = "lm_head";
  constexpr const char* kKey = "tie_word_embeddings";
  std::vector<std::string> names{std::string(kHead), root + std::string(kHead)};
  constexpr std::string_view kInner = ".model.";
  if (root.ends_with(kInner)) names.push_back(root.substr(0, root.size() + 1 - kInner.size()) + std::string(kHead));
  for (const std::string_view other : kRoots) names.push_back(std::string(other) + std::string(kHead));
  const auto stored =
      std::find_if(names.begin(), names.end(), [&](const auto& name) { return has_weights(claims, name); });
  if (stored != names.end()) {
    const TensorView* const table = claims.find(embedding + ".weight");
    if (common.tied && !look_alike(table, claims.find(*stored + ".weight"))) {
      config.warn(std::string(kKey) + " = true is not followed: " + *stored +
                  ".weight is stored, is not the embedding, and is used");
    }
    return *stored;
  }
  // A flag that ties the head in either part is all that makes sense of a head that is not there.
  const Result<bool> inner = config.reader().boolean_or(kKey, false);
  return common.tied || (inner.ok() && *inner) ? std::string() : names.front();
}

}  // namespace

std::string find_root(const TensorClaims& claims, std::string_view embedding) {
  for (const std::string_view root : kRoots) {
    if (is_root(claims, root, embedding)) return std::string(root);
  }
  // A wrapper that no one here has met: the only place below which there is a text model.
  std::string found;
  const std::string table = std::string(embedding) + ".weight";
  for (const auto& [name, tensor] : claims.checkpoint()->tensors()) {
    if (!name.ends_with(table)) continue;
    const std::string root = name.substr(0, name.size() - table.size());
    if (!is_root(claims, root, embedding) || !claims.has_module(root + "layers.0")) continue;
    if (!found.empty()) return std::string(kRoots.front());
    found = root;
  }
  return found.empty() ? std::string(kRoots.front()) : found;
}

ModelSpec common_spec(const ModelConfig& config, const CommonConfig& common, const TensorClaims& claims,
                      const std::string& root, std::string_view embedding) {
  ModelSpec spec;
  spec.info.architecture = config.model_types().front();
  spec.info.layers = common.layers;
  spec.info.hidden_size = common.hidden;
  spec.info.vocab_size = common.vocabulary;
  spec.info.max_context = common.max_positions;
  spec.dtype = common.dtype;
  spec.embedding = {.path = root + std::string(embedding), .out = common.vocabulary, .in = common.hidden};
  spec.head = {.path = find_head(config, common, claims, root, spec.embedding.path),
               .out = common.vocabulary,
               .in = common.hidden};
  return spec;
}

NormSpec norm_spec(std::string path, std::int64_t size, double eps) {
  NormSpec spec;
  spec.path = std::move(path);
  spec.size = size;
  spec.eps = static_cast<float>(eps);
  return spec;
}

AttentionSpec attention_spec(const std::string& path, const CommonConfig& common, bool bias) {
  const std::int64_t q_size = common.heads * common.head_dim;
  const std::int64_t kv_size = common.kv_heads * common.head_dim;
  const std::vector<std::string> fused{path + ".qkv_proj"};
  AttentionSpec spec;
  spec.q = {.path = path + ".q_proj", .fused = fused, .out = q_size, .in = common.hidden, .bias = bias};
  spec.k = {.path = path + ".k_proj", .fused = fused, .out = kv_size, .in = common.hidden, .bias = bias};
  spec.v = {.path = path + ".v_proj", .fused = fused, .out = kv_size, .in = common.hidden, .bias = bias};
  spec.o = {.path = path + ".o_proj", .out = common.hidden, .in = q_size, .bias = bias};
  spec.shape.heads = common.heads;
  spec.shape.kv_heads = common.kv_heads;
  spec.shape.head_dim = common.head_dim;
  return spec;
}

DenseSpec dense_spec(const std::string& path, std::int64_t hidden, std::int64_t intermediate,
                     ActivationSpec activation) {
  const std::vector<std::string> fused{path + ".gate_up_proj"};
  DenseSpec spec;
  spec.gate = {.path = path + ".gate_proj", .fused = fused, .out = intermediate, .in = hidden};
  spec.up = {.path = path + ".up_proj", .fused = fused, .out = intermediate, .in = hidden};
  spec.down = {.path = path + ".down_proj", .out = hidden, .in = intermediate};
  spec.activation = activation;
  if (!is_gated(activation.fn)) {
    spec.gate = {.path = spec.up.path, .out = intermediate, .in = hidden};
    spec.up = {};
  }
  return spec;
}

DenseSpec halved_spec(const std::string& both, const std::string& down, std::int64_t hidden, std::int64_t intermediate,
                      ActivationSpec activation) {
  const auto half = [&](const char* name, std::int64_t begin) {
    return LinearSpec{.path = both + name,
                      .out = intermediate,
                      .in = hidden,
                      .rows_of = RowsOf{.module = both, .begin = begin, .total = 2 * intermediate}};
  };
  return {.gate = half(".gate", 0),
          .up = half(".up", intermediate),
          .down = {.path = down, .out = hidden, .in = intermediate},
          .activation = activation};
}

DenseSpec shared_spec(const std::vector<std::string>& paths, const TensorClaims& claims, std::int64_t hidden,
                      std::int64_t intermediate, ActivationSpec activation) {
  const auto stored =
      std::find_if(paths.begin(), paths.end(), [&](const auto& path) { return claims.has_module(path); });
  const std::string& path = stored != paths.end() ? *stored : paths.front();
  DenseSpec spec = dense_spec(path, hidden, intermediate, activation);
  for (const std::string& other : paths) {
    if (other == path) continue;
    for (const auto& [half, name] : {std::pair{&spec.gate, ".gate_proj"}, {&spec.up, ".up_proj"}}) {
      half->fused.push_back(other + name);
      half->fused.push_back(other + ".gate_up_proj");
    }
    spec.down.fused.push_back(other + ".down_proj");
  }
  return spec;
}

std::size_t add_rope(ModelSpec& spec, const RopeSpec& rope) {
  const auto found = std::find(spec.ropes.begin(), spec.ropes.end(), rope);
  const auto index = static_cast<std::size_t>(found - spec.ropes.begin());
  if (found == spec.ropes.end()) spec.ropes.push_back(rope);
  return index;
}

}  // namespace moracle
