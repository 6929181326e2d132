#include "text/constrain/grammar/grammar_compiler.h"

namespace moracle {

bool can_constrain() {
  return false;
}

Result<std::shared_ptr<GrammarCompiler>> GrammarCompiler::open(const std::vector<std::string>& /*texts*/,
                                                               std::int32_t /*vocabulary*/) {
  return Error{
      .code = "constrain.unavailable",
      .wanted = "a build that holds replies to schemas",
      .found = "one without",
      .advice = "build it with MORACLE_CONSTRAIN, for which scripts/setup build brings the source of xgrammar"};
}

}  // namespace moracle
