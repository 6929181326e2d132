// What a model folder may make us compute with texts. docs/chat-templates.md and docs/tokenizer.md list these figures.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/budget.h"

namespace moracle {

inline constexpr std::size_t kMiB = std::size_t{1} << 20U;

// Rendering one conversation with a chat template.
struct TemplateLimits {
  std::size_t steps = 2'000'000;         // one node walked, one element, or 128 bytes copied
  int depth = 200;                       // nesting of the source, of values and of macro calls
  std::size_t output_bytes = 16 * kMiB;  // of the output, and of each text on the way
  std::size_t bytes = 256 * kMiB;        // of all texts and containers made on the way
  std::chrono::milliseconds time{1000};
};
// A template's source, and what parsing it may make.
inline constexpr std::size_t kTemplateSourceBytes = 4 * kMiB;
inline constexpr std::size_t kTemplateTokens = 500'000;

}  // namespace moracle
