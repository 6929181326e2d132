// Compiles grammars to masks over a model's vocabulary. Built with xgrammar's C++ core (MORACLE_CONSTRAIN); without it
// every call fails with a sentence.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/constrain/constraint.h"

namespace moracle {

// Memory of the compiled grammars that a compiler keeps.
inline constexpr std::size_t kGrammarCacheBytes = std::size_t{256} << 20U;
// Of one grammar.
inline constexpr std::size_t kMostGrammarMemory = std::size_t{64} << 20U;

// A grammar and a vocabulary, ready to make masks.
class Grammar : public ConstraintSource {
 public:
  [[nodiscard]] virtual std::size_t bytes() const = 0;  // of memory, about
  // Of a reply that has begun with `text`.
  [[nodiscard]] virtual std::unique_ptr<Constraint> start_behind(std::string_view text,
                                                                 std::span<const std::int32_t> ends) const = 0;
};

// Safe to call from many threads.
class GrammarCompiler {
 public:
  // `texts`: the bytes that each token adds to a text, by id; empty: a token that no text has. `vocabulary`: of the
  // model, at least as many. Error: "constrain.unavailable".
  static Result<std::shared_ptr<GrammarCompiler>> open(const std::vector<std::string>& texts, std::int32_t vocabulary);

  virtual ~GrammarCompiler() = default;
  // Of EBNF, as grammar_of() writes it. Those compiled before are kept, the last ones that were asked for, within
  // kGrammarCacheBytes. Errors: "constrain.complex", "constrain.grammar".
  virtual Result<std::shared_ptr<const Grammar>> compile(const std::string& ebnf) = 0;
};

// Whether this build makes masks.
[[nodiscard]] bool can_constrain();

}  // namespace moracle
