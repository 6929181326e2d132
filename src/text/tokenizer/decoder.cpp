#include "text/tokenizer/decoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "text/budgets.h"
#include "text/tokenizer/byte_level.h"
#include "text/unicode.h"

namespace moracle {
namespace {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')) return (c | 0x20) - 'a' + 10;
  return -1;
}

// Of "<0x00>" to "<0xFF>".
std::optional<char> byte_of_number(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  const int low = hex_value(text[4]);
  const int high = text[3] == '+' ? 0 : hex_value(text[3]);  // the library's number parser takes a plus sign
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

// Of a token in the byte alphabet; empty where it has any other character.
std::optional<std::string> bytes_of_characters(std::string_view text) {
  std::string bytes;
  for (std::size_t at = 0; at < text.size();) {
    const auto character = unicode::decode_at(text, at);
    const auto byte = byte_of_character(character.code);
    if (!byte) return std::nullopt;
    bytes.push_back(static_cast<char>(*byte));
    at += character.size;
  }
  return bytes;
}

class OutputStage final : public DecodeStage {
 public:
  OutputStage(DecodeWork& work, std::string& out, bool spaced)
      : DecodeStage(nullptr, work), out_(out), spaced_(spaced) {}
  void fragment(std::string_view text) override {
    if (!takes(text.size() + 1)) return;
    if (spaced_ && !first_ && !in_token_) out_ += ' ';
    in_token_ = true;
    out_ += text;
  }
  void end_token() override {
    if (!in_token_) fragment("");
    in_token_ = false;
    first_ = false;
  }
  void finish() override {
    first_ = true;
    in_token_ = false;
  }

 private:
  std::string& out_;
  bool spaced_;
  bool first_ = true;
  bool in_token_ = false;
};

// Joins all tokens into one.
class FuseStage final : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void fragment(std::string_view text) override { next().fragment(text); }
  void end_token() override {}
  void finish() override {
    next().end_token();
    next().finish();
  }
};

// A stage that needs whole tokens: collects the fragments.
class TokenStage : public DecodeStage {
 public:
  using DecodeStage::DecodeStage;
  void fragment(std::string_view text) final {
    if (takes(text.size())) token_ += text;
  }
  void end_token() final {
    token(token_);
    token_.clear();
  }

 protected:
  virtual void token(std::string_view text) = 0;
  void pass(std::string_view text) const {
    next().fragment(text);
    next().end_token();
  }

 private:
  std::string token_;
};

// Characters of the byte alphabet to bytes, bytes to text. A token with any other character stands for its own UTF-8.
class ByteLevelStage final : public TokenStage {
 public:
  using TokenStage::TokenStage;
  void finish() override {
    if (!pending_.empty()) next().fragment(kReplacementCharacter);
    pending_.clear();
    next().end_token();
    next().finish();
  }

 private:
  void token(std::string_view text) override {
    if (!takes(4 * text.size())) return;  // a byte may become a mark
    const auto bytes = bytes_of_characters(text);
    pending_ += bytes ? std::string_view(*bytes) : text;
    emit_characters();
  }

  // Whole characters go on; bytes that cannot become one are replaced, one mark for each longest prefix of a character.
  void emit_characters() {
    std::string out;
    std::size_t at = 0;
    while (at < pending_.size()) {
      const auto rest = std::string_view(pending_).substr(at);
      const auto prefix = unicode::character_prefix(rest);
      if (prefix.complete) {
        out += rest.substr(0, prefix.size);
      } else if (prefix.size == rest.size()) {
        break;  // the next token may complete it
      } else {
        out += kReplacementCharacter;
      }
      at += std::max<std::size_t>(prefix.size, 1);
    }
    pending_.erase(0, at);
    if (!out.empty()) next().fragment(out);
  }

  std::string pending_;
};

// Tokens <0x00> .. <0xFF> are bytes. A run of them is one token if it is well-formed, else one mark a byte, so a run is
// held until it ends.
class ByteFallbackStage final : public TokenStage {
 public:
  using TokenStage::TokenStage;
  void finish() override {
    flush();
    next().finish();
  }

 private:
  void token(std::string_view text) override {
    if (const auto byte = byte_of_number(text)) {
      run_.push_back(*byte);
    } else {
      flush();
      pass(text);
    }
  }

  void flush() {
    if (run_.empty()) return;
    if (!unicode::find_invalid_utf8(run_)) {
      pass(run_);
    } else {
      for (std::size_t i = 0; i < run_.size() && takes(kReplacementCharacter.size()); ++i) pass(kReplacementCharacter);
    }
    run_.clear();
  }

