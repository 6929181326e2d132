#include "text/template/interpreter.h"

#include <algorithm>
#include <utility>

#include "text/template/builtins/callables.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

// A walk needs a few hundred bytes of stack per node; a macro call counts for several.
constexpr int kNodesPerLevel = 10;
// Bytes of text per step.
constexpr std::size_t kScanned = 128;
constexpr std::size_t kWalked = 16;
// What a value takes on the heap beside its bytes or elements.
constexpr std::size_t kOverhead = 64;
constexpr std::size_t kMacroBytes = 512;  // with the scope that it keeps
constexpr std::size_t kEntryBytes = 128;  // of a dict, with its place in the table
constexpr std::size_t kMessageBytes = 300;

}  // namespace

const Value* Scope::find(std::string_view name) const {
  for (const auto& [key, value] : names) {
    if (key == name) return &value;
  }
  return nullptr;
}

void Scope::set(std::string_view name, Value value) {
  for (auto& [key, old] : names) {
    if (key != name) continue;
    old = std::move(value);
    return;
  }
  names.emplace_back(name, std::move(value));
}

Interpreter::Level::Level(Interpreter* in, int weight)
    : in_(in), weight_(weight), ok_(in->level_ + weight <= in->limits_.depth * kNodesPerLevel) {
  in_->level_ += weight_;
  if (!ok_) in_->limit("recursion that is too deep");
}

// Namespaces and macros may hold each other. Both lists keep every member alive while the links are cut, so nothing is
// destroyed recursively.
Interpreter::~Interpreter() {
  for (const auto& space : namespaces_) space->attributes.clear();
  for (const auto& macro : macros_) macro->release();
}

std::nullopt_t Interpreter::fail(std::string_view code, std::string_view found) {
  if (!error_) {
    error_ = Error{.code = std::string(code),
                   .file = file_,
                   .where = line_ > 0 ? "line " + std::to_string(line_) : "",
                   .found = shortened(found, kMessageBytes)};
  }
  return std::nullopt;
}

std::nullopt_t Interpreter::undefined_error(const Value& value) {
  const auto* undefined = value.as<Undefined>();
  const std::string why = undefined && undefined->why ? *undefined->why : "an undefined value";
  return fail(undefined && undefined->forbidden ? "template.type" : "template.undefined", why);
}

bool Interpreter::over_budget() {
  limit(budget_.found());
  return false;
}

bool Interpreter::charge_text(TextCost cost, std::size_t bytes) {
  switch (cost) {
    case TextCost::none:
      return true;
    case TextCost::scan:
      return charge(bytes / kScanned);
    case TextCost::walk:
      return charge(bytes / kWalked);
  }
  return false;
}

bool Interpreter::charge_texts(TextCost cost, const Value& value, const Arguments& arguments) {
  if (cost == TextCost::none) return true;
  const auto size = [](const Value& one) { return one.text() ? one.text()->bytes.size() : 0; };
  std::size_t bytes = size(value);
  for (const Value& argument : arguments.positional) bytes += size(argument);
  for (const auto& [name, argument] : arguments.named) bytes += size(argument);
  return charge_text(cost, bytes);
}

bool Interpreter::charge_search(std::size_t text, std::size_t needle) {
  if (needle > text) return charge(1);
  return charge(1 + text / kWalked + (text - needle + 1) / 64 * needle / 64);
}

bool Interpreter::room(std::size_t bytes) {
  if (bytes > limits_.output_bytes) {
    limit("text of more than " + std::to_string(limits_.output_bytes) + " bytes");
    return false;
  }
  return charge_text(TextCost::scan, bytes) && makes(bytes + kOverhead);
}

bool Interpreter::room_for(std::size_t elements) {
  return charge(elements) && makes(elements * sizeof(Value) + kOverhead);
}

Maybe Interpreter::text(std::string_view bytes, bool markup) {
  if (!room(bytes.size())) return std::nullopt;
  return Value::text(std::string(bytes), markup);
}

Maybe Interpreter::made_text(std::string bytes, bool markup) {
  if (bytes.size() > limits_.output_bytes)
    return limit("text of more than " + std::to_string(limits_.output_bytes) + " bytes");
  return Value::text(std::move(bytes), markup);
}

