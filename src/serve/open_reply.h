// One generation request on its way: asks the engine for each choice, and tells the client what comes.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/api/choice_text.h"
#include "serve/api/prepare.h"
#include "serve/api/reply_json.h"
#include "serve/routing_board.h"
#include "serve/service.h"

namespace moracle::serve {

// Lives on the I/O thread; the engine's listeners hold it until each choice has its outcome and that has been told.
class OpenReply : public std::enable_shared_from_this<OpenReply> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `request` is what was asked, without its body; `arrived` when.
  OpenReply(Service& service, HttpRequest request, std::shared_ptr<Exchange> exchange, PreparedRequest prepared,
            ReplyHead head, Time arrived);
  ~OpenReply();
  OpenReply(const OpenReply&) = delete;
  OpenReply& operator=(const OpenReply&) = delete;

  void start();
  // The client is not there any more, or the server ends.
  void gone(std::string_view cause);
  // The server ends before the reply does: the client hears so.
  void abandon();

  [[nodiscard]] const std::string& id() const { return head_.id; }
  [[nodiscard]] const std::string& key() const { return request_.key; }
  // Adds the tokens that its experts took so far. False: it has ended, and the board has them.
  bool add_routing(const RoutingSnapshot& now, RoutingBoard::Counts& counts) const;

 private:
  struct Choice {
    explicit Choice(ChoiceText words) : text(std::move(words)) {}
    [[nodiscard]] bool has_text() const { return text.has_text() || !before.empty() || !after.empty(); }

    TokenEngine::Ticket ticket = 0;
    ChoiceText text;
    std::vector<std::int32_t> ids;
    std::vector<HeldToken> scored;  // not told yet; with logprobs
    std::size_t told_ids = 0;
    std::int64_t offset = 0;  // of the next scored token in the text
    std::int64_t cached = 0;
    std::string before;  // the echo, until it is told
    std::string after;   // a stop text that was a token
    std::optional<ReplyEnd> end;
    bool accepted = false, settled = false, opened = false;
    Time started{}, first{}, last{};
  };

  template <class Work>
  void guard(const Work& work);
  void submit();
  void take(std::size_t index, EngineEvent event);
  void take_waiting();
  void on_event(std::size_t index, EngineEvent event);
  void take_routing(const std::vector<std::uint32_t>& counts);
  Result<> take_tokens(Choice& choice, const EngineEvent& event);
  Result<> take_token(Choice& choice, const HeldToken& token);
  void take_end(Choice& choice, const RequestOutcome& outcome);
  Result<> settle(Choice& choice);
  [[nodiscard]] const std::string* stop_text_of(std::int32_t id) const;
  [[nodiscard]] bool settled() const;
  [[nodiscard]] std::vector<std::int32_t> prompt_of(std::size_t index) const;

  void open_stream();
  void tell(std::size_t index);
  [[nodiscard]] Json take_logprobs(Choice& choice);
  [[nodiscard]] ReplyPiece take_piece(std::size_t index);
  [[nodiscard]] ReplyUsage usage() const;
  void finish();
  void fail(const Error& error);
  void cancel_rest();
  void hold(bool held);
  void log(int status, std::string_view end);
  void count_tokens();
  void observe_times();

  Service& service_;
  HttpRequest request_;
  std::shared_ptr<Exchange> exchange_;
  PreparedRequest prepared_;
  StopRule ends_;
  ReplyHead head_;
  Time arrived_;
  std::vector<Choice> choices_;
  std::deque<std::pair<std::size_t, EngineEvent>> waiting_;  // by choice, while the client lags
  std::shared_ptr<OpenReply> kept_;                          // this, while events wait: no listener may be left
  bool held_ = false;                                        // the client lags
  bool engine_held_ = false;                                 // the engine was told so
  RoutingBoard::Counts routing_;                             // of choices that have their outcome
  bool counted_ = false;                                     // its tokens are in the metrics
  bool streaming_ = false;                                   // the stream is open
  bool done_ = false;                                        // nothing more is told
  bool answered_ = false;                                    // to its end, or nobody listens
};

}  // namespace moracle::serve
