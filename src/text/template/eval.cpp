// Expressions.
#include <algorithm>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {

Maybe Interpreter::evaluate(const Expr& expr, const ScopePtr& scope) {
  const Level level(this, 1);
  if (!level.ok() || !charge(1)) return std::nullopt;
  switch (expr.kind) {
    case ExprKind::constant:
      return expr.constant;
    case ExprKind::member:
    case ExprKind::name:
      return evaluate_name(expr, scope);
    case ExprKind::list:
    case ExprKind::tuple:
      return evaluate_items(expr, scope);
    case ExprKind::dict:
      return evaluate_dict(expr, scope);
    case ExprKind::attribute:
    case ExprKind::item:
      return evaluate_subscript(expr, scope);
    case ExprKind::slice:
      return evaluate_slice(expr, scope);
    case ExprKind::call:
      return evaluate_call(expr, scope);
    case ExprKind::filter:
      return evaluate_filter(expr, scope);
    case ExprKind::test:
      return evaluate_test(expr, scope);
    case ExprKind::negative:
    case ExprKind::positive:
      return evaluate_sign(expr, scope);
    case ExprKind::negation:
    case ExprKind::conjunction:
    case ExprKind::disjunction:
      return evaluate_logic(expr, scope);
    case ExprKind::binary:
      return evaluate_binary(expr, scope);
    case ExprKind::concat:
      return evaluate_concat(expr, scope);
    case ExprKind::compare:
      return evaluate_compare(expr, scope);
    case ExprKind::conditional:
      return evaluate_conditional(expr, scope);
  }
  return std::nullopt;
}

Maybe Interpreter::evaluate_name(const Expr& expr, const ScopePtr& scope) {
  for (const Scope* at = scope.get(); at != nullptr; at = at->parent.get()) {
    if (at->names.size() > kNamesPerStep && !charge(at->names.size() / kNamesPerStep)) return std::nullopt;
    if (const Value* value = at->find(expr.name)) return *value;
    if (at->body == nullptr || at->body->deferred.empty()) continue;
    const auto& deferred = at->body->deferred;
    if (!charge(deferred.size() / kNamesPerStep)) return std::nullopt;
    if (std::find(deferred.begin(), deferred.end(), expr.name) != deferred.end()) return undefined_name(expr.name);
  }
  if (const Value* value = context_->find(expr.name)) return *value;
  if (ObjectPtr global = find_global(expr.name)) return Value(Value::Data(std::move(global)));
  return undefined_name(expr.name);
}

Maybe Interpreter::undefined_name(std::string_view name) {
  return undefined("'" + shortened(name, kNameBytes) + "' is undefined");
}

Maybe Interpreter::evaluate_items(const Expr& expr, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const auto& child : expr.children) {
    Maybe value = evaluate(*child, scope);
    if (!value) return std::nullopt;
    items.push_back(std::move(*value));
  }
  return sequence(std::move(items), expr.kind == ExprKind::tuple ? SequenceKind::tuple : SequenceKind::list);
}

Maybe Interpreter::evaluate_dict(const Expr& expr, const ScopePtr& scope) {
  auto made = std::make_shared<Dict>();
  for (std::size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    const Maybe key = evaluate(*expr.children[i], scope);
    const Maybe value = key ? evaluate(*expr.children[i + 1], scope) : std::nullopt;
    if (!value || !insert(made.get(), *key, *value)) return std::nullopt;
  }
  return dict(std::move(made));
}

Maybe Interpreter::evaluate_subscript(const Expr& expr, const ScopePtr& scope) {
  const Maybe object = evaluate(*expr.children[0], scope);
  if (!object) return std::nullopt;
  if (expr.kind == ExprKind::attribute) return attribute(*object, expr.name);
  const Maybe key = evaluate(*expr.children[1], scope);
  return key ? item(*object, *key) : std::nullopt;
}

Maybe Interpreter::evaluate_slice(const Expr& expr, const ScopePtr& scope) {
  const Maybe object = evaluate(*expr.children[0], scope);
  if (!object) return std::nullopt;
  Value parts[3] = {Value::none(), Value::none(), Value::none()};
  for (std::size_t i = 0; i < 3; ++i) {
    if (!expr.children[i + 1]) continue;
    Maybe part = evaluate(*expr.children[i + 1], scope);
    if (!part) return std::nullopt;
    parts[i] = std::move(*part);
  }
  return slice(*object, parts[0], parts[1], parts[2]);
}

bool Interpreter::arguments(const Expr& expr, const ScopePtr& scope, Arguments* out) {
  for (const auto& argument : expr.arguments) {
    Maybe value = evaluate(*argument, scope);
    if (!value) return false;
    out->positional.push_back(std::move(*value));
  }
  if (expr.rest) {
    const Maybe value = evaluate(*expr.rest, scope);
    auto items = value ? iterate(*value) : std::nullopt;
    if (!items) return false;
    std::move(items->begin(), items->end(), std::back_inserter(out->positional));
  }
  for (const auto& [name, argument] : expr.named) {
    Maybe value = evaluate(*argument, scope);
    if (!value) return false;
    out->named.emplace_back(name, std::move(*value));
  }
  if (!expr.named_rest) return true;
  const Maybe value = evaluate(*expr.named_rest, scope);
  if (!value) return false;
  if (!value->dict()) {
    type_error("argument after ** must be a mapping, not " + std::string(value->type_name()));
    return false;
  }
  for (const auto& [key, item] : value->dict()->items()) {
    const auto* name = key.text();
    if (!charge(1 + out->named.size() / kNamesPerStep) || (name && !room(name->bytes.size()))) return false;
    const bool twice = name && std::any_of(out->named.begin(), out->named.end(),
                                           [&](const auto& given) { return given.first == name->bytes; });
    if (!name || twice) {
      type_error("names after ** that are no names, or given twice");
      return false;
    }
    out->named.emplace_back(name->bytes, item);
  }
  return true;
}

