// The methods of strings, lists and dicts. Those that change their object are refused, as the immutable sandbox does.
#include <algorithm>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/text_ops.h"
#include "text/template/unicode.h"

namespace moracle::jinja {
namespace {

using Method = Maybe (*)(Interpreter&, const Value&, Arguments&);

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, Method method) : self_(std::move(self)), method_(method) { depth = self_.depth() + 1; }
  Maybe call(Interpreter& in, Arguments& arguments) override {
    const Text* text = self_.text();
    if (text && !in.charge(text->bytes.size() / 128)) return std::nullopt;
    return method_(in, self_, arguments);
  }

 private:
  Value self_;
  Method method_;
};

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
  if (in.failed() || (characters && !in.charge(characters->bytes.size() / 8))) return std::nullopt;
  const std::string_view set = characters ? std::string_view(characters->bytes) : std::string_view();
  return in.text(std::string(strip(self.text()->bytes, side, characters ? &set : nullptr)), self.text()->markup);
}

template <bool from_right>
Maybe split_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "split", arguments, {"sep", "maxsplit"});
  if (!bound) return std::nullopt;
  const Text* separator = text_argument(in, *bound, 0);
  const auto most = in.failed() ? std::nullopt : integer_argument(in, *bound, 1, -1);
  if (!most) return std::nullopt;
  if (separator && separator->bytes.empty()) return in.type_error("empty separator");
  if (separator && !in.charge_search(self.text()->bytes.size(), separator->bytes.size())) return std::nullopt;
  const std::string_view text = self.text()->bytes;
  const auto parts =
      separator ? split_at(text, separator->bytes, *most, from_right) : split_space(text, *most, from_right);
  return make_list(in, parts);
}

Maybe split_lines_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "splitlines", arguments, {"keepends"});
  if (!bound) return std::nullopt;
  return make_list(in, split_lines(self.text()->bytes, (*bound)[0] && (*bound)[0]->truthy()));
}

template <bool at_end>
Maybe affix_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "startswith", arguments, {"prefix", "start", "end"}, 1);
  if (!bound) return std::nullopt;
  const Maybe part =
      in.slice(self, (*bound)[1].value_or(Value::none()), (*bound)[2].value_or(Value::none()), Value::none());
  if (!part) return std::nullopt;
  const std::string_view text = part->text()->bytes;
  std::vector<Value> candidates = {*(*bound)[0]};
  if (const auto* list = (*bound)[0]->sequence(); list && list->flavour == Flavour::tuple) candidates = list->items;
  for (const Value& candidate : candidates) {
    if (!candidate.text())
      return in.type_error("first arg must be str or a tuple of str, not " + std::string(candidate.type_name()));
    if (!in.charge(1)) return std::nullopt;
    if (at_end ? text.ends_with(candidate.text()->bytes) : text.starts_with(candidate.text()->bytes))
      return Value::boolean(true);
  }
  return Value::boolean(false);
}

template <std::string (*map)(std::string_view)>
Maybe map_method(Interpreter& in, const Value& self, Arguments& arguments) {
  if (!bind(in, "case", arguments, {})) return std::nullopt;
  if (!in.charge(self.text()->bytes.size() / 16)) return std::nullopt;
  return in.text(map(self.text()->bytes), self.text()->markup);
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
Maybe find_text(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "find", arguments, {"sub", "start", "end"}, 1);
  if (!bound) return std::nullopt;
  if (!(*bound)[0]->text()) return in.type_error("must be str, not " + std::string((*bound)[0]->type_name()));
  const Maybe all = in.length(self);
  const auto start = all ? integer_argument(in, *bound, 1, 0) : std::nullopt;
  const Maybe part =
      start ? in.slice(self, Value::integer(*start), (*bound)[2].value_or(Value::none()), Value::none()) : Maybe();
  if (!part) return std::nullopt;
  const std::string& text = part->text()->bytes;
  const std::string& wanted = (*bound)[0]->text()->bytes;
  if (!in.charge_search(text.size(), wanted.size())) return std::nullopt;
  const std::int64_t size = *all->index();
  const std::int64_t offset = *start < 0 ? std::max<std::int64_t>(0, *start + size) : *start;
  const std::size_t at = offset > size ? std::string::npos : from_right ? text.rfind(wanted) : text.find(wanted);
  if (at != std::string::npos)
    return Value::integer(offset + static_cast<std::int64_t>(count_points(std::string_view(text).substr(0, at))));
  if (must_be_there) return in.type_error("substring not found");
  return Value::integer(-1);
}

