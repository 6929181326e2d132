// The parsed template. Every node knows the depth of the tree below it; the parser bounds it, so that walking and
// destroying a tree may recurse. It is constant once parsed: renderings on several threads share it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/template/value.h"

namespace moracle::jinja {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

enum class ExprKind : std::uint8_t {
  constant,
  name,
  list,
  tuple,
  dict,       // children: key, value, key, value, ...
  attribute,  // children[0].name
  item,       // children[0][children[1]]
  slice,      // children: object, then start, stop, step or null
  call,       // children[0](...)
  filter,     // children[0] | name(...); children[0] is null at the head of a filter block
  test,       // children[0] is name(...)
  negative,
  positive,
  negation,
  conjunction,
  disjunction,  // of all children, left to right
  binary,       // children[0] name children[1]
  concat,       // of all children
  compare,      // children[0] names[0] children[1] names[1] children[2] ...
  conditional,  // children: condition, value, other value or null
  member        // as a target of set: name.names[0]
};

struct Expr {
  ExprKind kind = ExprKind::constant;
  int line = 0;
  int depth = 1;
  std::string name{};
  Value constant{};
  std::vector<ExprPtr> children{};
  std::vector<std::string> names{};
  // Of calls, filters and tests. `rest` is *rest, `named_rest` is **named_rest.
  std::vector<ExprPtr> arguments{};
  std::vector<std::pair<std::string, ExprPtr>> named{};
  ExprPtr rest{};
  ExprPtr named_rest{};
};

struct Stmt;
struct Body {
  std::vector<std::unique_ptr<Stmt>> statements{};
  // Names of its frame that blocks inside may read before it sets them (deferred_names.h).
  std::vector<std::string> deferred{};
};

enum class StmtKind : std::uint8_t {
  data,    // text
  output,  // expr
  branch,  // bodies[i] under conditions[i]; one body more is the else
  loop,    // for target in expr if condition: bodies[0], else bodies[1]
  assign,  // set target = expr, or, without expr, set target to bodies[0] through filter
  macro,   // text(parameters): bodies[0]
  call,    // call(parameters) expr: bodies[0]
  filter,  // bodies[0] through filter
  scope,   // with targets[i] = values[i]: bodies[0]; also the generation tag
  leave,   // break
  next     // continue
};

struct Parameter {
  std::string name;
  ExprPtr fallback;  // null where the caller has to give a value
};

struct Stmt {
  StmtKind kind = StmtKind::data;
  int line = 0;
  std::string text{};
  ExprPtr expr{};
  ExprPtr target{};
  ExprPtr condition{};
  ExprPtr filter{};
  std::vector<ExprPtr> conditions{};
  std::vector<ExprPtr> targets{};
  std::vector<ExprPtr> values{};
  std::vector<Parameter> parameters{};
  std::vector<Body> bodies{};
  bool recursive = false;
  bool takes_rest = false, takes_named_rest = false, takes_caller = false;  // of a macro: names its body reads
};

}  // namespace moracle::jinja
