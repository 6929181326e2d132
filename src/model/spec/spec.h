// What an architecture says of one model: every module with its name, shape and role. The plan opens the modules a spec
// names, the loader builds the forward pass from the same spec; neither knows any architecture.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "format/format.h"
#include "kernels/args/attention.h"
#include "kernels/args/delta_rule.h"
#include "kernels/args/host/convolution.h"
#include "kernels/args/host/index.h"
#include "kernels/args/host/state_space.h"
#include "kernels/args/latent_attention.h"
#include "model/model.h"
#include "model/spec/rope.h"
#include "moe/routing.h"
#include "scheme/glu.h"

namespace moracle {

// Some rows of a stored module, which several linears share.
struct RowsOf {
  std::string module{};  // "model.layers.0.shared_mlp.input_linear"
  std::int64_t begin = 0;
  std::int64_t total = 0;  // rows of the module
};

struct LinearSpec {
  std::string path{};                // "model.layers.0.self_attn.q_proj"
  std::vector<std::string> fused{};  // fused modules it is a shard of
  std::int64_t out = 0;
  std::int64_t in = 0;
  bool bias = false;                // must be stored; one that is stored unasked is used as well
  std::optional<RowsOf> rows_of{};  // none: stored under its own path
};

struct NormSpec {
  std::string path{};  // "model.layers.0.input_layernorm"; the tensor is "<path>.weight"
  std::int64_t size = 0;
  float eps = 1e-6F;
  bool one_plus = false;  // y = (1 + w) x / rms instead of w x / rms
  float factor = 1.0F;    // y is multiplied by it; of a layer norm: 1
  bool centred = false;   // of x less its mean: a layer norm
  bool bias = false;      // of a layer norm: "<path>.bias" is added

  // Without a path there is no norm.
  [[nodiscard]] bool exists() const { return !path.empty(); }
};

// Grouped-query attention with rotary positions.
struct AttentionSpec {
  LinearSpec q{}, k{}, v{},
      o{};  // v's path empty: values are k's before its norm; norms of q with element gates are over each head
  std::optional<LinearSpec> head_gate{};  // [heads, hidden]: head h's values are multiplied by sigmoid of its row
  std::optional<LinearSpec> wide_gate{};  // [heads * head_dim, hidden], with shape.wide_gate
  std::vector<NormSpec>
      qk_norm{};  // empty, or {q, k}: over each head when size is head_dim, else over the whole vector
  AttentionShape shape{};
  std::optional<std::size_t> rope{};  // index into ModelSpec::ropes; none: positions do not turn the heads
  std::string sinks{};                // tensor [heads] of attention-sink logits; empty: none
};

// Gated delta net: a recurrence with a state of fixed size.
struct DeltaNetSpec {
  // Separate: qkv [q | k | v], z [value_heads * value_dim, hidden], b [value_heads, hidden], a [shape.decays(),
  // hidden]. Grouped: qkv's rows are, key head by key head, [q | k | v | z], b's [b | a]; z and a are absent. Apart:
  // qkv is q, beside which k and v have linears and convolutions of their own.
  LinearSpec qkv{}, z{}, b{}, a{}, out{};
  LinearSpec k{}, v{};
  std::optional<LinearSpec> z_low{}, a_low{};  // [rank, hidden]: what z and a read in place of the input
  std::string conv{};                          // module; "<conv>.weight" [channels, 1, kernel]
  std::string k_conv{}, v_conv{};              // modules, where apart
  std::string a_log{};                         // tensor [value_heads]
  bool a_log_wide = false;                     // it is stored as [1, 1, value_heads, 1]
  std::string dt_bias{};                       // tensor [shape.decays()]
  NormSpec norm{};                             // over value_dim
  DeltaNetShape shape{};
};

// Chooses the positions that latent attention sees.
struct IndexerSpec {
  LinearSpec q{};        // [heads * dim, rank]: reads the normed rank of queries
  LinearSpec k{};        // [dim, hidden]
  LinearSpec weights{};  // [heads, hidden]
  NormSpec k_norm{};
  IndexShape shape{};
};

// Multi-head latent attention: keys and values of all heads are made of one latent by `kv_b`, which is absorbed into
// the queries and the output and so never runs as a linear.
struct LatentAttentionSpec {
  std::optional<LinearSpec> q_a{};  // [rank, hidden]; none: `q` reads the input itself
  NormSpec q_norm{};                // over the rank
  LinearSpec q{};                   // rows are, head by head, [qk_nope_head_dim | qk_rope_head_dim]
  LinearSpec kv_a{};   // [kv_lora_rank + qk_rope_head_dim, hidden]; the rotated part is one key for all heads
  NormSpec kv_norm{};  // over the latent
  LinearSpec kv_b{};   // rows are, head by head, [keys (qk_nope_head_dim) | values (v_head_dim)]
  LinearSpec o{};
  std::optional<LinearSpec> head_gate{};  // [heads, hidden], with shape.head_gate
  std::optional<IndexerSpec> indexer{};   // none with shape.top_k: the choice is that of the layer before
  LatentAttentionShape shape{};
  std::optional<std::size_t> rope{};  // index into ModelSpec::ropes, with shape.rotated
};

// Taps of a convolution, and a bias where it has one.
struct TapsSpec {
  std::string path{};  // module; "<path>.weight" [channels, 1, kernel], "<path>.bias" [channels]
  bool bias = false;
};

// A convolution between two gates: out(gate(h) * conv(times(h) * x(h))).
struct ShortConvolutionSpec {
  LinearSpec times{}, gate{}, x{};  // [channels, hidden]
  LinearSpec out{};
  TapsSpec taps{};
  ConvolutionShape shape{};
};

// Mamba's inputs and outputs of states, and its steps through a small rank, are made of what the convolution gives,
// each with a norm.
struct SelectionSpec {
  LinearSpec step{}, b{}, c{};  // [rank, width] and [states, width]
  NormSpec step_norm{}, b_norm{}, c_norm{};
};

// A selective state space behind a convolution, and a gate.
struct StateSpaceSpec {
  LinearSpec gate{};   // [width, hidden]
  LinearSpec mixed{};  // rows are [x | b | c]; with `selection` x alone
  LinearSpec step{};   // [heads, hidden]; with `selection` [heads, rank]
  std::optional<SelectionSpec> selection{};
  LinearSpec out{};
  TapsSpec taps{};
  std::string rate{};       // tensor [heads], or [heads, states] by shape.rate_by_state: the logarithm
  std::string skip{};       // tensor [heads]
  std::string step_bias{};  // tensor [heads]; empty: none
  NormSpec norm{};          // over the width, in groups; path empty: none
  std::int64_t norm_groups = 1;
  std::int64_t kernel = 0;  // taps
  StateSpaceShape shape{};

