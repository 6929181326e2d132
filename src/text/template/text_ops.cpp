#include "text/template/text_ops.h"

#include <algorithm>
#include <utility>

#include "text/template/unicode.h"

namespace moracle::jinja {

std::vector<std::string_view> split_at(std::string_view text, std::string_view separator, std::int64_t most,
                                       bool from_right) {
  std::vector<std::string_view> parts;
  while (most != 0) {
    const std::size_t at = from_right ? text.rfind(separator) : text.find(separator);
    if (at == std::string_view::npos) break;
    const std::string_view before = text.substr(0, at), after = text.substr(at + separator.size());
    parts.push_back(from_right ? after : before);
    text = from_right ? before : after;
    --most;
  }
  parts.push_back(text);
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<std::string_view> split_space(std::string_view text, std::int64_t most, bool from_right) {
  std::vector<std::string_view> parts;
  for (;;) {
    text = strip(text, from_right ? Side::right : Side::left);
    if (text.empty()) break;
    if (most == 0) {
      parts.push_back(text);
      break;
    }
    std::size_t edge = from_right ? text.size() : 0;
    while (from_right ? edge > 0 : edge < text.size()) {
      std::size_t next = from_right ? previous_point(text, edge) : edge;
      const std::size_t before = next;
      if (is_space(next_point(text, &next))) break;
      edge = from_right ? before : next;
    }
    parts.push_back(from_right ? text.substr(edge) : text.substr(0, edge));
    text = from_right ? text.substr(0, edge) : text.substr(edge);
    --most;
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

Maybe replace_text(Interpreter& in, std::string_view text, std::string_view from, std::string_view to,
                   std::int64_t most) {
  if (!in.charge_search(text.size(), from.size())) return std::nullopt;
  std::string out;
  const std::size_t longest = in.limits().output_bytes;
  if (from.empty()) {
    // Between all code points.
    for (std::size_t at = 0; out.size() <= longest;) {
      if (most != 0) out += to;
      if (most > 0) --most;
      if (at >= text.size()) break;
      const std::size_t begin = at;
      next_point(text, &at);
      out += text.substr(begin, at - begin);
    }
    return in.text(std::move(out));
  }
  std::size_t done = 0;
  while (most != 0 && out.size() <= longest) {
    const std::size_t at = text.find(from, done);
    if (at == std::string_view::npos) break;
    out += text.substr(done, at - done);
    out += to;
    done = at + from.size();
    --most;
  }
  if (out.size() <= longest) out += text.substr(done);
  return in.text(std::move(out));
}

Maybe make_list(Interpreter& in, const std::vector<std::string_view>& parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (const std::string_view part : parts) items.push_back(Value::text(std::string(part)));
  return in.sequence(std::move(items));
}

}  // namespace moracle::jinja
