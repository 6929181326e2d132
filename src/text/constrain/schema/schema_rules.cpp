#include "text/constrain/schema/schema_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "base/unicode/utf8.h"
#include "text/constrain/schema/json_rules.h"
#include "text/constrain/schema/schema_graph.h"

namespace moracle {

namespace {

// What the compiler takes about a second of a core for (bench/masks/bombs.py): its time grows with the square of each.
constexpr std::size_t kMostGrammarBytes = std::size_t{256} << 10U;
constexpr std::int64_t kMostOptionalPairs = 500 * 500;  // of optional members of one object, over all objects
constexpr std::int64_t kMostCountedStates = 5'000;      // of an object whose members are counted
constexpr std::size_t kMostNameCharacters = 20'000;
constexpr std::size_t kMostNameNodes = 8;  // each has a mask of all tokens: 35 ms of 131,072

// Names, by their first characters.
struct NameTree {
  std::map<char32_t, NameTree> children;
  bool ends = false;
  bool kept = false;

  void add(std::u32string_view name) {
    NameTree* at = this;
    for (const char32_t code : name) at = &at->children[code];
    at->ends = true;
  }

  // The first nodes, level by level.
  void keep(std::size_t most) {
    std::vector<NameTree*> nodes = {this};
    for (std::size_t i = 0; i < nodes.size() && i < most; ++i) {
      nodes[i]->kept = true;
      for (auto& [code, child] : nodes[i]->children) nodes.push_back(&child);
    }
  }
};

// Strings without escapes that are none of the names. Of a tree whose masks would take long, those that leave it within
// its first nodes.
class OtherNames {
 public:
  explicit OtherNames(GrammarText& grammar) : grammar_(grammar), plain_(grammar.escaped_characters().complement()) {}

  std::string write(NameTree& tree) {
    tree.keep(kMostNameNodes);
    return grammar_.rule(grammar_.quote() + " " + behind(tree));
  }

  [[nodiscard]] bool is_plain(std::u32string_view name) const {
    return std::all_of(name.begin(), name.end(), [&](char32_t code) { return plain_.contains(code); });
  }

 private:
  std::string behind(const NameTree& tree) {
    std::vector<std::string> bodies;
    if (!tree.ends) bodies.push_back(grammar_.quote());
    CodeSet others = plain_;
    CodeSet known;
    for (const auto& [code, child] : tree.children) {
      known.add({code, code});
      if (!child.kept) continue;
      std::string one;
      unicode::append_utf8(one, code);
      bodies.push_back(ebnf_literal(one) + " " + behind(child));
    }
    bodies.push_back(ebnf_class(others.without(known)) + " " + rest());
    return grammar_.rule(ebnf_either(bodies));
  }

  // Any rest and the quote behind it, by a rule that names itself as json_string_rest does.
  std::string rest() {
    std::string name = grammar_.named("json_name_rest");
    if (!grammar_.has(name))
      grammar_.define(name, fmt::format("{} | {} {}", grammar_.quote(), ebnf_class(plain_), name));
    return name;
  }

  GrammarText& grammar_;
  CodeSet plain_;
};

class SchemaWriter {
 public:
  SchemaWriter(const SchemaGraph& graph, GrammarText& grammar)
      : graph_(graph), grammar_(grammar), space_(space_expression(grammar)), names_(graph.size()) {}

  Result<std::string> write() {
    const std::string root = name_of(SchemaGraph::kRoot);
    MORACLE_TRY(write_pending());
    return root;
  }

  // The members of objects, each in the manner of a keyword, and the bracket behind them.
  Result<std::string> write_keywords(char separator, char close) {
    std::vector<std::string> bodies;
    for (const Form& form : graph_.node(SchemaGraph::kRoot).forms) {
      const auto* const record = std::get_if<ObjectForm>(&form);
      if (record == nullptr) {
        return Error{
            .code = "schema.unsupported", .where = "", .wanted = "arguments one by one", .found = "values of them all"};
      }
      RecordWriter writer{.schema = *this, .record = *record, .keyword = std::string(1, separator)};
      MORACLE_ASSIGN(const auto members, writer.write());
      bodies.push_back(fmt::format("{0} {1} {0} {2}", space_, members.value(), ebnf_literal({&close, 1})));
    }
    MORACLE_TRY(write_pending());
    return grammar_.rule(ebnf_either(bodies));
  }

 private:
  Result<> write_pending() {
    while (!pending_.empty()) {
      const FormId id = pending_.back();
      pending_.pop_back();
      MORACLE_ASSIGN(std::string body, body_of(graph_.node(id)));
      grammar_.define(*names_[id], std::move(body));
      MORACLE_TRY(grammar_.check_repeats());
      if (grammar_.bytes() > kMostGrammarBytes) return too_complex("a grammar of at most 256 KiB");
    }
    return Ok{};
  }

