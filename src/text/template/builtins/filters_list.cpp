// Filters over sequences and dicts.
#include <algorithm>
#include <charconv>
#include <utility>

#include "text/template/builtins/filters_number.h"
#include "text/template/interpreter.h"
#include "text/template/order.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

// A dotted path of names and positions, as map(attribute=...) and its kin take it.
class Path {
 public:
  static std::optional<Path> parse(Interpreter& in, const std::optional<Value>& attribute) {
    Path path;
    if (!attribute || attribute->is_none()) return path;
    if (!attribute->text()) {
      path.parts_.push_back(*attribute);
      return path;
    }
    std::string_view rest = attribute->text()->bytes;
    if (!in.charge_text(TextCost::scan, rest.size())) return std::nullopt;
    for (;;) {
      const std::size_t dot = rest.find('.');
      const std::string_view part = rest.substr(0, dot);
      std::int64_t position = 0;
      const auto parsed = std::from_chars(part.data(), part.data() + part.size(), position);
      const bool digits =
          !part.empty() && part[0] != '-' && parsed.ec == std::errc{} && parsed.ptr == part.data() + part.size();
      Maybe key = !in.room_for(1) ? std::nullopt : digits ? Maybe(Value::integer(position)) : in.text(part);
      if (!key) return std::nullopt;
      path.parts_.push_back(std::move(*key));
      if (dot == std::string_view::npos) return path;
      rest.remove_prefix(dot + 1);
    }
  }

  Maybe get(Interpreter& in, Value item, const Value* fallback = nullptr) const {
    for (const Value& part : parts_) {
      const Maybe next = in.item(item, part);
      if (!next) return std::nullopt;
      item = next->is_undefined() && fallback ? *fallback : *next;
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
};

Maybe fold_case(Interpreter& in, const Value& value) {
  if (!value.text()) return value;
  const std::size_t size = value.text()->bytes.size();
  if (!in.charge_text(TextCost::walk, size) || !in.room(size)) return std::nullopt;
  return in.made_text(to_lower(value.text()->bytes));
}

// The values `all` in the order of their `keys`; ties keep their order, also when reversed.
Maybe in_order(Interpreter& in, const std::vector<Value>& all, const std::vector<Value>& keys, bool reverse) {
  if (!in.makes(2 * all.size() * sizeof(std::size_t))) return std::nullopt;
  const auto sorted = stable_order(keys.size(), [&](std::size_t a, std::size_t b) {
    return reverse ? in.less(keys[b], keys[a]) : in.less(keys[a], keys[b]);
  });
  if (!sorted || !in.room_for(all.size())) return std::nullopt;
  std::vector<Value> out;
  out.reserve(all.size());
  for (const std::size_t i : *sorted) out.push_back(all[i]);
  return in.made_sequence(std::move(out));
}

bool flag(const std::optional<Value>& value) {
  return value && value->truthy();
}

Maybe join(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "join", arguments, {"d", "attribute"});
  const auto items = bound ? in.iterate(value) : std::nullopt;
  const Maybe separator = items ? in.as_text((*bound)[0].value_or(Value())) : std::nullopt;
  const auto path = separator ? Path::parse(in, (*bound)[1]) : std::nullopt;
  if (!path) return std::nullopt;
  std::vector<Value> texts;
  texts.reserve(items->size());
  for (const Value& item : *items) {
    const Maybe part = path->get(in, item);
    Maybe text = part ? in.as_text(*part) : std::nullopt;
    if (!text) return std::nullopt;
    texts.push_back(std::move(*text));
  }
  return in.join(texts, separator->text()->bytes);
}

Maybe length(Interpreter& in, const Value& value, Arguments& arguments) {
  return bind(in, "length", arguments, {}) ? in.length(value) : std::nullopt;
}

// The first or last item, without a walk over the others. The last of a text is its index -1, which stays markup; the
// first comes from iteration, which gives plain text.
Maybe end_item(Interpreter& in, const Value& value, bool last) {
  if (const auto* string = value.text(); string && !string->bytes.empty()) {
    const std::string_view bytes = string->bytes;
    std::size_t behind = last ? bytes.size() : 0;
    const std::size_t begin = last ? previous_point(bytes, behind) : 0;
    if (!last) next_point(bytes, &behind);
    return in.text(bytes.substr(begin, behind - begin), last && string->markup);
  }
  if (const auto* list = value.sequence(); list && !list->items.empty())
    return last ? list->items.back() : list->items.front();
  const auto items = in.iterate(value);
  if (!items) return std::nullopt;
  if (!items->empty()) return last ? items->back() : items->front();
  return in.undefined(last ? "No last item, sequence was empty." : "No first item, sequence was empty.");
}

Maybe first(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "first", arguments, {})) return std::nullopt;
  if (const auto* iterator = value.as<IteratorPtr>()) {
    Iterator& source = **iterator;
    if (source.next < source.items.size()) return source.items[source.next++];
    return in.undefined("No first item, sequence was empty.");
  }
  return end_item(in, value, false);
}

