#include "text/constrain/calls/channel_calls.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "text/constrain/token_mask.h"
#include "text/reply/harmony.h"

namespace moracle {

namespace {

constexpr std::string_view kRole = "assistant";
constexpr std::string_view kRecipient = "to=";

struct HeldChannels {
  std::shared_ptr<const ReplyVocabulary> vocabulary;
  ChannelForm form;
  ReplyStage first = ReplyStage::opened;
};

class ChannelCalls final : public Constraint {
 public:
  ChannelCalls(std::shared_ptr<const HeldChannels> held, std::span<const std::int32_t> ends)
      : held_(std::move(held)), ends_(ends.begin(), ends.end()) {
    switch (held_->first) {
      case ReplyStage::between:
        place_ = Place::between;
        break;
      case ReplyStage::answer:
        enter_body(true);
        break;
      case ReplyStage::thought:
        enter_body(false);
        break;
      default:
        enter_header(kRole);
        if (held_->first == ReplyStage::name) inner_->advance(channels().channel);
    }
  }

  [[nodiscard]] bool allows_all() const override { return place_ == Place::body && held_->form.may_end; }
  [[nodiscard]] bool must_end() const override { return inner_ && inner_->must_end(); }

  void narrow(std::span<std::uint32_t> mask) const override {
    if (inner_) return inner_->narrow(mask);
    if (place_ == Place::between) return narrow_between(mask);
    if (held_->form.may_end) return;
    for (const std::int32_t id : ends_) set_in_mask(mask, id, false);
    for (const std::int32_t id : channels().marks) set_in_mask(mask, id, false);
  }

  void advance(std::int32_t id) override {
    const auto& marks = channels();
    switch (place_) {
      case Place::between:
        if (id == marks.start) enter_header({});
        return;
      case Place::header:
        inner_->advance(id);
        if (id != marks.message) return add_text(id);
        place_ = Place::inner;
        if (header_.find(kRecipient) == std::string::npos) enter_body(header_.ends_with(harmony::kAnswerChannel));
        return;
      case Place::body:
        if (id == marks.start) return enter_header({});
        // A mark that begins no message where it stands: one must begin.
        if (id == marks.end || std::find(marks.marks.begin(), marks.marks.end(), id) != marks.marks.end())
          place_ = Place::between;
        return;
      case Place::inner:
        return inner_->advance(id);
    }
  }

 private:
  enum class Place : std::uint8_t {
    between,  // a message must begin
    header,   // until its body begins
    body,     // free
    inner,    // a body that is held: a call's, or the answer's
  };

  [[nodiscard]] const ReplyVocabulary::Channels& channels() const { return *held_->vocabulary->channels; }

  void enter_header(std::string_view begun) {
    place_ = Place::header;
    header_.clear();
    inner_ = held_->form.message->start_behind(begun, ends_);
  }

  void enter_body(bool answers) {
    const bool held = answers && held_->form.answer;
    place_ = held ? Place::inner : Place::body;
    inner_ = held ? held_->form.answer->start(ends_) : nullptr;
  }

  void add_text(std::int32_t id) { header_ += held_->vocabulary->text_of(id); }

  void narrow_between(std::span<std::uint32_t> mask) const {
    std::vector<std::int32_t> kept = {channels().start};
    if (held_->form.may_end) kept.insert(kept.end(), ends_.begin(), ends_.end());
    keep_only(mask, kept);
  }

  std::shared_ptr<const HeldChannels> held_;
  std::vector<std::int32_t> ends_;
  Place place_ = Place::between;
  std::string header_;                 // its text so far
  std::unique_ptr<Constraint> inner_;  // of Place::header and inner
};

}  // namespace

std::shared_ptr<const ConstraintSource> hold_channels(std::shared_ptr<const ReplyVocabulary> vocabulary,
                                                      ChannelForm form, std::string_view prompt) {
  const ReplyStage first = first_stage(*vocabulary, prompt);
  return std::make_shared<SharedSource<ChannelCalls, HeldChannels>>(
      std::make_shared<HeldChannels>(HeldChannels{std::move(vocabulary), std::move(form), first}));
}

}  // namespace moracle
