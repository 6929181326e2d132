// bind() and the functions every template can call.
#include <algorithm>
#include <ctime>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {

std::optional<Bound> bind(Interpreter& in, std::string_view what, Arguments& arguments,
                          std::initializer_list<std::string_view> names, std::size_t required) {
  Bound bound(names.size());
  if (arguments.positional.size() > names.size())
    return in.type_error(std::string(what) + "() takes at most " + std::to_string(names.size()) + " arguments");
  std::move(arguments.positional.begin(), arguments.positional.end(), bound.begin());
  for (auto& [name, value] : arguments.named) {
    const auto* found = std::find(names.begin(), names.end(), name);
    const auto position = static_cast<std::size_t>(found - names.begin());
    if (found == names.end() || bound[position])
      return in.type_error(std::string(what) + "() got an unexpected keyword argument '" + shortened(name, kNameBytes) +
                           "'");
    bound[position] = std::move(value);
  }
  for (std::size_t i = 0; i < required; ++i) {
    if (!bound[i])
      return in.type_error(std::string(what) + "() missing argument '" + std::string(names.begin()[i]) + "'");
  }
  return bound;
}

std::string_view word(const std::optional<Value>& argument, std::string_view fallback) {
  if (!argument) return fallback;
  return argument->text() ? std::string_view(argument->text()->bytes) : std::string_view();
}

namespace {

// What jinja2's sandbox allows.
constexpr std::int64_t kMaxRange = 100'000;

Maybe make_range(Interpreter& in, Arguments& arguments) {
  auto bound = bind(in, "range", arguments, {"start", "stop", "step"}, 1);
  if (!bound) return std::nullopt;
  for (const auto& part : *bound) {
    if (part && part->is_undefined()) return in.undefined_error(*part);
    if (part && !part->index())
      return in.type_error("'" + std::string(part->type_name()) + "' object cannot be interpreted as an integer");
  }
  std::int64_t start = *(*bound)[0]->index(), stop = 0, step = 1;
  if ((*bound)[1]) {
    stop = *(*bound)[1]->index();
  } else {
    stop = std::exchange(start, 0);
  }
  if ((*bound)[2]) step = *(*bound)[2]->index();
  if (step == 0) return in.type_error("range() arg 3 must not be zero");
  constexpr std::int64_t kFar = std::int64_t{1} << 60;
  if (start < -kFar || start > kFar || stop < -kFar || stop > kFar || step < -kFar || step > kFar)
    return in.limit("a range of more than 64 bits");
  const std::int64_t distance = step > 0 ? stop - start : start - stop;
  const std::int64_t stride = step > 0 ? step : -step;
  const std::int64_t count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  if (count > kMaxRange) return in.limit("a range of more than " + std::to_string(kMaxRange) + " numbers");
  if (!in.room_for(static_cast<std::size_t>(count))) return std::nullopt;
  std::vector<Value> items;
  items.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) items.push_back(Value::integer(start + i * step));
  auto made = std::make_shared<Sequence>(std::move(items), SequenceKind::range);
  made->start = start;
  made->stop = stop;
  made->step = step;
  return Value(Value::Data(SequencePtr(std::move(made))));
}

// dict(mapping or pairs, **named) as Python has it; also the arguments of namespace().
std::shared_ptr<Dict> collect(Interpreter& in, std::string_view what, Arguments& arguments) {
  auto made = std::make_shared<Dict>();
  if (arguments.positional.size() > 1) {
    in.type_error(std::string(what) + "() expected at most 1 argument");
    return nullptr;
  }
  if (!arguments.positional.empty() && arguments.positional[0].dict()) {
    for (const auto& [key, value] : arguments.positional[0].dict()->items()) {
      if (!in.insert(made.get(), key, value)) return nullptr;
    }
  } else if (!arguments.positional.empty()) {
    const auto items = in.iterate(arguments.positional[0]);
    if (!items) return nullptr;
    for (const Value& item : *items) {
      const auto pair = in.iterate(item);
      if (!pair) return nullptr;
      if (pair->size() != 2) {
        in.type_error("a dictionary needs pairs");
        return nullptr;
      }
      if (!in.insert(made.get(), (*pair)[0], (*pair)[1])) return nullptr;
    }
  }
  for (auto& [name, value] : arguments.named) {
    const Maybe key = in.text(name);
    if (!key || !in.insert(made.get(), *key, std::move(value))) return nullptr;
  }
  return made;
}

// The global `dict`: makes one, and has fromkeys.
class DictType : public Object {
 public:
  Maybe call(Interpreter& in, Arguments& arguments) override {
    auto made = collect(in, "dict", arguments);
    return made ? in.dict(std::move(made)) : std::nullopt;
  }
  Maybe attribute(Interpreter& in, std::string_view name) override {
    if (name != "fromkeys") return Object::attribute(in, name);
    return Value(Value::Data(ObjectPtr(std::make_shared<Builtin>(from_keys))));
  }

 private:
  static Maybe from_keys(Interpreter& in, Arguments& arguments) {
    auto bound = bind(in, "fromkeys", arguments, {"iterable", "value"}, 1);
    const auto keys = bound ? in.iterate(*(*bound)[0]) : std::nullopt;
    if (!keys) return std::nullopt;
    auto made = std::make_shared<Dict>();
    for (const Value& key : *keys) {
      if (!in.insert(made.get(), key, (*bound)[1].value_or(Value::none()))) return std::nullopt;
    }
    return in.dict(std::move(made));
  }
};