Maybe count_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "count", arguments, {"sub"}, 1);
  if (!bound) return std::nullopt;
  if (!(*bound)[0]->text()) return in.type_error("must be str, not " + std::string((*bound)[0]->type_name()));
  const std::string_view text = self.text()->bytes;
  const std::string_view wanted = (*bound)[0]->text()->bytes;
  if (wanted.empty()) return Value::integer(static_cast<std::int64_t>(count_points(text)) + 1);
  if (!in.charge_search(text.size(), wanted.size())) return std::nullopt;
  std::int64_t count = 0;
  for (std::size_t at = text.find(wanted); at != std::string_view::npos; at = text.find(wanted, at + wanted.size()))
    ++count;
  return Value::integer(count);
}

Maybe join_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "join", arguments, {"iterable"}, 1);
  const auto items = bound ? in.iterate(*(*bound)[0]) : std::nullopt;
  if (!items) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < items->size(); ++i) {
    if (!(*items)[i].text())
      return in.type_error("sequence item " + std::to_string(i) + ": expected str instance, " +
                           std::string((*items)[i].type_name()) + " found");
    if (i > 0) out += self.text()->bytes;
    out += (*items)[i].text()->bytes;
    if (out.size() > in.limits().output_bytes) break;
  }
  return in.text(std::move(out));
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
  return in.text(std::string(text), self.text()->markup);
}

template <bool from_right>
Maybe partition_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "partition", arguments, {"sep"}, 1);
  if (!bound) return std::nullopt;
  if (!(*bound)[0]->text()) return in.type_error("must be str, not " + std::string((*bound)[0]->type_name()));
  const std::string& text = self.text()->bytes;
  const std::string& separator = (*bound)[0]->text()->bytes;
  if (separator.empty()) return in.type_error("empty separator");
  if (!in.charge_search(text.size(), separator.size())) return std::nullopt;
  const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
  const Value nothing = Value::text("");
  if (at == std::string::npos) {
    return in.sequence(
        from_right ? std::vector<Value>{nothing, nothing, self} : std::vector<Value>{self, nothing, nothing},
        Flavour::tuple);
  }
  return in.sequence({Value::text(text.substr(0, at)), *(*bound)[0], Value::text(text.substr(at + separator.size()))},
                     Flavour::tuple);
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
  if (static_cast<std::size_t>(*width) > in.limits().output_bytes / fill.size())
    return in.limit("a width that is too large");
  // CPython rounds the left margin of center() up where both the margin and the width are odd.
  const std::int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 + (missing & *width & 1) : missing;
  std::string out;
  const bool sign = align == '0' && !text.empty() && (text[0] == '-' || text[0] == '+');
  if (sign) out.push_back(text[0]);
  for (std::int64_t i = 0; i < left; ++i) out += fill;
  out += sign ? text.substr(1) : text;
  for (std::int64_t i = left; i < missing; ++i) out += fill;
  return in.text(std::move(out), self.text()->markup);
}

