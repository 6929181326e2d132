// Reads calls of tools out of a reply, by a row of the table of syntaxes. Each reply has its own, which one thread at a
// time uses. It gets text in pieces, cut anywhere, and keeps what may be a mark.
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "text/reply/call_syntax.h"
#include "text/reply/json_cursor.h"
#include "text/reply/keyword_cursor.h"
#include "text/reply/reply_event.h"
#include "text/reply/tool_schemas.h"

namespace moracle {

using EmitReplyEvent = std::function<void(ReplyEvent&&)>;

// One call while it is written: its start, then its arguments in pieces that make one JSON value.
class CallWriter {
 public:
  explicit CallWriter(std::uint64_t id_seed) : id_seed_(id_seed) {}

  // `id`: the model's own; empty: one is made.
  void start(std::string_view name, std::string id, CallIds ids, const EmitReplyEvent& emit);
  void put(std::string_view piece, const EmitReplyEvent& emit);
  // No arguments follow; without any they are "{}".
  void end(const EmitReplyEvent& emit);

  [[nodiscard]] bool started() const { return started_; }
  [[nodiscard]] bool empty() const { return empty_; }
  // Calls that have their end.
  [[nodiscard]] std::int64_t ended() const { return ended_; }

 private:
  [[nodiscard]] std::string make_id(CallIds ids) const;

  std::uint64_t id_seed_;
  std::int64_t ended_ = 0;
  bool started_ = false;
  bool empty_ = true;  // no piece was put
};

// Gets text and marks from where a call may begin. What turns out to be none comes back as text.
class CallReader {
 public:
  CallReader(const CallSyntax& syntax, ToolSchemas tools, std::uint64_t id_seed)
      : syntax_(&syntax), tools_(std::move(tools)), writer_(id_seed) {}

  // Behind a mark that opens calls.
  [[nodiscard]] bool inside() const { return state_ != State::outside; }
  // In what is content up to its mark.
  [[nodiscard]] bool in_value() const { return state_ == State::value || keywords_.in_marks(); }
  // The marks that count here.
  [[nodiscard]] std::vector<std::string_view> marks() const;
  // Text without such marks. What is not taken, because the calls have ended, comes back.
  [[nodiscard]] std::string_view text(std::string_view piece, const EmitReplyEvent& emit);
  // A mark, which may be one that does not count here. False: it is text of the answer.
  [[nodiscard]] bool mark(std::string_view mark, const EmitReplyEvent& emit);
  // Whether the mark opens calls, where it stands between texts.
  [[nodiscard]] bool opens(std::string_view mark) const { return !inside() && counts(mark); }
  // A call whose name another reader has found, and its end.
  void begin(std::string_view name, const EmitReplyEvent& emit);
  void end(const EmitReplyEvent& emit);
  // The reply ends: `cut` by a limit, or by the model. True: in a call, which is not whole.
  [[nodiscard]] bool finish(bool cut, const EmitReplyEvent& emit);
  // What belonged to no call after all.
  [[nodiscard]] std::string take_text();

  [[nodiscard]] std::int64_t ended() const { return writer_.ended(); }
  [[nodiscard]] bool started() const { return writer_.started(); }

 private:
  enum class State : std::uint8_t {
    outside,
    section,    // between calls
    lead,       // of a call, until name_open
    name,       // until name_end
    id,         // behind id_open, until name_end
    arguments,  // a JSON object, or keywords
    list,       // objects {"name", "arguments"}, between them
    member,     // in such an object
    keys,       // between elements
    key,
    attribute,  // between key and value
    value,
    tail,  // behind the arguments, until close
  };

  bool take(char c, const EmitReplyEvent& emit);
  bool take_name(char c);
  bool take_argument(char c, const EmitReplyEvent& emit);
  bool take_keywords(std::string_view json, const EmitReplyEvent& emit);
  bool take_tail(char c);
  bool take_list(char c);
  bool take_member(char c, const EmitReplyEvent& emit);
  void put_member(std::string_view piece, const EmitReplyEvent& emit);
  void end_member_value(const EmitReplyEvent& emit);
  void take_value(std::string_view piece, const EmitReplyEvent& emit);
  void begin_value(const EmitReplyEvent& emit);
  void end_value(const EmitReplyEvent& emit);
  bool apply(std::string_view mark, const EmitReplyEvent& emit);
  bool apply_to_name(std::string_view mark, const EmitReplyEvent& emit);
  bool apply_to_elements(std::string_view mark, const EmitReplyEvent& emit);
  void open_call();
  bool start(const EmitReplyEvent& emit);
  void end_arguments(const EmitReplyEvent& emit);
  void close_call(std::string_view mark);
  void fail();
  [[nodiscard]] bool counts(std::string_view mark) const;
  [[nodiscard]] bool closes(std::string_view mark) const;

  const CallSyntax* syntax_;
  ToolSchemas tools_;
  CallWriter writer_;
  State state_ = State::outside;
  bool in_section_ = false;
  bool had_call_ = false;  // since the mark that opened
  std::string raw_;        // all since the calls began, until a call starts
  std::string spilled_;    // text that take_text() gives back
  std::string name_, id_;
  JsonCursor json_;
  KeywordCursor keywords_;  // of ArgumentStyle::keywords, whose JSON json_ follows
  // Of an element.
  std::set<std::string> keys_;  // those that the call has
  std::string key_, attribute_, value_;
  ValueTypes types_;
  bool streams_ = false;  // the value's text is given out while it is written
  bool begun_ = false;    // the value has text
  bool repeats_ = false;  // the call has the key already
  // Of an object {"name", "arguments"}: what a member is, and arguments that stand before the name.
  enum class Member : std::uint8_t { none, other, name, arguments };
  Member member_ = Member::none;
  std::string early_;
};

}  // namespace moracle
