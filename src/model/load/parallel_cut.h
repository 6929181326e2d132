// What one rank of several holds: a model's spec with its widths divided, or the rule that forbids the division.
#pragma once

#include "model/load/plan.h"

namespace moracle {

// Tensor parallelism divides heads, intermediate widths and the vocabulary over `tp` ranks; expert parallelism divides
// the experts of each layer over `ep` ranks. Both together take tp * ep ranks: each holds experts / ep experts, and of
// each of these intermediate / tp columns; what is not an expert is divided by tp alone. Routers, norms, the latent
// projections of MLA and gates of one row are held whole by every rank; key heads fewer than tp are held by several.
struct RankLayout {
  int tp = 1;
  int ep = 1;
};

// The spec of one rank (all hold the same, but for the last one's share of a vocabulary that tp does not divide).
// Errors: "plan.tp" and "plan.ep", naming the module and the rule: heads, key heads, experts or a width are not
// divisible; the cut goes through a group or a block of scales; columns of act-order belong to groups of other ranks.
Result<ModelSpec> parallel_cut(const Plan& plan, const RankLayout& layout);

// Whether ranks can share these experts, and the intermediate width of each: what parallel_cut() asks of each layer.
// Errors: "plan.tp", "plan.ep".
Result<> check_experts_cut(const StoredExperts& experts, const RankLayout& layout);

}  // namespace moracle
