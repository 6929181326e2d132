// Filters that make text.
#include <algorithm>
#include <utility>

#include "text/template/builtins/text_ops.h"
#include "text/template/interpreter.h"
#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

template <std::string (*map)(std::string_view)>
Maybe map_text(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "filter", arguments, {})) return std::nullopt;
  const Maybe text = in.as_text(value);
  if (!text || !in.room(text->text()->bytes.size())) return std::nullopt;
  return in.made_text(map(text->text()->bytes));
}

Maybe trim(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "trim", arguments, {"chars"});
  const Maybe text = bound ? in.as_text(value) : std::nullopt;
  if (!text) return std::nullopt;
  const auto& characters = (*bound)[0];
  if (!characters || characters->is_none())
    return in.text(strip(text->text()->bytes, Side::both), text->text()->markup);
  if (!characters->text()) return in.type_error("strip arg must be None or str");
  const std::string_view set = characters->text()->bytes;
  if (!in.charge(set.size())) return std::nullopt;  // it is sorted
  return in.text(strip(text->text()->bytes, Side::both, &set));
}

// Jinja's own title: words begin after white space and -({[<.
std::string title_words(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  bool starts = true;
  std::size_t word = 0;
  const auto flush = [&](std::size_t end) {
    if (end > word) out += to_lower(text.substr(word, end - word));
  };
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t begin = at;
    const char32_t point = next_point(text, &at);
    const bool separator =
        is_space(point) ||
        (point < 0x80 && std::string_view("-({[<").find(static_cast<char>(point)) != std::string_view::npos);
    if (separator) {
      flush(begin);
      out += text.substr(begin, at - begin);
      word = at;
      starts = true;
    } else if (starts) {
      out += to_upper(text.substr(begin, at - begin));
      word = at;
      starts = false;
    }
  }
  flush(text.size());
  return out;
}

Maybe replace(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "replace", arguments, {"old", "new", "count"}, 2);
  if (!bound) return std::nullopt;
  const Maybe text = in.as_text(value), from = text ? in.as_text(*(*bound)[0]) : std::nullopt;
  const Maybe to = from ? in.as_text(*(*bound)[1]) : std::nullopt;
  if (!to) return std::nullopt;
  std::int64_t most = -1;
  if ((*bound)[2] && !(*bound)[2]->is_none()) {
    if (!(*bound)[2]->index()) return in.type_error("the count of replace is no integer");
    most = *(*bound)[2]->index();
  }
  return replace_text(in, text->text()->bytes, from->text()->bytes, to->text()->bytes, most);
}

Maybe string(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "string", arguments, {})) return std::nullopt;
  return in.as_text(value);
}

Maybe safe(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "safe", arguments, {})) return std::nullopt;
  const Maybe text = in.as_text(value);
  return text && !text->text()->markup ? in.text(text->text()->bytes, true) : text;
}

Maybe escape(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "escape", arguments, {})) return std::nullopt;
  if (value.text() && value.text()->markup) return value;
  const Maybe text = in.as_text(value);
  // Adding markup escapes the other side.
  return text ? in.binary("+", Value::text("", true), *text) : std::nullopt;
}

Maybe indent(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "indent", arguments, {"width", "first", "blank"});
  if (!bound) return std::nullopt;
  if (value.is_undefined()) return in.undefined_error(value);
  if (!value.text()) return in.type_error("indent of '" + std::string(value.type_name()) + "'");
  std::string margin = "    ";
  if ((*bound)[0] && (*bound)[0]->text()) {
    margin = (*bound)[0]->text()->bytes;
  } else if ((*bound)[0]) {
    const Maybe made = in.binary("*", Value::text(" "), *(*bound)[0]);
    if (!made) return std::nullopt;
    margin = made->text()->bytes;
  }
  const bool first = (*bound)[1] && (*bound)[1]->truthy();
  const bool blank = (*bound)[2] && (*bound)[2]->truthy();
  if (!in.room(value.text()->bytes.size() + 1)) return std::nullopt;
  const std::string source = value.text()->bytes + "\n";
  const std::size_t longest = in.limits().output_bytes;
  std::string out;
  bool any = false;
  for (std::size_t at = 0; at < source.size(); any = true) {
    const std::string_view line = next_line(source, &at, false);
    const bool indented = any ? blank || !line.empty() : first;
    const std::size_t more = line.size() + (any ? 1 : 0) + (indented ? margin.size() : 0);
    if (more > longest - out.size()) return in.limit("text of more than " + std::to_string(longest) + " bytes");
    if (any) out.push_back('\n');
    if (indented) out += margin;
    out += line;
  }
  if (!in.room(out.size())) return std::nullopt;
  return Value::text(std::move(out), value.text()->markup);
}

