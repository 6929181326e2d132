#include "text/template/builtins/callables.h"

#include <algorithm>
#include <utility>

#include "text/template/python_text.h"

namespace moracle::jinja {

Maybe Object::call(Interpreter& in, Arguments&) {
  return in.type_error("a call of something that is no function");
}

Maybe Object::attribute(Interpreter& in, std::string_view name) {
  return in.undefined("no attribute '" + shortened(name, kNameBytes) + "'");
}

Maybe Macro::attribute(Interpreter& in, std::string_view name) {
  if (name == "name") return in.text(stmt_.text);
  return Object::attribute(in, name);
}

bool Macro::bind_parameters(Interpreter& in, Arguments& arguments, const ScopePtr& scope) {
  auto& named = arguments.named;
  const std::size_t count = stmt_.parameters.size();
  // Every parameter may be looked for among all names given.
  if (!in.charge(count + count * named.size() / kNamesPerStep)) return false;
  const auto pop = [&named](std::string_view name) -> Maybe {
    for (auto it = named.begin(); it != named.end(); ++it) {
      if (it->first != name) continue;
      Value value = std::move(it->second);
      named.erase(it);
      return value;
    }
    return std::nullopt;
  };
  std::vector<Maybe> given(count);
  for (std::size_t i = 0; i < count; ++i) {
    given[i] = i < arguments.positional.size() ? Maybe(arguments.positional[i]) : pop(stmt_.parameters[i].name);
  }
  if (stmt_.takes_caller) {
    Maybe caller = pop("caller");
    if (!caller) caller = in.undefined("No caller defined");
    if (!caller || !in.set_name(scope.get(), "caller", std::move(*caller))) return false;
  }
  if (stmt_.takes_named_rest) {
    auto rest = std::make_shared<Dict>();
    for (auto& [name, value] : named) {
      const Maybe key = in.text(name);
      if (!key || !in.insert(rest.get(), *key, std::move(value))) return false;
    }
    Maybe made = in.dict(std::move(rest));
    if (!made || !in.set_name(scope.get(), "kwargs", std::move(*made))) return false;
  } else if (!named.empty()) {
    in.type_error("macro '" + shortened(stmt_.text, kNameBytes) + "' takes no keyword argument '" +
                  shortened(named.front().first, kNameBytes) + "'");
    return false;
  }
  if (stmt_.takes_rest) {
    const auto from = static_cast<std::ptrdiff_t>(std::min(count, arguments.positional.size()));
    Maybe made = in.sequence({arguments.positional.begin() + from, arguments.positional.end()}, SequenceKind::tuple);
    if (!made || !in.set_name(scope.get(), "varargs", std::move(*made))) return false;
  } else if (arguments.positional.size() > count) {
    in.type_error("macro '" + shortened(stmt_.text, kNameBytes) + "' takes not more than " + std::to_string(count) +
                  " arguments");
    return false;
  }
  for (std::size_t i = 0; i < count; ++i) {
    const Parameter& parameter = stmt_.parameters[i];
    Maybe value = std::move(given[i]);
    if (!value) {
      value = parameter.fallback
                  ? in.evaluate(*parameter.fallback, scope)
                  : in.undefined("parameter '" + shortened(parameter.name, kNameBytes) + "' was not provided");
    }
    if (!value || !in.set_name(scope.get(), parameter.name, std::move(*value))) return false;
  }
  return true;
}

Maybe Macro::call(Interpreter& in, Arguments& arguments) {
  const auto scope = std::make_shared<Scope>(Scope{scope_, &stmt_.bodies[0]});
  if (!bind_parameters(in, arguments, scope)) return std::nullopt;
  auto out = in.capture(stmt_.bodies[0], scope);
  return out ? in.made_text(std::move(*out)) : std::nullopt;
}

Loop::Loop(const Stmt& stmt, std::vector<Value> items, ScopePtr scope, int level)
    : stmt_(stmt),
      items_(std::move(items)),
      scope_(std::move(scope)),
      level_(level),
      filtered_(stmt.condition != nullptr) {
  for (const Value& item : items_) depth = std::max(depth, 1 + item.depth());
}

std::optional<bool> Loop::pull(Interpreter& in, Value* out) {
  while (source_ < items_.size()) {
    const Value candidate = items_[source_++];  // the condition may reach this loop, and use items_ up
    if (filtered_) {
      const auto inner = std::make_shared<Scope>(Scope{scope_});
      if (!in.assign(*stmt_.target, candidate, inner)) return std::nullopt;
      const Maybe kept = in.evaluate(*stmt_.condition, inner);
      if (!kept) return std::nullopt;
      if (!kept->truthy()) continue;
    }
    *out = candidate;
    return true;
  }
  return false;
}

std::optional<bool> Loop::advance(Interpreter& in) {
  Value next;
  if (looked_) {
    if (!after_) return false;
    next = std::move(*after_);
    after_.reset();
    looked_ = false;
  } else {
    const auto more = pull(in, &next);
    if (!more || !*more) return more;
  }
  if (index_ > 0) previous_ = std::move(current_);
  current_ = std::move(next);
  ++index_;
  return true;
}

bool Loop::look_ahead(Interpreter& in) {
  if (looked_) return true;
  Value next;
  const auto more = pull(in, &next);
  if (!more) return false;
  looked_ = true;
  if (*more) after_ = std::move(next);
  return true;
}

std::optional<std::size_t> Loop::length(Interpreter& in) {
  if (!filtered_) return items_.size();
  std::vector<Value> rest;
  for (;;) {
    Value next;
    const auto more = pull(in, &next);
    if (!more) return std::nullopt;
    if (!*more) break;
    rest.push_back(std::move(next));
  }
  // The rest is known now; the items already given out only count.
  items_.assign(index_ + (after_ ? 1 : 0), Value());
  source_ = items_.size();
  items_.insert(items_.end(), rest.begin(), rest.end());
  filtered_ = false;
  return items_.size();
}

// loop.cycle and loop.changed.
class Loop::Method : public Object {
 public:
  using Function = Maybe (*)(Loop&, Interpreter&, Arguments&);
  Method(std::shared_ptr<Loop> loop, Function function) : loop_(std::move(loop)), function_(function) {
    depth = loop_->depth + 1;
  }
  Maybe call(Interpreter& in, Arguments& arguments) override { return function_(*loop_, in, arguments); }

