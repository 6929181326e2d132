// Walks a parsed template over its context. Every service that can fail returns nullopt (or false) and keeps the first
// error; nothing is evaluated after that.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "text/template/ast.h"
#include "text/template/chat_template.h"
#include "text/template/value.h"

namespace moracle::jinja {

struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> names;
  [[nodiscard]] const Value* find(std::string_view name) const;
  void set(std::string_view name, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

enum class Flow { normal, leave, next, failed };

class Loop;
class Macro;

class Interpreter {
 public:
  Interpreter(const TemplateLimits& limits, const std::string& file)
      : limits_(limits), file_(file), left_(limits.steps) {}
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  Result<std::string> run(const Body& body, DictPtr context);

  // Errors and limits.
  std::nullopt_t fail(std::string_view code, std::string found);
  std::nullopt_t type_error(std::string found) { return fail("template.type", std::move(found)); }
  std::nullopt_t limit(std::string found) { return fail("template.limit", std::move(found)); }
  // What using an undefined value as something it is not gives.
  std::nullopt_t undefined_error(const Value& value);
  [[nodiscard]] bool failed() const { return error_.has_value(); }
  [[nodiscard]] const Error& error() const { return *error_; }
  bool charge(std::size_t steps);
  // For a search that may compare the whole needle at every place.
  bool charge_search(std::size_t text, std::size_t needle);
  [[nodiscard]] const TemplateLimits& limits() const { return limits_; }

  // New values, within the limits.
  Maybe text(std::string bytes, bool markup = false);
  Maybe sequence(std::vector<Value> items, Flavour flavour = Flavour::list);
  Maybe iterator(std::vector<Value> items);
  Maybe dict(std::shared_ptr<Dict> dict);
  // Adds to a dict under construction; an unhashable key is an error.
  bool insert(Dict* dict, Value key, Value value);
  Value space(std::shared_ptr<Space> space);
  static Value undefined(std::string why, bool forbidden = false);

  // Python's operations (operations.cpp).
  std::optional<std::string> str(const Value& value);
  std::optional<std::string> repr(const Value& value);
  std::optional<std::vector<Value>> iterate(const Value& value);
  std::optional<bool> equal(const Value& a, const Value& b);
  std::optional<bool> less(const Value& a, const Value& b);
  std::optional<bool> contains(const Value& container, const Value& item);
  Maybe length(const Value& value);
  Maybe attribute(const Value& object, std::string_view name);
  Maybe item(const Value& object, const Value& key);
  Maybe slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  Maybe binary(std::string_view op, const Value& a, const Value& b);

  // Calls (interpreter.cpp, filters.cpp, tests.cpp).
  Maybe call(const Value& function, Arguments& arguments);
  Maybe apply_filter(const std::string& name, const Value& value, Arguments& arguments);
  std::optional<bool> apply_test(const std::string& name, const Value& value, Arguments& arguments);

  // For macros and loops.
  Flow execute(const Body& body, const ScopePtr& scope);
  Maybe evaluate(const Expr& expr, const ScopePtr& scope);
  bool assign(const Expr& target, const Value& value, const ScopePtr& scope);
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
  bool write(std::string_view bytes);
  Flow statement(const Stmt& stmt, const ScopePtr& scope);
  Flow output(const Stmt& stmt, const ScopePtr& scope);
  Flow branch(const Stmt& stmt, const ScopePtr& scope);
  Flow loop(const Stmt& stmt, const ScopePtr& scope);
  Flow set(const Stmt& stmt, const ScopePtr& scope);
  Flow call_block(const Stmt& stmt, const ScopePtr& scope);
  Flow filter_block(const Stmt& stmt, const ScopePtr& scope);
  Flow with(const Stmt& stmt, const ScopePtr& scope);
  Value make_macro(const Stmt& stmt, const ScopePtr& scope);

  Maybe evaluate_name(const Expr& expr, const ScopePtr& scope);
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
  bool append_repr(const Value& value, std::string* out, int depth);
  bool append_sequence(const Sequence& list, std::string_view name, std::string* out, int depth);

  Maybe add(const Value& a, const Value& b);
  Maybe multiply(const Value& a, const Value& b);
  Maybe repeat(const Value& value, std::int64_t times);
  Maybe arithmetic(char op, const Value& a, const Value& b);
  Maybe integer_arithmetic(char op, std::int64_t a, std::int64_t b);
  Maybe power(const Value& a, const Value& b);

  const TemplateLimits& limits_;
  const std::string& file_;
  std::size_t left_;
  int level_ = 0;
  int line_ = 0;
  std::optional<Error> error_;
  std::string* out_ = nullptr;
  DictPtr context_;
  // Everything that may take part in a cycle; taken apart when the rendering ends.
  std::vector<std::shared_ptr<Space>> spaces_;
  std::vector<std::shared_ptr<Macro>> macros_;
};

using Bound = std::vector<std::optional<Value>>;
// Python's binding of a call to the parameters `names`, the first `required` of which have no default.
std::optional<Bound> bind(Interpreter& in, std::string_view what, Arguments& arguments,
                          std::initializer_list<std::string_view> names, std::size_t required = 0);

// A callable that is nothing but a function.
class Builtin : public Object {
 public:
  using Function = Maybe (*)(Interpreter&, Arguments&);
  explicit Builtin(Function function) : function_(function) {}
  Maybe call(Interpreter& in, Arguments& arguments) override { return function_(in, arguments); }

 private:
  Function function_;
};

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now (globals.cpp); nullptr: no such global.
ObjectPtr find_global(std::string_view name);
// The bound method `name` of a string, list or dict (methods.cpp). An undefined value that is forbidden where the
// sandbox refuses it, nullopt where there is none.
Maybe find_method(const Value& self, std::string_view name);

// transformers' tojson (json_dump.cpp).
Maybe dump_json(Interpreter& in, const Value& value, Arguments& arguments);
// "..." % values and str.format (printf.cpp).
Maybe format_percent(Interpreter& in, const std::string& format, const Value& values);
Maybe format_braces(Interpreter& in, const std::string& format, const Arguments& arguments);

using Filter = Maybe (*)(Interpreter&, const Value&, Arguments&);
// filters_text.cpp and filters_list.cpp; nullptr: no such filter.
Filter find_text_filter(std::string_view name);
Filter find_list_filter(std::string_view name);
bool has_filter(std::string_view name);
bool has_test(std::string_view name);

}  // namespace moracle::jinja
