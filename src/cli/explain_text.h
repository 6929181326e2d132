// The oracle's decisions as a person reads them.
#pragma once

#include <span>
#include <string>

#include "cli/screen.h"
#include "machine/machine.h"
#include "oracle/explain.h"

namespace moracle::cli {

struct ExplainStyle {
  bool all = false;   // every backend with all reasons; else those that rank above the chosen one, and names
  bool here = false;  // the machine is the one that the program runs on
  std::size_t width = kUnlimited;
  Paint paint{};
};

// For standard output, as it is.
[[nodiscard]] ExplainStyle terminal_style(bool all, bool here);

// "MODEL on h200", and what `by` adds; then an empty line.
[[nodiscard]] std::string explain_title(const std::string& model, const Machine& machine, const std::string& by,
                                        const ExplainStyle& style);
// Lines, each ending in a newline. The backend that serves comes first.
[[nodiscard]] std::string explain_text(std::span<const ExplainedGroup> groups, const Machine& machine,
                                       const ExplainStyle& style);
// What shows more; empty where all is shown.
[[nodiscard]] std::string explain_hint(const ExplainStyle& style);

}  // namespace moracle::cli