Maybe Interpreter::evaluate_call(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  const Maybe function = evaluate(*expr.children[0], scope);
  if (!function) return std::nullopt;
  Arguments given;
  if (!arguments(expr, scope, &given)) return std::nullopt;
  if (caller) given.named.emplace_back("caller", *caller);
  line_ = expr.line;
  return call(*function, given);
}

Maybe Interpreter::evaluate_filter(const Expr& expr, const ScopePtr& scope, const Value* input) {
  if (!expr.children[0] && !input) return std::nullopt;
  // In the head of a filter block the chain's innermost filter takes the block.
  Maybe value = !expr.children[0]                                     ? Maybe(*input)
                : input && expr.children[0]->kind == ExprKind::filter ? evaluate_filter(*expr.children[0], scope, input)
                                                                      : evaluate(*expr.children[0], scope);
  if (!value) return std::nullopt;
  Arguments given;
  if (!arguments(expr, scope, &given)) return std::nullopt;
  line_ = expr.line;
  return apply_filter(expr.name, *value, given);
}

Maybe Interpreter::evaluate_test(const Expr& expr, const ScopePtr& scope) {
  const Maybe value = evaluate(*expr.children[0], scope);
  if (!value) return std::nullopt;
  Arguments given;
  if (!arguments(expr, scope, &given)) return std::nullopt;
  const auto result = apply_test(expr.name, *value, given);
  if (!result) return std::nullopt;
  return Value::boolean(*result);
}

Maybe Interpreter::evaluate_sign(const Expr& expr, const ScopePtr& scope) {
  const Maybe value = evaluate(*expr.children[0], scope);
  if (!value) return std::nullopt;
  if (value->is_undefined()) return undefined_error(*value);
  if (!value->is_number()) return type_error("bad operand type for a sign: '" + std::string(value->type_name()) + "'");
  const bool negative = expr.kind == ExprKind::negative;
  if (value->as<double>()) return Value::real(negative ? -value->number() : value->number());
  return integer_arithmetic(negative ? '-' : '+', 0, *value->index());
}

Maybe Interpreter::evaluate_logic(const Expr& expr, const ScopePtr& scope) {
  if (expr.kind == ExprKind::negation) {
    const Maybe value = evaluate(*expr.children[0], scope);
    if (!value) return std::nullopt;
    return Value::boolean(!value->truthy());
  }
  const bool stops_at = expr.kind == ExprKind::disjunction;
  Maybe value;
  for (const auto& child : expr.children) {
    value = evaluate(*child, scope);
    if (!value || value->truthy() == stops_at) break;
  }
  return value;
}

Maybe Interpreter::evaluate_binary(const Expr& expr, const ScopePtr& scope) {
  const Maybe left = evaluate(*expr.children[0], scope);
  if (!left) return std::nullopt;
  const Maybe right = evaluate(*expr.children[1], scope);
  if (!right) return std::nullopt;
  line_ = expr.line;
  return binary(expr.name, *left, *right);
}

Maybe Interpreter::evaluate_concat(const Expr& expr, const ScopePtr& scope) {
  std::vector<Value> parts;
  parts.reserve(expr.children.size());
  for (const auto& child : expr.children) {
    const Maybe value = evaluate(*child, scope);
    Maybe part = value ? as_text(*value) : std::nullopt;
    if (!part) return std::nullopt;
    parts.push_back(std::move(*part));
  }
  return join(parts, "");
}

Maybe Interpreter::join(const std::vector<Value>& texts, std::string_view separator) {
  std::size_t size = texts.empty() ? 0 : separator.size() * (texts.size() - 1);
  for (const Value& text : texts) size += text.text()->bytes.size();
  if (!room(size)) return std::nullopt;
  std::string out;
  out.reserve(size);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (i > 0) out += separator;
    out += texts[i].text()->bytes;
  }
  return Value::text(std::move(out));
}

std::optional<bool> Interpreter::compare(std::string_view op, const Value& a, const Value& b) {
  std::optional<bool> result;
  bool negate = false;
  if (op == "==" || op == "!=") {
    result = equal(a, b);
    negate = op == "!=";
  } else if (op == "in" || op == "not in") {
    result = contains(b, a);
    negate = op == "not in";
  } else if (op == "<" || op == ">") {
    result = op == "<" ? less(a, b) : less(b, a);
  } else {
    // a <= b as "not b < a" would make NaN comparable.
    result = op == "<=" ? less(a, b) : less(b, a);
    if (result && !*result) result = equal(a, b);
  }
  if (!result) return std::nullopt;
  return *result != negate;
}

Maybe Interpreter::evaluate_compare(const Expr& expr, const ScopePtr& scope) {
  Maybe left = evaluate(*expr.children[0], scope);
  if (!left) return std::nullopt;
  for (std::size_t i = 0; i < expr.names.size(); ++i) {
    Maybe right = evaluate(*expr.children[i + 1], scope);
    if (!right) return std::nullopt;
    line_ = expr.line;
    const auto result = compare(expr.names[i], *left, *right);
    if (!result) return std::nullopt;
    if (!*result) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Maybe Interpreter::evaluate_conditional(const Expr& expr, const ScopePtr& scope) {
  const Maybe condition = evaluate(*expr.children[0], scope);
  if (!condition) return std::nullopt;
  if (condition->truthy()) return evaluate(*expr.children[1], scope);
  if (expr.children[2]) return evaluate(*expr.children[2], scope);
  return undefined("the inline if-expression evaluated to false and no else section was defined");
}

}  // namespace moracle::jinja
