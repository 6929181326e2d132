// The methods of strings, lists and dicts. Those that change their object are refused, as the immutable sandbox does.
#include <algorithm>
#include <utility>

#include "text/template/builtins/text_ops.h"
#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, const MethodEntry& entry) : self_(std::move(self)), entry_(entry) {
    depth = self_.depth() + 1;
  }
  Maybe call(Interpreter& in, Arguments& arguments) override {
    if (!in.charge_texts(entry_.cost, self_, arguments)) return std::nullopt;
    return entry_.method(in, self_, arguments);
  }

 private:
  Value self_;
  const MethodEntry& entry_;
};

// text[start:end] of the i-th and the next argument.
std::optional<std::string_view> part_argument(Interpreter& in, const Value& self, const Bound& bound, std::size_t i) {
  return in.part(*self.text(), bound[i].value_or(Value::none()), bound[i + 1].value_or(Value::none()));
}

// The i-th argument as text; nullptr with `failed` where it is there but no text.
const Text* text_argument(Interpreter& in, const Bound& bound, std::size_t i) {
  if (!bound[i] || bound[i]->is_none()) return nullptr;
  if (!bound[i]->text()) in.type_error("a string is wanted, not " + std::string(bound[i]->type_name()));
  return bound[i]->text();
}

std::optional<std::int64_t> integer_argument(Interpreter& in, const Bound& bound, std::size_t i,
                                             std::int64_t fallback) {
  if (!bound[i]) return fallback;
  if (!bound[i]->index()) return in.type_error("an integer is wanted, not " + std::string(bound[i]->type_name()));
  return bound[i]->index();
}

template <Side side>
Maybe strip_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "strip", arguments, {"chars"});
  if (!bound) return std::nullopt;
  const Text* characters = text_argument(in, *bound, 0);
  // The set is sorted.
  if (in.failed() || (characters && !in.charge(characters->bytes.size()))) return std::nullopt;
  const std::string_view set = characters ? std::string_view(characters->bytes) : std::string_view();
  return in.text(strip(self.text()->bytes, side, characters ? &set : nullptr), self.text()->markup);
}

template <bool from_right>
Maybe split_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "split", arguments, {"sep", "maxsplit"});
  if (!bound) return std::nullopt;
  const Text* separator = text_argument(in, *bound, 0);
  const auto most = in.failed() ? std::nullopt : integer_argument(in, *bound, 1, -1);
  if (!most) return std::nullopt;
  if (separator && separator->bytes.empty()) return in.type_error("empty separator");
  const Text& text = *self.text();
  return separator ? split_at(in, text, separator->bytes, *most, from_right) : split_space(in, text, *most, from_right);
}

Maybe split_lines_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "splitlines", arguments, {"keepends"});
  if (!bound) return std::nullopt;
  const bool keep = (*bound)[0] && (*bound)[0]->truthy();
  const std::string_view text = self.text()->bytes;
  TextList list(in, *self.text());
  for (std::size_t at = 0; at < text.size();) {
    if (!list.add(next_line(text, &at, keep))) return std::nullopt;
  }
  return list.finish();
}

template <bool at_end>
Maybe affix_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "startswith", arguments, {"prefix", "start", "end"}, 1);
  const auto text = bound ? part_argument(in, self, *bound, 1) : std::nullopt;
  if (!text) return std::nullopt;
  const Value& given = *(*bound)[0];
  const auto* list = given.sequence();
  const bool several = list && list->kind == SequenceKind::tuple;
  for (std::size_t i = 0; i < (several ? list->items.size() : 1); ++i) {
    const Value& candidate = several ? list->items[i] : given;
    if (!candidate.text())
      return in.type_error("first arg must be str or a tuple of str, not " + std::string(candidate.type_name()));
    const std::string_view affix = candidate.text()->bytes;
    if (!in.charge(1) || !in.charge_text(TextCost::scan, affix.size())) return std::nullopt;
    if (at_end ? text->ends_with(affix) : text->starts_with(affix)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <std::string (*map)(std::string_view)>
Maybe map_method(Interpreter& in, const Value& self, Arguments& arguments) {
  if (!bind(in, "case", arguments, {}) || !in.room(self.text()->bytes.size())) return std::nullopt;
  return in.made_text(map(self.text()->bytes), self.text()->markup);
}

Maybe replace_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "replace", arguments, {"old", "new", "count"}, 2);
  if (!bound) return std::nullopt;
  const auto most = integer_argument(in, *bound, 2, -1);
  if (!most) return std::nullopt;
  const Text* from = (*bound)[0]->text();
  const Text* to = (*bound)[1]->text();
  if (!from || !to) return in.type_error("replace() arguments must be str");
  return replace_text(in, self.text()->bytes, from->bytes, to->bytes, *most);
}

