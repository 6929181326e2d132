// Filters that make text.
#include <algorithm>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/text_ops.h"
#include "text/template/unicode.h"

namespace moracle::jinja {
namespace {

Maybe as_text(Interpreter& in, const Value& value) {
  if (value.text()) return value;
  auto bytes = in.str(value);
  return bytes ? in.text(std::move(*bytes)) : std::nullopt;
}

template <std::string (*map)(std::string_view)>
Maybe map_text(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "filter", arguments, {})) return std::nullopt;
  const Maybe text = as_text(in, value);
  if (!text || !in.charge(text->text()->bytes.size() / 16)) return std::nullopt;
  return in.text(map(text->text()->bytes));
}

Maybe trim(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "trim", arguments, {"chars"});
  const Maybe text = bound ? as_text(in, value) : std::nullopt;
  if (!text) return std::nullopt;
  const auto& characters = (*bound)[0];
  if (!characters || characters->is_none())
    return in.text(std::string(strip(text->text()->bytes, Side::both)), text->text()->markup);
  if (!characters->text()) return in.type_error("strip arg must be None or str");
  const std::string_view set = characters->text()->bytes;
  if (!in.charge(set.size() / 8)) return std::nullopt;
  return in.text(std::string(strip(text->text()->bytes, Side::both, &set)));
}

// Jinja's own title: words begin after white space and -({[<.
std::string title_words(std::string_view text) {
  std::string out;
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
  const Maybe text = as_text(in, value), from = text ? as_text(in, *(*bound)[0]) : std::nullopt;
  const Maybe to = from ? as_text(in, *(*bound)[1]) : std::nullopt;
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
  return as_text(in, value);
}

Maybe safe(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "safe", arguments, {})) return std::nullopt;
  auto bytes = in.str(value);
  return bytes ? in.text(std::move(*bytes), true) : std::nullopt;
}

Maybe escape(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "escape", arguments, {})) return std::nullopt;
  if (value.text() && value.text()->markup) return value;
  const Maybe text = as_text(in, value);
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
  const std::string source = value.text()->bytes + "\n";
  std::string out;
  bool any = false;
  for (const std::string_view line : split_lines(source, false)) {
    if (any) out.push_back('\n');
    if (any ? blank || !line.empty() : first) out += margin;
    out += line;
    any = true;
    if (out.size() > in.limits().output_bytes) break;
  }
  return in.text(std::move(out), value.text()->markup);
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
  std::string text = head->text()->bytes;
  if (!((*bound)[1] && (*bound)[1]->truthy())) text = text.substr(0, text.rfind(' '));
  return in.text(text + end.text()->bytes);
}

Maybe wordcount(Interpreter& in, const Value& value, Arguments& arguments) {
  if (!bind(in, "wordcount", arguments, {})) return std::nullopt;
  const Maybe text = as_text(in, value);
  if (!text || !in.charge(text->text()->bytes.size() / 16)) return std::nullopt;
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
  const Maybe text = as_text(in, value);
  if (!text) return std::nullopt;
  if (!arguments.named.empty() && !arguments.positional.empty())
    return in.type_error("format takes either positional or named arguments");
  if (arguments.named.empty()) {
    const Maybe values = in.sequence(std::move(arguments.positional), Flavour::tuple);
    return values ? format_percent(in, text->text()->bytes, *values) : std::nullopt;
  }
  auto named = std::make_shared<Dict>();
  for (auto& [name, item] : arguments.named) {
    if (!in.insert(named.get(), Value::text(name), std::move(item))) return std::nullopt;
  }
  const Maybe values = in.dict(std::move(named));
  return values ? format_percent(in, text->text()->bytes, *values) : std::nullopt;
}

Maybe center(Interpreter& in, const Value& value, Arguments& arguments) {
  const auto bound = bind(in, "center", arguments, {"width"});
  const Maybe text = bound ? as_text(in, value) : std::nullopt;
  const Maybe method = text ? find_method(*text, "center") : std::nullopt;
  if (!method) return std::nullopt;
  Arguments width{{(*bound)[0].value_or(Value::integer(80))}, {}};
  return in.call(*method, width);
}

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"tojson", dump_json},
    {"trim", trim},
    {"upper", map_text<to_upper>},
    {"lower", map_text<to_lower>},
    {"title", map_text<title_words>},
    {"capitalize", map_text<to_capitalized>},
    {"replace", replace},
    {"string", string},
    {"safe", safe},
    {"escape", escape},
    {"e", escape},
    {"indent", indent},
    {"truncate", truncate},
    {"wordcount", wordcount},
    {"format", format},
    {"center", center},
};

}  // namespace

Filter find_text_filter(std::string_view name) {
  for (const auto& [known, filter] : kFilters) {
    if (known == name) return filter;
  }
  return nullptr;
}

bool has_filter(std::string_view name) {
  return find_text_filter(name) || find_list_filter(name);
}

Maybe Interpreter::apply_filter(const std::string& name, const Value& value, Arguments& arguments) {
  if (!charge(1 + arguments.positional.size())) return std::nullopt;
  Filter filter = find_text_filter(name);
  if (!filter) filter = find_list_filter(name);
  if (!filter) return type_error("No filter named '" + name + "'");
  const Level level(this, 4);
  return level.ok() ? filter(*this, value, arguments) : std::nullopt;
}

}  // namespace moracle::jinja
