// The kernels of integer activation codes that VPDPBUSD serves.
#pragma once

#include "kernels/cpu/panel.h"

namespace moracle::cpu {

struct VnniKernels {
  CodeKernels q4, q8, e2m1;
  CodeKernels q4_i16, q8_i16, e2m1_i16;
  void (*encode8)(const EncodeArgs&);
  void (*encode16)(const EncodeArgs&);
};
extern const VnniKernels kVnniKernels;

}  // namespace moracle::cpu
