// The line above a command's work.
#pragma once

#include <string>

#include "model/model.h"

namespace moracle::cli {

// "moracle: qwen3_moe, gptq int4 g128 sym; experts by avx2, 16 threads", no wider than `width`; ends in a newline.
[[nodiscard]] std::string model_line(const LoadPlan& plan, int threads, std::size_t width);

}  // namespace moracle::cli
