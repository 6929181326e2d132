#include "text/constrain/calls/call_watch.h"

#include <algorithm>
#include <utility>

#include "text/constrain/token_mask.h"

namespace moracle {

namespace {

constexpr std::string_view kSpace = " \t\r\n";

// What is known of one model, for the calls of one request.
struct Watched {
  std::shared_ptr<const ReplyVocabulary> vocabulary;
  std::shared_ptr<const CallOpenings> openings;
  std::shared_ptr<const Grammar> call;
  bool single = false;
  bool reasons = false;  // the prompt has opened reasoning
};

class CallWatch final : public Constraint {
 public:
  CallWatch(std::shared_ptr<const Watched> watched, std::span<const std::int32_t> ends)
      : watched_(std::move(watched)),
        ends_(ends.begin(), ends.end()),
        place_(watched_->reasons ? Place::reasoning : Place::begin) {}

  [[nodiscard]] bool allows_all() const override {
    return in_text() && risks_.empty() && (place_ == Place::reasoning || watched_->openings->around.empty());
  }
  [[nodiscard]] bool must_end() const override { return place_ == Place::over; }

  void narrow(std::span<std::uint32_t> mask) const override {
    if (place_ == Place::call) return call_->narrow(mask);
    if (place_ == Place::over) return keep_only(mask, ends_);
    if (place_ == Place::reasoning) return;
    for (const std::int32_t id : watched_->openings->around) set_in_mask(mask, id, false);
    for (const Risk& risk : risks_) {
      std::vector<std::uint32_t> held(mask.begin(), mask.end());
      risk.call->narrow(held);
      for (const std::int32_t id : *risk.ids) set_in_mask(mask, id, in_mask(held, id));
    }
  }

  void advance(std::int32_t id) override {
    if (place_ == Place::over) return;
    if (place_ == Place::call) {
      call_->advance(id);
    } else {
      watch(id);
      find_risks();
    }
    if (place_ == Place::call && call_->must_end()) end_call();
  }

 private:
  enum class Place : std::uint8_t {
    begin,      // only white space so far
    reasoning,  // until its closing mark
    answer,
    call,
    over,
  };
  // Tokens that complete a mark, and what the call that it opens makes of them.
  struct Risk {
    const std::vector<std::int32_t>* ids;
    std::unique_ptr<Constraint> call;
  };

  [[nodiscard]] bool in_text() const { return place_ != Place::call && place_ != Place::over; }
  [[nodiscard]] const ReplyFormat& format() const { return watched_->vocabulary->format; }

  void begin_call(std::unique_ptr<Constraint> call) {
    call_ = std::move(call);
    place_ = Place::call;
    tail_.clear();
  }
  void end_call() {
    call_.reset();
    place_ = watched_->single ? Place::over : Place::answer;
  }

  // A token of free text: the marks that ReplyReader finds, where it finds them.
  void watch(std::int32_t id) {
    const auto& tokens = watched_->openings->tokens;
    if (std::find(tokens.begin(), tokens.end(), id) != tokens.end()) {
      begin_call(watched_->call->start(ends_));
      return call_->advance(id);
    }
    const auto& vocabulary = *watched_->vocabulary;
    const bool opens = id == vocabulary.open && place_ == Place::begin;
    const bool closes = id == vocabulary.close && place_ == Place::reasoning;
    if (opens || closes || !format().mark_of(id).empty()) {
      if (opens) place_ = Place::reasoning;
      if (closes || place_ == Place::begin) place_ = Place::answer;
      if (opens || closes || !format().is_part(format().mark_of(id))) return tail_.clear();
    }
    tail_ += vocabulary.text_of(id);
    while (in_text() && step()) {
    }
    constexpr std::size_t kLongestTail = 64;
    if (place_ != Place::begin && tail_.size() > kLongestTail) tail_.erase(0, tail_.size() - kLongestTail);
  }