#define MORACLE_TEXT_CLASS(name)                                                 \
  Maybe class_##name(Interpreter& in, const Value& self, Arguments& arguments) { \
    if (!bind(in, "is" #name, arguments, {})) return std::nullopt;               \
    if (!in.charge(self.text()->bytes.size() / 16)) return std::nullopt;         \
    return Value::boolean(has_class(self.text()->bytes, #name));                 \
  }
MORACLE_TEXT_CLASS(alnum)
MORACLE_TEXT_CLASS(alpha)
MORACLE_TEXT_CLASS(ascii)
MORACLE_TEXT_CLASS(decimal)
MORACLE_TEXT_CLASS(digit)
MORACLE_TEXT_CLASS(lower)
MORACLE_TEXT_CLASS(numeric)
MORACLE_TEXT_CLASS(printable)
MORACLE_TEXT_CLASS(space)
MORACLE_TEXT_CLASS(title)
MORACLE_TEXT_CLASS(upper)
#undef MORACLE_TEXT_CLASS

Maybe dict_view(Interpreter& in, const Value& self, Flavour flavour) {
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->items()) {
    if (flavour == Flavour::items) {
      Maybe pair = in.sequence({key, value}, Flavour::tuple);
      if (!pair) return std::nullopt;
      items.push_back(std::move(*pair));
    } else {
      items.push_back(flavour == Flavour::keys ? key : value);
    }
  }
  return in.sequence(std::move(items), flavour);
}

template <Flavour flavour>
Maybe view_method(Interpreter& in, const Value& self, Arguments& arguments) {
  if (!bind(in, "items", arguments, {})) return std::nullopt;
  return dict_view(in, self, flavour);
}

Maybe get_method(Interpreter& in, const Value& self, Arguments& arguments) {
  const auto bound = bind(in, "get", arguments, {"key", "default"}, 1);
  const auto there = bound ? in.contains(self, *(*bound)[0]) : std::nullopt;
  if (!there) return std::nullopt;
  if (*there) return *self.dict()->find(*(*bound)[0]);
  return (*bound)[1].value_or(Value::none());
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

struct Entry {
  std::string_view name;
  Method method;
};

constexpr Entry kTextMethods[] = {{"strip", strip_method<Side::both>},
                                  {"lstrip", strip_method<Side::left>},
                                  {"rstrip", strip_method<Side::right>},
                                  {"split", split_method<false>},
                                  {"rsplit", split_method<true>},
                                  {"splitlines", split_lines_method},
                                  {"startswith", affix_method<false>},
                                  {"endswith", affix_method<true>},
                                  {"upper", map_method<to_upper>},
                                  {"lower", map_method<to_lower>},
                                  {"casefold", map_method<to_lower>},
                                  {"title", map_method<to_title>},
                                  {"capitalize", map_method<to_capitalized>},
                                  {"swapcase", map_method<swap_case>},
                                  {"replace", replace_method},
                                  {"find", find_text<false, false>},
                                  {"rfind", find_text<true, false>},
                                  {"index", find_text<false, true>},
                                  {"rindex", find_text<true, true>},
                                  {"count", count_method},
                                  {"join", join_method},
                                  {"format", format_method},
                                  {"removeprefix", remove_affix<false>},
                                  {"removesuffix", remove_affix<true>},
                                  {"partition", partition_method<false>},
                                  {"rpartition", partition_method<true>},
                                  {"ljust", pad_method<'<'>},
                                  {"rjust", pad_method<'>'>},
                                  {"center", pad_method<'^'>},
                                  {"zfill", pad_method<'0'>},
                                  {"isalnum", class_alnum},
                                  {"isalpha", class_alpha},
                                  {"isascii", class_ascii},
                                  {"isdecimal", class_decimal},
                                  {"isdigit", class_digit},
                                  {"islower", class_lower},
                                  {"isnumeric", class_numeric},
                                  {"isprintable", class_printable},
                                  {"isspace", class_space},
                                  {"istitle", class_title},
                                  {"isupper", class_upper}};

constexpr Entry kDictMethods[] = {{"items", view_method<Flavour::items>},
                                  {"keys", view_method<Flavour::keys>},
                                  {"values", view_method<Flavour::values>},
                                  {"get", get_method},
                                  {"copy", copy_method}};

constexpr Entry kListMethods[] = {{"count", list_count}, {"index", list_index}, {"copy", copy_method}};

constexpr std::string_view kRefused[] = {"append", "clear",   "extend",     "insert", "pop",   "popitem",
                                         "remove", "reverse", "setdefault", "sort",   "update"};

template <std::size_t size>
Maybe find_in(const Entry (&table)[size], const Value& self, std::string_view name) {
  const auto* found =
      std::find_if(std::begin(table), std::end(table), [&](const Entry& entry) { return entry.name == name; });
  if (found == std::end(table)) return std::nullopt;
  return Value(Value::Data(ObjectPtr(std::make_shared<BoundMethod>(self, found->method))));
}

bool is_refused(const Value& self, std::string_view name) {
  if (std::find(std::begin(kRefused), std::end(kRefused), name) == std::end(kRefused)) return false;
  const bool of_dict = name == "popitem" || name == "setdefault" || name == "update";
  return name == "pop" || name == "clear" || of_dict == (self.dict() != nullptr);
}

}  // namespace

Maybe find_method(const Value& self, std::string_view name) {
  if (self.text()) return find_in(kTextMethods, self, name);
  const auto* list = self.sequence();
  const bool plain = list && list->flavour <= Flavour::tuple;
  if ((self.dict() || (list && list->flavour == Flavour::list)) && is_refused(self, name))
    return Interpreter::undefined(
        "access to attribute '" + std::string(name) + "' of '" + std::string(self.type_name()) + "' object is unsafe.",
        true);
  if (self.dict()) return find_in(kDictMethods, self, name);
  return plain ? find_in(kListMethods, self, name) : std::nullopt;
}

}  // namespace moracle::jinja
