#include "text/reply/call_reader.h"

#include <algorithm>
#include <utility>

#include "base/json/document.h"
#include "base/random/mix64.h"

namespace moracle {
namespace {

constexpr std::size_t kLongestName = 256;
constexpr std::size_t kIdLetters = 24;
constexpr std::size_t kShortIdLetters = 9;
constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kTail = " \t\r\n`}])";  // may stand behind arguments: a fence, a bracket too many
constexpr std::string_view kNamespace = "functions.";

bool is_space(char c) {
  return kSpace.find(c) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= kLongestName && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("_-.:/").find(c) != std::string_view::npos;
  });
}

// "functions.NAME:NUMBER" has NAME.
std::string_view name_in_id(std::string_view id) {
  if (id.starts_with(kNamespace)) id.remove_prefix(kNamespace.size());
  const std::size_t colon = id.rfind(':');
  const bool numbered =
      colon != std::string_view::npos && id.find_first_not_of("0123456789", colon + 1) == std::string_view::npos;
  return numbered ? id.substr(0, colon) : id;
}

// The text that a JSON string stands for; empty: it is none.
std::string text_of(std::string_view quoted) {
  const auto parsed = parse_ordered_json(quoted, "");
  return parsed.ok() && parsed->is_string() ? parsed->get<std::string>() : std::string();
}

}  // namespace

// --- one call ---

std::string CallWriter::make_id(CallIds ids) const {
  constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
  const bool nine = ids == CallIds::nine;
  std::string id = nine ? "" : "call_";
  std::uint64_t bits = id_seed_ + static_cast<std::uint64_t>(ended_) * kGoldenRatio64;
  for (std::size_t i = 0; i < (nine ? kShortIdLetters : kIdLetters); ++i) {
    bits = mix64(bits);
    id += kLetters[bits % kLetters.size()];
  }
  return id;
}

void CallWriter::start(std::string_view name, std::string id, CallIds ids, const EmitReplyEvent& emit) {
  started_ = true;
  if (id.empty()) id = make_id(ids);
  emit(CallStartEvent{.index = ended_, .id = std::move(id), .name = std::string(name)});
}

void CallWriter::put(std::string_view piece, const EmitReplyEvent& emit) {
  if (piece.empty()) return;
  empty_ = false;
  emit(CallArgumentsEvent{.index = ended_, .text = std::string(piece)});
}

void CallWriter::end(const EmitReplyEvent& emit) {
  if (empty_) put("{}", emit);
  ++ended_;
  started_ = false;
  empty_ = true;
}

// --- marks ---

std::vector<std::string_view> CallReader::marks() const {
  const CallSyntax& row = *syntax_;
  std::vector<std::string_view> found;
  switch (state_) {
    case State::outside:
      found = {row.section_open, row.open};
      if (row.opens_by_name) found.push_back(row.name_open);
      break;
    case State::section:
      found = {row.open, row.section_close};
      break;
    case State::lead:
      found = {row.name_open, row.close};
      break;
    case State::name:
      found = {row.name_end, row.id_open, row.close};
      if (row.name_end.empty()) found.push_back(row.key_open);
      break;
    case State::id:
      found = {row.name_end};
      break;
    case State::keys:
      found = {row.key_open, row.body_close, row.close, row.section_close};
      break;
    case State::key:
      found = {row.key_close};
      break;
    case State::attribute:
      found = {row.value_open};
      break;
    case State::value:
      found = {row.value_close};
      break;
    case State::list:
    case State::tail:
      found = {row.close, row.section_close, row.open};
      if (row.opens_by_name) found.push_back(row.name_open);
      break;
    case State::arguments:  // JSON tells where it ends, and keywords where a text does
      if (row.style == ArgumentStyle::keywords) found = {row.value_open};
      break;
    case State::member:
      break;
  }
  std::erase(found, std::string_view());
  return found;
}

bool CallReader::counts(std::string_view mark) const {
  const auto known = marks();
  return std::find(known.begin(), known.end(), mark) != known.end();
}

bool CallReader::closes(std::string_view mark) const {
  return mark == syntax_->close || mark == syntax_->section_close;
}

bool CallReader::mark(std::string_view mark, const EmitReplyEvent& emit) {
  if (!inside() && !counts(mark)) return false;
  if (!writer_.started()) raw_ += mark;
  if (apply(mark, emit)) return true;
  if (!writer_.started()) raw_.erase(raw_.size() - mark.size());
  // It is content, as in a string, or ends the calls, and may begin others.
  const std::string_view rest = text(mark, emit);
  if (!inside() && rest.size() == mark.size() && counts(mark)) return this->mark(mark, emit);
  spilled_ += rest;
  return true;
}

