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

std::string json_text(const std::string& text) {
  return OrderedJson(text).dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
}

// Names, by their first characters.
struct NameTree {
  std::map<char32_t, NameTree> children;
  bool ends = false;

  void add(std::u32string_view name) {
    NameTree* at = this;
    for (const char32_t code : name) at = &at->children[code];
    at->ends = true;
  }
};

// Strings without escapes that are none of the names.
class OtherNames {
 public:
  explicit OtherNames(GrammarText& grammar) : grammar_(grammar), plain_(grammar.escaped_characters().complement()) {}

  std::string write(const NameTree& tree) {
    return grammar_.rule(fmt::format("{0} {1} {0}", ebnf_literal("\""), behind(tree)));
  }

  [[nodiscard]] bool is_plain(std::u32string_view name) const {
    return std::all_of(name.begin(), name.end(), [&](char32_t code) { return plain_.contains(code); });
  }

 private:
  std::string behind(const NameTree& tree) {
    std::vector<std::string> bodies;
    if (!tree.ends) bodies.emplace_back("\"\"");
    CodeSet others = plain_;
    CodeSet known;
    for (const auto& [code, child] : tree.children) {
      known.add({code, code});
      std::string one;
      unicode::append_utf8(one, code);
      bodies.push_back(ebnf_literal(one) + " " + behind(child));
    }
    bodies.push_back(ebnf_class(others.without(known)) + " " + ebnf_class(plain_) + "*");
    return grammar_.rule(ebnf_either(bodies));
  }

  GrammarText& grammar_;
  CodeSet plain_;
};

class SchemaWriter {
 public:
  SchemaWriter(const SchemaGraph& graph, GrammarText& grammar)
      : graph_(graph), grammar_(grammar), space_(grammar.rule(space_expression())), names_(graph.size()) {}

  Result<std::string> write() {
    const std::string root = name_of(SchemaGraph::kRoot);
    while (!pending_.empty()) {
      const FormId id = pending_.back();
      pending_.pop_back();
      MORACLE_ASSIGN(std::string body, body_of(graph_.node(id)));
      grammar_.define(*names_[id], std::move(body));
      if (grammar_.bytes() > kMostGrammarBytes) return too_complex("a grammar of at most 256 KiB");
    }
    return root;
  }

 private:
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

  std::string pair_of(const std::string& name, FormId value) {
    return fmt::format("{1} {0} \":\" {0} {2}", space_, name, name_of(value));
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
    std::map<std::pair<std::size_t, std::int64_t>, std::optional<std::string>> states{};
    bool counts = false;
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
        other = schema.grammar_.rule(schema.pair_of(name, *record.additional));
      }
      return from(0, 0);
    }

    [[nodiscard]] std::int64_t next(std::int64_t before) const { return counts ? before + 1 : 1; }
    [[nodiscard]] bool full(std::int64_t before) const {
      return counts && record.count.most && before >= *record.count.most;
    }

    // Everything from a member on.
    Expression from(std::size_t at, std::int64_t before) {
      std::string out;
      for (; at < record.members.size() && record.members[at].required; ++at) {
        if (full(before)) return std::nullopt;
        out += with(at, before) + " ";
        before = next(before);
      }
      const Expression rest = at == record.members.size() ? tail(before) : optional_state(at, before);
      return rest ? Expression(out + *rest) : rest;
    }

    std::string with(std::size_t at, std::int64_t before) {
      const MemberForm& member = record.members[at];
      return (before > 0 ? schema.comma() + " " : "") +
             schema.pair_of(schema.grammar_.json_literal(json_text(member.name)), member.value);
    }

    Expression optional_state(std::size_t at, std::int64_t before) {
      const auto [place, fresh] = states.try_emplace({at, before});
      if (!fresh) return place->second;
      std::vector<std::string> bodies;
      if (!full(before)) {
        const Expression more = from(at + 1, next(before));
        if (more) bodies.push_back(with(at, before) + " " + *more);
      }
      const Expression less = from(at + 1, before);
      if (less) bodies.push_back(less->empty() ? "\"\"" : *less);
      Expression state;
      if (!bodies.empty()) state = schema.grammar_.rule(ebnf_either(bodies));
      states[{at, before}] = state;
      return state;
    }

    Expression tail(std::int64_t before) const {
      const std::int64_t least = counts ? std::max<std::int64_t>(record.count.least - before, 0) : 0;
      if (!record.additional) return least == 0 ? Expression("\"\"") : std::nullopt;
      const auto most = counts && record.count.most ? std::optional(*record.count.most - before) : std::nullopt;
      if (most && *most < least) return std::nullopt;
      return schema.series(other, least, most, before > 0);
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

Result<std::string> add_facts_rules(SchemaReader& reader, const std::vector<SchemaFacts>& facts, GrammarText& grammar) {
  MORACLE_ASSIGN(const SchemaGraph graph, SchemaGraph::build(reader, facts, grammar));
  return SchemaWriter(graph, grammar).write();
}

}  // namespace moracle
