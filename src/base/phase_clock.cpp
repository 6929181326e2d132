#include "base/phase_clock.h"

namespace moracle {

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::embedding:
      return "embedding";
    case Phase::norms:
      return "norms";
    case Phase::projections:
      return "projections";
    case Phase::attention:
      return "attention";
    case Phase::routing:
      return "routing";
    case Phase::experts:
      return "experts";
    case Phase::shared_experts:
      return "shared_experts";
    case Phase::dense:
      return "dense";
    case Phase::head:
      return "head";
    case Phase::other:
      return "other";
  }
  return "";
}

}  // namespace moracle
