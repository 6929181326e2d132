// The names under which publishers store one thing: what precedes a text model, how experts are counted, what their
// projections are called, and how a tensor hangs on its module.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "format/format.h"

namespace moracle {

// What may precede "embed_tokens", "layers", "norm" and "lm_head".
inline constexpr std::array<std::string_view, 6> kRoots{
    "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.", ""};

// What the three projections of an expert are called, and gate and up where they are one.
struct ProjectionNames {
  std::string_view gate, up, down, gate_up;
};
inline constexpr std::array<ProjectionNames, 4> kProjectionNames{{
    {"gate_proj", "up_proj", "down_proj", "gate_up_proj"},
    {"w1", "w3", "w2", "w13"},
    {"gate", "up", "down", "gate_up"},
    {"gate_projs", "up_projs", "down_projs", "gate_up_projs"},
}};

// The parts that hold a module's weights, by format.
inline constexpr std::array<std::string_view, 4> kCodeParts{"weight", "qweight", "weight_packed", "blocks"};

// A module's name without what precedes a text model: "layers.3.mlp.gate".
[[nodiscard]] std::string_view without_root(std::string_view name);

// A module's name in the usual spelling, without a root: an expert's number before its projection, the first row of
// kProjectionNames, "mlp" for "block_sparse_moe".
[[nodiscard]] std::string usual_name(std::string_view name);

// A usual name under every root and in every spelling of the tables.
[[nodiscard]] std::vector<std::string> other_spellings(std::string_view usual);

// Whether the text of a pattern speaks of names by another spelling than the usual one.
[[nodiscard]] bool has_other_spelling(std::string_view pattern);

// The stored tensor of a module's part, null when there is none: "<module>.<part>" or "<module>_<part>", where "weight"
// may be left out of "weight" and "weight_scale" and their like.
[[nodiscard]] const TensorView* find_part(const TensorClaims& claims, std::string_view module, std::string_view part);

// The name that a part has or would have.
[[nodiscard]] std::string part_name(const TensorClaims& claims, std::string_view module, std::string_view part);

// Whether a part that holds weights is stored.
[[nodiscard]] bool has_weights(const TensorClaims& claims, std::string_view module);

// Whether any part of the module is stored.
[[nodiscard]] bool has_parts(const TensorClaims& claims, std::string_view module);

// Whether a name of a tensor goes on behind its module's name with a part: "", ".weight", "_scale", ...
[[nodiscard]] bool is_part_suffix(std::string_view suffix);

// Where publishers put a layer's routed experts below `containers` ("model.layers.0.mlp.experts"): numbered first,
// numbered last or stacked, gate and up apart or one, under every row of kProjectionNames. `interleaved`: gate and up
// rows alternate where they are one; `transposed`: stacks lie column by column.
[[nodiscard]] std::vector<ExpertsLayout> expert_layouts(const std::vector<std::string>& containers,
                                                        bool interleaved = false, bool transposed = false);

// The names under which patterns may speak of a matrix of an expert: the layer's experts, the expert, and the
// projections it holds or is a part of, with and without the number.
[[nodiscard]] std::vector<std::string> expert_names(const std::string& experts, std::int64_t expert,
                                                    std::initializer_list<std::string_view> projections);

}  // namespace moracle