Maybe last(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "last", arguments, {})) return std::nullopt;
  if (value.as<IteratorPtr>()) return in.type_error("'generator' object is not reversible");
  return end_item(in, value, true);
}

Maybe fallback(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "default", arguments, {"default_value", "boolean"});
  if (!bound) return std::nullopt;
  if (value.is_undefined() || (flag((*bound)[1]) && !value.truthy())) return (*bound)[0] ? (*bound)[0] : in.text("");
  return value;
}

Maybe list(Interpreter& in, const Value& value, Arguments& arguments) {
  auto items = bind(in, "list", arguments, {}) ? in.iterate(value) : std::nullopt;
  return items ? in.sequence(std::move(*items)) : std::nullopt;
}

std::optional<std::vector<Value>> pairs(Interpreter& in, const Dict& dict) {
  if (!in.room_for(dict.size())) return std::nullopt;
  std::vector<Value> out;
  out.reserve(dict.size());
  for (const auto& [key, value] : dict.items()) {
    Maybe pair = in.sequence({key, value}, SequenceKind::tuple);
    if (!pair) return std::nullopt;
    out.push_back(std::move(*pair));
  }
  return out;
}

Maybe items(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "items", arguments, {})) return std::nullopt;
  if (value.is_undefined()) return in.iterator({});
  if (!value.dict()) return in.type_error("Can only get item pairs from a mapping.");
  auto all = pairs(in, *value.dict());
  return all ? in.iterator(std::move(*all)) : std::nullopt;
}

Maybe dictsort(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (!bound) return std::nullopt;
  if (value.is_undefined()) return in.undefined_error(value);
  if (!value.dict()) return in.type_error("dictsort of '" + std::string(value.type_name()) + "'");
  const std::string_view by = word((*bound)[1], "key");
  if (by != "key" && by != "value") return in.type_error("You can only sort by either \"key\" or \"value\"");
  const auto all = pairs(in, *value.dict());
  if (!all) return std::nullopt;
  std::vector<Value> keys;
  for (const auto& [key, item] : value.dict()->items()) {
    const Value& wanted = by == "key" ? key : item;
    Maybe folded = flag((*bound)[0]) ? Maybe(wanted) : fold_case(in, wanted);
    if (!folded) return std::nullopt;
    keys.push_back(std::move(*folded));
  }
  return in_order(in, *all, keys, flag((*bound)[2]));
}

Maybe sort(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const auto all = bound ? in.iterate(value) : std::nullopt;
  if (!all) return std::nullopt;
  // "a,b" sorts by a, then by b.
  std::vector<Path> paths;
  const std::string_view names = word((*bound)[2], "");
  for (std::size_t begin = 0;;) {
    const std::size_t comma = names.find(',', begin);
    const Maybe name = names.empty() ? (*bound)[2] : in.text(names.substr(begin, comma - begin));
    const auto path = in.failed() ? std::nullopt : Path::parse(in, name);
    if (!path) return std::nullopt;
    paths.push_back(*path);
    if (comma == std::string::npos) break;
    begin = comma + 1;
  }
  std::vector<Value> keys;
  for (const Value& item : *all) {
    std::vector<Value> parts;
    for (const Path& path : paths) {
      const Maybe part = path.get(in, item);
      Maybe folded = !part || flag((*bound)[1]) ? part : fold_case(in, *part);
      if (!folded) return std::nullopt;
      parts.push_back(std::move(*folded));
    }
    Maybe key = in.sequence(std::move(parts));
    if (!key) return std::nullopt;
    keys.push_back(std::move(*key));
  }
  return in_order(in, *all, keys, flag((*bound)[0]));
}

