#include "text/tokenizer/normalizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/unicode/utf8.h"
#include "text/tokenizer/byte_level.h"

namespace moracle {

Result<Normalizer> Normalizer::from_json(const Json& json, const std::string& file, const std::string& pointer,
                                         Budget& budget) {
  Normalizer normalizer;
  MORACLE_TRY(read_components(json, {.name = "normalizer", .items = "normalizers"}, file, pointer, budget,
                              [&](const Json& step, const std::string& type, const std::string& place) {
                                return normalizer.append(step, type, file, place);
                              }));
  return normalizer;
}

Result<> Normalizer::append(const Json& json, const std::string& type, const std::string& file,
                            const std::string& pointer) {
  const JsonReader reader(json, file, pointer);
  places_.push_back(pointer);
  static constexpr std::pair<std::string_view, unicode::NormalForm> kForms[] = {{"NFC", unicode::NormalForm::kNfc},
                                                                                {"NFD", unicode::NormalForm::kNfd},
                                                                                {"NFKC", unicode::NormalForm::kNfkc},
                                                                                {"NFKD", unicode::NormalForm::kNfkd}};
  for (const auto& [name, form] : kForms) {
    if (type == name) return (steps_.emplace_back(form), Ok{});
  }
  if (type == "Prepend") {
    MORACLE_ASSIGN(std::string text, required_text(reader, "prepend"));
    steps_.emplace_back(Prepend{std::move(text)});
  } else if (type == "Replace") {
    MORACLE_ASSIGN(TextPattern pattern,
                   TextPattern::from_json(json.value("pattern", Json()), file, pointer + "/pattern"));
    MORACLE_ASSIGN(std::string content, required_text(reader, "content"));
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (type == "Strip") {
    MORACLE_ASSIGN(const bool left, required_boolean(reader, "strip_left"));
    MORACLE_ASSIGN(const bool right, required_boolean(reader, "strip_right"));
    steps_.emplace_back(Strip{left, right});
  } else if (type == "StripAccents") {
    steps_.emplace_back(StripAccents{});
  } else if (type == "ByteLevel") {
    steps_.emplace_back(ByteLevel{});
  } else {
    return unsupported(file, pointer + "/type", "a known normalizer", type);
  }
  return Ok{};
}

Result<> Normalizer::apply(NormalizedText& text, Searcher& searcher) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    auto done = std::visit([&](const auto& step) { return apply_step(step, text, searcher); }, steps_[i]);
    if (!done.ok()) return at_place(std::move(done).error(), places_[i]);
  }
  return Ok{};
}

Result<> Normalizer::apply_step(unicode::NormalForm form, NormalizedText& text, Searcher& searcher) {
  std::string out;
  if (!unicode::normalize(text.text, form, searcher.budget(), out)) return searcher.limit();
  text.text = std::move(out);
  if (text.head > 0) text.head = text.text.empty() ? 0 : unicode::decode_at(text.text, 0).size;
  return Ok{};
}

Result<> Normalizer::apply_step(const Prepend& step, NormalizedText& text, Searcher& searcher) {
  if (text.text.empty()) return Ok{};
  if (!searcher.pass(text.text.size(), text.text.size() + step.text.size())) return searcher.limit();
  text.text.insert(0, step.text);
  if (text.head > 0) text.head += step.text.size();
  return Ok{};
}

Result<> Normalizer::apply_step(const Replace& step, NormalizedText& text, Searcher& searcher) {
  std::vector<MatchSpan> matches;
  MORACLE_TRY(step.pattern.find_all(text.text, searcher, matches));
  if (matches.empty()) return Ok{};
  std::size_t size = text.text.size() + matches.size() * step.content.size();
  for (const auto& match : matches) size -= match.end - match.begin;
  if (!searcher.pass(size, size)) return searcher.limit();
  std::string out;
  out.reserve(size);
  std::size_t copied = 0;
  std::size_t head = 0;
  for (const auto& match : matches) {
    out.append(text.text, copied, match.begin - copied);
    head += std::min(match.begin, std::max(copied, text.head)) - copied;
    // New text is aligned with the last character that it replaces.
    if (match.end <= text.head && head == out.size()) head += step.content.size();
    out += step.content;
    copied = match.end;
  }
  head += std::max(copied, text.head) - copied;
  out.append(text.text, copied);
  text = {std::move(out), head};
  return Ok{};
}

namespace {

// Rewrites character by character; `write(out, code)` appends what becomes of one character.
template <class Write>
void rewrite(NormalizedText& text, const Write& write) {
  std::string out;
  out.reserve(text.text.size());
  std::size_t head = 0;
  for (std::size_t at = 0; at < text.text.size();) {
    const auto next = unicode::decode_at(text.text, at);
    write(out, next.code);
    at += next.size;
    if (at <= text.head) head = out.size();
  }
  text = {std::move(out), head};
}

}  // namespace

Result<> Normalizer::apply_step(const Lowercase& /*step*/, NormalizedText& text, Searcher& searcher) {
  if (!searcher.pass(text.text.size(), 2 * text.text.size())) return searcher.limit();
  rewrite(text, [](std::string& out, char32_t code) { unicode::append_lower(out, code); });
  return Ok{};
}

Result<> Normalizer::apply_step(const StripAccents& /*step*/, NormalizedText& text, Searcher& searcher) {
  if (!searcher.pass(text.text.size(), text.text.size())) return searcher.limit();
  rewrite(text, [](std::string& out, char32_t code) {
    if (!unicode::is_accent(code)) unicode::append_utf8(out, code);
  });
  return Ok{};
}

Result<> Normalizer::apply_step(const ByteLevel& /*step*/, NormalizedText& text, Searcher& searcher) {
  if (!searcher.pass(text.text.size(), 2 * text.text.size())) return searcher.limit();
  std::string out;
  append_byte_level(out, std::string_view(text.text).substr(0, text.head));
  const std::size_t head = out.size();
  append_byte_level(out, std::string_view(text.text).substr(text.head));
  text = {std::move(out), head};
  return Ok{};
}

Result<> Normalizer::apply_step(const Strip& step, NormalizedText& text, Searcher& searcher) {
  if (!searcher.pass(text.text.size(), text.text.size())) return searcher.limit();
  std::size_t begin = 0;
  std::size_t end = text.text.size();
  while (step.left && begin < end) {
    const auto next = unicode::decode_at(text.text, begin);
    if (!unicode::is_white_space(next.code)) break;
    begin += next.size;
  }
  while (step.right && end > begin) {
    const std::size_t last = unicode::previous_point(text.text, end);
    if (!unicode::is_white_space(unicode::decode_at(text.text, last).code)) break;
    end = last;
  }
  const std::size_t head = std::min(std::max(text.head, begin), end) - begin;
  text = {text.text.substr(begin, end - begin), head};
  return Ok{};
}

}  // namespace moracle
