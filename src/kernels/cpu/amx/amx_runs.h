// The runs that AMX tiles serve; shorter ones go to the AVX-512 kernels.
#pragma once

#include "kernels/cpu/panel.h"

namespace moracle::cpu {

struct AmxRuns {
  PanelMultiply q4, q8, e2m1, e4m3, bf16;  // bf16 activations
};
extern const AmxRuns kAmxRuns;

struct AmxIntegerRuns {
  PanelMultiply q4, q8;                // activations in bytes
  PanelMultiply q4_planes, q8_planes;  // in 16 bits
};
extern const AmxIntegerRuns kAmxIntegerRuns;

}  // namespace moracle::cpu