Maybe make_namespace(Interpreter& in, Arguments& arguments) {
  const auto collected = collect(in, "namespace", arguments);
  if (!collected) return std::nullopt;
  auto space = std::make_shared<Namespace>();
  for (const auto& [key, value] : collected->items()) {
    if (!key.text()) return in.type_error("a namespace has names only");
    if (key.text()->bytes.starts_with('_')) return in.type_error("a name of a namespace that begins with '_'");
    if (!in.room(key.text()->bytes.size())) return std::nullopt;
    space->attributes.emplace_back(key.text()->bytes, value);
  }
  return in.made_namespace(std::move(space));
}

Maybe raise_exception(Interpreter& in, Arguments& arguments) {
  auto bound = bind(in, "raise_exception", arguments, {"message"}, 1);
  if (!bound) return std::nullopt;
  const Maybe message = in.as_text(*(*bound)[0]);
  if (!message) return std::nullopt;
  const std::string& reason = message->text()->bytes;
  return in.fail("template.raised", reason.empty() ? "the template refuses the chat and gives no reason" : reason);
}

// Python's datetime.now().strftime(): a time without a zone, and microseconds as %f.
std::string zoneless(const std::string& format, long microseconds) {
  std::string out;
  for (std::size_t at = 0; at < format.size(); ++at) {
    const char next = format[at] == '%' && at + 1 < format.size() ? format[at + 1] : '\0';
    if (next == 'f') {
      const std::string digits = std::to_string(1'000'000 + microseconds);
      out += digits.substr(1);
    } else if (next != 'z' && next != 'Z') {
      out += format[at];
      if (next == '%') out += next;
      if (next != '%') continue;
    }
    ++at;
  }
  return out;
}

Maybe strftime_now(Interpreter& in, Arguments& arguments) {
  auto bound = bind(in, "strftime_now", arguments, {"format"}, 1);
  if (!bound) return std::nullopt;
  const auto* text = (*bound)[0]->text();
  if (!text) return in.type_error("strftime_now() needs a string");
  timespec now{};
  std::tm parts{};
  if (clock_gettime(CLOCK_REALTIME, &now) != 0 || localtime_r(&now.tv_sec, &parts) == nullptr)
    return in.type_error("no local time");
  parts.tm_zone = "";
  parts.tm_gmtoff = 0;
  if (!in.charge(text->bytes.size())) return std::nullopt;
  const std::string format = zoneless(text->bytes, now.tv_nsec / 1000);
  // A format without any text gives the same zero as one that is too long.
  if (format.empty()) return in.text("");
  char buffer[1024];
  const std::size_t size = std::strftime(buffer, sizeof buffer, format.c_str(), &parts);
  if (size == 0) return in.limit("a date of more than 1024 bytes");
  return in.text(std::string_view(buffer, size));
}

class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {
    for (const Value& item : items_) depth = std::max(depth, 1 + item.depth());
  }
  [[nodiscard]] bool callable() const override { return false; }
  Maybe attribute(Interpreter& in, std::string_view name) override;

 private:
  class Method;
  std::vector<Value> items_;
  std::size_t at_ = 0;
};

class Cycler::Method : public Object {
 public:
  Method(std::shared_ptr<Cycler> cycler, bool resets) : cycler_(std::move(cycler)), resets_(resets) {
    depth = cycler_->depth + 1;
  }
  Maybe call(Interpreter&, Arguments&) override {
    if (resets_) {
      cycler_->at_ = 0;
      return Value::none();
    }
    const std::size_t at = cycler_->at_;
    cycler_->at_ = (at + 1) % cycler_->items_.size();
    return cycler_->items_[at];
  }

 private:
  std::shared_ptr<Cycler> cycler_;
  bool resets_;
};

Maybe Cycler::attribute(Interpreter& in, std::string_view name) {
  if (name == "current") return items_[at_];
  if (name != "next" && name != "reset") return Object::attribute(in, name);
  return Value(Value::Data(ObjectPtr(std::make_shared<Method>(shared_from_this(), name == "reset"))));
}

Maybe make_cycler(Interpreter& in, Arguments& arguments) {
  if (arguments.positional.empty() || !arguments.named.empty()) return in.type_error("cycler() needs items");
  auto made = std::make_shared<Cycler>(std::move(arguments.positional));
  if (made->depth > in.limits().depth) return in.limit("a value nested too deeply");
  return Value(Value::Data(ObjectPtr(std::move(made))));
}

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}
  Maybe call(Interpreter& in, Arguments&) override {
    return std::exchange(used_, true) ? Maybe(separator_) : in.text("");
  }

 private:
  Value separator_;
  bool used_ = false;
};

Maybe make_joiner(Interpreter& in, Arguments& arguments) {
  auto bound = bind(in, "joiner", arguments, {"sep"});
  if (!bound) return std::nullopt;
  Maybe separator = (*bound)[0] ? in.as_text(*(*bound)[0]) : in.text(", ");
  if (!separator || !in.room_for(1)) return std::nullopt;
  return Value(Value::Data(ObjectPtr(std::make_shared<Joiner>(std::move(*separator)))));
}

}  // namespace

ObjectPtr find_global(std::string_view name) {
  static constexpr std::pair<std::string_view, Builtin::Function> kGlobals[] = {
      {"range", make_range},   {"namespace", make_namespace},        {"cycler", make_cycler},
      {"joiner", make_joiner}, {"raise_exception", raise_exception}, {"strftime_now", strftime_now}};
  if (name == "dict") return std::make_shared<DictType>();
  for (const auto& [known, function] : kGlobals) {
    if (known == name) return std::make_shared<Builtin>(function);
  }
  return nullptr;
}

}  // namespace moracle::jinja