  std::string run_;
};

// Removes up to `start` leading and `stop` trailing copies of a character from every token.
class StripStage final : public DecodeStage {
 public:
  StripStage(DecodeStage* next, DecodeWork& work, std::string content, std::size_t start, std::size_t stop)
      : DecodeStage(next, work), content_(std::move(content)), start_(start), stop_(stop), leading_(start) {}
  void fragment(std::string_view text) override {
    if (!takes(text.size())) return;
    while (leading_ > 0 && text.starts_with(content_)) {
      text.remove_prefix(content_.size());
      --leading_;
    }
    if (!text.empty()) leading_ = 0;
    if (stop_ == 0) {
      if (!text.empty()) next().fragment(text);
    } else {
      held_ += text;
    }
  }
  void end_token() override {
    std::string_view text = held_;
    for (std::size_t i = 0; i < stop_ && !text.empty() && text.ends_with(content_); ++i) {
      text.remove_suffix(content_.size());
    }
    if (!text.empty()) next().fragment(text);
    held_.clear();
    leading_ = start_;
    next().end_token();
  }
  void finish() override { next().finish(); }

 private:
  std::string content_;
  std::size_t start_, stop_;
  std::size_t leading_;  // copies that may still be removed from the current token
  std::string held_;
};

class ReplaceStage final : public DecodeStage {
 public:
  ReplaceStage(DecodeStage* next, DecodeWork& work, TextPattern pattern, std::string content)
      : DecodeStage(next, work), pattern_(std::move(pattern)), content_(std::move(content)) {}
  void fragment(std::string_view text) override {
    const std::string& literal = pattern_.literal_text();
    if (!takes(text.size() + literal.size())) return;
    if (literal.empty() || !held_.empty()) {
      held_ += text;
      text = held_;
    }
    if (literal.empty()) return;  // a regular expression may look at the whole token
    std::string replaced;
    std::size_t at = 0;
    for (auto found = unicode::find_bytes(text, literal); found != std::string_view::npos;
         found = unicode::find_bytes(text, literal, at)) {
      if (!takes(found - at + content_.size())) return;
      replaced += text.substr(at, found - at);
      replaced += content_;
      at = found + literal.size();
    }
    const std::size_t open = open_end(text.substr(at));
    const std::string_view sure = text.substr(at, text.size() - open - at);
    if (at == 0) {
      if (!sure.empty()) next().fragment(sure);
    } else {
      replaced += sure;
      if (!replaced.empty()) next().fragment(replaced);
    }
    if (held_.empty()) {
      held_ = text.substr(text.size() - open);
    } else {
      held_.erase(0, held_.size() - open);
    }
  }
  void end_token() override {
    if (pattern_.literal_text().empty()) replace_matches();
    if (!held_.empty()) next().fragment(held_);
    held_.clear();
    next().end_token();
  }
  void finish() override { next().finish(); }

 private:
  // Bytes at the end of a text that may begin another match.
  [[nodiscard]] std::size_t open_end(std::string_view text) const {
    const std::string_view literal = pattern_.literal_text();
    std::size_t open = std::min(literal.size() - 1, text.size());
    while (open > 0 && !literal.starts_with(text.substr(text.size() - open))) --open;
    return open;
  }

  void replace_matches() {
    std::vector<MatchSpan> matches;
    if (held_.empty() || work().error) return;
    if (auto searched = pattern_.find_all(held_, work().searcher, matches); !searched.ok()) {
      work().error = std::move(searched).error();
      return;
    }
    if (!takes(held_.size() + matches.size() * content_.size())) return;
    std::string out;
    std::size_t at = 0;
    for (const auto& match : matches) {
      out.append(held_, at, match.begin - at);
      out += content_;
      at = match.end;
    }
    out.append(held_, at);
    held_ = std::move(out);
  }

  TextPattern pattern_;
  std::string content_;
  std::string held_;
};

// The mark becomes a space, but in the first token, where encoding may have put it, it vanishes.
class MetaspaceStage final : public DecodeStage {
 public:
  MetaspaceStage(DecodeStage* next, DecodeWork& work, std::string mark, bool prepended)
      : DecodeStage(next, work), mark_(std::move(mark)), prepended_(prepended) {}
  void fragment(std::string_view text) override {
    if (!takes(text.size())) return;
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t size = unicode::decode_at(text, at).size;
      const auto character = text.substr(at, size);
      if (character != mark_) {
        out += character;
      } else if (!first_ || !prepended_) {
        out += ' ';
      }
      at += size;
    }
    if (!out.empty()) next().fragment(out);
  }
  void end_token() override {
    first_ = false;
    next().end_token();
  }
  void finish() override {
    first_ = true;
    next().finish();
  }

