// What an answer is held to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"
#include "text/constrain/grammar/grammar_text.h"

namespace moracle {

struct OutputFormat {
  enum class Kind : std::uint8_t {
    json_object,  // any JSON object
    json_schema,  // a JSON value that meets `schema`
    regex,        // a text that `regex` matches as a whole
    choice,       // one of `choices`
  };

  Kind kind = Kind::json_object;
  OrderedJson schema{};
  std::string regex{};
  std::vector<std::string> choices{};
};

inline constexpr std::size_t kMostOutputChoices = 1'024;
inline constexpr std::size_t kOutputFormatBytes = std::size_t{256} << 10U;

// The grammar of such answers, in EBNF, whose first rule is "root". Errors: "schema.*" and "regex.*" with the place,
// "constrain.complex", "constrain.choice".
Result<std::string> grammar_of(const OutputFormat& format);
// Adds the rules of such answers; the expression of one. Errors: the same.
Result<std::string> add_output_rules(const OutputFormat& format, GrammarText& grammar);

}  // namespace moracle
