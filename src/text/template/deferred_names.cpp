#include "text/template/deferred_names.h"

#include <map>
#include <string_view>
#include <vector>

namespace moracle::jinja {
namespace {

class DeferredNames {
 public:
  // `owner` declares parameters of the frame; null: it is the template.
  void frame(Body& body, const Stmt* owner) {
    Frame frame;
    Frame* const around = now_;
    now_ = &frame;
    if (owner != nullptr) declare(*owner);
    statements(body);
    for (const auto& [name, deferred] : frame.names) {
      if (deferred) body.deferred.emplace_back(name);
      ++outer_[name];
    }
    for (Stmt* stmt : frame.inner) {
      for (Body& inside : stmt->bodies) this->frame(inside, stmt);
    }
    for (const auto& [name, deferred] : frame.names) --outer_[name];
    now_ = around;
  }

 private:
  struct Frame {
    std::map<std::string_view, bool> names;  // as the frame meets them; true: deferred
    std::vector<Stmt*> inner;                // with frames of their own
    int branches = 0;                        // of {% if %} around what is looked at
  };

  void read(std::string_view name) { now_->names.emplace(name, false); }
  void set(std::string_view name) {
    const auto outer = outer_.find(name);
    const bool own = outer == outer_.end() || outer->second == 0;
    now_->names.emplace(name, own && now_->branches == 0 && !now_->inner.empty());
  }

  void declare(const Stmt& owner) {
    for (const std::string_view name : {"loop", "caller", "varargs", "kwargs"}) read(name);
    // A fallback that reads a parameter which has no value yet does not read the name outside.
    for (const Parameter& parameter : owner.parameters) expression(parameter.fallback.get());
    for (const Parameter& parameter : owner.parameters) {
      const auto [at, unread] = now_->names.emplace(parameter.name, false);
      at->second = !unread;
    }
    if (owner.kind == StmtKind::loop) expression(owner.target.get());
    for (const auto& target : owner.targets) expression(target.get());
  }

  void statements(const Body& body) {
    for (const auto& stmt : body.statements) statement(*stmt);
  }

  void statement(Stmt& stmt) {
    expression(stmt.expr.get());
    for (const auto& condition : stmt.conditions) expression(condition.get());
    for (const auto& value : stmt.values) expression(value.get());
    if (stmt.kind == StmtKind::filter) expression(stmt.filter.get());
    if (stmt.kind == StmtKind::assign) target(*stmt.target);
    if (stmt.kind == StmtKind::macro) set(stmt.text);
    if (stmt.kind == StmtKind::branch) {
      ++now_->branches;
      for (const Body& body : stmt.bodies) statements(body);
      --now_->branches;
    } else if (!stmt.bodies.empty()) {
      now_->inner.push_back(&stmt);
    }
  }

  void target(const Expr& expr) {
    if (expr.kind == ExprKind::name) set(expr.name);
    if (expr.kind == ExprKind::member) read(expr.name);
    for (const auto& child : expr.children) target(*child);
  }

  void expression(const Expr* expr) {
    if (expr == nullptr) return;
    if (expr->kind == ExprKind::name || expr->kind == ExprKind::member) read(expr->name);
    for (const auto& child : expr->children) expression(child.get());
    for (const auto& argument : expr->arguments) expression(argument.get());
    for (const auto& [name, argument] : expr->named) expression(argument.get());
    expression(expr->rest.get());
    expression(expr->named_rest.get());
  }

  Frame* now_ = nullptr;
  std::map<std::string_view, int> outer_;  // frames around that know a name
};

}  // namespace

void find_deferred_names(Body& body) {
  DeferredNames().frame(body, nullptr);
}

}  // namespace moracle::jinja
