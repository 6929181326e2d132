#include "text/template/content_guard.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/unicode.h"

namespace moracle {

namespace {

constexpr char32_t kFirstMark = 0xFDD0;
constexpr char32_t kLastMark = 0xFDEF;

std::string utf8(char32_t code) {
  std::string text;
  unicode::append_utf8(text, code);
  return text;
}

// Whether a text or a key has these bytes.
bool contains(const OrderedJson& json, std::string_view part) {
  if (json.is_string()) return json.get_ref<const std::string&>().find(part) != std::string::npos;
  if (!json.is_structured()) return false;
  for (const auto& [key, value] : json.items()) {
    if (key.find(part) != std::string::npos || contains(value, part)) return true;
  }
  return false;
}

std::optional<char32_t> absent_mark(const ChatRequest& chat) {
  for (char32_t mark = kFirstMark; mark <= kLastMark; ++mark) {
    const std::string text = utf8(mark);
    if (!contains(chat.messages, text) && !contains(chat.tools, text) && !contains(chat.variables, text)) return mark;
  }
  return std::nullopt;
}

std::string_view without_punctuation(std::string_view text) {
  const auto letters = [](char c) {
    return static_cast<unsigned char>(c) >= 0x80 || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (c >= '0' && c <= '9');
  };
  const auto* const begin = std::find_if(text.begin(), text.end(), letters);
  const auto end = std::find_if(text.rbegin(), std::make_reverse_iterator(begin), letters).base();
  return {begin, end};
}

}  // namespace

std::string GuardedChat::shown(std::string_view rendered) const {
  if (mark == 0) return std::string(rendered);
  const std::string part = utf8(mark);
  std::string text;
  std::size_t copied = 0;
  for (std::size_t at = rendered.find(part); at != std::string::npos; at = rendered.find(part, copied)) {
    text.append(rendered, copied, at - copied);
    copied = at + part.size();
  }
  return text.append(rendered, copied);
}

ContentGuard::ContentGuard(const Tokenizer& tokenizer) : tokenizer_(tokenizer), spellings_(tokenizer.control_tokens()) {
  std::sort(spellings_.begin(), spellings_.end());
  for (const std::string& spelling : spellings_) {
    cores_.insert(std::string(without_punctuation(spelling)));
    longest_ = std::max(longest_, spelling.size());
  }
  cores_.erase("");
}

// One conversation. It puts marks into the texts of what it is given.
class ContentGuard::Walk {
 public:
  Walk(const ContentGuard& guard, std::string mark) : guard_(guard), mark_(std::move(mark)) {}

  [[nodiscard]] bool marked() const { return marked_; }

  Result<> message(OrderedJson& message) {
    if (!message.is_object()) return Ok{};
    const bool assistant = message.value("role", OrderedJson()) == "assistant";
    for (auto& [key, value] : message.get_ref<OrderedJson::object_t&>()) {
      if (key == "role") continue;
      MORACLE_TRY(walk(value, key, {.only_special = assistant, .may_go_on = true, .names = true}));
    }
    return Ok{};
  }
  Result<> tool(OrderedJson& tool) { return walk(tool, "", {.names = true}); }
  Result<> variable(OrderedJson& value) { return walk(value, "", {}); }

 private:
  struct Style {
    bool only_special = false;
    bool may_go_on = false;  // texts are broken whose end begins a spelling
    bool names = false;      // and texts that are a spelling but for its punctuation
  };

  // `key`: of the value in its object, or of the list that it is in.
  Result<> walk(OrderedJson& json, const std::string& key, const Style& style) {
    if (json.is_string()) {
      Style own = style;
      own.names = style.names && key != "type";
      MORACLE_ASSIGN(json, mark(json.get_ref<const std::string&>(), own));
    } else if (json.is_array()) {
      for (OrderedJson& element : json) MORACLE_TRY(walk(element, key, style));
    } else if (json.is_object()) {
      Style of_keys = style;
      of_keys.may_go_on = false;
      of_keys.names = style.names && (key == "properties" || key == "arguments");
      OrderedJson marked = OrderedJson::object();
      for (auto& [name, value] : json.get_ref<OrderedJson::object_t&>()) {
        MORACLE_TRY(walk(value, name, style));
        MORACLE_ASSIGN(const std::string own, mark(name, of_keys));
        marked[own] = std::move(value);
      }
      json = std::move(marked);
    }
    return Ok{};
  }

  Result<std::string> mark(const std::string& text, const Style& style) {
    std::vector<std::size_t> places;
    MORACLE_ASSIGN(const bool spells, guard_.tokenizer_.has_control_token(text, style.only_special));
    if (spells) {
      MORACLE_ASSIGN(places, guard_.tokenizer_.find_control_tokens(text, style.only_special));
    }
    if (style.may_go_on) add_open_end(text, places);
    if (style.names && text.size() <= guard_.longest_ &&
        guard_.cores_.contains(std::string(without_punctuation(text)))) {
      places.push_back(0);
    }
    if (!spells && places.empty()) return text;
    marked_ = true;
    std::string marked = with_marks(text, places);
    MORACLE_ASSIGN(const bool left, guard_.tokenizer_.has_control_token(marked, style.only_special));
    if (!left) return marked;
    // The normalizer makes one of what spells none.
    places.clear();
    for (std::size_t at = 0; at < text.size(); unicode::next_point(text, &at)) places.push_back(at);
    return with_marks(text, places);
  }

  // Where the end of the text is the beginning of a spelling.
  void add_open_end(std::string_view text, std::vector<std::size_t>& places) const {
    const std::vector<std::string>& all = guard_.spellings_;
    for (std::size_t at = text.size() - std::min(text.size(), guard_.longest_ - 1); at < text.size(); ++at) {
      const std::string_view end = text.substr(at);
      const auto found = std::lower_bound(all.begin(), all.end(), end);
      if (found != all.end() && found->starts_with(end) && !unicode::is_continuation(text[at])) places.push_back(at);
    }
  }

  // Marks behind the characters at these places.
  [[nodiscard]] std::string with_marks(std::string_view text, std::vector<std::size_t> places) const {
    std::sort(places.begin(), places.end());
    places.erase(std::unique(places.begin(), places.end()), places.end());
    std::string marked;
    std::size_t copied = 0;
    for (std::size_t at : places) {
      unicode::next_point(text, &at);
      marked.append(text, copied, at - copied).append(mark_);
      copied = at;
    }
    return marked.append(text, copied);
  }

  const ContentGuard& guard_;
  std::string mark_;
  bool marked_ = false;
};

Result<GuardedChat> ContentGuard::apply(const ChatRequest& chat) const {
  GuardedChat guarded{.chat = chat};
  if (spellings_.empty()) return guarded;
  const auto mark = absent_mark(chat);
  if (!mark) {
    return Error{.code = "text.noncharacter",
                 .where = "messages",
                 .wanted = "texts that lack one of the noncharacters U+FDD0 to U+FDEF",
                 .found = "all of them"};
  }
  Walk walk(*this, utf8(*mark));
  for (OrderedJson& message : guarded.chat.messages) MORACLE_TRY(walk.message(message));
  for (OrderedJson& tool : guarded.chat.tools) MORACLE_TRY(walk.tool(tool));
  for (auto& [name, value] : guarded.chat.variables.items()) MORACLE_TRY(walk.variable(value));
  if (walk.marked()) guarded.mark = *mark;
  return guarded;
}

}  // namespace moracle