Maybe Interpreter::sequence(std::vector<Value> items, SequenceKind kind) {
  if (!room_for(items.size())) return std::nullopt;
  return made_sequence(std::move(items), kind);
}

Maybe Interpreter::made_sequence(std::vector<Value> items, SequenceKind kind) {
  auto made = std::make_shared<const Sequence>(std::move(items), kind);
  if (made->depth > limits_.depth) return limit("a value nested too deeply");
  return Value(Value::Data(SequencePtr(std::move(made))));
}

Maybe Interpreter::iterator(std::vector<Value> items) {
  if (!room_for(items.size())) return std::nullopt;
  auto made = std::make_shared<Iterator>();
  for (const Value& item : items) made->depth = std::max(made->depth, 1 + item.depth());
  if (made->depth > limits_.depth) return limit("a value nested too deeply");
  made->items = std::move(items);
  return Value(Value::Data(IteratorPtr(std::move(made))));
}

Maybe Interpreter::dict(std::shared_ptr<Dict> dict) {
  if (!room_for(1)) return std::nullopt;
  if (dict->depth > limits_.depth) return limit("a value nested too deeply");
  return Value(Value::Data(DictPtr(std::move(dict))));
}

bool Interpreter::insert(Dict* dict, const Value& key, Value value) {
  if (!key.hashable()) {
    type_error("unhashable type: '" + std::string(key.type_name()) + "'");
    return false;
  }
  const auto place = charge(1) && makes(kEntryBytes) ? find(*dict, key) : std::nullopt;
  if (!place) return false;
  if (*place == nullptr) {
    dict->add(key, std::move(value));
    return true;
  }
  dict->replace(*place, std::move(value));
  return true;
}

Maybe Interpreter::undefined(std::string_view why, bool forbidden) {
  if (!room(why.size())) return std::nullopt;
  return Value(Value::Data(Undefined{std::make_shared<const std::string>(why), forbidden}));
}

Maybe Interpreter::missing(const Value& object, std::string_view what, std::string_view name) {
  return undefined("'" + std::string(object.type_name()) + " object' has no " + std::string(what) + " " +
                   shortened(name, kNameBytes));
}

Maybe Interpreter::unsafe(const Value& object, std::string_view name) {
  return undefined("access to attribute '" + shortened(name, kNameBytes) + "' of '" + std::string(object.type_name()) +
                       "' object is unsafe.",
                   true);
}

Maybe Interpreter::made_namespace(std::shared_ptr<Namespace> space) {
  if (!room_for(space->attributes.size())) return std::nullopt;
  namespaces_.push_back(space);
  return Value(Value::Data(std::move(space)));
}

Result<std::string> Interpreter::run(const Body& body, DictPtr context) {
  context_ = std::move(context);
  std::string out;
  out_ = &out;
  const Flow flow = execute(body, std::make_shared<Scope>(Scope{nullptr, &body}));
  out_ = nullptr;
  if (flow == Flow::failed || error_) return *error_;
  return out;
}

bool Interpreter::write(std::string_view bytes) {
  if (out_->size() + bytes.size() > limits_.output_bytes) {
    limit("an output of more than " + std::to_string(limits_.output_bytes) + " bytes");
    return false;
  }
  if (!room(bytes.size())) return false;
  out_->append(bytes);
  return true;
}

bool Interpreter::print(const Value& value) {
  if (const auto* string = value.text()) return write(string->bytes);
  if (value.is_undefined()) return true;
  const auto shown = repr(value);
  return shown && write(*shown);
}

std::optional<std::string> Interpreter::capture(const Body& body, const ScopePtr& scope, Flow* flow) {
  std::string buffer;
  std::string* outer = std::exchange(out_, &buffer);
  const Flow result = execute(body, scope);
  out_ = outer;
  if (flow) *flow = result;
  if (result == Flow::failed) return std::nullopt;
  return buffer;
}

