// The kernels of integer activation codes that an instruction set adds to those of numbers.
#pragma once

#include "kernels/cpu/panel.h"

namespace moracle::cpu {

struct IntegerKernels {
  CodeKernels q4, q8, e2m1;  // 8-bit codes; q8 is null where 16-bit ones serve it as fast
  CodeKernels q4_i16, q8_i16, e2m1_i16;
  CodeKernels q4_planes, q8_planes, e2m1_planes;
  void (*encode8)(const EncodeArgs&);
  void (*encode16)(const EncodeArgs&);
  void (*encode_planes)(const EncodeArgs&);
};
extern const IntegerKernels kAvx2IntegerKernels;
extern const IntegerKernels kVnniKernels;

}  // namespace moracle::cpu
