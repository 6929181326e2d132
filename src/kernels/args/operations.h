// What a model computes beside its linears and routed experts, as X(name, arguments). Ops, the table of a device object
// and whoever stands in for one are made of this list.
#pragma once

#include "kernels/args/attention.h"
#include "kernels/args/delta_rule.h"
#include "kernels/args/elementwise.h"
#include "kernels/args/host/convolution.h"
#include "kernels/args/host/index.h"
#include "kernels/args/host/state_space.h"
#include "kernels/args/latent_attention.h"
#include "kernels/args/linear.h"
#include "kernels/args/norm.h"
#include "kernels/args/rank.h"
#include "kernels/args/rope.h"
#include "kernels/args/route.h"
#include "kernels/args/sample.h"

#define MORACLE_OPERATIONS(X)              \
  X(embed, EmbedArgs)                      \
  X(rms_norm, RmsNormArgs)                 \
  X(add_norm, AddNormArgs)                 \
  X(add, AddArgs)                          \
  X(add_gated, AddGatedArgs)               \
  X(gated_activation, GatedArgs)           \
  X(gather, GatherArgs)                    \
  X(find_not_finite, FiniteArgs)           \
  X(top_k, RankArgs)                       \
  X(rope_table, RopeTableArgs)             \
  X(route, RouteArgs)                      \
  X(attention, AttentionArgs)              \
  X(latent_attention, LatentAttentionArgs) \
  X(delta_rule, DeltaRuleArgs)             \
  X(sample, SampleArgs)

// Those of the host alone: a GPU refuses models that need one.
#define MORACLE_HOST_OPERATIONS(X) \
  X(scale, ScaleArgs)              \
  X(softcap, SoftcapArgs)          \
  X(weigh, WeighArgs)              \
  X(convolution, ConvolutionArgs)  \
  X(state_space, StateSpaceArgs)   \
  X(index, IndexArgs)              \
  X(layer_norm, LayerNormArgs)