  [[nodiscard]] constexpr std::int64_t channels() const {
    return shape.width() + (selection ? 0 : 2 * shape.group_width());
  }
};

// In place of a part that a layer lacks.
struct AbsentSpec {};

using MixerSpec =
    std::variant<AttentionSpec, DeltaNetSpec, LatentAttentionSpec, ShortConvolutionSpec, StateSpaceSpec, AbsentSpec>;

struct DenseSpec {
  LinearSpec gate{}, up{}, down{};  // up's path empty: ungated
  ActivationSpec activation{};
};

// Sees every token, whatever the router chooses: y = routed(x) + mlp(x), or + sigmoid(gate x) * mlp(x).
struct SharedExpertSpec {
  DenseSpec mlp{};
  LinearSpec gate{};  // [1, hidden]; path empty: none
  float mean = 1.0F;  // what the sum is multiplied by
};

// Norms of a feed-forward whose dense part and routed experts each read the residual stream through a norm of their
// own, and give through one: y = shared_behind(mlp(x)) + routed_behind(experts(experts(h))), with x = post_norm(h).
struct ApartSpec {
  std::string router{};        // tensor [hidden]: the router reads h / rms * this / sqrt(hidden)
  std::string expert_scale{};  // tensor [experts]: weights are multiplied by it
  NormSpec experts{};
  NormSpec routed_behind{};
  NormSpec shared_behind{};
};

// Experts read and give fewer numbers than a token has: y = out(experts(in(x))), routed by x.
struct LatentExpertsSpec {
  LinearSpec in{}, out{};
};

struct MoeSpec {
  // Where the router may be stored, "<path>.weight" [routing.rows(), hidden]: the first that exists is taken.
  std::vector<std::string> router{};
  std::vector<std::string> correction_bias{};  // tensors [routing.rows()]; empty: the method has none
  RoutingSpec routing{};
  ExpertsRef experts{};
  ActivationSpec activation{};
  std::optional<SharedExpertSpec> shared{};
  std::optional<ApartSpec> apart{};  // with `shared`
  std::optional<LatentExpertsSpec> latent{};
  // With `shared`, which alone is what the layer gives: what experts give is added behind the next layer.
  bool late = false;
  bool bias = false;  // of router and experts: must be stored; those that are stored unasked are used as well

  // Of what the router reads.
  [[nodiscard]] std::int64_t hidden() const { return latent ? latent->in.in : experts.hidden; }
};

using FeedForwardSpec = std::variant<DenseSpec, MoeSpec, AbsentSpec>;

// h += mixer_norm(mixer(input_norm(h))), then h += feed_forward_norm(feed_forward(post_norm(h))). Norms that do not
// exist leave what they are of. Parallel: both parts read input_norm(h), and there is no post_norm.
struct LayerSpec {
  std::string path{};  // "model.layers.0"; of both halves (Architecture::halves)
  NormSpec input_norm{};
  MixerSpec mixer{};
  NormSpec mixer_norm{};
  NormSpec post_norm{};
  FeedForwardSpec feed_forward{};
  NormSpec feed_forward_norm{};
  bool parallel = false;
  std::string scalar{};  // tensor [1] that the residual stream is multiplied by behind the layer; empty: none
};

// Constants that numbers are multiplied by.
struct Multipliers {
  float embedding = 1.0F;
  float residual = 1.0F;   // of what each part adds
  float head = 1.0F;       // of the logits
  float logit_cap = 0.0F;  // logits become cap tanh(logit / cap); 0: they stay

  bool operator==(const Multipliers&) const = default;
};

// Tensors that an architecture's checkpoints hold and its text model does not need, beyond what is known by the module
// that it hangs on (unclaimed_tensors.h).
struct IgnoredTensors {
  std::vector<std::string> suffixes{};  // of an architecture's own, with the dot before them
  std::string layers{};                 // "model.layers.": numbers from the layer count on are draft heads
};

struct ModelSpec {
  ModelInfo info{};
  Element dtype = Element::bf16;
  LinearSpec embedding{};  // rows are tokens: out = vocabulary, in = hidden
  LinearSpec head{};       // of the same shape; path empty: tied to the embedding
  NormSpec final_norm{};
  Multipliers multipliers{};
  std::vector<LayerSpec> layers{};
  std::vector<RopeSpec> ropes{};
  IgnoredTensors ignored{};
};

}  // namespace moracle
