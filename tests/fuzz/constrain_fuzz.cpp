// What clients hold replies to: the input is a JSON schema or a regular expression, a byte 0, and bytes that choose
// among the tokens that the masks allow. A reply that the masks let end meets the schema or matches the expression, and
// a tool may have any schema.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fuzz_input.h"
#include "support/held_output.h"
#include "text/constrain/calls/call_grammar.h"
#include "text/constrain/regex/regex_syntax.h"
#include "text/constrain/schema/schema_reader.h"
#include "text/unicode.h"

namespace {

using moracle::fuzz::require;

constexpr std::size_t kMostGrammar = 4096;  // of bytes, so that one input is soon compiled
constexpr std::size_t kMostTokens = 200;

// Whether the reply may end; its text.
bool reply_of(const moracle::Grammar& grammar, std::string_view choices, std::string& text) {
  const std::int32_t end = moracle::testing::kByteEnd;
  const auto constraint = grammar.start({&end, 1});
  for (std::size_t i = 0; i < kMostTokens; ++i) {
    const bool ends = moracle::testing::allows(*constraint, end);
    if (constraint->must_end() || (ends && i >= choices.size())) return ends;
    // The allowed byte at or behind the chosen one.
    auto byte = static_cast<unsigned char>(i < choices.size() ? choices[i] : '"');
    int tried = 0;
    for (; tried < 256 && !moracle::testing::allows(*constraint, byte); ++tried) ++byte;
    require(tried < 256 || ends);
    if (tried == 256) return true;
    constraint->advance(byte);
    text.push_back(static_cast<char>(byte));
  }
  return false;
}

void check_reply(const moracle::OutputFormat& format, std::string_view text) {
  if (format.kind == moracle::OutputFormat::Kind::regex) {
    const auto regex = moracle::parse_regex(format.regex);
    require(regex.ok() && moracle::matches(moracle::whole(*regex), text));
    return;
  }
  const auto value = moracle::OrderedJson::parse(text, nullptr, false);
  require(!value.is_discarded());
  auto reader = moracle::SchemaReader::open(format.schema);
  const auto held = reader->holds({reader->root()}, value);
  require(!held.ok() || *held);
}

// A tool of the schema can be called in every syntax, whatever of the schema cannot be held.
void check_calls(const moracle::OrderedJson& schema, std::size_t row) {
  const auto rows = moracle::call_syntaxes();
  moracle::ReplyFormat format;
  format.read_calls(rows[row % rows.size()]);
  require(moracle::grammar_of_calls({.tools = {{.name = "f", .parameters = schema}}}, format).ok());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = moracle::fuzz::parts_of(std::span(data, size), 2);
  if (moracle::unicode::find_invalid_utf8(parts[0])) return 0;
  moracle::OutputFormat format{.kind = moracle::OutputFormat::Kind::regex, .regex = std::string(parts[0])};
  if (auto schema = moracle::parse_ordered_json(parts[0], ""); schema.ok()) {
    format.kind = moracle::OutputFormat::Kind::json_schema;
    format.schema = std::move(*schema);
    check_calls(format.schema, parts[1].size());
  }
  const auto text = moracle::grammar_of(format);
  if (!text.ok()) {
    moracle::fuzz::check_error(text.error());
    return 0;
  }
  if (!moracle::can_constrain() || text->size() > kMostGrammar) return 0;
  const auto grammar = moracle::testing::byte_compiler().compile(*text);
  require(grammar.ok());
  std::string reply;
  if (reply_of(**grammar, parts[1], reply)) check_reply(format, reply);
  return 0;
}
