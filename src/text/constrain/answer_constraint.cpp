#include "text/constrain/answer_constraint.h"

#include <algorithm>
#include <utility>

#include "text/constrain/output_format.h"
#include "text/constrain/token_mask.h"
#include "text/reply/harmony.h"

namespace moracle {

namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr int kMostLeadingSpaces = 2;  // tokens between reasoning and the answer

using Stage = ReplyStage;

// What the answers of one request share.
struct HeldAnswer {
  std::shared_ptr<const ReplyVocabulary> vocabulary;
  std::shared_ptr<const ConstraintSource> answer;
  Stage first = Stage::answer;
};

class AnswerConstraint final : public Constraint {
 public:
  AnswerConstraint(const std::shared_ptr<const HeldAnswer>& held, std::span<const std::int32_t> ends)
      : vocabulary_(held->vocabulary), answer_(held->answer->start(ends)), ends_(ends.begin(), ends.end()) {
    enter(held->first);
  }

  [[nodiscard]] bool allows_all() const override { return false; }
  [[nodiscard]] bool must_end() const override { return stage_ == Stage::answer && answer_->must_end(); }

  void narrow(std::span<std::uint32_t> mask) const override {
    switch (stage_) {
      case Stage::choose:
        return narrow_or(mask, {&*vocabulary_->open, 1});
      case Stage::lead:
        if (spaces_ == kMostLeadingSpaces) return answer_->narrow(mask);
        return narrow_or(mask, vocabulary_->spaces);
      case Stage::reasoning:
        remove(mask, ends_);
        return remove(mask, vocabulary_->call_marks);
      case Stage::thought:
        remove(mask, ends_);
        return remove(mask, vocabulary_->channels->marks);
      case Stage::opened:
        return keep_only(mask, {&vocabulary_->channels->channel, 1});
      case Stage::between:
        return keep_only(mask, {&vocabulary_->channels->start, 1});
      case Stage::name:
      case Stage::role:
        return header_->narrow(mask);
      case Stage::answer:
        return answer_->narrow(mask);
    }
  }

  void advance(std::int32_t id) override {
    switch (stage_) {
      case Stage::choose:
        return id == vocabulary_->open ? enter(Stage::reasoning) : answer(id);
      case Stage::reasoning:
        if (closes(id)) enter(Stage::lead);
        return;
      case Stage::lead:
        if (spaces_ == kMostLeadingSpaces || !is_space(id)) return answer(id);
        ++spaces_;
        return;
      case Stage::answer:
        return answer_->advance(id);
      default:
        return advance_channels(id);
    }
  }

 private:
  void enter(Stage stage) {
    stage_ = stage;
    tail_.clear();
    if (stage != Stage::name && stage != Stage::role) return;
    const auto& channels = *vocabulary_->channels;
    header_ = stage == Stage::name ? channels.name->start({&channels.message, 1})
                                   : channels.role->start({&channels.channel, 1});
  }

  void answer(std::int32_t id) {
    enter(Stage::answer);
    answer_->advance(id);
  }

  void advance_channels(std::int32_t id) {
    const auto& channels = *vocabulary_->channels;
    const auto mark_of_stage = [&] {
      switch (stage_) {
        case Stage::between:
          return channels.start;
        case Stage::name:
          return channels.message;
        case Stage::thought:
          return channels.end;
        default:
          return channels.channel;
      }
    };
    if (id == mark_of_stage()) {
      enter(stage_ == Stage::between           ? Stage::role
            : stage_ == Stage::thought         ? Stage::between
            : stage_ != Stage::name            ? Stage::name
            : tail_ == harmony::kAnswerChannel ? Stage::answer
                                               : Stage::thought);
      return;
    }
    if (stage_ != Stage::name && stage_ != Stage::role) return;
    header_->advance(id);
    tail_ += vocabulary_->text_of(id);
  }