Maybe truncate(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!bound) return std::nullopt;
  const Value length = (*bound)[0].value_or(Value::integer(255));
  const Value leeway = (*bound)[3] && !(*bound)[3]->is_none() ? *(*bound)[3] : Value::integer(5);
  const Value end = (*bound)[2].value_or(Value::text("..."));
  if (!value.text() || !length.index() || !leeway.index() || !end.text()) return in.type_error("arguments of truncate");
  const auto size = static_cast<std::int64_t>(count_points(value.text()->bytes));
  const auto end_size = static_cast<std::int64_t>(count_points(end.text()->bytes));
  if (*length.index() < end_size || *leeway.index() < 0) return in.type_error("arguments of truncate");
  if (size - *leeway.index() <= *length.index()) return value;
  const Maybe head = in.slice(value, Value::none(), Value::integer(*length.index() - end_size), Value::none());
  if (!head) return std::nullopt;
  std::string_view text = head->text()->bytes;
  if (!((*bound)[1] && (*bound)[1]->truthy())) text = text.substr(0, text.rfind(' '));
  const Maybe start = in.text(text);
  return start ? in.join({*start, end}, "") : std::nullopt;
}

Maybe wordcount(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "wordcount", arguments, {})) return std::nullopt;
  const Maybe text = in.as_text(value);
  if (!text) return std::nullopt;
  std::int64_t count = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text->text()->bytes.size();) {
    const bool word = is_word(next_point(text->text()->bytes, &at));
    count += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value::integer(count);
}

Maybe format(Interpreter& in, const Value& value, Arguments& arguments) {
  const Maybe text = in.as_text(value);
  if (!text) return std::nullopt;
  if (!arguments.named.empty() && !arguments.positional.empty())
    return in.type_error("format takes either positional or named arguments");
  if (arguments.named.empty()) {
    const Maybe values = in.sequence(std::move(arguments.positional), SequenceKind::tuple);
    return values ? format_percent(in, text->text()->bytes, *values) : std::nullopt;
  }
  auto named = std::make_shared<Dict>();
  for (auto& [name, item] : arguments.named) {
    const Maybe key = in.text(name);
    if (!key || !in.insert(named.get(), *key, std::move(item))) return std::nullopt;
  }
  const Maybe values = in.dict(std::move(named));
  return values ? format_percent(in, text->text()->bytes, *values) : std::nullopt;
}

Maybe center(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "center", arguments, {"width"});
  const Maybe text = bound ? in.as_text(value) : std::nullopt;
  const Maybe method = text ? find_method(in, *text, "center") : std::nullopt;
  if (!method) return std::nullopt;
  Arguments width{{(*bound)[0].value_or(Value::integer(80))}, {}};
  return in.call(*method, width);
}

constexpr FilterEntry kFilters[] = {
    {"tojson", TextCost::none, dump_json},
    {"trim", TextCost::scan, trim},
    {"upper", TextCost::walk, map_text<to_upper>},
    {"lower", TextCost::walk, map_text<to_lower>},
    {"title", TextCost::walk, map_text<title_words>},
    {"capitalize", TextCost::walk, map_text<to_capitalized>},
    {"replace", TextCost::none, replace},
    {"string", TextCost::none, string},
    {"safe", TextCost::none, safe},
    {"escape", TextCost::none, escape},
    {"e", TextCost::none, escape},
    {"indent", TextCost::walk, indent},
    {"truncate", TextCost::scan, truncate},
    {"wordcount", TextCost::walk, wordcount},
    {"format", TextCost::none, format},
    {"center", TextCost::none, center},
};

}  // namespace

std::span<const FilterEntry> text_filters() {
  return kFilters;
}

const FilterEntry* find_filter(std::string_view name) {
  for (const auto filters : {text_filters(), list_filters()}) {
    for (const FilterEntry& entry : filters) {
      if (entry.name == name) return &entry;
    }
  }
  return nullptr;
}

Maybe Interpreter::apply_filter(const std::string& name, const Value& value, Arguments& arguments) {
  if (!charge(1 + arguments.positional.size())) return std::nullopt;
  const FilterEntry* entry = find_filter(name);
  if (!entry) return type_error("No filter named '" + shortened(name, kNameBytes) + "'");
  const Level level(this, 4);
  if (!level.ok() || !charge_texts(entry->cost, value, arguments)) return std::nullopt;
  return entry->filter(*this, value, arguments);
}

}  // namespace moracle::jinja
