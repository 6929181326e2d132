#include "text/constrain/schema/schema_graph.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "text/constrain/schema/json_rules.h"

namespace moracle {

namespace {

Error unsupported(std::string pointer, std::string wanted, std::string found, std::string advice) {
  return {.code = "schema.unsupported",
          .where = std::move(pointer),
          .wanted = std::move(wanted),
          .found = std::move(found),
          .advice = std::move(advice)};
}

// Whether facts ask for nothing.
bool is_anything(const SchemaFacts& facts) {
  return facts.types == kEveryType && facts.spoken == 0 && !facts.typed;
}

Result<> check_repeats(const CountRange& range) {
  if (std::max(range.least, range.most.value_or(0)) <= kMostRepeats) return Ok{};
  return Error{.code = "constrain.complex",
               .where = range.pointer,
               .wanted = "at most " + std::to_string(kMostRepeats) + " repeats",
               .found = "more",
               .advice = "lower the bound, or take it out"};
}

// The powers of ten that a divisor is: how many places behind the point multiples of it have.
std::optional<int> places_of(double divisor) {
  double power = 1;
  for (int places = 0; places <= kBoundedDigits; ++places, power *= 10) {
    if (divisor == 1 / power) return places;
  }
  return std::nullopt;
}

// All texts in the value, one behind the other.
std::string text_of(const OrderedJson& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string all;
  if (!value.is_structured()) return all;
  for (const auto& [name, part] : value.items()) all += name + "\n" + text_of(part) + "\n";
  return all;
}

}  // namespace

Result<SchemaGraph> SchemaGraph::build(SchemaReader& reader, GrammarText& grammar) {
  SchemaGraph graph(reader, grammar);
  graph.id_of({reader.root()});
  MORACLE_TRY(graph.complete());
  return graph;
}

Result<SchemaGraph> SchemaGraph::build(SchemaReader& reader, const std::vector<SchemaFacts>& facts,
                                       GrammarText& grammar) {
  SchemaGraph graph(reader, grammar);
  graph.nodes_.emplace_back();
  MORACLE_TRY(graph.fill(kRoot, facts));
  MORACLE_TRY(graph.complete());
  return graph;
}

Result<> SchemaGraph::complete() {
  while (!pending_.empty()) {
    const auto [id, refs] = std::move(pending_.front());
    pending_.pop_front();
    MORACLE_TRY(fill(id, refs));
  }
  find_filled();
  if (node(kRoot).filled) return Ok{};
  return Error{.code = "schema.empty",
               .where = "",
               .wanted = "a schema that some value meets",
               .found = "one that no finite value meets"};
}

Result<> SchemaGraph::spend(std::size_t bytes) {
  constexpr std::size_t kMostBytes = std::size_t{1} << 20U;
  spent_ += bytes;
  if (spent_ <= kMostBytes) return Ok{};
  return Error{.code = "constrain.complex",
               .wanted = "a schema whose alternatives come to 1 MiB",
               .found = "one whose alternatives come to more",
               .advice = "make it smaller"};
}

FormId SchemaGraph::id_of(SchemaRefs refs) {
  std::sort(refs.begin(), refs.end(), [](const SchemaRef& a, const SchemaRef& b) { return a.pointer < b.pointer; });
  std::string key;
  for (const SchemaRef& ref : refs) key += ref.pointer + "\n";
  const auto [place, fresh] = ids_.try_emplace(key, nodes_.size());
  if (fresh) {
    nodes_.emplace_back();
    pending_.emplace_back(place->second, std::move(refs));
  }
  return place->second;
}

Result<> SchemaGraph::fill(FormId id, const SchemaRefs& refs) {
  MORACLE_ASSIGN(const std::vector<SchemaFacts> alternatives, reader_->alternatives(refs));
  return fill(id, alternatives);
}

Result<> SchemaGraph::fill(FormId id, const std::vector<SchemaFacts>& alternatives) {
  FormNode node;
  for (const SchemaFacts& facts : alternatives) MORACLE_TRY(add_forms(node, facts));
  nodes_[id] = std::move(node);
  return Ok{};
}

Result<> SchemaGraph::add_forms(FormNode& node, const SchemaFacts& facts) {
  if (is_anything(facts)) {
    node.anything = true;
    return Ok{};
  }
  if (facts.values) return add_values(node, facts);
  const std::uint8_t types = facts.written_types();
  if ((types & kNullType) != 0) node.forms.emplace_back(ScalarForm{grammar_->word("null")});
  if ((types & kBooleanType) != 0)
    node.forms.emplace_back(ScalarForm{ebnf_either({grammar_->word("true"), grammar_->word("false")})});
  if ((types & kNumberType) != 0) MORACLE_TRY(add_number(node, facts));
  if ((types & kStringType) != 0) MORACLE_TRY(add_text(node, facts));
  if ((types & kArrayType) != 0) MORACLE_TRY(add_list(node, facts));
  if ((types & kObjectType) != 0) MORACLE_TRY(add_record(node, facts));
  return Ok{};
}

Result<> SchemaGraph::add_values(FormNode& node, const SchemaFacts& facts) {
  SchemaFacts others = facts;
  others.values.reset();
  for (const OrderedJson& value : *facts.values) {
    MORACLE_ASSIGN(const bool held, reader_->holds(others, value));
    if (!held || !grammar_->can_write(text_of(value))) continue;
    std::string literal = value_literal(value, *grammar_);
    MORACLE_TRY(spend(literal.size()));
    node.forms.emplace_back(ScalarForm{std::move(literal)});
  }
  return Ok{};
}

Result<> SchemaGraph::add_number(FormNode& node, const SchemaFacts& facts) {
  NumberShape shape = facts.number;
  const auto refuse = [&](std::string wanted, std::string found) {
    return unsupported(facts.number_pointer, std::move(wanted), std::move(found), "take one of them out");
  };
  if (facts.divisors.size() > 1) return refuse("one divisor", "several");
  if (!facts.divisors.empty()) {
    const double divisor = facts.divisors.front();
    const auto places = places_of(divisor);
    const bool bounded = shape.low || shape.high;
    if (places == 0) {
      shape.whole = true;
    } else if (places) {
      shape.places = places;
    } else if (!bounded && divisor == std::floor(divisor) && divisor <= 64) {
      node.forms.emplace_back(ScalarForm{grammar_->rule(multiples_expression(static_cast<int>(divisor), *grammar_))});
      return Ok{};
    } else {
      return refuse("multiples of 1, 0.1, 0.01 and so on, or, without bounds, of a whole number up to 64", "others");
    }
  }
  if (const auto expression = number_expression(shape)) {
    node.forms.emplace_back(ScalarForm{grammar_->rule(*expression)});
  } else if (shape.low && std::abs(shape.low->value) >= 1e15L) {
    return refuse("bounds of at most 15 digits", "more");
  }
  return Ok{};
}

Result<> SchemaGraph::add_text(FormNode& node, const SchemaFacts& facts) {
  if (facts.length.empty()) return Ok{};
  MORACLE_TRY(check_repeats(facts.length));
  if (facts.texts.size() > 1) {
    return unsupported(facts.texts[1].pointer, "one pattern or format of a text", "several",
                       "spell them as one pattern");
  }
  if (facts.texts.empty()) {
    node.forms.emplace_back(ScalarForm{string_expression(*grammar_, facts.length.least, facts.length.most)});
    return Ok{};
  }
  auto text = bounded(*facts.texts.front().node, {.least = facts.length.least, .most = facts.length.most});
  if (!text) {
    return unsupported(facts.length.pointer, "lengths that the pattern beside it leaves to one of its parts",
                       "a pattern whose length is in several", "spell the length in the pattern");
  }
  if (!grammar_->has_escapes()) text = without(*std::move(text), grammar_->escaped_characters());
  if (matchable(*text)) {
    const std::string quote = grammar_->quote();
    const std::string body = grammar_->expression(*text, RegexText::json_string, quote);
    node.forms.emplace_back(ScalarForm{grammar_->rule(quote + " " + body)});
  }
  return Ok{};
}

Result<> SchemaGraph::add_list(FormNode& node, const SchemaFacts& facts) {
  if (facts.elements.empty()) return Ok{};
  MORACLE_TRY(check_repeats(facts.elements));
  if (!facts.unique_pointer.empty() && facts.elements.most.value_or(2) > 1) {
    return unsupported(facts.unique_pointer, "keywords that a reply can be held to", "uniqueItems",
                       "take it out, and check the reply for it");
  }
  ListForm list{.prefix = {}, .least = facts.elements.least, .most = facts.elements.most};
  bool closed = false;
  for (std::size_t i = 0; i < facts.longest_prefix() && !closed; ++i) {
    auto refs = facts.element(i);
    closed = !refs;
    if (refs) list.prefix.push_back(id_of(std::move(*refs)));
  }
  if (!closed && facts.writes_rest()) list.rest = id_of(std::move(*facts.rest()));
  node.forms.emplace_back(std::move(list));
  return Ok{};
}

// `possible`: every required member has a value.
Result<> SchemaGraph::add_members(ObjectForm& record, const SchemaFacts& facts, bool& possible) {
  const std::set<std::string, std::less<>> required(facts.required.begin(), facts.required.end());
  for (std::string& name : facts.all_names()) {
    auto refs = facts.member(name);
    MORACLE_ASSIGN(const bool named, reader_->holds(facts.names, OrderedJson(name)));
    const bool needed = required.contains(name);
    MORACLE_TRY(spend(name.size() + 64));
    if (refs && named && grammar_->can_write(name)) {
      const FormId value = id_of(std::move(*refs));
      record.members.push_back({.name = std::move(name), .value = value, .required = needed});
    } else if (needed) {
      possible = false;
    }
  }
  return Ok{};
}

Result<> SchemaGraph::add_record(FormNode& node, const SchemaFacts& facts) {
  ObjectForm record{.members = {}, .count = facts.count};
  if (facts.count.empty()) return Ok{};
  bool possible = true;
  MORACLE_TRY(add_members(record, facts, possible));
  if (!possible) return Ok{};
  const auto needed = static_cast<std::int64_t>(std::count_if(
      record.members.begin(), record.members.end(), [](const MemberForm& member) { return member.required; }));
  if (facts.writes_additional()) {
    record.additional = id_of(std::move(*facts.additional()));
    if (!facts.names.empty()) {
      static const OrderedJson text = {{"type", "string"}};
      SchemaRefs names = facts.names;
      names.push_back({&text, "string"});
      record.names = id_of(std::move(names));
    }
    if (!facts.names.empty() && !record.members.empty()) {
      return unsupported(facts.names.front().pointer, "additionalProperties of false, or no properties, beside it",
                         "propertyNames of others", "spell additionalProperties: false");
    }
    // Several members of one name would count as one.
    if (facts.count.least > needed + 1) {
      return unsupported(facts.count.pointer, "at most one member more than required ones, or no additional ones",
                         std::to_string(facts.count.least), "name the members in properties");
    }
  }
  node.forms.emplace_back(std::move(record));
  return Ok{};
}

bool SchemaGraph::is_filled(const Form& form) const {
  if (std::holds_alternative<ScalarForm>(form)) return true;
  if (const auto* const list = std::get_if<ListForm>(&form)) {
    for (std::int64_t i = 0; i < list->least; ++i) {
      const auto at = static_cast<std::size_t>(i);
      if (at >= list->prefix.size()) return list->rest && nodes_[*list->rest].filled;
      if (!nodes_[list->prefix[at]].filled) return false;
    }
    return true;
  }
  const auto& record = std::get<ObjectForm>(form);
  std::int64_t possible = 0;
  std::int64_t needed = 0;
  for (const MemberForm& member : record.members) {
    if (member.required && !nodes_[member.value].filled) return false;
    possible += nodes_[member.value].filled ? 1 : 0;
    needed += member.required ? 1 : 0;
  }
  const bool named = !record.names || nodes_[*record.names].filled;
  if (record.additional && nodes_[*record.additional].filled && named) ++possible;
  return record.count.least <= possible && needed <= record.count.most.value_or(needed);
}

// Leaves out what no finite text can be part of.
void SchemaGraph::prune(Form& form) const {
  if (auto* const list = std::get_if<ListForm>(&form)) {
    const auto empty =
        std::find_if(list->prefix.begin(), list->prefix.end(), [&](FormId id) { return !nodes_[id].filled; });
    const bool cut = empty != list->prefix.end();
    list->prefix.erase(empty, list->prefix.end());
    if (cut || (list->rest && !nodes_[*list->rest].filled)) list->rest.reset();
  } else if (auto* const record = std::get_if<ObjectForm>(&form)) {
    std::erase_if(record->members, [&](const MemberForm& member) { return !nodes_[member.value].filled; });
    const bool named = !record->names || nodes_[*record->names].filled;
    if (record->additional && (!nodes_[*record->additional].filled || !named)) record->additional.reset();
  }
}

void SchemaGraph::find_filled() {
  for (bool changed = true; changed;) {
    changed = false;
    for (FormNode& node : nodes_) {
      if (node.filled) continue;
      node.filled = node.anything || std::any_of(node.forms.begin(), node.forms.end(),
                                                 [&](const Form& form) { return is_filled(form); });
      changed = changed || node.filled;
    }
  }
  for (FormNode& node : nodes_) {
    std::erase_if(node.forms, [&](const Form& form) { return !is_filled(form); });
    for (Form& form : node.forms) prune(form);
  }
}

}  // namespace moracle