  [[nodiscard]] bool is_space(std::int32_t id) const {
    return std::binary_search(vocabulary_->spaces.begin(), vocabulary_->spaces.end(), id);
  }

  // Whether reasoning ends with this token. A mark that is no token is found in text.
  bool closes(std::int32_t id) {
    if (vocabulary_->close) return id == *vocabulary_->close;
    const std::string& close = vocabulary_->format.close();
    tail_ += vocabulary_->text_of(id);
    const std::size_t found = tail_.find(close);
    if (found == std::string::npos) {
      tail_.erase(0, tail_.size() - std::min(tail_.size(), close.size() - 1));
      return false;
    }
    return true;
  }

  // The answer's tokens, and others.
  void narrow_or(std::span<std::uint32_t> mask, std::span<const std::int32_t> others) const {
    std::vector<std::int32_t> allowed;
    std::copy_if(others.begin(), others.end(), std::back_inserter(allowed),
                 [&](std::int32_t id) { return in_mask(mask, id); });
    answer_->narrow(mask);
    for (const std::int32_t id : allowed) set_in_mask(mask, id, true);
  }
  static void remove(std::span<std::uint32_t> mask, std::span<const std::int32_t> ids) {
    for (const std::int32_t id : ids) set_in_mask(mask, id, false);
  }

  std::shared_ptr<const ReplyVocabulary> vocabulary_;
  std::unique_ptr<Constraint> answer_;
  std::unique_ptr<Constraint> header_;  // of Stage::name and role
  std::vector<std::int32_t> ends_;
  Stage stage_ = Stage::answer;
  std::string tail_;  // of the text of this stage
  int spaces_ = 0;    // tokens since reasoning ended
};

Result<std::shared_ptr<const ConstraintSource>> one_of(GrammarCompiler& compiler, std::vector<std::string> choices) {
  MORACLE_ASSIGN(const std::string text,
                 grammar_of({.kind = OutputFormat::Kind::choice, .choices = std::move(choices)}));
  MORACLE_ASSIGN(std::shared_ptr<const Grammar> grammar, compiler.compile(text));
  return std::shared_ptr<const ConstraintSource>(std::move(grammar));
}

Result<ReplyVocabulary::Channels> channels_of(const Tokenizer& tokenizer, GrammarCompiler& compiler) {
  ReplyVocabulary::Channels channels;
  for (const std::string_view mark : harmony::kMarks) {
    const auto id = tokenizer.token_to_id(mark);
    if (!id) {
      return Error{.code = "constrain.reply",
                   .wanted = "a tokenizer that has the marks of replies as tokens",
                   .found = "one without " + std::string(mark)};
    }
    if (mark != harmony::kEnd) channels.marks.push_back(*id);
  }
  channels.start = *tokenizer.token_to_id(harmony::kStart);
  channels.channel = *tokenizer.token_to_id(harmony::kChannel);
  channels.message = *tokenizer.token_to_id(harmony::kMessage);
  channels.end = *tokenizer.token_to_id(harmony::kEnd);
  MORACLE_ASSIGN(channels.role, one_of(compiler, {"assistant"}));
  MORACLE_ASSIGN(channels.name, one_of(compiler, {"analysis", std::string(harmony::kAnswerChannel)}));
  return channels;
}

// What tokens add to a text that has begun.
class TextBehind {
 public:
  explicit TextBehind(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (std::int32_t id = 0; id < tokenizer.vocab_size() && begin_.empty(); ++id) {
      auto text = tokenizer.decode({&id, 1});
      const bool word = text.ok() && text->size() == 1 && (*text)[0] >= 'a' && (*text)[0] <= 'z';
      if (!word) continue;
      first_ = id;
      begin_ = std::move(*text);
    }
  }

  // Empty: nothing, or what depends on other tokens.
  [[nodiscard]] std::string of(std::int32_t id) const {
    if (auto bytes = tokenizer_.bytes_of(id)) return *bytes;
    const std::int32_t both[] = {first_, id};
    const auto text = tokenizer_.decode(both);
    return text.ok() && text->starts_with(begin_) ? text->substr(begin_.size()) : std::string();
  }

