// Whether a text is one that a reply may be, token by token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/constrain/grammar/grammar_compiler.h"
#include "text/constrain/output_format.h"

namespace moracle::testing {

// A vocabulary of all bytes, and of an end.
inline constexpr std::int32_t kByteEnd = 256;

inline GrammarCompiler& byte_compiler() {
  static const std::shared_ptr<GrammarCompiler> compiler = [] {
    std::vector<std::string> texts;
    for (int byte = 0; byte < 256; ++byte) texts.emplace_back(1, static_cast<char>(byte));
    texts.emplace_back();
    return GrammarCompiler::open(texts, kByteEnd + 1).value();
  }();
  return *compiler;
}

inline bool allows(const Constraint& constraint, std::int32_t id) {
  std::vector<std::uint32_t> mask(kByteEnd / 32 + 1, ~std::uint32_t{0});
  constraint.narrow(mask);
  return (mask[static_cast<std::size_t>(id) / 32] >> (static_cast<std::size_t>(id) % 32) & 1U) != 0;
}

// Whether a reply may be `text` and end there.
inline bool may_be(const Grammar& grammar, std::string_view text) {
  const std::int32_t end = kByteEnd;
  const auto constraint = grammar.start({&end, 1});
  for (const char c : text) {
    const auto id = static_cast<std::int32_t>(static_cast<unsigned char>(c));
    if (!allows(*constraint, id)) return false;
    constraint->advance(id);
  }
  return allows(*constraint, end);
}

inline Result<std::shared_ptr<const Grammar>> compiled(const OutputFormat& format) {
  auto text = grammar_of(format);
  if (!text.ok()) return std::move(text).error();
  return byte_compiler().compile(*text);
}

inline OutputFormat schema_format(std::string_view json) {
  return {.kind = OutputFormat::Kind::json_schema, .schema = OrderedJson::parse(json)};
}

}  // namespace moracle::testing