bool CallReader::apply(std::string_view mark, const EmitReplyEvent& emit) {
  const bool in_json = state_ == State::arguments || state_ == State::member;
  if (in_json && closes(mark) && !json_.in_string()) {
    if (!writer_.started()) return false;
    end_arguments(emit);
    close_call(mark);
    return true;
  }
  switch (state_) {
    case State::outside:
    case State::section:
    case State::list:
    case State::tail:
      if (mark == syntax_->open) {
        open_call();
      } else if (mark == syntax_->section_open && state_ == State::outside) {
        state_ = State::section;
        in_section_ = true;
      } else if (mark == syntax_->name_open && (state_ == State::outside || state_ == State::tail)) {
        open_call();
        state_ = State::name;
      } else if (closes(mark) && (state_ != State::list || had_call_)) {
        close_call(mark);
      } else {
        return false;
      }
      return true;
    case State::lead:
    case State::name:
    case State::id:
      return apply_to_name(mark, emit);
    case State::keys:
    case State::key:
    case State::attribute:
    case State::value:
      return apply_to_elements(mark, emit);
    case State::arguments: {
      if (mark != syntax_->value_open || syntax_->style != ArgumentStyle::keywords) return false;
      std::string json;
      keywords_.quote(json);
      return take_keywords(json, emit);
    }
    case State::member:
      return false;
  }
  return false;
}

bool CallReader::apply_to_name(std::string_view mark, const EmitReplyEvent& emit) {
  if (state_ == State::lead) {
    if (mark != syntax_->name_open) return false;
    state_ = State::name;
    name_.clear();
    return true;
  }
  if (mark == syntax_->id_open && state_ == State::name) {
    state_ = State::id;
    return true;
  }
  if (mark == syntax_->name_end) return start(emit);
  // A name that no mark ends, and a call without arguments.
  const bool begins_key = mark == syntax_->key_open && syntax_->name_end.empty();
  if (!begins_key && !closes(mark)) return false;
  if (!start(emit)) return false;
  if (begins_key) return apply_to_elements(mark, emit);
  end_arguments(emit);
  close_call(mark);
  return true;
}

bool CallReader::apply_to_elements(std::string_view mark, const EmitReplyEvent& emit) {
  const CallSyntax& row = *syntax_;
  if (state_ == State::keys && mark == row.key_open) {
    state_ = State::key;
    key_.clear();
    attribute_.clear();
  } else if (state_ == State::keys && mark == row.body_close) {
    end_arguments(emit);
  } else if (state_ == State::key && mark == row.key_close) {
    state_ = State::attribute;
    if (row.value_open.empty()) begin_value(emit);
  } else if (state_ == State::attribute && mark == row.value_open) {
    begin_value(emit);
  } else if (state_ == State::value && mark == row.value_close) {
    end_value(emit);
  } else if (closes(mark)) {
    end_arguments(emit);
    close_call(mark);
  } else {
    return false;
  }
  return true;
}

// --- text ---

std::string_view CallReader::text(std::string_view piece, const EmitReplyEvent& emit) {
  while (!piece.empty() && inside()) {
    if (state_ == State::value) {
      take_value(piece, emit);
      return {};
    }
    const State before = state_;
    const char c = piece.front();
    const bool behind = state_ == State::tail || (state_ == State::list && had_call_);
    const bool in_raw = !writer_.started() && !behind;
    if (in_raw) raw_ += c;
    const bool taken = take(c, emit);
    if (taken) {
      piece.remove_prefix(1);
    } else {
      if (in_raw && !raw_.empty()) raw_.pop_back();
      if (state_ == before) fail();
    }
    if (state_ != before) break;  // other marks count
  }
  return piece;
}

// False: the byte does not belong here.
bool CallReader::take(char c, const EmitReplyEvent& emit) {
  switch (state_) {
    case State::outside:
      return false;
    case State::section:
      return is_space(c);
    case State::lead:
      name_ += c;
      return syntax_->lead.starts_with(trimmed(name_));
    case State::name:
      return take_name(c);
    case State::id:
      id_ += c;
      return id_.size() <= kLongestName;
    case State::arguments:
      return take_argument(c, emit);
    case State::list:
      return take_list(c);
    case State::member:
      return take_member(c, emit);
    case State::keys:
      if (is_space(c)) return true;
      end_arguments(emit);
      return false;
    case State::key:
      key_ += c;
      return true;
    case State::attribute:
      attribute_ += c;
      return true;
    case State::tail:
      return take_tail(c);
    case State::value:
      return true;  // taken in pieces
  }
  return false;
}