template <bool from_right, bool must_be_there>
Maybe find_method_of(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "find", arguments, {"sub", "start", "end"}, 1);
  if (!bound) return std::nullopt;
  if (!(*bound)[0]->text()) return in.type_error("must be str, not " + std::string((*bound)[0]->type_name()));
  const Maybe all = in.length(self);
  const auto start = all ? integer_argument(in, *bound, 1, 0) : std::nullopt;
  const auto text = start ? part_argument(in, self, *bound, 1) : std::nullopt;
  const auto at = text ? find_text(in, *text, (*bound)[0]->text()->bytes, from_right) : std::nullopt;
  if (!at) return std::nullopt;
  const std::int64_t size = *all->index();
  const std::int64_t offset = *start < 0 ? std::max<std::int64_t>(0, *start + size) : *start;
  if (*at != std::string_view::npos && offset <= size)
    return Value::integer(offset + static_cast<std::int64_t>(count_points(text->substr(0, *at))));
  if (must_be_there) return in.type_error("substring not found");
  return Value::integer(-1);
}

Maybe count_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "count", arguments, {"sub"}, 1);
  if (!bound) return std::nullopt;
  if (!(*bound)[0]->text()) return in.type_error("must be str, not " + std::string((*bound)[0]->type_name()));
  const std::string_view text = self.text()->bytes;
  const std::string_view wanted = (*bound)[0]->text()->bytes;
  if (wanted.empty()) {
    const Maybe points = in.length(self);
    return points ? Maybe(Value::integer(*points->index() + 1)) : std::nullopt;
  }
  return count_text(in, text, wanted);
}

Maybe join_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "join", arguments, {"iterable"}, 1);
  const auto items = bound ? in.iterate(*(*bound)[0]) : std::nullopt;
  if (!items) return std::nullopt;
  for (std::size_t i = 0; i < items->size(); ++i) {
    if (!(*items)[i].text())
      return in.type_error("sequence item " + std::to_string(i) + ": expected str instance, " +
                           std::string((*items)[i].type_name()) + " found");
  }
  return in.join(*items, self.text()->bytes);
}

template <bool at_end>
Maybe remove_affix(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "removeprefix", arguments, {"affix"}, 1);
  if (!bound) return std::nullopt;
  if (!(*bound)[0]->text()) return in.type_error("argument must be str, not " + std::string((*bound)[0]->type_name()));
  std::string_view text = self.text()->bytes;
  const std::string_view affix = (*bound)[0]->text()->bytes;
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return in.text(text, self.text()->markup);
}

template <bool from_right>
Maybe partition_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "partition", arguments, {"sep"}, 1);
  if (!bound) return std::nullopt;
  if (!(*bound)[0]->text()) return in.type_error("must be str, not " + std::string((*bound)[0]->type_name()));
  const std::string& text = self.text()->bytes;
  const std::string& separator = (*bound)[0]->text()->bytes;
  if (separator.empty()) return in.type_error("empty separator");
  const auto at = find_text(in, text, separator, from_right);
  const Maybe nothing = at ? in.text("") : std::nullopt;
  if (!nothing) return std::nullopt;
  if (*at == std::string::npos) {
    return in.sequence(
        from_right ? std::vector<Value>{*nothing, *nothing, self} : std::vector<Value>{self, *nothing, *nothing},
        SequenceKind::tuple);
  }
  const Maybe before = in.text(std::string_view(text).substr(0, *at));
  const Maybe after = before ? in.text(std::string_view(text).substr(*at + separator.size())) : std::nullopt;
  return after ? in.sequence({*before, *(*bound)[0], *after}, SequenceKind::tuple) : std::nullopt;
}

