// What the enums of a card are called, and what they stand for.
#include "oracle/card.h"

namespace moracle {

double relative_rounding(InputRounding rounding) {
  constexpr double kRootOf12 = 3.4641016151377544;
  constexpr double kPeak = 11.313708498984761;  // sqrt(128)
  switch (rounding) {
    case InputRounding::none:
      return 0.0;
    case InputRounding::bf16:
      return 1.0 / 512.0;
    case InputRounding::sixteen_bits:
      return kPeak / 32512.0 / kRootOf12;
    case InputRounding::eight_bits:
      return kPeak / 127.0 / kRootOf12;
  }
  return 0.0;
}

std::string_view to_string(Numerics numerics) {
  switch (numerics) {
    case Numerics::exact:
      return "exact";
    case Numerics::fast:
      return "fast";
  }
  return "unknown";
}

}  // namespace moracle
