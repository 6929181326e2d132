// Rules of arguments that a model writes one by one, between marks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"
#include "text/constrain/grammar/grammar_text.h"
#include "text/constrain/schema/schema_reader.h"
#include "text/reply/reply_format.h"
#include "text/reply/tool_schemas.h"

namespace moracle {

// A mark of replies: the token that it is, or its text.
[[nodiscard]] std::string mark_expression(const ReplyFormat& format, std::string_view mark);
// A line break or a space, which may stand between marks.
[[nodiscard]] std::string gap_expression();

// Of ArgumentStyle::elements. A text stands there as it is, other values as JSON; the types of the tool's schema tell
// which, as they tell the reader.
class ElementRules {
 public:
  // All outlive the rules.
  ElementRules(const ReplyFormat& format, const ToolSchemas& types, GrammarText& grammar)
      : format_(format), row_(*format.calls()), types_(types), grammar_(grammar) {}

  // An expression of all arguments, in the order of the schema, each with white space behind it. Errors: those of
  // add_schema_rules; "schema.unsupported".
  Result<std::string> write(const std::string& tool, const OrderedJson& schema);

 private:
  using Expression = std::optional<std::string>;
  struct Value;

  Result<Expression> sequence(const std::string& tool, SchemaReader& reader, const SchemaFacts& facts);
  Result<Expression> element(const std::string& tool, const std::string& key, SchemaReader& reader,
                             const SchemaRefs& refs);
  Result<Expression> values(SchemaReader& reader, const std::vector<SchemaFacts>& facts, const ValueTypes& types);
  Result<> add_texts(SchemaReader& reader, const SchemaFacts& facts, const Value& value,
                     std::vector<std::string>& bodies);
  Result<Expression> text_of(const SchemaFacts& facts, const Value& value);
  [[nodiscard]] std::string padded(const std::string& value) const;
  std::string free_text(std::int64_t least, const CodeSet& not_first);
  std::string text_to_close();
  [[nodiscard]] bool says_type() const { return !row_.type_words.text.empty(); }
  [[nodiscard]] std::string type_word(bool text) const;
  [[nodiscard]] bool close_is_text() const { return !format_.is_token(row_.value_close); }
  [[nodiscard]] CodeSet characters() const;
  // The first character of the mark behind a value, where that is text.
  [[nodiscard]] CodeSet close_begins() const;

  const ReplyFormat& format_;
  const CallSyntax& row_;
  const ToolSchemas& types_;
  GrammarText& grammar_;
};

}  // namespace moracle