// ljust, rjust, center and zfill.
template <char align>
Maybe pad_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "ljust", arguments, {"width", "fillchar"}, 1);
  const auto width = bound ? integer_argument(in, *bound, 0, 0) : std::nullopt;
  if (!width) return std::nullopt;
  std::string fill = align == '0' ? "0" : " ";
  if ((*bound)[1]) {
    if (align == '0' || !(*bound)[1]->text() || count_points((*bound)[1]->text()->bytes) != 1)
      return in.type_error("The fill character must be exactly one character long");
    fill = (*bound)[1]->text()->bytes;
  }
  const std::string& text = self.text()->bytes;
  const auto size = static_cast<std::int64_t>(count_points(text));
  if (*width <= size) return self;
  const std::int64_t missing = *width - size;
  if (static_cast<std::size_t>(missing) > in.limits().output_bytes / fill.size())
    return in.limit("a width that is too large");
  if (!in.room(text.size() + static_cast<std::size_t>(missing) * fill.size())) return std::nullopt;
  // CPython rounds the left margin of center() up where both the margin and the width are odd.
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 + (missing & *width & 1) : missing;
  std::string out;
  const auto append_fill = [&](std::int64_t count) {
    if (fill.size() == 1) out.append(static_cast<std::size_t>(count), fill[0]);
    for (std::int64_t i = fill.size() == 1 ? count : 0; i < count; ++i) out += fill;
  };
  const bool sign = align == '0' && !text.empty() && (text[0] == '-' || text[0] == '+');
  if (sign) out.push_back(text[0]);
  append_fill(left);
  out += std::string_view(text).substr(sign ? 1 : 0);
  append_fill(missing - left);
  return Value::text(std::move(out), self.text()->markup);
}

template <TextClass wanted>
Maybe class_method(Interpreter& in, const Value& self, Arguments& arguments) {
  return bind(in, "isalpha", arguments, {}) ? Maybe(Value::boolean(has_class(self.text()->bytes, wanted)))
                                            : std::nullopt;
}

template <TextCase wanted>
Maybe case_method(Interpreter& in, const Value& self, Arguments& arguments) {
  return bind(in, "islower", arguments, {}) ? Maybe(Value::boolean(has_case(self.text()->bytes, wanted)))
                                            : std::nullopt;
}

Maybe dict_view(Interpreter& in, const Value& self, SequenceKind kind) {
  if (!in.room_for(self.dict()->size())) return std::nullopt;
  std::vector<Value> items;
  items.reserve(self.dict()->size());
  for (const auto& [key, value] : self.dict()->items()) {
    if (kind == SequenceKind::items) {
      Maybe pair = in.sequence({key, value}, SequenceKind::tuple);
      if (!pair) return std::nullopt;
      items.push_back(std::move(*pair));
    } else {
      items.push_back(kind == SequenceKind::keys ? key : value);
    }
  }
  return in.made_sequence(std::move(items), kind);
}

template <SequenceKind kind>
Maybe view_method(Interpreter& in, const Value& self, Arguments& arguments) {
  if (!bind(in, "items", arguments, {})) return std::nullopt;
  return dict_view(in, self, kind);
}

Maybe get_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "get", arguments, {"key", "default"}, 1);
  if (!bound) return std::nullopt;
  const Value& key = *(*bound)[0];
  if (!key.hashable()) return in.type_error("unhashable type: '" + std::string(key.type_name()) + "'");
  const auto place = in.find(*self.dict(), key);
  if (!place) return std::nullopt;
  return *place != nullptr ? **place : (*bound)[1].value_or(Value::none());
}

Maybe list_count(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "count", arguments, {"value"}, 1);
  if (!bound) return std::nullopt;
  std::int64_t count = 0;
  for (const Value& item : self.sequence()->items) {
    const auto same = in.equal(item, *(*bound)[0]);
    if (!same) return std::nullopt;
    count += *same ? 1 : 0;
  }
  return Value::integer(count);
}

Maybe list_index(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "index", arguments, {"value"}, 1);
  if (!bound) return std::nullopt;
  const auto& items = self.sequence()->items;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto same = in.equal(items[i], *(*bound)[0]);
    if (!same) return std::nullopt;
    if (*same) return Value::integer(static_cast<std::int64_t>(i));
  }
  return in.type_error("the value is not in the list");
}

Maybe copy_method(Interpreter&, const Value& self, Arguments&) {
  return self;
}

Maybe format_method(Interpreter& in, const Value& self, Arguments& arguments) {
  return format_braces(in, self.text()->bytes, arguments);
}