 private:
  std::shared_ptr<Loop> loop_;
  Function function_;
};

Maybe Loop::attribute(Interpreter& in, std::string_view name) {
  const auto number = [](std::size_t value) { return Value::integer(static_cast<std::int64_t>(value)); };
  if (name == "index") return number(index_);
  if (name == "index0") return number(index_ - 1);
  if (name == "first") return Value::boolean(index_ == 1);
  if (name == "depth") return Value::integer(level_);
  if (name == "depth0") return Value::integer(level_ - 1);
  if (name == "previtem") return previous_ ? *previous_ : in.undefined("there is no previous item");
  if (name == "last" || name == "nextitem") {
    if (!look_ahead(in)) return std::nullopt;
    if (name == "last") return Value::boolean(!after_);
    return after_ ? *after_ : in.undefined("there is no next item");
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    const auto count = length(in);
    if (!count) return std::nullopt;
    if (name == "length") return number(*count);
    return number(*count - index_ + (name == "revindex" ? 1 : 0));
  }
  if (name == "cycle") {
    return Value(Value::Data(ObjectPtr(std::make_shared<Method>(
        shared_from_this(), [](Loop& loop, Interpreter& run, Arguments& given) { return loop.cycle(run, given); }))));
  }
  if (name == "changed") {
    return Value(Value::Data(ObjectPtr(std::make_shared<Method>(
        shared_from_this(), [](Loop& loop, Interpreter& run, Arguments& given) { return loop.changed(run, given); }))));
  }
  return Object::attribute(in, name);
}

Maybe Loop::cycle(Interpreter& in, Arguments& arguments) const {
  if (arguments.positional.empty()) return in.type_error("no items for cycling given");
  return arguments.positional[(index_ - 1) % arguments.positional.size()];
}

Maybe Loop::changed(Interpreter& in, Arguments& arguments) {
  // A loop that kept containers could hold itself.
  for (const Value& value : arguments.positional) {
    if (value.depth() > 0) return in.type_error("loop.changed of a container");
  }
  bool same = last_seen_ && last_seen_->size() == arguments.positional.size();
  for (std::size_t i = 0; same && i < arguments.positional.size(); ++i) {
    const auto equal = in.equal((*last_seen_)[i], arguments.positional[i]);
    if (!equal) return std::nullopt;
    same = *equal;
  }
  last_seen_ = std::move(arguments.positional);
  return Value::boolean(!same);
}

Maybe Loop::call(Interpreter& in, Arguments& arguments) {
  if (!stmt_.recursive) return in.type_error("a call of a loop that is not marked recursive");
  auto bound = bind(in, "loop", arguments, {"iterable"}, 1);
  if (!bound) return std::nullopt;
  auto items = in.iterate(*(*bound)[0]);
  if (!items) return std::nullopt;
  auto out = in.capture_loop(stmt_, std::move(*items), scope_, level_ + 1);
  return out ? in.made_text(std::move(*out)) : std::nullopt;
}

}  // namespace moracle::jinja
