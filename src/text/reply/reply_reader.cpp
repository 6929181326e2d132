#include "text/reply/reply_reader.h"

#include <algorithm>
#include <utility>

#include "text/reply/harmony.h"

namespace moracle {
namespace {

constexpr std::size_t kLongestHeader = 256;
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";

std::string_view trimmed_end(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

// The length of the longest end of `text` that begins `mark`, but is not all of it.
std::size_t begins_mark(std::string_view text, std::string_view mark) {
  for (std::size_t size = std::min(text.size(), mark.size() - 1); size > 0; --size) {
    if (mark.starts_with(text.substr(text.size() - size))) return size;
  }
  return 0;
}

std::string_view without_leading_space(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(kSpace), text.size()));
}

// The word at the start of `text`; a mark ends it, too.
std::string_view first_word(std::string_view text) {
  text = without_leading_space(text);
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

// Whether one begins the other.
bool agree(std::string_view a, std::string_view b) {
  return a.starts_with(b) || b.starts_with(a);
}

}  // namespace

ReplyReader::ReplyReader(ReplyFormat format, std::string_view prompt, CallOptions calls)
    : format_(std::move(format)), tools_(std::move(calls.tools)), max_calls_(calls.max_calls) {
  if (format_.calls() != nullptr) calls_.emplace(*format_.calls(), tools_, calls.id_seed);
  read_prompt(prompt);
}

void ReplyReader::read_prompt(std::string_view prompt) {
  if (format_.kind() == ReplyFormat::Kind::think) {
    if (!trimmed_end(prompt).ends_with(format_.open())) return;
    state_ = State::reasoning;
    begin_part(Part::reasoning, true);
    return;
  }
  state_ = State::body;
  const std::size_t start = prompt.rfind(harmony::kStart);
  if (start == std::string_view::npos) return;
  const std::string_view message = prompt.substr(start + harmony::kStart.size());
  const auto has = [message](std::string_view mark) { return message.find(mark) != std::string_view::npos; };
  if (has(harmony::kEnd) || has(harmony::kReturn) || has(harmony::kCall)) {
    state_ = State::between;
    return;
  }
  const std::size_t body = message.find(harmony::kMessage);
  header_ = message.substr(0, std::min({body, message.size(), kLongestHeader}));
  if (body != std::string_view::npos) {
    open_body([](ReplyEvent&&) {});
    filled_ = body + harmony::kMessage.size() < message.size();
    return;
  }
  const bool has_channel = has(harmony::kChannel);
  state_ = has_channel ? State::header : State::opened;
  if (!has_channel) header_.clear();
}

void ReplyReader::text(std::string_view piece, const Emit& emit) {
  held_ += piece;
  scan(emit, false);
}

void ReplyReader::mark(std::string_view mark, const Emit& emit) {
  if (format_.is_part(mark)) return text(mark, emit);
  scan(emit, true);
  if (!ended()) apply(mark, emit);
}

void ReplyReader::finish(const Emit& emit, bool cut) {
  // The beginning of a mark that another call or the end of one needs.
  if (in_calls() ? !calls_->in_value() : cut && calls() > 0) held_.clear();
  scan(emit, true);
  if (in_calls()) {
    in_call_ = calls_->finish(cut, of_calls(emit));
    if (in_call_) space_.clear();
    put_back(emit);
  }
  const bool in_header = state_ == State::opened || state_ == State::header;
  if (calls_ && cut && in_header && header_.find(kRecipient) != std::string::npos) {
    in_call_ = true;
    header_.clear();
  }
  if (state_ == State::opened) {
    state_ = State::body;
    put(std::exchange(header_, {}), emit);
  }
  const bool in_answer = state_ == State::begin || state_ == State::answer || state_ == State::body;
  if (in_answer && part_ == Part::answer && !space_.empty()) give(space_, emit);
  space_.clear();
}

// Whether it is known if the held text begins with the mark of reasoning.
bool ReplyReader::begun(bool last) {
  const std::string_view text = without_leading_space(held_);
  if (text.empty()) return last;
  const bool may_open = !format_.is_token(format_.open()) && agree(text, format_.open());
  if (may_open && text.size() < format_.open().size() && !last) return false;
  if (may_open && text.size() >= format_.open().size()) {
    held_.erase(0, held_.size() - text.size() + format_.open().size());
    state_ = State::reasoning;
    begin_part(Part::reasoning, true);
  } else {
    state_ = State::answer;
  }
  return true;
}

// Marks that count here and are found in text.
std::vector<std::string_view> ReplyReader::text_marks() const {
  std::vector<std::string_view> marks;
  if (format_.kind() == ReplyFormat::Kind::channels) {
    marks.assign(harmony::kMarks.begin(), harmony::kMarks.end());
  } else if (state_ == State::reasoning) {
    marks.emplace_back(format_.close());
  } else {
    if (calls_) marks = calls_->marks();
    if (!in_calls()) marks.insert(marks.end(), format_.beside().begin(), format_.beside().end());
  }
  std::erase_if(marks, [this](std::string_view mark) { return format_.is_token(mark); });
  return marks;
}

// Takes marks out of the held text, and gives out what can be none; with `last`, everything.
void ReplyReader::scan(const Emit& emit, bool last) {
  if (state_ == State::begin && !begun(last)) return;
  while (!held_.empty() && !ended()) {
    std::size_t at = std::string::npos;
    std::string_view found;
    std::size_t keep = 0;
    for (const std::string_view mark : text_marks()) {
      const std::size_t place = held_.find(mark);
      if (place < at || (place == at && mark.size() > found.size())) {
        at = place;
        found = mark;
      }
      keep = std::max(keep, begins_mark(held_, mark));
    }
    const bool none = at == std::string::npos;
    const std::string before = held_.substr(0, none ? held_.size() - (last ? 0 : keep) : at);
    const std::size_t left = before.empty() ? 0 : plain(before, emit);
    held_.erase(0, before.size() - left);
    if (left > 0 || ended()) continue;  // other marks count there, or none
    if (none) return;
    held_.erase(0, found.size());
    apply(found, emit);
  }
  if (ended()) held_.clear();
}

// Text that holds no mark. What is left of it is read again.
std::size_t ReplyReader::plain(std::string_view text, const Emit& emit) {
  if (in_calls()) {
    const std::size_t left = calls_->text(text, of_calls(emit)).size();
    put_back(emit);
    return left;
  }
  switch (state_) {
    case State::opened:
      header_ += text;
      // Behind the role only a recipient may follow; all else is a reply without channels.
      if (agree(without_leading_space(header_), kRecipient) && header_.size() <= kLongestHeader) return 0;
      break;
    case State::header:
      header_ += text;
      if (header_.size() <= kLongestHeader) return 0;
      begin_part(Part::answer, false);
      break;
    case State::between:
      if (without_leading_space(text).empty()) return 0;
      begin_part(Part::answer, true);
      header_ = text;
      break;
    case State::begin:
    case State::reasoning:
    case State::answer:
    case State::body:
      put(text, emit);
      return 0;
  }
  state_ = State::body;
  put(std::exchange(header_, {}), emit);
  return 0;
}

// The white space in front of a call is none of the answer.
ReplyReader::Emit ReplyReader::of_calls(const Emit& emit) {
  return [this, &emit](ReplyEvent&& event) {
    if (std::holds_alternative<CallStartEvent>(event)) begin_part(Part::answer, true);
    emit(std::move(event));
  };
}

// Text that looked like a call.
void ReplyReader::put_back(const Emit& emit) {
  put(calls_->take_text(), emit);
}

bool ReplyReader::apply_call(std::string_view mark, const Emit& emit) {
  if (!calls_) return false;
  if (state_ == State::reasoning && !calls_->opens(mark)) return false;
  // Reasoning that a call interrupts is not closed: the mark came as a token.
  if (!calls_->mark(mark, of_calls(emit))) return false;
  if (state_ == State::reasoning) begin_part(Part::answer, true);
  state_ = State::answer;
  put_back(emit);
  return true;
}

void ReplyReader::apply(std::string_view mark, const Emit& emit) {
  if (format_.kind() == ReplyFormat::Kind::channels) {
    apply_channel(mark, emit);
  } else if (apply_call(mark, emit)) {
    return;
  } else if (mark == format_.open() && state_ == State::begin) {
    state_ = State::reasoning;
    begin_part(Part::reasoning, true);
  } else if (mark == format_.close() && state_ == State::reasoning) {
    state_ = State::answer;
    begin_part(Part::answer, true);
  } else if (const auto beside = format_.beside(); std::find(beside.begin(), beside.end(), mark) != beside.end()) {
    if (state_ == State::begin) state_ = State::answer;
  } else {  // it marks nothing here
    if (state_ == State::begin) state_ = State::answer;
    put(mark, emit);
  }
}

void ReplyReader::apply_channel(std::string_view mark, const Emit& emit) {
  if (in_calls()) end_channel_call(emit);
  const bool in_header = state_ == State::header || state_ == State::opened;
  if (!in_header || mark == harmony::kStart) header_.clear();
  if (mark == harmony::kMessage) {
    open_body(emit);
  } else if (mark == harmony::kEnd || mark == harmony::kReturn || mark == harmony::kCall) {
    state_ = State::between;
  } else {
    state_ = State::header;
    if (mark != harmony::kStart) header_ += mark;
  }
}

void ReplyReader::open_body(const Emit& emit) {
  const std::string header = std::exchange(header_, {});
  const std::size_t channel = header.rfind(harmony::kChannel);
  const std::string_view name = channel == std::string::npos
                                    ? ""
                                    : first_word(std::string_view(header).substr(channel + harmony::kChannel.size()));
  const std::size_t recipient = header.find(kRecipient);
  state_ = State::body;
  const std::string_view to =
      recipient == std::string::npos ? "" : first_word(std::string_view(header).substr(recipient + kRecipient.size()));
  const bool of_tools = to.starts_with(kFunctions) && to.size() > kFunctions.size();
  if (calls_ && (of_tools || tools_.has(to))) {
    calls_->begin(of_tools ? to.substr(kFunctions.size()) : to, of_calls(emit));
    return;
  }
  if (name == "analysis") {
    begin_part(Part::reasoning, true);
    return;
  }
  begin_part(Part::answer, false);
  // A call of a tool: whom it goes to belongs to it.
  if (recipient != std::string::npos)
    put(std::string(first_word(std::string_view(header).substr(recipient))) + " ", emit);
}

void ReplyReader::end_channel_call(const Emit& emit) {
  calls_->end(of_calls(emit));
  put_back(emit);
}

void ReplyReader::begin_part(Part part, bool trims) {
  space_.clear();
  part_ = part;
  trims_ = trims;
  filled_ = false;
}

void ReplyReader::give(std::string_view text, const Emit& emit) const {
  if (part_ == Part::reasoning) {
    emit(ReasoningEvent{.text = std::string(text)});
  } else {
    emit(TextEvent{.text = std::string(text)});
  }
}

void ReplyReader::put(std::string_view text, const Emit& emit) {
  if (!filled_ && trims_) text = without_leading_space(text);
  if (text.empty()) return;
  bool& given = given_[static_cast<std::size_t>(part_)];
  const std::string_view solid = trimmed_end(text);
  if (!solid.empty()) {
    if (!filled_ && given) give("\n\n", emit);  // the next message of the same kind
    const std::string ready = std::exchange(space_, {}) + std::string(solid);
    filled_ = true;
    given = true;
    give(ready, emit);
  }
  space_ += text.substr(solid.size());
}

}  // namespace moracle