constexpr MethodEntry kTextMethods[] = {
    {"strip", TextCost::walk, strip_method<Side::both>},
    {"lstrip", TextCost::walk, strip_method<Side::left>},
    {"rstrip", TextCost::walk, strip_method<Side::right>},
    {"split", TextCost::none, split_method<false>},
    {"rsplit", TextCost::none, split_method<true>},
    {"splitlines", TextCost::walk, split_lines_method},
    {"startswith", TextCost::none, affix_method<false>},
    {"endswith", TextCost::none, affix_method<true>},
    {"upper", TextCost::walk, map_method<to_upper>},
    {"lower", TextCost::walk, map_method<to_lower>},
    {"casefold", TextCost::walk, map_method<to_lower>},
    {"title", TextCost::walk, map_method<to_title>},
    {"capitalize", TextCost::walk, map_method<to_capitalized>},
    {"swapcase", TextCost::walk, map_method<swap_case>},
    {"replace", TextCost::none, replace_method},
    {"find", TextCost::none, find_method_of<false, false>},
    {"rfind", TextCost::none, find_method_of<true, false>},
    {"index", TextCost::none, find_method_of<false, true>},
    {"rindex", TextCost::none, find_method_of<true, true>},
    {"count", TextCost::none, count_method},
    {"join", TextCost::none, join_method},
    {"format", TextCost::walk, format_method},
    {"removeprefix", TextCost::scan, remove_affix<false>},
    {"removesuffix", TextCost::scan, remove_affix<true>},
    {"partition", TextCost::none, partition_method<false>},
    {"rpartition", TextCost::none, partition_method<true>},
    {"ljust", TextCost::scan, pad_method<'<'>},
    {"rjust", TextCost::scan, pad_method<'>'>},
    {"center", TextCost::scan, pad_method<'^'>},
    {"zfill", TextCost::scan, pad_method<'0'>},
    {"isalnum", TextCost::walk, class_method<TextClass::alnum>},
    {"isalpha", TextCost::walk, class_method<TextClass::alpha>},
    {"isascii", TextCost::walk, class_method<TextClass::ascii>},
    {"isdecimal", TextCost::walk, class_method<TextClass::decimal>},
    {"isdigit", TextCost::walk, class_method<TextClass::digit>},
    {"islower", TextCost::walk, case_method<TextCase::lower>},
    {"isnumeric", TextCost::walk, class_method<TextClass::numeric>},
    {"isprintable", TextCost::walk, class_method<TextClass::printable>},
    {"isspace", TextCost::walk, class_method<TextClass::space>},
    {"istitle", TextCost::walk, case_method<TextCase::title>},
    {"isupper", TextCost::walk, case_method<TextCase::upper>},
};

constexpr MethodEntry kDictMethods[] = {
    {"items", TextCost::none, view_method<SequenceKind::items>},
    {"keys", TextCost::none, view_method<SequenceKind::keys>},
    {"values", TextCost::none, view_method<SequenceKind::values>},
    {"get", TextCost::none, get_method},
    {"copy", TextCost::none, copy_method},
};

constexpr MethodEntry kListMethods[] = {
    {"count", TextCost::none, list_count},
    {"index", TextCost::none, list_index},
    {"copy", TextCost::none, copy_method},
};

constexpr std::string_view kRefused[] = {"append", "clear",   "extend",     "insert", "pop",   "popitem",
                                         "remove", "reverse", "setdefault", "sort",   "update"};

Maybe find_in(Interpreter& in, std::span<const MethodEntry> table, const Value& self, std::string_view name) {
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const MethodEntry& entry) { return entry.name == name; });
  if (found == table.end() || !in.room_for(1)) return std::nullopt;
  return Value(Value::Data(ObjectPtr(std::make_shared<BoundMethod>(self, *found))));
}

bool is_refused(const Value& self, std::string_view name) {
  if (std::find(std::begin(kRefused), std::end(kRefused), name) == std::end(kRefused)) return false;
  const bool of_dict = name == "popitem" || name == "setdefault" || name == "update";
  return name == "pop" || name == "clear" || of_dict == (self.dict() != nullptr);
}

}  // namespace

std::span<const MethodEntry> text_methods() {
  return kTextMethods;
}
std::span<const MethodEntry> dict_methods() {
  return kDictMethods;
}
std::span<const MethodEntry> list_methods() {
  return kListMethods;
}

Maybe find_method(Interpreter& in, const Value& self, std::string_view name) {
  if (self.text()) return find_in(in, kTextMethods, self, name);
  const auto* list = self.sequence();
  const bool plain = list && list->kind <= SequenceKind::tuple;
  if ((self.dict() || (list && list->kind == SequenceKind::list)) && is_refused(self, name))
    return in.unsafe(self, name);
  if (self.dict()) return find_in(in, kDictMethods, self, name);
  return plain ? find_in(in, kListMethods, self, name) : std::nullopt;
}

}  // namespace moracle::jinja
