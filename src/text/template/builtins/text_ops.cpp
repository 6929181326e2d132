#include "text/template/builtins/text_ops.h"

#include <algorithm>
#include <utility>

#include "text/template/python_text.h"

namespace moracle::jinja {
namespace {

// Places that were found are charged in lots of this size, a quarter step each.
constexpr std::size_t kLot = 64;

class Counter {
 public:
  explicit Counter(Interpreter& in) : in_(in) {}
  bool next() { return ++count_ % kLot != 0 || in_.charge(kLot / 4); }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  Interpreter& in_;
  std::size_t count_ = 0;
};

// Calls `each` with the places of `wanted`, which do not overlap, until it is false or `most` are found. False: given
// up.
template <class Each>
bool for_each_place(Interpreter& in, std::string_view text, std::string_view wanted, std::int64_t most,
                    const Each& each) {
  if (!in.charge(1) || !in.charge_text(TextCost::scan, text.size() + wanted.size())) return false;
  Counter counter(in);
  for (std::size_t at = 0; most != 0; --most) {
    at = find_bytes(text, wanted, at);
    if (at == std::string_view::npos) return true;
    if (!counter.next() || !each(at)) return false;
    at += wanted.size();
  }
  return true;
}

}  // namespace

bool TextList::add(std::string_view text) {
  Maybe made = in_.charge(1) && in_.makes(sizeof(Value)) ? in_.text(text, markup_) : std::nullopt;
  if (!made) return false;
  items_.push_back(std::move(*made));
  return true;
}

Maybe TextList::finish(bool reversed) {
  if (reversed) std::reverse(items_.begin(), items_.end());
  return in_.made_sequence(std::move(items_));
}

Maybe split_at(Interpreter& in, const Text& whole, std::string_view separator, std::int64_t most, bool from_right) {
  std::string_view text = whole.bytes;
  TextList list(in, whole);
  if (!from_right) {
    std::size_t done = 0;
    const bool split = for_each_place(in, text, separator, most, [&](std::size_t at) {
      const std::size_t begin = std::exchange(done, at + separator.size());
      return list.add(text.substr(begin, at - begin));
    });
    return split && list.add(text.substr(done)) ? list.finish() : std::nullopt;
  }
  if (!in.charge_search(text.size(), separator.size())) return std::nullopt;
  for (; most != 0; --most) {
    const std::size_t at = text.rfind(separator);
    if (at == std::string_view::npos) break;
    if (!list.add(text.substr(at + separator.size()))) return std::nullopt;
    text = text.substr(0, at);
  }
  return list.add(text) ? list.finish(true) : std::nullopt;
}

Maybe split_space(Interpreter& in, const Text& whole, std::int64_t most, bool from_right) {
  std::string_view text = whole.bytes;
  TextList list(in, whole);
  if (!in.charge_text(TextCost::walk, text.size())) return std::nullopt;
  for (;; --most) {
    text = strip(text, from_right ? Side::right : Side::left);
    if (text.empty()) break;
    if (most == 0) {
      if (!list.add(text)) return std::nullopt;
      break;
    }
    std::size_t edge = from_right ? text.size() : 0;
    while (from_right ? edge > 0 : edge < text.size()) {
      std::size_t next = from_right ? previous_point(text, edge) : edge;
      const std::size_t before = next;
      if (is_space(next_point(text, &next))) break;
      edge = from_right ? before : next;
    }
    if (!list.add(from_right ? text.substr(edge) : text.substr(0, edge))) return std::nullopt;
    text = from_right ? text.substr(0, edge) : text.substr(edge);
  }
  return list.finish(from_right);
}

Maybe replace_text(Interpreter& in, std::string_view text, std::string_view from, std::string_view to,
                   std::int64_t most) {
  const std::size_t longest = in.limits().output_bytes;
  const auto too_long = [&] { return in.limit("text of more than " + std::to_string(longest) + " bytes"); };
  std::string out;
  std::size_t done = 0;
  if (from.empty()) {
    // Between all code points.
    if (!in.charge_text(TextCost::walk, text.size())) return std::nullopt;
    for (Counter counter(in); most != 0 && counter.next();) {
      if (to.size() > longest - std::min(out.size(), longest)) return too_long();
      out += to;
      if (most > 0) --most;
      if (done >= text.size()) break;
      const std::size_t begin = done;
      next_point(text, &done);
      out += text.substr(begin, done - begin);
    }
  } else {
    const bool replaced = for_each_place(in, text, from, most, [&](std::size_t at) {
      if (at - done + to.size() > longest - out.size()) {
        too_long();
        return false;
      }
      out += text.substr(done, at - done);
      out += to;
      done = at + from.size();
      return true;
    });
    if (!replaced) return std::nullopt;
  }
  if (in.failed() || !in.room(out.size() + text.size() - done)) return std::nullopt;
  out += text.substr(done);
  return Value::text(std::move(out));
}

Maybe count_text(Interpreter& in, std::string_view text, std::string_view wanted) {
  std::int64_t count = 0;
  const bool counted = for_each_place(in, text, wanted, -1, [&](std::size_t) { return ++count > 0; });
  return counted ? Maybe(Value::integer(count)) : std::nullopt;
}

std::optional<std::size_t> find_text(Interpreter& in, std::string_view text, std::string_view wanted, bool from_right) {
  if (from_right) {
    if (!in.charge_search(text.size(), wanted.size())) return std::nullopt;
    return text.rfind(wanted);
  }
  if (!in.charge(1) || !in.charge_text(TextCost::scan, text.size() + wanted.size())) return std::nullopt;
  return find_bytes(text, wanted);
}

}  // namespace moracle::jinja