// Behind the arguments the next call of a series may follow.
bool CallReader::take_tail(char c) {
  if (kTail.find(c) != std::string_view::npos) return true;
  const bool series = syntax_->style == ArgumentStyle::keywords && syntax_->objects != CallObjects::one;
  if (!series || (c != ',' && !is_name({&c, 1}))) return false;
  open_call();
  raw_ += c;
  return take_name(c);
}

bool CallReader::take_name(char c) {
  // Brackets and commas of a series.
  const bool series = syntax_->style == ArgumentStyle::keywords && syntax_->objects != CallObjects::one;
  if (series && trimmed(name_).empty() && (c == '[' || c == ',')) return true;
  name_ += c;
  const std::string_view name = trimmed(name_);
  return name.empty() ? name_.size() <= kLongestName : is_name(name) && name_.size() <= 2 * kLongestName;
}

// False: it is no JSON object.
bool CallReader::take_keywords(std::string_view json, const EmitReplyEvent& emit) {
  std::string out;
  for (const char c : json) {
    if (json_.complete() || !json_.push(c, out)) {
      writer_.put(out, emit);
      end_arguments(emit);
      return false;
    }
  }
  writer_.put(out, emit);
  if (json_.complete()) end_arguments(emit);
  return true;
}

bool CallReader::take_argument(char c, const EmitReplyEvent& emit) {
  if (syntax_->style == ArgumentStyle::keywords) {
    std::string json;
    keywords_.push(c, json);
    return take_keywords(json, emit);
  }
  if (writer_.empty() && is_space(c)) return true;
  std::string out;
  const bool begins_list = writer_.empty() && c == '[';
  if (begins_list || !json_.push(c, out)) {
    end_arguments(emit);
    return false;
  }
  writer_.put(out, emit);
  if (json_.complete()) end_arguments(emit);
  return true;
}

bool CallReader::take_list(char c) {
  if (c == '{') {
    json_ = {};
    key_.clear();
    name_.clear();
    early_.clear();
    member_ = Member::none;
    state_ = State::member;
    std::string out;
    return json_.push(c, out);
  }
  if (c == ']') state_ = State::tail;
  return is_space(c) || c == ',' || c == '[' || c == ']' || (c == '}' && had_call_);
}

bool CallReader::take_member(char c, const EmitReplyEvent& emit) {
  const bool was_outer = json_.depth() == 1;
  const bool was_key = json_.in_key();
  const bool begins = was_outer && json_.expects_value() && !is_space(c);
  const bool was_number = was_outer && json_.in_number();
  std::string out;
  if (!json_.push(c, out)) {
    if (writer_.started()) end_arguments(emit);
    return false;
  }
  if (begins) {
    member_ = key_ == "name" || key_ == "tool_name"         ? Member::name
              : key_ == "arguments" || key_ == "parameters" ? Member::arguments
                                                            : Member::other;
    value_.clear();
    streams_ = c == '{' && writer_.started() && writer_.empty();
  }
  const bool number_ended = was_number && !json_.in_number();
  if (member_ != Member::none && !number_ended) put_member(out, emit);
  const bool value_ended = number_ended || (json_.depth() == 1 && json_.behind_value());
  if (member_ != Member::none && value_ended) end_member_value(emit);
  if (was_outer && json_.in_key()) key_ = was_key ? key_ + out : "";
  if (!json_.complete()) return true;
  if (!writer_.started()) return false;
  end_arguments(emit);
  state_ = State::list;
  return true;
}

void CallReader::put_member(std::string_view piece, const EmitReplyEvent& emit) {
  if (member_ == Member::arguments && streams_) {
    writer_.put(piece, emit);
  } else if (member_ != Member::other) {
    value_ += piece;
  }
}

void CallReader::end_member_value(const EmitReplyEvent& emit) {
  const Member member = std::exchange(member_, Member::none);
  if (member == Member::name && !writer_.started()) {
    name_ = text_of(value_);
    if (!name_.empty() && name_.size() <= kLongestName) {
      writer_.start(name_, {}, syntax_->ids, emit);
      raw_.clear();
      writer_.put(std::exchange(early_, {}), emit);
    }
  } else if (member == Member::arguments && !streams_) {
    // An object that was written as a text.
    const std::string text = value_.starts_with('"') ? text_of(value_) : std::string();
    const auto parsed = parse_ordered_json(text, "");
    const std::string arguments = parsed.ok() && parsed->is_object() ? parsed->dump() : value_;
    if (!arguments.starts_with('{')) return;
    if (!writer_.started()) {
      early_ = arguments;
    } else if (writer_.empty()) {
      writer_.put(arguments, emit);
    }
  }
}

