// The tests behind "is".
#include <algorithm>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

using Answer = std::optional<bool>;

Answer divides(Interpreter& in, const Value& value, const Value& by) {
  const Maybe rest = in.binary("%", value, by);
  if (!rest) return std::nullopt;
  return in.equal(*rest, Value::integer(0));
}

Answer parity(Interpreter& in, const Value& value, std::int64_t wanted) {
  const Maybe rest = in.binary("%", value, Value::integer(2));
  if (!rest) return std::nullopt;
  return in.equal(*rest, Value::integer(wanted));
}

template <TextCase wanted>
Answer is_case(Interpreter& in, const Value& value, const Value& /*none*/) {
  const Maybe text = in.as_text(value);
  if (!text) return std::nullopt;
  return has_case(text->text()->bytes, wanted);
}

Answer same(const Value& a, const Value& b) {
  if (a.address() || b.address()) return a.address() == b.address();
  return a.type_name() == b.type_name() && scalar_equal(a, b);
}

bool is_sequence(const Value& value) {
  const auto* list = value.sequence();
  return value.text() || value.dict() || value.is_undefined() || (list && list->kind < SequenceKind::keys);
}

constexpr auto kEqual = [](Interpreter& in, const Value& a, const Value& b) -> Answer { return in.equal(a, b); };
constexpr auto kDiffers = [](Interpreter& in, const Value& a, const Value& b) -> Answer {
  const auto equal = in.equal(a, b);
  if (!equal) return std::nullopt;
  return !*equal;
};
constexpr auto kLess = [](Interpreter& in, const Value& a, const Value& b) -> Answer { return in.less(a, b); };
constexpr auto kGreater = [](Interpreter& in, const Value& a, const Value& b) -> Answer { return in.less(b, a); };
Answer less_or_equal(Interpreter& in, const Value& a, const Value& b) {
  const auto less = in.less(a, b);
  if (!less || *less) return less;
  return in.equal(a, b);
}
constexpr auto kAtMost = [](Interpreter& in, const Value& a, const Value& b) { return less_or_equal(in, a, b); };
constexpr auto kAtLeast = [](Interpreter& in, const Value& a, const Value& b) -> Answer {
  const auto greater = in.less(b, a);
  if (!greater || *greater) return greater;
  return in.equal(a, b);
};

constexpr TestEntry kTests[] = {
    {"defined", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return !v.is_undefined(); }},
    {"undefined", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.is_undefined(); }},
    {"none", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.is_none(); }},
    {"string", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.text() != nullptr; }},
    {"number", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.is_number(); }},
    {"integer", 0,
     [](Interpreter&, const Value& v, const Value&) -> Answer { return v.as<std::int64_t>() != nullptr; }},
    {"float", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.as<double>() != nullptr; }},
    {"boolean", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.as<bool>() != nullptr; }},
    {"true", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.as<bool>() && *v.as<bool>(); }},
    {"false", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.as<bool>() && !*v.as<bool>(); }},
    {"mapping", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.dict() != nullptr; }},
    {"sequence", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return is_sequence(v); }},
    {"iterable", 0,
     [](Interpreter&, const Value& v, const Value&) -> Answer {
       return v.text() || v.dict() || v.sequence() || v.is_undefined() || v.as<IteratorPtr>();
     }},
    {"callable", 0,
     [](Interpreter&, const Value& v, const Value&) -> Answer {
       return v.is_undefined() || (v.as<ObjectPtr>() && (*v.as<ObjectPtr>())->callable());
     }},
    {"even", 0, [](Interpreter& in, const Value& v, const Value&) -> Answer { return parity(in, v, 0); }},
    {"odd", 0, [](Interpreter& in, const Value& v, const Value&) -> Answer { return parity(in, v, 1); }},
    {"lower", 0, is_case<TextCase::lower>, TextCost::walk},
    {"upper", 0, is_case<TextCase::upper>, TextCost::walk},
    {"escaped", 0, [](Interpreter&, const Value& v, const Value&) -> Answer { return v.text() && v.text()->markup; }},
    {"filter", 0,
     [](Interpreter&, const Value& v, const Value&) -> Answer { return v.text() && find_filter(v.text()->bytes); }},
    {"test", 0,
     [](Interpreter&, const Value& v, const Value&) -> Answer { return v.text() && find_test(v.text()->bytes); }},
    {"divisibleby", 1, divides},
    {"sameas", 1, [](Interpreter&, const Value& v, const Value& other) -> Answer { return same(v, other); }},
    {"in", 1, [](Interpreter& in, const Value& v, const Value& all) -> Answer { return in.contains(all, v); }},
    {"eq", 1, kEqual},
    {"==", 1, kEqual},
    {"equalto", 1, kEqual},
    {"ne", 1, kDiffers},
    {"!=", 1, kDiffers},
    {"lt", 1, kLess},
    {"<", 1, kLess},
    {"lessthan", 1, kLess},
    {"gt", 1, kGreater},
    {">", 1, kGreater},
    {"greaterthan", 1, kGreater},
    {"le", 1, kAtMost},
    {"<=", 1, kAtMost},
    {"ge", 1, kAtLeast},
    {">=", 1, kAtLeast},
};

}  // namespace

const TestEntry* find_test(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const TestEntry& entry) { return entry.name == name; });
  return found == std::end(kTests) ? nullptr : found;
}

std::span<const TestEntry> all_tests() {
  return kTests;
}

std::optional<bool> Interpreter::apply_test(const std::string& name, const Value& value, Arguments& arguments) {
  const TestEntry* entry = find_test(name);
  if (!entry) return type_error("No test named '" + shortened(name, kNameBytes) + "'");
  if (arguments.positional.size() != entry->arguments || !arguments.named.empty())
    return type_error("the test '" + name + "' takes " + std::to_string(entry->arguments) + " arguments");
  if (!charge_texts(entry->cost, value, arguments)) return std::nullopt;
  return entry->test(*this, value, entry->arguments ? arguments.positional[0] : Value());
}

}  // namespace moracle::jinja
