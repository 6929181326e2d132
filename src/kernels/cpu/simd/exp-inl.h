// The exponential and what is made of it, the same for every loop of a target.
#pragma once

namespace moracle::cpu {

// exp(x) = 2^n exp(r) with |r| <= ln2/2. The Taylor series to r^7 leaves 0.35^8/8! = 5e-9, a tenth of half an ulp. ln2
// is split so that n * kLn2High is exact. 2^n is applied as two factors, because n reaches -150 and 128.
template <class V>
inline typename V::Reg exp_of(typename V::Reg x) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLn2High = 0.693359375F;
  constexpr float kLn2Low = -2.12194440e-4F;
  // Argument order matters: min and max return the second operand where one is NaN.
  x = V::max(V::set1(-104.0F), V::min(V::set1(89.0F), x));
  const auto n = V::round(V::mul(x, V::set1(kLog2E)));
  auto r = V::fma(n, V::set1(-kLn2High), x);
  r = V::fma(n, V::set1(-kLn2Low), r);
  auto p = V::set1(1.0F / 5040.0F);
  p = V::fma(p, r, V::set1(1.0F / 720.0F));
  p = V::fma(p, r, V::set1(1.0F / 120.0F));
  p = V::fma(p, r, V::set1(1.0F / 24.0F));
  p = V::fma(p, r, V::set1(1.0F / 6.0F));
  p = V::fma(p, r, V::set1(0.5F));
  p = V::fma(p, r, V::set1(1.0F));
  p = V::fma(p, r, V::set1(1.0F));
  const auto half = V::round(V::mul(n, V::set1(0.5F)));
  return V::mul(V::mul(p, V::power_of_two(half)), V::power_of_two(V::sub(n, half)));
}

// x sigmoid(z).
template <class V>
inline typename V::Reg times_sigmoid(typename V::Reg x, typename V::Reg z) {
  return V::div(x, V::add(V::set1(1.0F), exp_of<V>(V::sub(V::zero(), z))));
}

template <class V>
inline typename V::Reg silu(typename V::Reg x) {
  return times_sigmoid<V>(x, x);
}

}  // namespace moracle::cpu