 private:
  std::string mark_;
  bool prepended_;
  bool first_ = true;
};

}  // namespace

bool DecodeStage::over_budget() const {
  if (!work_.error) work_.error = work_.budget.error("tokenizer.limit");
  return false;
}

struct StageMaker {
  DecodeStage* next;
  DecodeWork& work;

  std::unique_ptr<DecodeStage> operator()(const Decoder::ByteLevel& /*step*/) const {
    return std::make_unique<ByteLevelStage>(next, work);
  }
  std::unique_ptr<DecodeStage> operator()(const Decoder::ByteFallback& /*step*/) const {
    return std::make_unique<ByteFallbackStage>(next, work);
  }
  std::unique_ptr<DecodeStage> operator()(const Decoder::Fuse& /*step*/) const {
    return std::make_unique<FuseStage>(next, work);
  }
  std::unique_ptr<DecodeStage> operator()(const Decoder::Strip& step) const {
    return std::make_unique<StripStage>(next, work, step.content, step.start, step.stop);
  }
  std::unique_ptr<DecodeStage> operator()(const Decoder::Replace& step) const {
    return std::make_unique<ReplaceStage>(next, work, step.pattern, step.content);
  }
  std::unique_ptr<DecodeStage> operator()(const Decoder::Metaspace& step) const {
    return std::make_unique<MetaspaceStage>(next, work, step.replacement, step.prepended);
  }
};

Result<Decoder> Decoder::from_json(const Json& json, const std::string& file, const std::string& pointer,
                                   Budget& budget) {
  Decoder decoder;
  decoder.spaced_ = json.is_null();
  MORACLE_TRY(read_components(json, {.name = "decoder", .items = "decoders"}, file, pointer, budget,
                              [&](const Json& step, const std::string& type, const std::string& place) {
                                return decoder.append(step, type, file, place);
                              }));
  return decoder;
}

Result<> Decoder::append(const Json& json, const std::string& type, const std::string& file,
                         const std::string& pointer) {
  const JsonReader reader(json, file, pointer);
  if (type == "ByteLevel") {
    MORACLE_TRY(check_byte_level(reader));
    steps_.emplace_back(ByteLevel{});
  } else if (type == "ByteFallback") {
    steps_.emplace_back(ByteFallback{});
  } else if (type == "Fuse") {
    steps_.emplace_back(Fuse{});
  } else if (type == "Strip") {
    MORACLE_ASSIGN(std::string content, required_character(reader, "content"));
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    MORACLE_ASSIGN(const std::int64_t start, reader.integer("start", 0, kMost));
    MORACLE_ASSIGN(const std::int64_t stop, reader.integer("stop", 0, kMost));
    steps_.emplace_back(Strip{std::move(content), static_cast<std::size_t>(start), static_cast<std::size_t>(stop)});
  } else if (type == "Replace") {
    MORACLE_ASSIGN(TextPattern pattern,
                   TextPattern::from_json(json.value("pattern", Json()), file, pointer + "/pattern"));
    MORACLE_ASSIGN(std::string content, required_text(reader, "content"));
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
  } else if (type == "Metaspace") {
    MORACLE_ASSIGN(MetaspaceSettings settings, read_metaspace(reader));
    const bool prepended = settings.prepend != MetaspaceSettings::Prepend::kNever;
    steps_.emplace_back(Metaspace{std::move(settings.replacement), prepended});
  } else {
    return unsupported(file, pointer + "/type", "a known decoder", type);
  }
  return Ok{};
}

DecodeChain Decoder::chain() const {
  DecodeChain chain;
  DecodeWork& work = *chain.work_;
  chain.stages_.push_back(std::make_unique<OutputStage>(work, *chain.output_, spaced_));
  for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
    chain.stages_.push_back(std::visit(StageMaker{chain.stages_.back().get(), work}, *step));
  }
  return chain;
}

std::optional<std::string> Decoder::bytes_of(std::string_view token) const {
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) return bytes_of_characters(token);
    const auto byte = std::holds_alternative<ByteFallback>(step) ? byte_of_number(token) : std::nullopt;
    if (byte) return std::string(1, *byte);
  }
  return std::nullopt;
}

DecodeChain::DecodeChain() : work_(std::make_unique<DecodeWork>(kDecoding)) {}

void DecodeChain::expect(std::size_t tokens) {
  work_->budget.extend(kDecodingPerId.times(tokens));
}

Result<std::string> DecodeChain::take() {
  if (work_->error) return *work_->error;
  return std::exchange(*output_, {});
}

}  // namespace moracle
