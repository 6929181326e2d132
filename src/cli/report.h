// What several commands tell of a model: its warnings, each once, and the line above a command's work.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace moracle::cli {

struct WarningChoice {
  bool decisions = true;  // those that the oracle gave for single layers too
};
// Each text once, with the modules that it is about behind it. Without control characters.
[[nodiscard]] std::vector<std::string> warnings_of(const LoadPlan& plan, const WarningChoice& choice = {});

// "moracle: qwen3_moe, gptq int4 g128 sym; experts by avx2, 16 threads", no wider than `width`; ends in a newline.
[[nodiscard]] std::string model_line(const LoadPlan& plan, int threads, std::size_t width);

}  // namespace moracle::cli