void CallReader::begin_value(const EmitReplyEvent& emit) {
  state_ = State::value;
  value_.clear();
  begun_ = false;
  key_ = trimmed(key_);
  repeats_ = !keys_.insert(key_).second;
  const std::string_view word = trimmed(attribute_);
  const TypeWords& words = syntax_->type_words;
  types_ = tools_.types_of(name_, key_);
  const bool other = !word.empty() && std::find(words.others.begin(), words.others.end(), word) != words.others.end();
  if (other) types_ = {true, true, true, true, true, true, true};
  streams_ = (!word.empty() && word == words.text) || (!other && types_.only_text());
  if (repeats_) return;
  writer_.put((writer_.empty() ? "{\"" : ", \"") + escaped_text(key_) + "\": " + (streams_ ? "\"" : ""), emit);
}

void CallReader::take_value(std::string_view piece, const EmitReplyEvent& emit) {
  std::string text = std::exchange(value_, {}) + std::string(piece);
  if (!begun_ && syntax_->padded && text.starts_with('\n')) text.erase(0, 1);
  begun_ = true;
  if (!streams_) {
    value_ = std::move(text);
    return;
  }
  if (syntax_->padded && text.ends_with('\n')) {
    value_ = "\n";
    text.pop_back();
  }
  if (!repeats_) writer_.put(escaped_text(text), emit);
}

void CallReader::end_value(const EmitReplyEvent& emit) {
  state_ = State::keys;
  if (syntax_->padded && value_.ends_with('\n')) value_.pop_back();
  if (!repeats_) writer_.put(streams_ ? "\"" : typed_value(value_, types_), emit);
  value_.clear();
}

// --- a call's beginning and end ---

void CallReader::open_call() {
  name_.clear();
  id_.clear();
  keys_.clear();
  json_ = {};
  keywords_ = {};
  had_call_ = false;
  if (syntax_->style == ArgumentStyle::calls) {
    state_ = State::list;
  } else {
    state_ = syntax_->name_open.empty() ? State::name : State::lead;
  }
}

// False: there is no name.
bool CallReader::start(const EmitReplyEvent& emit) {
  const bool given = syntax_->ids == CallIds::given;
  std::string id(trimmed(given ? name_ : syntax_->ids == CallIds::nine ? id_ : std::string()));
  name_ = given ? name_in_id(trimmed(name_)) : trimmed(name_);
  if (!is_name(name_)) return false;
  writer_.start(name_, std::move(id), syntax_->ids, emit);
  raw_.clear();
  state_ = syntax_->style == ArgumentStyle::elements ? State::keys : State::arguments;
  return syntax_->style != ArgumentStyle::keywords || take_keywords("{", emit);
}

void CallReader::begin(std::string_view name, const EmitReplyEvent& emit) {
  open_call();
  name_ = name;
  writer_.start(name_, {}, syntax_->ids, emit);
  state_ = State::arguments;
}

void CallReader::end(const EmitReplyEvent& emit) {
  if (writer_.started()) end_arguments(emit);
  fail();
}

// The call that has started gets its end; what is missing of its arguments is closed.
void CallReader::end_arguments(const EmitReplyEvent& emit) {
  if (state_ == State::value) end_value(emit);
  std::string rest;
  if (syntax_->style == ArgumentStyle::elements) {
    rest = writer_.empty() ? "{}" : "}";
  } else if (state_ == State::arguments) {
    if (!writer_.empty()) json_.close(rest);
  } else if (member_ == Member::arguments && streams_) {
    json_.close(rest, 1);
  }
  writer_.put(rest, emit);
  writer_.end(emit);
  raw_.clear();
  had_call_ = true;
  member_ = Member::none;
  state_ = State::tail;
}

void CallReader::close_call(std::string_view mark) {
  raw_.clear();
  in_section_ = in_section_ && mark != syntax_->section_close;
  state_ = in_section_ ? State::section : State::outside;
}

void CallReader::fail() {
  spilled_ += std::exchange(raw_, {});
  in_section_ = false;
  state_ = State::outside;
}

bool CallReader::finish(bool cut, const EmitReplyEvent& emit) {
  if (!inside()) return false;
  const bool whole = state_ == State::member && member_ == Member::none && !writer_.empty();
  if (writer_.started() && (whole || !cut)) {
    end_arguments(emit);
  } else if (writer_.started()) {
    return true;
  }
  const bool opened = !trimmed(raw_).empty();
  if (!opened || cut) {
    raw_.clear();
  }
  fail();
  return opened && cut;
}

std::string CallReader::take_text() {
  return std::exchange(spilled_, {});
}

}  // namespace moracle