Flow Interpreter::execute(const Body& body, const ScopePtr& scope) {
  const Level level(this, 1);
  if (!level.ok()) return Flow::failed;
  for (const auto& stmt : body.statements) {
    if (!charge(1)) return Flow::failed;
    line_ = stmt->line;
    const Flow flow = statement(*stmt, scope);
    if (flow != Flow::normal) return flow;
  }
  return Flow::normal;
}

Flow Interpreter::statement(const Stmt& stmt, const ScopePtr& scope) {
  switch (stmt.kind) {
    case StmtKind::data:
      return write(stmt.text) ? Flow::normal : Flow::failed;
    case StmtKind::output:
      return output(stmt, scope);
    case StmtKind::branch:
      return branch(stmt, scope);
    case StmtKind::loop:
      return loop(stmt, scope);
    case StmtKind::assign:
      return set(stmt, scope);
    case StmtKind::macro: {
      Maybe made = make_macro(stmt, scope);
      return made && set_name(scope.get(), stmt.text, std::move(*made)) ? Flow::normal : Flow::failed;
    }
    case StmtKind::call:
      return call_block(stmt, scope);
    case StmtKind::filter:
      return filter_block(stmt, scope);
    case StmtKind::scope:
      return with(stmt, scope);
    case StmtKind::leave:
      return Flow::leave;
    case StmtKind::next:
      return Flow::next;
  }
  return Flow::failed;
}

Flow Interpreter::output(const Stmt& stmt, const ScopePtr& scope) {
  const Maybe value = evaluate(*stmt.expr, scope);
  return value && print(*value) ? Flow::normal : Flow::failed;
}

Flow Interpreter::branch(const Stmt& stmt, const ScopePtr& scope) {
  for (std::size_t i = 0; i < stmt.conditions.size(); ++i) {
    const Maybe condition = evaluate(*stmt.conditions[i], scope);
    if (!condition) return Flow::failed;
    if (condition->truthy()) return execute(stmt.bodies[i], scope);
  }
  if (stmt.bodies.size() > stmt.conditions.size()) return execute(stmt.bodies.back(), scope);
  return Flow::normal;
}

Flow Interpreter::loop(const Stmt& stmt, const ScopePtr& scope) {
  const Maybe value = evaluate(*stmt.expr, scope);
  if (!value) return Flow::failed;
  auto items = iterate(*value);
  if (!items) return Flow::failed;
  return run_loop(stmt, std::move(*items), scope, 1);
}

Flow Interpreter::run_loop(const Stmt& stmt, std::vector<Value> items, const ScopePtr& scope, int depth) {
  const auto state = std::make_shared<Loop>(stmt, std::move(items), scope, depth);
  if (state->depth > limits_.depth) {
    limit("a value nested too deeply");
    return Flow::failed;
  }
  bool any = false;
  for (;;) {
    const auto more = state->advance(*this);
    if (!more) return Flow::failed;
    if (!*more) break;
    any = true;
    if (!charge(1)) return Flow::failed;
    const auto inner = std::make_shared<Scope>(Scope{scope, &stmt.bodies[0]});
    inner->set("loop", Value(Value::Data(ObjectPtr(state))));
    if (!assign(*stmt.target, state->current(), inner)) return Flow::failed;
    const Flow flow = execute(stmt.bodies[0], inner);
    if (flow == Flow::failed) return flow;
    if (flow == Flow::leave) break;
  }
  if (any || stmt.bodies.size() < 2) return Flow::normal;
  return execute(stmt.bodies[1], std::make_shared<Scope>(Scope{scope, &stmt.bodies[1]}));
}

std::optional<std::string> Interpreter::capture_loop(const Stmt& stmt, std::vector<Value> items, const ScopePtr& scope,
                                                     int depth) {
  const Level level(this, kNodesPerLevel);
  if (!level.ok()) return std::nullopt;
  std::string buffer;
  std::string* outer = std::exchange(out_, &buffer);
  const Flow flow = run_loop(stmt, std::move(items), scope, depth);
  out_ = outer;
  if (flow == Flow::failed) return std::nullopt;
  return buffer;
}

