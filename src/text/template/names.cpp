#include "text/template/names.h"

#include <optional>

#include "base/unicode/utf8.h"
#include "text/template/interpreter.h"
#include "text/template/syntax/lexer.h"

namespace moracle::jinja {
namespace {

class NameCheck {
 public:
  explicit NameCheck(const std::string& file) : file_(file) {}

  // `deferred`: names that are not there wait until they are used.
  Result<Ok> body(const Body& body, bool deferred) const {
    for (const auto& stmt : body.statements) MORACLE_TRY(statement(*stmt, deferred));
    return Ok{};
  }

 private:
  Result<Ok> statement(const Stmt& stmt, bool deferred) const {
    const bool inner = deferred || stmt.kind == StmtKind::branch;
    for (const ExprPtr* expr : {&stmt.expr, &stmt.target}) MORACLE_TRY(expression(expr->get(), inner));
    for (const auto* list : {&stmt.conditions, &stmt.targets, &stmt.values}) {
      for (const auto& expr : *list) MORACLE_TRY(expression(expr.get(), inner));
    }
    // What follows stands in a frame of its own, which forgets an {% if %} around it.
    const bool below = stmt.kind == StmtKind::branch;
    for (const ExprPtr* expr : {&stmt.condition, &stmt.filter}) MORACLE_TRY(expression(expr->get(), below));
    for (const auto& parameter : stmt.parameters) MORACLE_TRY(expression(parameter.fallback.get(), below));
    for (const auto& inside : stmt.bodies) MORACLE_TRY(body(inside, below));
    return Ok{};
  }

  Result<Ok> expression(const Expr* expr, bool deferred) const {
    if (!expr) return Ok{};
    const bool inner = deferred || expr->kind == ExprKind::conditional;
    const bool is_filter = expr->kind == ExprKind::filter;
    if (!inner && ((is_filter && !find_filter(expr->name)) || (expr->kind == ExprKind::test && !find_test(expr->name))))
      return syntax_error(file_, expr->line,
                          std::string("No ") + (is_filter ? "filter" : "test") + " named '" +
                              unicode::shortened(expr->name, kNameBytes) + "'");
    for (const auto& child : expr->children) {
      MORACLE_TRY(expression(child.get(), inner));
      if (decides(*expr, child.get())) return Ok{};
    }
    for (const auto& argument : expr->arguments) MORACLE_TRY(expression(argument.get(), inner));
    for (const auto& [name, argument] : expr->named) MORACLE_TRY(expression(argument.get(), inner));
    MORACLE_TRY(expression(expr->rest.get(), inner));
    return expression(expr->named_rest.get(), inner);
  }

  // Whether a constant operand of `and` or `or` makes what follows it fold away.
  static bool decides(const Expr& expr, const Expr* operand) {
    if (expr.kind != ExprKind::conjunction && expr.kind != ExprKind::disjunction) return false;
    return truth(*operand) == (expr.kind == ExprKind::disjunction);
  }

  // Of a literal; nothing of what depends on more.
  static std::optional<bool> truth(const Expr& expr) {
    if (expr.kind == ExprKind::constant) return expr.constant.truthy();
    if (expr.kind == ExprKind::negation) {
      const auto operand = truth(*expr.children[0]);
      return operand ? std::optional(!*operand) : std::nullopt;
    }
    if (expr.kind != ExprKind::list && expr.kind != ExprKind::tuple && expr.kind != ExprKind::dict) return std::nullopt;
    for (const auto& child : expr.children) {
      if (!truth(*child)) return std::nullopt;
    }
    return !expr.children.empty();
  }

  const std::string& file_;
};

}  // namespace

Result<Ok> check_names(const Body& body, const std::string& file) {
  return NameCheck(file).body(body, false);
}

}  // namespace moracle::jinja
