// The two callables that are bound to the template's text: macros and the loop variable.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/template/interpreter.h"

namespace moracle::jinja {

class Macro : public Object {
 public:
  Macro(const Stmt& stmt, ScopePtr scope) : stmt_(stmt), scope_(std::move(scope)) {}
  Maybe call(Interpreter& in, Arguments& arguments) override;
  Maybe attribute(Interpreter& in, std::string_view name) override;
  void release() { scope_.reset(); }

 private:
  bool bind_parameters(Interpreter& in, Arguments& arguments, const ScopePtr& scope);

  const Stmt& stmt_;
  ScopePtr scope_;  // where it was defined
};

// Jinja's LoopContext. A filtered loop asks its condition only as far ahead as it is looked at.
class Loop : public Object, public std::enable_shared_from_this<Loop> {
 public:
  Loop(const Stmt& stmt, std::vector<Value> items, ScopePtr scope, int level);
  // Steps to the next item; false at the end.
  std::optional<bool> advance(Interpreter& in);
  [[nodiscard]] const Value& current() const { return current_; }
  Maybe call(Interpreter& in, Arguments& arguments) override;
  Maybe attribute(Interpreter& in, std::string_view name) override;
  [[nodiscard]] std::string repr() const override { return "<LoopContext>"; }

 private:
  std::optional<bool> pull(Interpreter& in, Value* out);
  bool look_ahead(Interpreter& in);
  std::optional<std::size_t> length(Interpreter& in);
  Maybe cycle(Interpreter& in, Arguments& arguments) const;
  Maybe changed(Interpreter& in, Arguments& arguments);
  class Method;

  const Stmt& stmt_;
  std::vector<Value> items_;
  ScopePtr scope_;
  int level_;
  bool filtered_;
  std::size_t source_ = 0;  // next of items_
  std::size_t index_ = 0;   // items given out
  bool looked_ = false;
  std::optional<Value> after_;
  std::optional<Value> previous_;
  Value current_;
  std::optional<std::vector<Value>> last_seen_;
};

}  // namespace moracle::jinja