  // True: the tail is to be read again.
  bool step() {
    if (place_ == Place::begin) return leave_begin();
    if (place_ == Place::reasoning) {
      const std::string& close = format().close();
      const std::size_t at = watched_->vocabulary->close ? std::string::npos : tail_.find(close);
      if (at == std::string::npos) return false;
      tail_.erase(0, at + close.size());
      place_ = Place::answer;
      return true;
    }
    std::size_t first = std::string::npos;
    for (const auto& mark : watched_->openings->texts) first = std::min(first, tail_.find(mark.text));
    if (first != std::string::npos)
      begin_call(watched_->call->start_behind(std::string_view(tail_).substr(first), ends_));
    return false;
  }

  bool leave_begin() {
    tail_.erase(0, tail_.find_first_not_of(kSpace));
    const std::string& open = format().open();
    const bool may_open = !watched_->vocabulary->open && (open.starts_with(tail_) || tail_.starts_with(open));
    if (tail_.empty() || (may_open && tail_.size() < open.size())) return false;
    place_ = may_open ? Place::reasoning : Place::answer;
    if (may_open) tail_.erase(0, open.size());
    return true;
  }

  // Where the next token may complete a mark.
  void find_risks() {
    risks_.clear();
    if (place_ != Place::begin && place_ != Place::answer) return;
    for (const auto& mark : watched_->openings->texts) {
      for (std::size_t come = 1; come < mark.text.size(); ++come) {
        const std::string_view begun = std::string_view(mark.text).substr(0, come);
        if (!mark.beyond[come].empty() && tail_.ends_with(begun))
          risks_.push_back({&mark.beyond[come], watched_->call->start_behind(begun, ends_)});
      }
    }
  }

  std::shared_ptr<const Watched> watched_;
  std::vector<std::int32_t> ends_;
  Place place_;
  std::string tail_;  // of the text so far: where a mark may have begun
  std::vector<Risk> risks_;
  std::unique_ptr<Constraint> call_;  // of Place::call
};

}  // namespace

CallOpenings call_openings(const ReplyVocabulary& vocabulary) {
  const ReplyFormat& format = vocabulary.format;
  const CallSyntax& row = *format.calls();
  CallOpenings openings;
  std::vector<std::string_view> marks = {row.section_open, row.open};
  if (row.opens_by_name) marks.push_back(row.name_open);
  std::erase(marks, std::string_view());
  for (const std::string_view mark : marks) {
    if (const auto id = format.token_of(mark)) {
      openings.tokens.push_back(*id);
    } else {
      openings.texts.push_back({std::string(mark), std::vector<std::vector<std::int32_t>>(mark.size())});
    }
  }
  for (auto& mark : openings.texts) {
    for (std::size_t i = 0; i < vocabulary.texts.size(); ++i) {
      const std::string& text = vocabulary.texts[i];
      const auto id = static_cast<std::int32_t>(i);
      for (std::size_t come = 1; come < mark.text.size(); ++come) {
        const std::string_view rest = std::string_view(mark.text).substr(come);
        if (text.size() > rest.size() && text.starts_with(rest)) mark.beyond[come].push_back(id);
      }
      const std::size_t whole = text.find(mark.text);
      if (whole != std::string::npos && whole + mark.text.size() < text.size()) openings.around.push_back(id);
    }
  }
  return openings;
}

std::shared_ptr<const ConstraintSource> watch_calls(std::shared_ptr<const ReplyVocabulary> vocabulary,
                                                    std::shared_ptr<const CallOpenings> openings,
                                                    std::shared_ptr<const Grammar> call, std::string_view prompt,
                                                    bool single) {
  const bool reasons = first_stage(*vocabulary, prompt) == ReplyStage::reasoning;
  return std::make_shared<SharedSource<CallWatch, Watched>>(
      std::make_shared<Watched>(Watched{std::move(vocabulary), std::move(openings), std::move(call), single, reasons}));
}

}  // namespace moracle
