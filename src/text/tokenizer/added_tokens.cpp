#include "text/tokenizer/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "text/budgets.h"
#include "text/tokenizer/component.h"
#include "text/unicode.h"

namespace moracle {
namespace {

// What a token takes in all tables, beside its texts.
constexpr std::size_t kTokenBytes = 400;

Error too_many(const std::string& file, const std::string& where) {
  return {.code = "tokenizer.limit",
          .file = file,
          .where = where,
          .wanted = fmt::format("at most {} added tokens", kAddedTokens),
          .found = "more"};
}

bool word_before(std::string_view text, std::size_t at) {
  return at > 0 && unicode::is_word(unicode::decode_at(text, unicode::previous_point(text, at)).code);
}

bool word_after(std::string_view text, std::size_t at) {
  return at < text.size() && unicode::is_word(unicode::decode_at(text, at).code);
}

}  // namespace

Result<std::vector<std::pair<std::int32_t, AddedToken>>> read_added_tokens(const Json& json, const std::string& file,
                                                                           const std::string& pointer) {
  std::vector<std::pair<std::int32_t, AddedToken>> tokens;
  if (json.is_null()) return tokens;
  if (!json.is_array()) {
    return Error{
        .code = "config.type", .file = file, .where = pointer, .wanted = "an array", .found = json.type_name()};
  }
  if (json.size() > kAddedTokens) return too_many(file, pointer);
  for (std::size_t i = 0; i < json.size(); ++i) {
    const std::string where = fmt::format("{}/{}", pointer, i);
    if (!json[i].is_object()) {
      return Error{
          .code = "config.type", .file = file, .where = where, .wanted = "an object", .found = json[i].type_name()};
    }
    const JsonReader reader(json[i], file, where);
    MORACLE_ASSIGN(const std::int32_t id, token_id(json[i].value("id", Json()), file, where + "/id"));
    AddedToken token;
    MORACLE_ASSIGN(token.content, required_string(reader, "content"));
    MORACLE_ASSIGN(token.special, required_boolean(reader, "special"));
    MORACLE_ASSIGN(token.single_word, required_boolean(reader, "single_word"));
    MORACLE_ASSIGN(token.lstrip, required_boolean(reader, "lstrip"));
    MORACLE_ASSIGN(token.rstrip, required_boolean(reader, "rstrip"));
    MORACLE_ASSIGN(token.normalized, required_boolean(reader, "normalized"));
    MORACLE_TRY(check_text_size(token.content, file, where + "/content"));
    tokens.emplace_back(id, std::move(token));
  }
  return tokens;
}

Result<> AddedTokens::place(std::int32_t id, const AddedToken& token, const Normalizer* normalizer,
                            Searcher& searcher) {
  const auto too_long = [](std::size_t size) {
    return unsupported("", "", fmt::format("special tokens of at most {} bytes", kTokenizerTextBytes),
                       fmt::format("{} bytes", size));
  };
  if (ids_.size() >= kAddedTokens && !ids_.contains(token.content)) return too_many("", token.content.substr(0, 80));
  if (token.content.size() > kTokenizerTextBytes) return too_long(token.content.size());
  if (!searcher.pass(token.content.size(), 4 * token.content.size() + kTokenBytes)) return searcher.limit();
  Token placed{token, token.content};
  if (token.normalized && normalizer != nullptr) {
    NormalizedText text{token.content, 0};
    MORACLE_TRY(normalizer->apply(text, searcher));
    if (text.text.size() > kTokenizerTextBytes) return too_long(text.text.size());
    // The tokenizers library finds nothing between all characters, and ends at the first that has several bytes.
    if (text.text.empty())
      return unsupported("", "", "tokens that the normalizer leaves a character of", token.content);
    placed.text = std::move(text.text);
  }
  ids_.insert_or_assign(token.content, id);
  if (token.special) specials_.insert(token.content);
  largest_ = std::max(largest_, id);
  tokens_.insert_or_assign(id, std::move(placed));
  return Ok{};
}

Result<> AddedTokens::add(std::span<const AddedToken> tokens, const Vocabulary& model, const Normalizer& normalizer,
                          Searcher& searcher) {
  std::size_t next = std::max(model.size(), static_cast<std::size_t>(largest_ + 1));
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    auto known = id(token.content);
    if (!known) known = model.id(token.content);
    if (!known) {
      if (next >= std::numeric_limits<std::int32_t>::max()) {
        return Error{.code = "tokenizer.id", .where = token.content, .wanted = "ids below 2^31", .found = "more"};
      }
      known = static_cast<std::int32_t>(next++);
    }
    MORACLE_TRY(place(*known, token, &normalizer, searcher));
  }
  return Ok{};
}