 private:
  const Tokenizer& tokenizer_;
  std::int32_t first_ = 0;
  std::string begin_;  // the text of the token `first_`
};

}  // namespace

ReplyStage first_stage(const ReplyVocabulary& vocabulary, std::string_view prompt) {
  prompt = prompt.substr(0, prompt.find_last_not_of(kSpace) + 1);
  if (!vocabulary.channels) {
    if (prompt.ends_with(vocabulary.format.open())) return Stage::reasoning;
    return vocabulary.open && !prompt.ends_with(vocabulary.format.close()) ? Stage::choose : Stage::answer;
  }
  const std::size_t start = prompt.rfind(harmony::kStart);
  if (start == std::string_view::npos) return Stage::answer;
  const std::string_view message = prompt.substr(start);
  const auto has = [&](std::string_view mark) { return message.find(mark) != std::string_view::npos; };
  if (has(harmony::kEnd) || has(harmony::kReturn) || has(harmony::kCall)) return Stage::between;
  if (!has(harmony::kChannel)) return Stage::opened;
  if (!has(harmony::kMessage)) return Stage::name;
  return has(harmony::kAnswerChannel) ? Stage::answer : Stage::thought;
}

std::vector<std::string> reply_texts(const Tokenizer& tokenizer, const ReplyFormat& format) {
  std::vector<std::string> texts(static_cast<std::size_t>(tokenizer.vocab_size()));
  const TextBehind behind(tokenizer);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const auto id = static_cast<std::int32_t>(i);
    if (format.mark_of(id).empty()) texts[i] = behind.of(id);
  }
  for (const std::string& control : tokenizer.control_tokens()) {
    if (const auto id = tokenizer.token_to_id(control)) texts[static_cast<std::size_t>(*id)].clear();
  }
  // A part of marks that are text is text.
  for (const std::string_view part : format.parts()) {
    if (const auto id = format.token_of(part)) texts[static_cast<std::size_t>(*id)] = part;
  }
  return texts;
}

Result<std::shared_ptr<const ReplyVocabulary>> reply_vocabulary(const Tokenizer& tokenizer, const ReplyFormat& format,
                                                                GrammarCompiler& compiler) {
  auto vocabulary = std::make_shared<ReplyVocabulary>();
  vocabulary->format = format;
  vocabulary->texts = reply_texts(tokenizer, format);
  for (std::size_t i = 0; i < vocabulary->texts.size(); ++i) {
    const std::string& text = vocabulary->texts[i];
    if (!text.empty() && text.find_first_not_of(kSpace) == std::string::npos)
      vocabulary->spaces.push_back(static_cast<std::int32_t>(i));
  }
  if (format.kind() == ReplyFormat::Kind::channels) {
    MORACLE_ASSIGN(vocabulary->channels, channels_of(tokenizer, compiler));
  } else {
    vocabulary->open = format.token_of(format.open());
    vocabulary->close = format.token_of(format.close());
  }
  if (format.calls() != nullptr) {
    for (const std::string_view mark : format.calls()->marks()) {
      if (const auto id = format.token_of(mark)) vocabulary->call_marks.push_back(*id);
    }
  }
  return std::shared_ptr<const ReplyVocabulary>(std::move(vocabulary));
}

std::shared_ptr<const ConstraintSource> hold_answer(std::shared_ptr<const ReplyVocabulary> vocabulary,
                                                    std::shared_ptr<const ConstraintSource> answer,
                                                    std::string_view prompt) {
  const Stage stage = first_stage(*vocabulary, prompt);
  if (stage == Stage::answer) return answer;
  return std::make_shared<SharedSource<AnswerConstraint, HeldAnswer>>(
      std::make_shared<HeldAnswer>(HeldAnswer{std::move(vocabulary), std::move(answer), stage}));
}

}  // namespace moracle
