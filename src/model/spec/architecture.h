// An architecture is a row of constants: what its config class of transformers says where config.json is silent, how
// its keys and modules are spelled, of which blocks its layers are made. A hook does what no other architecture does.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "format/format.h"
#include "model/spec/config.h"
#include "model/spec/rope.h"
#include "model/spec/spec.h"

namespace moracle {

// A key of config.json that is true or false, or another where it is absent. Without a key the fallback holds.
struct Flag {
  std::string_view key{};
  bool fallback = false;
  std::string_view other{};
};

// A number under one key or another, of which the first counts where both are there. Without keys the fallback holds.
struct Number {
  std::array<std::string_view, 2> keys{};
  std::int64_t fallback = 0;
  std::int64_t least = 1;
};

// Names in the spellings of publishers, the usual one first.
using Names = std::array<std::string_view, 2>;

// A key that asks for what the architecture lacks unless it has this value, is null or is absent.
struct Demand {
  std::string_view key{};
  std::variant<bool, std::int64_t, std::string_view> value{};
};

enum class QkNorm : std::uint8_t { none, heads, whole };  // over each head of q and k, or over all of them at once

enum class Windows : std::uint8_t {
  none,              // a window in the config is not read
  optional,          // sliding_window is that of every layer, or null
  switched,          // that of every layer if use_sliding_window
  by_kind,           // that of layers which layer_types names; without the key of all but every `pattern`-th layer
  switched_by_kind,  // the same if use_sliding_window, and without the key below max_window_layers alone
  above_by_kind,     // the same unless sliding_window is null, and without the key from max_window_layers on
  by_hook
};

struct ModelSettings;

struct AttentionRow {
  Flag bias{"attention_bias", false};  // of q, k and v
  bool output_bias = true;             // o has one where they have
  QkNorm qk_norm = QkNorm::none;
  Flag has_qk_norm{{}, true};
  Names qk_names{".q_norm", ".k_norm"};  // of q's and of k's
  bool norm_behind_rope = false;
  Windows windows = Windows::none;
  std::int64_t window = 4096;
  Number pattern{{}, 2};
  Result<> (*sizes)(const ModelConfig& config, ModelSettings& settings) = nullptr;  // changes ModelSettings::sizes
  std::string_view heads_by_layer{};                                                // key of a list
  std::string_view wide_gate{};  // of a sigmoid gate on each element of what the heads give, below the attention
  std::string_view scale{};      // key of the scores' scale
  bool sinks = false;
  std::string_view clip{};  // key of the limit of q, k and v
};

// Multi-head latent attention in place of grouped queries: sizes where the config is silent.
struct LatentRow {
  std::int64_t q_lora_rank = 1536;
  std::int64_t kv_lora_rank = 512;
  std::int64_t qk_nope_head_dim = 128;
  std::int64_t qk_rope_head_dim = 64;
  std::int64_t v_head_dim = 128;
  bool factor_of_head = false;  // partial_rotary_factor is of a whole head, not of its rotated part
};

struct RopeRow {
  double theta = 10000.0;
  double rotary_factor = 1.0;
  std::string_view dims{};         // key of the number of rotated dimensions, which gives way to the factor's
  std::optional<YarnSpec> yarn{};  // where the config scales nothing
  bool pairwise = false;           // pairs lie side by side
  bool whole = false;              // partial_rotary_factor is not read
  bool in_windows = false;         // layers without a window are not rotated where others have one
  bool by_hook = false;
};

enum class Scores : std::uint8_t {
  softmax,            // of all experts
  softmax_with_bias,  // the same, with a bias that only chooses
  softmax_of_chosen,  // of the logits of those that were chosen
  sigmoid_of_chosen,  // the sigmoid of the logits that were chosen
  sparse_mixer,       // the two largest logits, each weighed against those near it (arXiv 2409.12136)
  sigmoid  // with a bias that only chooses and, where n_group asks for it, in groups (arXiv 2412.19437, 2.1.2)
};

struct RouterRow {
  Scores scores = Scores::softmax;
  Number experts{};
  Number top_k{{"num_experts_per_tok"}, 0};
  Flag renormalize{"norm_topk_prob", true};
  bool grouped = false;  // n_group, or `group_key` before it, and topk_group are read
  std::string_view group_key{};
  std::int64_t groups = 1;
  std::int64_t top_groups = 1;
  std::string_view factor_key{};
  double factor = 1.0;
  Result<RoutingSpec> (*read)(const ModelConfig& config) = nullptr;  // in place of the above
};

struct MoeRow {
  Names path{"mlp"};      // of the mixture, below a layer
  Names router{".gate"};  // below the mixture
  Names correction{};     // tensors [experts] that only choose, below the mixture
  Number intermediate{{"moe_intermediate_size"}, 0};
  bool interleaved = false;  // rows of gate and up alternate where they are one matrix
  bool transposed = false;   // stacks lie column by column
  bool bias = false;
};

// Sees every token. Its width is `width`, or as many times that of `each`, else of the routed experts, as `count`.
struct SharedRow {
  Names path{};  // below the mixture; empty: none
  Number count{};
  Number width{};
  std::string_view gate{};  // below the mixture, [1, hidden]
  std::string_view each{};  // key
};

enum class DenseLayers : std::uint8_t {
  none,
  first,    // as many as `first` says, and those between the multiples of `step`
  by_step,  // those before the multiples of decoder_sparse_step, and mlp_only_layers
  by_kind   // as mlp_layer_types says; without it as many as `first`
};

struct DenseRow {
  std::string_view path = ".mlp";  // below a layer
  DenseLayers layers = DenseLayers::none;
  Number intermediate{{"intermediate_size"}, 0};
  Number first{{"first_k_dense_replace"}, 0, 0};
  Number step{{}, 1};
  // In place of `layers`: true for each dense layer.
  Result<std::vector<bool>> (*read)(const ModelConfig& config, std::int64_t layers) = nullptr;
};

// Names of a layer's norms below it. Empty: there is none.
struct LayerNorms {
  std::string_view input = ".input_layernorm";
  std::string_view mixer{};                             // of what the mixer gives
  std::string_view post = ".post_attention_layernorm";  // of what the feed-forward reads
  std::string_view feed_forward{};                      // of what it gives
  bool centred = false;                                 // layer norms, with a bias each
};

// Keys of constants that numbers are multiplied by; logits are divided by theirs.
struct MultiplierRow {
  std::string_view embedding{};
  std::string_view residual{};
  std::string_view logits{};
};

// What a config says of a model, with the row's constants where it is silent.
struct ModelSettings {
  CommonConfig common{};
  ActivationSpec activation{};
  RoutingSpec routing{};
  std::int64_t expert_intermediate = 0;
  std::int64_t dense_intermediate = 0;
  std::int64_t shared_intermediate = 0;
  std::vector<bool> dense{};            // by layer
  std::vector<std::string> kinds{};     // of attention, by layer
  std::vector<std::int64_t> windows{};  // by layer
  std::vector<CommonConfig> sizes{};    // by layer: heads may be of their own number and size
  bool attention_bias = false;
  bool qk_norm = false;
  float clip = 0.0F;
  float score_scale = 0.0F;  // 0: the usual one
  Multipliers multipliers{};
  LatentAttentionShape latent{};
  std::int64_t q_lora_rank = 0;  // 0: queries are projected at once
};

struct Architecture {
  Names model_types{};
  CommonConfig common{};  // kv_heads 0: as many as heads
  Number kv_heads{};      // keys that go before num_key_value_heads
  // In place of num_hidden_layers.
  Result<std::int64_t> (*count_layers)(const ModelConfig& config) = nullptr;
  std::string_view max_positions{};             // key that stands in for max_position_embeddings
  std::string_view norm_eps{};                  // key that stands in for rms_norm_eps
  std::string_view embedding = "embed_tokens";  // below the root
  std::string_view mixer = ".self_attn";        // below a layer
  std::string_view mixer_out = ".o_proj";       // below latent attention
  bool zero_centred_norms = false;              // y = (1 + w) x / rms outside of attention
  LayerNorms norms{};
  std::string_view final_norm = "norm";  // below the layers' root
  bool parallel = false;                 // the feed-forward reads what the mixer reads
  MultiplierRow multipliers{};
  AttentionRow attention{};
  std::optional<LatentRow> latent{};
  RopeRow rope{};
  ActivationFn activation = ActivationFn::silu;  // swigluoai reads swiglu_alpha and swiglu_limit
  RouterRow router{};
  MoeRow moe{};
  SharedRow shared{};
  DenseRow dense{};
  std::array<Demand, 16> demands{};
  bool halves = false;         // two layers have one path, and their parts but mixtures end with ".0" and ".1" below it
  bool draft_layers = false;   // layers beyond the config's number are draft heads
  std::string_view ignored{};  // suffix of tensors that only training reads
  // Changes the spec that the row has made.
  Result<> (*hook)(const ModelConfig& config, const TensorClaims& claims, const ModelSettings& settings,
                   ModelSpec& spec) = nullptr;
};

[[nodiscard]] std::span<const Architecture* const> architectures();
// Errors: "config.unsupported" at /model_type, listing the known types.
Result<const Architecture*> find_architecture(const ModelConfig& config);

Result<ModelSettings> read_settings(const Architecture& row, const ModelConfig& config);

// Turns config.json into a spec. `claims` tells which of several spellings of a name the checkpoint uses.
Result<ModelSpec> describe(const Architecture& row, const ModelConfig& config, const TensorClaims& claims);

}  // namespace moracle
