// A schema as a graph of forms, from which a grammar is written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/result.h"
#include "text/constrain/grammar/grammar_text.h"
#include "text/constrain/schema/schema_reader.h"

namespace moracle {

using FormId = std::size_t;

// Texts that an expression of the grammar spells.
struct ScalarForm {
  std::string expression;
};

// `prefix`, then `rest`, `least` to `most` elements in all.
struct ListForm {
  std::vector<FormId> prefix;
  std::optional<FormId> rest{};
  std::int64_t least = 0;
  std::optional<std::int64_t> most{};
};

struct MemberForm {
  std::string name;
  FormId value = 0;
  bool required = false;
};

// The members in their order, then any number of others.
struct ObjectForm {
  std::vector<MemberForm> members;
  std::optional<FormId> additional{};  // of other members' values
  std::optional<FormId> names{};       // of their names; empty: any that no member has
  CountRange count{};
};

using Form = std::variant<ScalarForm, ListForm, ObjectForm>;

// What meets a schema is of one of `forms`.
struct FormNode {
  std::vector<Form> forms{};
  bool anything = false;  // any JSON value
  bool filled = false;    // some finite text has the form
};

class SchemaGraph {
 public:
  // The graph of the reader's document. Rules of scalars go into `grammar`. Errors: those of SchemaReader;
  // "schema.unsupported", with the JSON pointer; "schema.empty": nothing meets the schema.
  static Result<SchemaGraph> build(SchemaReader& reader, GrammarText& grammar);
  // The same of values that meet any of the facts.
  static Result<SchemaGraph> build(SchemaReader& reader, const std::vector<SchemaFacts>& facts, GrammarText& grammar);

  [[nodiscard]] const FormNode& node(FormId id) const { return nodes_[id]; }
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  static constexpr FormId kRoot = 0;

 private:
  SchemaGraph(SchemaReader& reader, GrammarText& grammar) : reader_(&reader), grammar_(&grammar) {}

  FormId id_of(SchemaRefs refs);
  Result<> fill(FormId id, const SchemaRefs& refs);
  Result<> fill(FormId id, const std::vector<SchemaFacts>& alternatives);
  Result<> complete();
  Result<> add_forms(FormNode& node, const SchemaFacts& facts);
  Result<> add_values(FormNode& node, const SchemaFacts& facts);
  Result<> add_number(FormNode& node, const SchemaFacts& facts);
  Result<> add_text(FormNode& node, const SchemaFacts& facts);
  Result<> add_list(FormNode& node, const SchemaFacts& facts);
  Result<> add_record(FormNode& node, const SchemaFacts& facts);
  // Of a grammar, which alternatives multiply. Error: "constrain.complex".
  Result<> spend(std::size_t bytes);
  Result<> add_members(ObjectForm& record, const SchemaFacts& facts, bool& possible);
  void find_filled();
  [[nodiscard]] bool is_filled(const Form& form) const;
  void prune(Form& form) const;

  SchemaReader* reader_;
  GrammarText* grammar_;
  std::size_t spent_ = 0;
  std::vector<FormNode> nodes_;
  std::map<std::string, FormId> ids_;  // by pointers
  std::deque<std::pair<FormId, SchemaRefs>> pending_;
};

}  // namespace moracle
