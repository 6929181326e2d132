// Prompts of plain words, and when requests arrive.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace moracle::load {

struct PromptPlan {
  std::int64_t words = 0;  // of a prompt
  double spread = 0;       // a prompt has fewer or more by up to this share
  double shared = 0;       // this share of each begins all of them
};

// `count` prompts; equal seeds give equal ones, other seeds others.
[[nodiscard]] std::vector<std::string> make_prompts(const PromptPlan& plan, std::size_t count, std::uint64_t seed);

// Seconds from the start at which `count` requests of a Poisson process arrive, the first at 0.
[[nodiscard]] std::vector<double> poisson_arrivals(double rate, std::size_t count, std::uint64_t seed);

}  // namespace moracle::load