Maybe unique(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "unique", arguments, {"case_sensitive", "attribute"});
  const auto all = bound ? in.iterate(value) : std::nullopt;
  const auto path = all ? Path::parse(in, (*bound)[1]) : std::nullopt;
  if (!path) return std::nullopt;
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : *all) {
    const Maybe part = path->get(in, item);
    const Maybe key = !part || flag((*bound)[0]) ? part : fold_case(in, *part);
    if (!key) return std::nullopt;
    const std::size_t before = seen.size();
    if (!in.insert(&seen, *key, Value())) return std::nullopt;
    if (seen.size() > before) out.push_back(item);
  }
  return in.iterator(std::move(out));
}

Maybe reverse(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "reverse", arguments, {})) return std::nullopt;
  if (value.text()) {
    const std::string_view bytes = value.text()->bytes;
    if (!in.room(bytes.size())) return std::nullopt;
    std::string out;
    out.reserve(bytes.size());
    for (std::size_t end = bytes.size(); end > 0;) {
      const std::size_t begin = previous_point(bytes, end);
      out += bytes.substr(begin, end - begin);
      end = begin;
    }
    return Value::text(std::move(out));
  }
  auto all = in.iterate(value);
  if (!all) return std::nullopt;
  std::reverse(all->begin(), all->end());
  return value.as<IteratorPtr>() ? in.sequence(std::move(*all)) : in.iterator(std::move(*all));
}

// A filter or test uses its arguments up.
std::optional<Arguments> copy_of(Interpreter& in, const Arguments& arguments) {
  std::size_t bytes = 0;
  for (const auto& [name, value] : arguments.named) bytes += name.size();
  const std::size_t count = arguments.positional.size() + arguments.named.size();
  if (!in.charge(1 + count) || !in.charge_text(TextCost::scan, bytes)) return std::nullopt;
  return arguments;
}

// map(attribute=...) or map("filter", ...).
Maybe map(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!value.truthy()) return in.iterator({});  // as jinja2: even where it is no sequence
  const auto all = in.iterate(value);
  if (!all) return std::nullopt;
  std::vector<Value> out;
  if (arguments.positional.empty() && !arguments.named.empty()) {
    const auto bound = bind(in, "map", arguments, {"attribute", "default"}, 1);
    const auto path = bound ? Path::parse(in, (*bound)[0]) : std::nullopt;
    if (!path) return std::nullopt;
    const auto& missing = (*bound)[1];
    for (const Value& item : *all) {
      Maybe mapped = path->get(in, item, missing && !missing->is_none() ? &*missing : nullptr);
      if (!mapped) return std::nullopt;
      out.push_back(std::move(*mapped));
    }
    return in.iterator(std::move(out));
  }
  if (arguments.positional.empty() || !arguments.positional[0].text())
    return in.type_error("map requires a filter argument");
  const std::string name = shortened(arguments.positional[0].text()->bytes, kNameBytes);
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : *all) {
    auto given = copy_of(in, arguments);
    Maybe mapped = given ? in.apply_filter(name, item, *given) : std::nullopt;
    if (!mapped) return std::nullopt;
    out.push_back(std::move(*mapped));
  }
  return in.iterator(std::move(out));
}

// select, reject, selectattr and rejectattr.
template <bool keeps, bool of_attribute>
Maybe choose(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!value.truthy()) return in.iterator({});
  const auto all = in.iterate(value);
  if (!all) return std::nullopt;
  std::size_t used = 0;
  std::optional<Value> attribute;
  if (of_attribute) {
    if (arguments.positional.empty()) return in.type_error("Missing parameter for attribute name");
    attribute = arguments.positional[used++];
  }
  const auto path = Path::parse(in, attribute);
  if (!path) return std::nullopt;
  std::optional<std::string> test;
  if (used < arguments.positional.size()) {
    if (!arguments.positional[used].text()) return in.type_error("the name of a test is no string");
    test = shortened(arguments.positional[used++].text()->bytes, kNameBytes);
  }
  arguments.positional.erase(arguments.positional.begin(),
                             arguments.positional.begin() + static_cast<std::ptrdiff_t>(used));
  std::vector<Value> out;
  for (const Value& item : *all) {
    const Maybe tested = path->get(in, item);
    if (!tested) return std::nullopt;
    bool passes = tested->truthy();
    if (test) {
      auto given = copy_of(in, arguments);
      const auto answer = given ? in.apply_test(*test, *tested, *given) : std::nullopt;
      if (!answer) return std::nullopt;
      passes = *answer;
    }
    if (passes == keeps) out.push_back(item);
  }
  return in.iterator(std::move(out));
}

