// Stand-ins for the converters of xgrammar that are left out: grammars reach it as EBNF, which text/constrain writes.
#include <stdexcept>

#include "json_schema_converter.h"
#include "lark_converter.h"
#include "structural_tag.h"
#include "testing.h"

namespace xgrammar {

namespace {
[[noreturn]] void refuse() {
  throw std::logic_error("this converter is not built");
}
}  // namespace

Grammar JSONSchemaToGrammar(const std::string&, bool, std::optional<int>,
                            std::optional<std::pair<std::string, std::string>>, bool, std::optional<int>, bool,
                            JSONFormat, std::vector<std::string>) {
  refuse();
}
Grammar LarkToGrammar(const std::string&, const std::optional<TokenizerInfo>&, const std::vector<NamedGrammar>&) {
  refuse();
}
Result<Grammar, StructuralTagError> StructuralTagToGrammar(const std::string&, const std::optional<TokenizerInfo>&) {
  refuse();
}
std::string PrintTokenByIds(const std::vector<int32_t>&, const TokenizerInfo&, int) {
  refuse();
}

}  // namespace xgrammar
