// Walks a parsed template over its context. Every service that can fail returns nullopt (or false) and keeps the first
// error; nothing is evaluated after that. One interpreter is one rendering, on one thread; the tree that it walks is
// shared and constant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/result.h"
#include "text/budgets.h"
#include "text/template/syntax/ast.h"
#include "text/template/value.h"

namespace moracle::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  const Body* body = nullptr;  // null: none of its names is deferred
  std::vector<std::pair<std::string, Value>> names{};
  [[nodiscard]] const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { normal, leave, next, failed };

class Loop;
class Macro;

// Names are looked for one by one, so many for a step.
inline constexpr std::size_t kNamesPerStep = 16;
// Of a name in a message; longer ones are cut.
inline constexpr std::size_t kNameBytes = 80;

// Bytes of text that one step pays for, by what is done to them.
enum class TextCost : std::uint8_t {
  none,  // only the type is looked at
  scan,  // bytes are counted, copied or searched
  walk   // code points are read one by one
};

class Interpreter {
 public:
  Interpreter(const TemplateLimits& limits, const std::string& file)
      : limits_(limits), file_(file), budget_({.steps = limits.steps, .bytes = limits.bytes, .time = limits.time}) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Result<std::string> run(const Body& body, DictPtr context);

  // Errors and limits. `found` is cut where it is too long for a message.
  std::nullopt_t fail(std::string_view code, std::string_view found);
  std::nullopt_t type_error(std::string_view found) { return fail("template.type", found); }
  std::nullopt_t limit(std::string_view found) { return fail("template.limit", found); }
  // What using an undefined value as something it is not gives.
  std::nullopt_t undefined_error(const Value& value);
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] const Error& error() const { return *error_; }
  [[nodiscard]] const TemplateLimits& limits() const { return limits_; }

  // The budget: whatever works or makes something asks first, and gives up where the answer is false.
  bool charge(std::size_t steps) { return !error_ && (budget_.steps(steps) || over_budget()); }
  // For reading so many bytes of text.
  bool charge_text(TextCost cost, std::size_t bytes);
  // For all texts among a value and the arguments given with it.
  bool charge_texts(TextCost cost, const Value& value, const Arguments& arguments);
  // For a search from the right, which may compare the whole needle at every place.
  bool charge_search(std::size_t text, std::size_t needle);
  // For a text of so many bytes, or a container of so many elements, that is about to be made.
  bool room(std::size_t bytes);
  bool room_for(std::size_t elements);
  // For bytes that no step stands for.
  bool makes(std::size_t bytes) { return budget_.bytes(bytes) || over_budget(); }

  // New values, within the limits. text() copies.
  Maybe text(std::string_view bytes, bool markup = false);
  // Of a text whose room was taken, which may have grown by case mapping or the like.
  Maybe made_text(std::string bytes, bool markup = false);
  Maybe sequence(std::vector<Value> items, SequenceKind kind = SequenceKind::list);
  // The same where room_for() was asked.
  Maybe made_sequence(std::vector<Value> items, SequenceKind kind = SequenceKind::list);
  Maybe iterator(std::vector<Value> items);
  // One text of texts.
  Maybe join(const std::vector<Value>& texts, std::string_view separator);
  Maybe dict(std::shared_ptr<Dict> dict);
  // Adds to a dict under construction; an unhashable key is an error.
  bool insert(Dict* dict, const Value& key, Value value);
  Maybe made_namespace(std::shared_ptr<Namespace> space);
  Maybe undefined(std::string_view why, bool forbidden = false);
  // "'list object' has no attribute 'name'"
  Maybe missing(const Value& object, std::string_view what, std::string_view name);
  Maybe unsafe(const Value& object, std::string_view name);

  // Python's operations (operations.cpp).
  Maybe as_text(const Value& value);                          // str(): a text as it is
  std::optional<std::string> repr(const Value& value);        // printing.cpp
  std::optional<std::string> brief_repr(const Value& value);  // its beginning, for a message
  std::optional<std::vector<Value>> iterate(const Value& value);
  std::optional<bool> equal(const Value& a, const Value& b);
  std::optional<bool> less(const Value& a, const Value& b);
  std::optional<bool> contains(const Value& container, const Value& item);
  // nullptr where the key is not there, or not hashable.
  std::optional<const Value*> find(const Dict& dict, const Value& key);
  Maybe length(const Value& value);
  Maybe attribute(const Value& object, std::string_view name);
  Maybe item(const Value& object, const Value& key);
  Maybe slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  // text[start:stop] without a copy.
  std::optional<std::string_view> part(const Text& text, const Value& start, const Value& stop);
  Maybe binary(std::string_view op, const Value& a, const Value& b);

  // Calls (interpreter.cpp, filters_text.cpp, tests.cpp).
  Maybe call(const Value& function, Arguments& arguments);
  Maybe apply_filter(const std::string& name, const Value& value, Arguments& arguments);
  std::optional<bool> apply_test(const std::string& name, const Value& value, Arguments& arguments);

  // For macros and loops.
  Flow execute(const Body& body, const ScopePtr& scope);
  Maybe evaluate(const Expr& expr, const ScopePtr& scope);
  bool assign(const Expr& target, const Value& value, const ScopePtr& scope);
  bool set_name(Scope* scope, std::string_view name, Value value);
  // Runs `body` into a string of its own.
  std::optional<std::string> capture(const Body& body, const ScopePtr& scope, Flow* flow = nullptr);
  Flow run_loop(const Stmt& stmt, std::vector<Value> items, const ScopePtr& scope, int depth);
  std::optional<std::string> capture_loop(const Stmt& stmt, std::vector<Value> items, const ScopePtr& scope, int depth);

  // Recursion of the walk itself and of macro calls.
  class Level {
   public:
    Level(Interpreter* in, int weight);
    ~Level() { in_->level_ -= weight_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    [[nodiscard]] bool ok() const { return ok_; }

   private:
    Interpreter* in_;
    int weight_;
    bool ok_;
  };

 private:
  bool over_budget();
  bool write(std::string_view bytes);
  bool print(const Value& value);
  Flow statement(const Stmt& stmt, const ScopePtr& scope);
  Flow output(const Stmt& stmt, const ScopePtr& scope);
  Flow branch(const Stmt& stmt, const ScopePtr& scope);
  Flow loop(const Stmt& stmt, const ScopePtr& scope);
  Flow set(const Stmt& stmt, const ScopePtr& scope);
  Flow call_block(const Stmt& stmt, const ScopePtr& scope);
  Flow filter_block(const Stmt& stmt, const ScopePtr& scope);
  Flow with(const Stmt& stmt, const ScopePtr& scope);
  Maybe make_macro(const Stmt& stmt, const ScopePtr& scope);

  Maybe evaluate_name(const Expr& expr, const ScopePtr& scope);
  Maybe undefined_name(std::string_view name);
  Maybe evaluate_items(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_dict(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_subscript(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_slice(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_call(const Expr& expr, const ScopePtr& scope, const Value* caller = nullptr);
  Maybe evaluate_filter(const Expr& expr, const ScopePtr& scope, const Value* input = nullptr);
  Maybe evaluate_test(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_sign(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_logic(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_binary(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_concat(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_compare(const Expr& expr, const ScopePtr& scope);
  Maybe evaluate_conditional(const Expr& expr, const ScopePtr& scope);
  std::optional<bool> compare(std::string_view op, const Value& a, const Value& b);
  bool arguments(const Expr& expr, const ScopePtr& scope, Arguments* out);
  std::optional<bool> among(const std::vector<Value>& items, const Value& item);
  Maybe add(const Value& a, const Value& b);
  Maybe multiply(const Value& a, const Value& b);
  Maybe repeat(const Value& value, std::int64_t times);
  Maybe arithmetic(char op, const Value& a, const Value& b);
  Maybe integer_arithmetic(char op, std::int64_t a, std::int64_t b);
  Maybe power(const Value& a, const Value& b);

  const TemplateLimits& limits_;
  const std::string& file_;
  Budget budget_;
  int level_ = 0;
  int line_ = 0;
  std::optional<Error> error_;
  std::string* out_ = nullptr;
  DictPtr context_;
  // Everything that may take part in a cycle; taken apart when the rendering ends.
  std::vector<std::shared_ptr<Namespace>> namespaces_;
  std::vector<std::shared_ptr<Macro>> macros_;
};

using Bound = std::vector<std::optional<Value>>;
// Python's binding of a call to the parameters `names`, the first `required` of which have no default.
std::optional<Bound> bind(Interpreter& in, std::string_view what, Arguments& arguments,
                          std::initializer_list<std::string_view> names, std::size_t required = 0);

// The text of an argument: `fallback` where it is not given, empty where it is no text.
std::string_view word(const std::optional<Value>& argument, std::string_view fallback);

// A callable that is nothing but a function.
class Builtin : public Object {
 public:
  using Function = Maybe (*)(Interpreter&, Arguments&);
  explicit Builtin(Function function) : function_(function) {}
  Maybe call(Interpreter& in, Arguments& arguments) override {
    return in.charge_texts(TextCost::scan, Value(), arguments) ? function_(in, arguments) : std::nullopt;
  }

 private:
  Function function_;
};

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now (globals.cpp); nullptr: no such global.
ObjectPtr find_global(std::string_view name);
// The bound method `name` of a string, list or dict (methods.cpp). An undefined value that is forbidden where the
// sandbox refuses it, nullopt where there is none.
Maybe find_method(Interpreter& in, const Value& self, std::string_view name);

// transformers' tojson (json_dump.cpp).
Maybe dump_json(Interpreter& in, const Value& value, Arguments& arguments);
// "..." % values and str.format (printf.cpp).
Maybe format_percent(Interpreter& in, std::string_view format, const Value& values);
Maybe format_braces(Interpreter& in, std::string_view format, const Arguments& arguments);

// What templates can name. An entry says what reading its texts costs, which is charged before it runs; what it makes,
// and what it does to containers, it charges itself.
using Filter = Maybe (*)(Interpreter&, const Value&, Arguments&);
struct FilterEntry {
  std::string_view name;
  TextCost cost;
  Filter filter;
};
// filters_text.cpp and filters_list.cpp
[[nodiscard]] std::span<const FilterEntry> text_filters();
[[nodiscard]] std::span<const FilterEntry> list_filters();
[[nodiscard]] const FilterEntry* find_filter(std::string_view name);  // nullptr: no such filter

using Test = std::optional<bool> (*)(Interpreter&, const Value&, const Value&);
struct TestEntry {
  std::string_view name;
  std::size_t arguments;
  Test test;
  TextCost cost = TextCost::none;
};
// tests.cpp
[[nodiscard]] std::span<const TestEntry> all_tests();
[[nodiscard]] const TestEntry* find_test(std::string_view name);  // nullptr: no such test

using Method = Maybe (*)(Interpreter&, const Value&, Arguments&);
struct MethodEntry {
  std::string_view name;
  TextCost cost;
  Method method;
};
// methods.cpp
[[nodiscard]] std::span<const MethodEntry> text_methods();
[[nodiscard]] std::span<const MethodEntry> dict_methods();
[[nodiscard]] std::span<const MethodEntry> list_methods();

}  // namespace moracle::jinja
