#include "text/constrain/calls/element_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "base/unicode/utf8.h"
#include "text/constrain/schema/schema_rules.h"

namespace moracle {

namespace {

constexpr std::string_view kSpace = " \t\r\n";

bool is_key(std::string_view key, const CallSyntax& row) {
  return !key.empty() && kSpace.find(key.front()) == std::string_view::npos &&
         kSpace.find(key.back()) == std::string_view::npos && key.find(row.key_close) == std::string_view::npos;
}

bool is_bounded(const SchemaFacts& facts, const ValueTypes& types) {
  const bool parts = types.number && facts.number.whole;
  return facts.values || facts.number.low || facts.number.high || facts.number.places || !facts.divisors.empty() ||
         parts;
}

// First characters of texts that the reader would take for another value, which no schema allows as it comes.
CodeSet misread_characters(const std::vector<SchemaFacts>& others, const ValueTypes& types) {
  const auto free = [&](JsonType type) {
    return std::any_of(others.begin(), others.end(), [&](const SchemaFacts& facts) {
      return (facts.written_types() & type) != 0 && !is_bounded(facts, types);
    });
  };
  CodeSet misread;
  if ((types.integer || types.number) && !free(kNumberType)) misread.add({{'-', '-'}, {'0', '9'}});
  if (types.boolean && !free(kBooleanType)) misread.add({{'t', 't'}, {'T', 'T'}, {'f', 'f'}, {'F', 'F'}, {'0', '1'}});
  if (types.array) misread.add({'[', '['});
  if (types.object) misread.add({'{', '{'});
  if (!misread.empty()) misread.add({{'\t', '\n'}, {'\r', '\r'}, {' ', ' '}});
  return misread;
}

}  // namespace

std::string mark_expression(const ReplyFormat& format, std::string_view mark) {
  const auto id = format.token_of(mark);
  return id ? fmt::format("Token({})", *id) : ebnf_literal(mark);
}

std::string gap_expression() {
  return R"(("\n" | " ")?)";
}

// How the texts of one argument are told from its other values.
struct ElementRules::Value {
  ValueTypes types{};
  bool mixed = false;  // the reader tells by the text alone
  CodeSet misread{};
};

CodeSet ElementRules::characters() const {
  return CodeSet{{0, 8}, {0xB, 0xC}, {0xE, 0x1F}, {0x7F, 0x7F}}.complement();
}

CodeSet ElementRules::close_begins() const {
  if (!close_is_text()) return {};
  std::size_t at = 0;
  const char32_t first = unicode::next_point(row_.value_close, &at);
  return {{first, first}};
}

std::string ElementRules::padded(const std::string& value) const {
  const std::string pad = row_.padded ? " " + ebnf_literal("\n") + " " : " ";
  return value + pad + mark_expression(format_, row_.value_close);
}

// The rest of a text of any length, up to its mark, and the mark: one rule for each part of the mark that has come.
std::string ElementRules::text_to_close() {
  const auto name_of = [](std::size_t come) { return fmt::format("text_behind_{}", come); };
  std::string first = name_of(0);
  if (grammar_.has(first)) return first;
  const CodeSet all = characters();
  if (!close_is_text()) {
    grammar_.define(first,
                    fmt::format("{} | {} {}", mark_expression(format_, row_.value_close), ebnf_class(all), first));
    return first;
  }
  const std::u32string mark = unicode::to_points(row_.value_close);
  const std::set<char32_t> letters(mark.begin(), mark.end());
  CodeSet others = all;
  for (const char32_t letter : letters) others = others.without({{letter, letter}});
  for (std::size_t come = 0; come < mark.size(); ++come) {
    std::vector<std::string> bodies = {ebnf_class(others) + " " + first};
    for (const char32_t letter : letters) {
      std::u32string text = mark.substr(0, come) + letter;
      while (!mark.starts_with(text)) text.erase(0, 1);
      std::string one;
      unicode::append_utf8(one, letter);
      bodies.push_back(ebnf_literal(one) + (text.size() < mark.size() ? " " + name_of(text.size()) : ""));
    }
    grammar_.define(name_of(come), fmt::format("{}", fmt::join(bodies, " | ")));
  }
  return first;
}

// A text and its mark. A text mark begins with a character that the first characters leave out.
std::string ElementRules::free_text(std::int64_t least, const CodeSet& not_first) {
  std::string rest = text_to_close();
  if (least == 0 && not_first.empty()) return rest;
  CodeSet head = characters().without(close_begins());
  if (row_.padded) head = head.without({{'\n', '\n'}});
  const std::string first = ebnf_class(head.without(not_first));
  const std::string text =
      least > 1 ? fmt::format("{} {}{{{}}} {}", first, ebnf_class(head), least - 1, rest) : first + " " + rest;
  return least > 0 ? text : fmt::format("({} | {})", text, padded(""));
}

// The text of a string that meets the facts, and its mark. Nothing: there is none.
Result<ElementRules::Expression> ElementRules::text_of(const SchemaFacts& facts, const Value& value) {
  if (facts.length.empty()) return Expression();
  if (facts.texts.empty()) {
    if (!facts.length.most) return Expression(free_text(facts.length.least, value.misread));
    const CodeSet set = characters().without(close_begins());
    const std::string first = ebnf_class(set.without(value.misread));
    const std::int64_t most = *facts.length.most;
    if (most == 0) return Expression(padded(""));
    if (most > kMostRepeats)
      return Error{.code = "constrain.complex",
                   .where = facts.length.pointer,
                   .wanted = "at most " + std::to_string(kMostRepeats) + " characters",
                   .found = "more"};
    const std::string text = fmt::format("{} {}{{{},{}}}", first, ebnf_class(set),
                                         std::max<std::int64_t>(facts.length.least - 1, 0), most - 1);
    return Expression(padded(facts.length.least == 0 ? "(" + text + ")?" : text));
  }
  if (facts.texts.size() > 1) {
    return Error{.code = "schema.unsupported",
                 .where = facts.texts[1].pointer,
                 .wanted = "one pattern or format of a text",
                 .found = "several"};
  }
  const ValueTypes& types = value.types;
  const bool told = !value.mixed || !(types.integer || types.number || types.boolean || types.array || types.object);
  const auto node = bounded(*facts.texts.front().node, {.least = facts.length.least, .most = facts.length.most});
  const RegexNode text = without(node.value_or(RegexNode{}), close_begins());
  if (!node || !told || !matchable(text)) {
    return Error{.code = "schema.unsupported",
                 .where = facts.texts.front().pointer,
                 .wanted = "a pattern that an argument between marks can be held to",
                 .found = facts.texts.front().name};
  }
  return Expression(padded(grammar_.rule(grammar_.expression(text, RegexText::plain, std::nullopt))));
}

// The word that says which type a value has.
std::string ElementRules::type_word(bool text) const {
  if (text) return ebnf_literal(row_.type_words.text);
  std::vector<std::string> words;
  for (const std::string_view word : row_.type_words.others) {
    if (!word.empty()) words.push_back(ebnf_literal(word));
  }
  return ebnf_either(words);
}

Result<> ElementRules::add_texts(SchemaReader& reader, const SchemaFacts& facts, const Value& value,
                                 std::vector<std::string>& bodies) {
  if (!facts.values) {
    if ((facts.written_types() & kStringType) == 0) return Ok{};
    MORACLE_ASSIGN(const Expression text, text_of(facts, value));
    if (text) bodies.push_back(*text);
    return Ok{};
  }
  for (const OrderedJson& one : *facts.values) {
    if (!one.is_string()) continue;
    MORACLE_ASSIGN(const bool held, reader.holds(facts, one));
    const auto& text = one.get_ref<const std::string&>();
    const bool closes = close_is_text() && text.find(row_.value_close) != std::string::npos;
    const bool told = !value.mixed || typed_value(text, value.types) == '"' + escaped_text(text) + '"';
    if (held && told && !closes) bodies.push_back(padded(ebnf_literal(text)));
  }
  return Ok{};
}

// Of an argument, with the mark behind it and, where the syntax has one, the word that tells texts.
Result<ElementRules::Expression> ElementRules::values(SchemaReader& reader, const std::vector<SchemaFacts>& facts,
                                                      const ValueTypes& types) {
  const bool all_texts = !says_type() && types.only_text();
  std::vector<SchemaFacts> others;
  for (const SchemaFacts& one : facts) {
    if (one.never || all_texts) continue;
    SchemaFacts other = one;
    other.types = static_cast<std::uint8_t>(other.types & ~kStringType);
    if (other.types != 0) others.push_back(std::move(other));
  }
  Value value{.types = types, .mixed = !says_type() && !all_texts};
  if (value.mixed) value.misread = misread_characters(others, types);
  std::vector<std::string> texts;
  for (const SchemaFacts& one : facts) {
    if (!one.never) MORACLE_TRY(add_texts(reader, one, value, texts));
  }
  const std::string open = mark_expression(format_, row_.value_open) + (row_.padded ? " " + ebnf_literal("\n") : "");
  const auto lead = [&](bool text) { return says_type() ? type_word(text) + " " + open : open; };
  std::vector<std::string> bodies;
  if (!texts.empty()) bodies.push_back(lead(true) + " " + ebnf_either(texts));
  auto json =
      others.empty() ? Result<std::string>(Error{.code = "schema.empty"}) : add_facts_rules(reader, others, grammar_);
  if (!json.ok() && json.error().code != "schema.empty") return std::move(json).error();
  if (json.ok()) bodies.push_back(lead(false) + " " + padded(*json));
  return bodies.empty() ? Expression() : Expression(ebnf_either(bodies));
}

Result<ElementRules::Expression> ElementRules::element(const std::string& tool, const std::string& key,
                                                       SchemaReader& reader, const SchemaRefs& refs) {
  if (!is_key(key, row_)) return Expression();
  MORACLE_ASSIGN(const std::vector<SchemaFacts> facts, reader.alternatives(refs));
  MORACLE_ASSIGN(const Expression value, values(reader, facts, types_.types_of(tool, key)));
  if (!value) return Expression();
  const bool apart = !row_.value_open.empty() && !says_type();
  return Expression(grammar_.rule(fmt::format("{} {} {} {} {} {}", mark_expression(format_, row_.key_open),
                                              ebnf_literal(key), mark_expression(format_, row_.key_close),
                                              apart ? gap_expression() : "", *value, gap_expression())));
}

Result<ElementRules::Expression> ElementRules::sequence(const std::string& tool, SchemaReader& reader,
                                                        const SchemaFacts& facts) {
  std::string all = "\"\"";
  std::int64_t least = 0;
  std::int64_t most = 0;
  for (const std::string& key : facts.all_names()) {
    const auto refs = facts.member(key);
    Expression one;
    if (refs) {
      MORACLE_ASSIGN(one, element(tool, key, reader, *refs));
    }
    const bool needed = facts.requires_name(key);
    if (!one && needed) return Expression();
    if (!one) continue;
    all += " " + *one + (needed ? "" : "?");
    least += needed ? 1 : 0;
    ++most;
  }
  if (facts.count.least <= least && facts.count.most.value_or(most) >= most) return Expression(all);
  return Error{.code = "schema.unsupported",
               .where = facts.count.pointer,
               .wanted = "arguments of any number between marks",
               .found = "a bound"};
}

Result<std::string> ElementRules::write(const std::string& tool, const OrderedJson& schema) {
  MORACLE_ASSIGN(SchemaReader reader, SchemaReader::open(schema));
  MORACLE_ASSIGN(const std::vector<SchemaFacts> alternatives, reader.alternatives({reader.root()}));
  std::vector<std::string> bodies;
  for (const SchemaFacts& facts : alternatives) {
    if (facts.never || (facts.types & kObjectType) == 0) continue;
    if (facts.values) {
      return Error{.code = "schema.unsupported",
                   .where = schema.contains("enum") ? "/enum" : "/const",
                   .wanted = "arguments one by one",
                   .found = "values of them all"};
    }
    MORACLE_ASSIGN(Expression one, sequence(tool, reader, facts));
    MORACLE_TRY(grammar_.check_repeats());
    if (one) bodies.push_back(std::move(*one));
  }
  if (bodies.empty())
    return Error{.code = "schema.empty", .wanted = "a schema that some arguments meet", .found = "one that none meet"};
  return grammar_.rule(ebnf_either(bodies));
}

}  // namespace moracle