template <bool largest>
Maybe extreme(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "max", arguments, {"case_sensitive", "attribute"});
  const auto all = bound ? in.iterate(value) : std::nullopt;
  const auto path = all ? Path::parse(in, (*bound)[1]) : std::nullopt;
  if (!path) return std::nullopt;
  Maybe best_key;
  std::size_t best = 0;
  for (std::size_t i = 0; i < all->size(); ++i) {
    const Maybe part = path->get(in, (*all)[i]);
    const Maybe key = !part || flag((*bound)[0]) ? part : fold_case(in, *part);
    if (!key) return std::nullopt;
    const auto better = !best_key ? std::optional<bool>(true)
                        : largest ? in.less(*best_key, *key)
                                  : in.less(*key, *best_key);
    if (!better) return std::nullopt;
    if (!*better) continue;
    best = i;
    best_key = key;
  }
  return best_key ? (*all)[best] : in.undefined("No aggregated item, sequence was empty.");
}

Maybe sum(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "sum", arguments, {"attribute", "start"});
  const auto all = bound ? in.iterate(value) : std::nullopt;
  const auto path = all ? Path::parse(in, (*bound)[0]) : std::nullopt;
  if (!path) return std::nullopt;
  Maybe total = (*bound)[1].value_or(Value::integer(0));
  if (total->text()) return in.type_error("sum() can't sum strings");
  for (const Value& item : *all) {
    const Maybe part = path->get(in, item);
    if (!part) return std::nullopt;
    total = in.binary("+", *total, *part);
    if (!total) return std::nullopt;
  }
  return total;
}

Maybe batch(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "batch", arguments, {"linecount", "fill_with"}, 1);
  const auto all = bound ? in.iterate(value) : std::nullopt;
  if (!all) return std::nullopt;
  const auto count = (*bound)[0]->index();
  if (!count || *count < 1) return in.type_error("batch needs a positive count");
  std::vector<Value> out, line;
  const auto flush = [&] {
    Maybe made = in.sequence(std::exchange(line, {}));
    if (made) out.push_back(std::move(*made));
    return made.has_value();
  };
  for (const Value& item : *all) {
    if (static_cast<std::int64_t>(line.size()) == *count && !flush()) return std::nullopt;
    line.push_back(item);
  }
  const auto& filler = (*bound)[1];
  while (!line.empty() && filler && !filler->is_none() && static_cast<std::int64_t>(line.size()) < *count) {
    if (!in.room_for(1)) return std::nullopt;
    line.push_back(*filler);
  }
  if (!line.empty() && !flush()) return std::nullopt;
  return in.iterator(std::move(out));
}

constexpr FilterEntry kFilters[] = {
    {"join", TextCost::none, join},
    {"length", TextCost::none, length},
    {"count", TextCost::none, length},
    {"first", TextCost::none, first},
    {"last", TextCost::none, last},
    {"default", TextCost::none, fallback},
    {"d", TextCost::none, fallback},
    {"list", TextCost::none, list},
    {"items", TextCost::none, items},
    {"dictsort", TextCost::none, dictsort},
    {"sort", TextCost::none, sort},
    {"unique", TextCost::none, unique},
    {"reverse", TextCost::walk, reverse},
    {"map", TextCost::none, map},
    {"select", TextCost::none, choose<true, false>},
    {"reject", TextCost::none, choose<false, false>},
    {"selectattr", TextCost::none, choose<true, true>},
    {"rejectattr", TextCost::none, choose<false, true>},
    {"min", TextCost::none, extreme<false>},
    {"max", TextCost::none, extreme<true>},
    {"sum", TextCost::none, sum},
    {"batch", TextCost::none, batch},
    {"int", TextCost::walk, filter_int},
    {"float", TextCost::walk, filter_float},
    {"round", TextCost::none, filter_round},
    {"abs", TextCost::none, filter_abs},
};

}  // namespace

std::span<const FilterEntry> list_filters() {
  return kFilters;
}

}  // namespace moracle::jinja
