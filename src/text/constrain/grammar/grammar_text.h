// Rules of a grammar, written in EBNF as xgrammar reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/constrain/regex/code_set.h"
#include "text/constrain/regex/regex_syntax.h"

namespace moracle {

// A text between quotes, and a class between brackets.
[[nodiscard]] std::string ebnf_literal(std::string_view utf8);
[[nodiscard]] std::string ebnf_class(const CodeSet& set);
// The text of its one character, else the class.
[[nodiscard]] std::string ebnf_set(const CodeSet& set);
// The bodies as alternatives in parentheses. None: what nothing matches is no expression, so there is at least one.
[[nodiscard]] std::string ebnf_either(const std::vector<std::string>& bodies);

// What a regular expression's characters are written as.
enum class RegexText : unsigned char {
  plain,        // themselves
  json_string,  // a JSON string without its quotes: some of them escaped
};

// How values of JSON are written.
struct ValueForm {
  bool escapes_less = false;  // strings spell "<" as an escape, so that no mark of a reply stands in them
  std::string text_mark{};    // an expression of the mark around texts, which have no escapes; empty: JSON's strings
  std::string barred{};       // the mark, where it is text: those texts have none of its first character
  bool bare_names = false;    // names of members are words, where they can be
  bool python = false;        // None, True and False
};

// Names of rules are given out; an expression may name rules, also ones that are defined later.
class GrammarText {
 public:
  // Values are written as JSON until use() says otherwise.
  void use(ValueForm form);

  // A rule of this body, made once for each body; its name.
  std::string rule(const std::string& body);
  // The name of a rule that define() makes.
  std::string reserve();
  void define(const std::string& name, std::string body);
  // Whether define() has made it.
  [[nodiscard]] bool has(std::string_view name) const;

  // An expression of texts of `body`, `least` to `most` times, which the patched xgrammar counts where it can.
  std::string repeated(const std::string& body, std::int64_t least, std::optional<std::int64_t> most);
  // An expression of the node's texts, and of `follow` behind them, which is an expression too. Empty: the whole text
  // ends there; none: something else stands there. It tells a long repeat's end, without which masks take long. A node
  // that nothing matches has no expression: `matchable` says so before.
  std::string expression(const RegexNode& node, RegexText as, std::optional<std::string_view> follow);
  // A literal of JSON's text.
  [[nodiscard]] std::string json_literal(std::string_view json) const;
  // What a string spells as an escape, or does not hold where it has none.
  [[nodiscard]] CodeSet escaped_characters() const;
  // What stands around a string.
  [[nodiscard]] std::string quote() const;
  [[nodiscard]] bool has_escapes() const { return form_.text_mark.empty(); }
  // A member's name; `bare`: as a word, where it can be one.
  [[nodiscard]] std::string name_literal(const std::string& name, bool bare = false) const;
  // Whether the text can stand in a string.
  [[nodiscard]] bool can_write(std::string_view text) const;
  // The name of a rule that depends on how values are written.
  [[nodiscard]] std::string named(std::string_view name) const { return std::string(name) + suffix_; }
  // "null", "true" or "false".
  [[nodiscard]] std::string word(std::string_view json) const;

  // All rules, the first one "root" of this body.
  [[nodiscard]] std::string text(const std::string& root) const;
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  // Error "constrain.complex": expressions that would take longer to compile than about a second of a core, by repeats
  // that are spelled out, since what follows them may begin as they do, or by many optional parts in a row.
  [[nodiscard]] Result<> check_repeats() const;

 private:
  std::string characters(const CodeSet& set, RegexText as);
  // What check_repeats asks for.
  void weigh_sequence(const RegexNode& node);
  void weigh(const RegexNode& repeat, std::optional<std::string_view> follow);
  std::string repeated(const RegexNode& node, RegexText as, std::optional<std::string_view> follow);
  // Of an unbounded repeat, a rule that names itself, so that tokens of many characters stay within it, whose masks are
  // made once.
  std::string loop(const RegexNode& node, RegexText as, std::string_view follow);
  std::string either(const RegexNode& node, RegexText as, std::optional<std::string_view> follow);
  // What follows several alternatives: itself, or a rule of it.
  std::string shared(std::string_view follow);
  // A rule of this body for one use, which its name begins with; made once for each.
  std::string rule_for(std::string_view use, const std::string& body);

  std::map<std::string, std::string, std::less<>> rules_;  // bodies by name
  std::map<std::string, std::string, std::less<>> names_;  // of rules by body
  std::map<std::string, std::string, std::less<>> uses_;   // names of rules by use and body
  ValueForm form_;
  std::string suffix_;  // of names, by the form
  std::size_t next_ = 0;
  std::size_t bytes_ = 0;
  std::int64_t spelled_out_ms_ = 0;
  std::size_t longest_row_ = 0;
};

// Whether any text matches.
[[nodiscard]] bool matchable(const RegexNode& node);

}  // namespace moracle