Result<> AddedTokens::add_at(std::int32_t id, const AddedToken& token, const Vocabulary& model, Searcher& searcher) {
  if (token.content.empty()) return Ok{};
  if (tokens_.contains(id) || ids_.contains(token.content) || model.text(id)) {
    return Error{.code = "tokenizer.id",
                 .where = token.content.substr(0, 80),
                 .wanted = "a special token with an id of its own",
                 .found = fmt::format("id {}", id)};
  }
  return place(id, token, nullptr, searcher);
}

Result<> AddedTokens::finish(bool split_special, Searcher& searcher) {
  split_special_ = split_special;
  for (const auto& [id, token] : tokens_) {
    TextMatcher& matcher = token.as_written.normalized ? normalized_ : raw_;
    if (!matcher.add(token.text, id, searcher.budget())) return searcher.limit();
  }
  if (!raw_.finish(searcher.budget()) || !normalized_.finish(searcher.budget())) return searcher.limit();
  return Ok{};
}

Result<> AddedTokens::split(std::string_view text, bool normalized, Searcher& searcher,
                            std::vector<Section>& sections) const {
  sections.clear();
  std::vector<TextMatcher::Match> matches;
  if (!(normalized ? normalized_ : raw_).find_all(text, searcher.budget(), matches)) return searcher.limit();
  if (!searcher.pass(matches.size(), 2 * matches.size() * sizeof(Section))) return searcher.limit();
  std::size_t covered = 0;
  std::size_t spaces_end = 0;  // all is white space from a match's end, which was before, up to here
  for (const auto& match : matches) {
    const Token& placed = tokens_.at(match.value);
    const AddedToken& token = placed.as_written;
    std::size_t begin = match.begin;
    std::size_t end = match.end;
    if (split_special_ && specials_.contains(token.content)) continue;
    if (token.single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (token.lstrip) {
      while (begin > covered) {
        const std::size_t before = unicode::previous_point(text, begin);
        if (!unicode::is_white_space(unicode::decode_at(text, before).code)) break;
        begin = before;
      }
      begin = std::max(begin, covered);  // the token before may have taken the spaces
    }
    if (token.rstrip) {
      end = std::max(end, spaces_end);
      while (end < text.size()) {
        const auto next = unicode::decode_at(text, end);
        if (!unicode::is_white_space(next.code)) break;
        end += next.size;
      }
      spaces_end = end;
    }
    if (covered < begin) sections.push_back({covered, begin, -1});
    sections.push_back({begin, end, match.value});
    covered = end;
  }
  if (covered < text.size()) sections.push_back({covered, text.size(), -1});
  return Ok{};
}

bool AddedTokens::is_control(std::int32_t id, bool only_special) const {
  const auto found = tokens_.find(id);
  if (found == tokens_.end()) return false;
  const AddedToken& token = found->second.as_written;
  if (only_special && !token.special) return false;
  bool blank = true;
  for (std::size_t at = 0; at < token.content.size();)
    blank = unicode::is_white_space(unicode::next_point(token.content, &at)) && blank;
  return !blank && unicode::decode_at(token.content, 0).size < token.content.size();
}

Result<> AddedTokens::find_controls(std::string_view text, bool only_special, Searcher& searcher,
                                    std::vector<std::size_t>& places) const {
  places.clear();
  std::vector<TextMatcher::Match> matches;
  for (const TextMatcher* matcher : {&raw_, &normalized_}) {
    if (!matcher->find_everywhere(text, searcher.budget(), matches)) return searcher.limit();
    for (const auto& match : matches) {
      if (is_control(match.value, only_special)) places.push_back(match.begin);
    }
  }
  std::sort(places.begin(), places.end());
  places.erase(std::unique(places.begin(), places.end()), places.end());
  return Ok{};
}

std::vector<std::string> AddedTokens::controls() const {
  std::vector<std::string> spellings;
  for (const auto& [id, token] : tokens_) {
    if (is_control(id, false)) spellings.push_back(token.as_written.content);
  }
  return spellings;
}

std::optional<std::int32_t> AddedTokens::id(std::string_view text) const {
  const auto found = ids_.find(text);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<std::string_view> AddedTokens::text(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? std::nullopt : std::optional<std::string_view>(found->second.text);
}

}  // namespace moracle
