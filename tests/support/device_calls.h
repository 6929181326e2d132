// Calls of a card's kernels with numbers of the host, wherever the card computes.
#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/kernel.h"

namespace moracle::test {

// y[tokens, out] of x[tokens, in], asked for one order of sums or not. What fails is a failure of the test.
[[nodiscard]] std::vector<float> run_linear(const KernelCard& card, const CanonicalLinear& linear,
                                            const std::vector<float>& x, ThreadPool& pool,
                                            bool batch_invariant = false);

// The same of several linears that read one x, in one call.
[[nodiscard]] std::vector<std::vector<float>> run_fused(std::span<const KernelCard* const> cards,
                                                        std::span<const CanonicalLinear> linears,
                                                        const std::vector<float>& x, ThreadPool& pool,
                                                        bool batch_invariant = false);

}  // namespace moracle::test