  [[nodiscard]] static Error too_complex(std::string wanted) {
    return {.code = "constrain.complex", .wanted = std::move(wanted), .found = "more", .advice = "make it smaller"};
  }

  std::string name_of(FormId id) {
    if (!names_[id]) {
      names_[id] = grammar_.reserve();
      pending_.push_back(id);
    }
    return *names_[id];
  }

  Result<std::string> body_of(const FormNode& node) {
    std::vector<std::string> bodies;
    if (node.anything) bodies.push_back(any_value_expression(grammar_));
    for (const Form& form : node.forms) {
      if (const auto* const scalar = std::get_if<ScalarForm>(&form)) {
        bodies.push_back(scalar->expression);
      } else if (const auto* const list = std::get_if<ListForm>(&form)) {
        bodies.push_back(list_of(*list));
      } else {
        MORACLE_ASSIGN(std::string record, record_of(std::get<ObjectForm>(form)));
        bodies.push_back(std::move(record));
      }
    }
    return ebnf_either(bodies);
  }

  [[nodiscard]] std::string comma() const { return fmt::format("{0} \",\" {0}", space_); }

  static std::string repeated(const std::string& body, std::int64_t least, std::optional<std::int64_t> most) {
    if (most) return fmt::format("({}){{{},{}}}", body, least, *most);
    return least == 0 ? fmt::format("({})*", body) : fmt::format("({}){{{},}}", body, least);
  }

  // Of `least` to `most`, with commas between them; `some`: one behind others.
  std::string series(const std::string& body, std::int64_t least, std::optional<std::int64_t> most, bool some) const {
    least = std::max<std::int64_t>(least, 0);
    if (most && *most <= 0) return "\"\"";
    const std::string more = comma() + " " + body;
    if (some) return repeated(more, least, most);
    const auto less = most ? std::optional(*most - 1) : most;
    const std::string all = body + " " + repeated(more, std::max<std::int64_t>(least - 1, 0), less);
    return least == 0 ? "(" + all + ")?" : all;
  }

  std::string list_of(const ListForm& list) {
    const auto fixed = static_cast<std::int64_t>(list.prefix.size());
    std::string tail;
    if (list.rest) {
      const auto most = list.most ? std::optional(*list.most - fixed) : std::nullopt;
      tail = series(name_of(*list.rest), list.least - fixed, most, fixed > 0);
    }
    for (std::int64_t i = fixed - 1; i >= 0; --i) {
      if (list.most && i >= *list.most) continue;
      const std::string element =
          fmt::format("{} {} {}", i > 0 ? comma() : "", name_of(list.prefix[static_cast<std::size_t>(i)]), tail);
      tail = i >= list.least ? grammar_.rule(element) + "?" : element;
    }
    return fmt::format("\"[\" {0} {1} {0} \"]\"", space_, tail);
  }

  Result<std::string> other_name(const ObjectForm& record) {
    if (record.names) return name_of(*record.names);
    if (record.members.empty()) return string_expression(grammar_);
    NameTree tree;
    OtherNames others(grammar_);
    std::size_t characters = 0;
    for (const MemberForm& member : record.members) {
      const std::u32string name = unicode::to_points(member.name);
      characters += name.size();
      if (characters > kMostNameCharacters) return too_complex("names of at most 20000 characters beside others");
      if (others.is_plain(name)) tree.add(name);
    }
    return others.write(tree);
  }

  Result<std::string> record_of(const ObjectForm& record) {
    RecordWriter writer{.schema = *this, .record = record};
    MORACLE_ASSIGN(const auto members, writer.write());
    return fmt::format("\"{{\" {0} {1} {0} \"}}\"", space_, members.value());
  }

  // The members of one record. A state is the member that may come next and how many came before: as far as that
  // matters, which is to one where the number of members does not.
  struct RecordWriter {
    SchemaWriter& schema;
    const ObjectForm& record;
    std::string keyword{};  // between the name, a word, and the value; empty: as in JSON
    std::map<std::pair<std::size_t, std::int64_t>, std::optional<std::string>> states{};
    bool counts = false;
    std::size_t first_free = 0;  // behind the last required member
    std::string other{};

    using Expression = std::optional<std::string>;