Flow Interpreter::set(const Stmt& stmt, const ScopePtr& scope) {
  if (stmt.expr) {
    const Maybe value = evaluate(*stmt.expr, scope);
    return value && assign(*stmt.target, *value, scope) ? Flow::normal : Flow::failed;
  }
  Flow flow = Flow::normal;
  auto captured = capture(stmt.bodies[0], std::make_shared<Scope>(Scope{scope, &stmt.bodies[0]}), &flow);
  if (!captured) return Flow::failed;
  if (flow != Flow::normal) return flow;
  Maybe value = made_text(std::move(*captured));
  if (value && stmt.filter) value = evaluate_filter(*stmt.filter, scope, &*value);
  return value && assign(*stmt.target, *value, scope) ? Flow::normal : Flow::failed;
}

bool Interpreter::assign(const Expr& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == ExprKind::name) return set_name(scope.get(), target.name, value);
  if (target.kind == ExprKind::member) {
    const Maybe holder = evaluate_name(target, scope);
    if (!holder) return false;
    const auto* space = holder->as<NamespacePtr>();
    if (!space) {
      type_error("an assignment to a member of '" + target.name + "', which is no namespace");
      return false;
    }
    if (target.names[0].starts_with('_')) {
      type_error("a name of a namespace that begins with '_'");
      return false;
    }
    if (!charge(1 + (*space)->attributes.size() / kNamesPerStep)) return false;
    (*space)->set(target.names[0], value);
    return true;
  }
  const auto items = iterate(value);
  if (!items) return false;
  if (items->size() != target.children.size()) {
    type_error(std::to_string(items->size()) + " values for " + std::to_string(target.children.size()) + " names");
    return false;
  }
  for (std::size_t i = 0; i < items->size(); ++i) {
    if (!assign(*target.children[i], (*items)[i], scope)) return false;
  }
  return true;
}

bool Interpreter::set_name(Scope* scope, std::string_view name, Value value) {
  if (!charge(1 + scope->names.size() / kNamesPerStep)) return false;
  scope->set(name, std::move(value));
  return true;
}

Maybe Interpreter::make_macro(const Stmt& stmt, const ScopePtr& scope) {
  if (!makes(kMacroBytes)) return std::nullopt;
  macros_.push_back(std::make_shared<Macro>(stmt, scope));
  return Value(Value::Data(ObjectPtr(macros_.back())));
}

Flow Interpreter::call_block(const Stmt& stmt, const ScopePtr& scope) {
  const Maybe caller = make_macro(stmt, scope);
  const Maybe value = caller ? evaluate_call(*stmt.expr, scope, &*caller) : std::nullopt;
  return value && print(*value) ? Flow::normal : Flow::failed;
}

Flow Interpreter::filter_block(const Stmt& stmt, const ScopePtr& scope) {
  Flow flow = Flow::normal;
  auto captured = capture(stmt.bodies[0], std::make_shared<Scope>(Scope{scope, &stmt.bodies[0]}), &flow);
  if (!captured) return Flow::failed;
  if (flow != Flow::normal) return flow;
  const Maybe input = made_text(std::move(*captured));
  const Maybe value = input ? evaluate_filter(*stmt.filter, scope, &*input) : std::nullopt;
  return value && print(*value) ? Flow::normal : Flow::failed;
}

Flow Interpreter::with(const Stmt& stmt, const ScopePtr& scope) {
  const auto inner = std::make_shared<Scope>(Scope{scope, &stmt.bodies[0]});
  for (std::size_t i = 0; i < stmt.targets.size(); ++i) {
    const Maybe value = evaluate(*stmt.values[i], scope);
    if (!value || !assign(*stmt.targets[i], *value, inner)) return Flow::failed;
  }
  return execute(stmt.bodies[0], inner);
}

Maybe Interpreter::call(const Value& function, Arguments& arguments) {
  if (!charge(1 + arguments.positional.size() + arguments.named.size())) return std::nullopt;
  if (function.is_undefined()) return undefined_error(function);
  const auto* object = function.as<ObjectPtr>();
  if (!object || !(*object)->callable())
    return type_error("'" + std::string(function.type_name()) + "' object is not callable");
  const Level level(this, kNodesPerLevel);
  if (!level.ok()) return std::nullopt;
  return (*object)->call(*this, arguments);
}

}  // namespace moracle::jinja
