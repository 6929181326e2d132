// A JSON schema as rules of a grammar.
#pragma once

#include <string>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"
#include "text/constrain/grammar/grammar_text.h"
#include "text/constrain/schema/schema_reader.h"

namespace moracle {

// Adds rules whose texts are JSON values that meet the schema; the name of the first of them. White space around the
// value is not among them. Members come in the order of the schema, and those that it does not name only where it
// allows them in so many words or names none. Errors, with the JSON pointer: those of SchemaReader and SchemaGraph,
// "constrain.complex".
Result<std::string> add_schema_rules(const OrderedJson& schema, GrammarText& grammar);
// Rules whose texts are the members of an object that meets the schema and the bracket behind them, each name a word
// with `separator` behind it. Errors: those of add_schema_rules.
Result<std::string> add_keyword_rules(const OrderedJson& schema, char separator, char close, GrammarText& grammar);
// The same as add_schema_rules, of values that meet any of the facts.
Result<std::string> add_facts_rules(SchemaReader& reader, const std::vector<SchemaFacts>& facts, GrammarText& grammar);

}  // namespace moracle
