#include "scheme/routing.h"

namespace moracle {

std::string_view to_string(Routing routing) {
  switch (routing) {
    case Routing::softmax_topk:
      return "softmax_topk";
    case Routing::softmax_topk_renorm:
      return "softmax_topk_renorm";
    case Routing::topk_softmax:
      return "topk_softmax";
    case Routing::sigmoid:
      return "sigmoid";
    case Routing::sigmoid_renorm:
      return "sigmoid_renorm";
    case Routing::sigmoid_bias_renorm:
      return "sigmoid_bias_renorm";
    case Routing::grouped_sigmoid_bias:
      return "grouped_sigmoid_bias";
    case Routing::grouped_softmax:
      return "grouped_softmax";
    case Routing::sqrtsoftplus_bias:
      return "sqrtsoftplus_bias";
    case Routing::hash:
      return "hash";
    case Routing::topk_sigmoid:
      return "topk_sigmoid";
    case Routing::softmax_bias_renorm:
      return "softmax_bias_renorm";
    case Routing::sparse_mixer:
      return "sparse_mixer";
    case Routing::unspecified:
      return "unspecified";
  }
  return "unknown";
}

}  // namespace moracle
