// The runs that AMX tiles serve; shorter ones go to the AVX-512 kernels.
#pragma once

#include "kernels/cpu/panel.h"

namespace moracle::cpu {

struct AmxRuns {
  PanelMultiply q4, q8, e2m1, e4m3, bf16;  // bf16 activations
  PanelMultiply int8;                      // q8 with integer activations
};
extern const AmxRuns kAmxRuns;

}  // namespace moracle::cpu