    Result<Expression> write() {
      const auto all = static_cast<std::int64_t>(record.members.size());
      const std::int64_t needed =
          std::count_if(record.members.begin(), record.members.end(), [](const MemberForm& m) { return m.required; });
      counts = record.count.least > needed || (record.count.most && (*record.count.most < all || record.additional));
      const std::int64_t most = std::max(record.count.least, record.count.most.value_or(0));
      if (counts && (all + 1) * std::min(all + 1, most + 1) > kMostCountedStates)
        return too_complex("a number of members that few of them are counted for");
      schema.optional_pairs_ += (all - needed) * (all - needed);
      if (schema.optional_pairs_ > kMostOptionalPairs) return too_complex("at most 500 optional members");
      if (record.additional) {
        MORACLE_ASSIGN(const std::string name, schema.other_name(record));
        other = schema.grammar_.rule(pair_of(name, *record.additional));
      }
      for (std::size_t i = 0; i < record.members.size(); ++i) {
        if (record.members[i].required) first_free = i + 1;
      }
      return behind(0, 0);
    }

    [[nodiscard]] std::int64_t next(std::int64_t before) const { return counts ? before + 1 : 1; }
    [[nodiscard]] bool full(std::int64_t before) const {
      return counts && record.count.most && before >= *record.count.most;
    }

    // Everything behind those before; the comma comes once, whichever member follows it.
    Expression behind(std::size_t at, std::int64_t before) {
      std::vector<std::string> bodies;
      if (at >= first_free && !(counts && record.count.least > before)) bodies.emplace_back("\"\"");
      const Expression more = one_of(at, before);
      if (more) bodies.push_back(before > 0 ? schema.comma() + " " + *more : *more);
      return bodies.empty() ? std::nullopt : Expression(schema.grammar_.rule(ebnf_either(bodies)));
    }

    // A member from `at` on, and everything behind it.
    Expression one_of(std::size_t at, std::int64_t before) {
      const auto [place, fresh] = states.try_emplace({at, before});
      if (!fresh) return place->second;
      std::vector<std::string> bodies;
      const Expression with = full(before) ? std::nullopt : from(at, before);
      if (with) bodies.push_back(*with);
      if (at < record.members.size() && !record.members[at].required) {
        const Expression without = one_of(at + 1, before);
        if (without) bodies.push_back(*without);
      }
      Expression state;
      if (!bodies.empty()) state = schema.grammar_.rule(ebnf_either(bodies));
      states[{at, before}] = state;
      return state;
    }

    // This member, the required ones that follow it, and everything behind them.
    Expression from(std::size_t at, std::int64_t before) {
      if (at == record.members.size()) return others(before);
      std::string out = member(at);
      for (++at, before = next(before); at < first_free && record.members[at].required; ++at, before = next(before)) {
        if (full(before)) return std::nullopt;
        out += " " + schema.comma() + " " + member(at);
      }
      const Expression rest = behind(at, before);
      return rest ? Expression(out + " " + *rest) : rest;
    }

    [[nodiscard]] std::string pair_of(const std::string& name, FormId value) const {
      const std::string between = keyword.empty() ? fmt::format("{0} \":\" {0}", schema.space_) : ebnf_literal(keyword);
      return fmt::format("{} {} {}", name, between, schema.name_of(value));
    }

    [[nodiscard]] std::string member(std::size_t at) const {
      const MemberForm& one = record.members[at];
      return pair_of(schema.grammar_.name_literal(one.name, !keyword.empty()), one.value);
    }

    // One or more that no member is named for.
    [[nodiscard]] Expression others(std::int64_t before) const {
      if (!record.additional) return std::nullopt;
      const std::int64_t least = std::max<std::int64_t>(counts ? record.count.least - before : 0, 1);
      const auto most = counts && record.count.most ? std::optional(*record.count.most - before) : std::nullopt;
      if (most && *most < least) return std::nullopt;
      return schema.series(other, least, most, false);
    }
  };

  const SchemaGraph& graph_;
  GrammarText& grammar_;
  std::string space_;
  std::vector<std::optional<std::string>> names_;
  std::vector<FormId> pending_;
  std::int64_t optional_pairs_ = 0;  // so far
};

}  // namespace

Result<std::string> add_schema_rules(const OrderedJson& schema, GrammarText& grammar) {
  MORACLE_ASSIGN(SchemaReader reader, SchemaReader::open(schema));
  MORACLE_ASSIGN(const SchemaGraph graph, SchemaGraph::build(reader, grammar));
  return SchemaWriter(graph, grammar).write();
}

Result<std::string> add_keyword_rules(const OrderedJson& schema, char separator, char close, GrammarText& grammar) {
  MORACLE_ASSIGN(SchemaReader reader, SchemaReader::open(schema));
  MORACLE_ASSIGN(const SchemaGraph graph, SchemaGraph::build(reader, grammar));
  return SchemaWriter(graph, grammar).write_keywords(separator, close);
}

Result<std::string> add_facts_rules(SchemaReader& reader, const std::vector<SchemaFacts>& facts, GrammarText& grammar) {
  MORACLE_ASSIGN(const SchemaGraph graph, SchemaGraph::build(reader, facts, grammar));
  return SchemaWriter(graph, grammar).write();
}

}  // namespace moracle
