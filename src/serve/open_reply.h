// One generation request on its way: asks the engine for each choice, and writes to the client what comes.
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

#include "serve/api/reply_text.h"
#include "serve/api/reply_translator.h"
#include "serve/api/request.h"
#include "serve/expert_counters.h"
#include "serve/service_state.h"

namespace moracle::serve {

// Lives on the I/O thread; the engine's listeners hold it until each choice has its outcome and that has been reported.
class OpenReply : public std::enable_shared_from_this<OpenReply> {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `http` is the request without its body, which `request` is made of; `arrived` when.
  OpenReply(ServiceState& state, HttpRequest http, std::shared_ptr<Exchange> exchange, ApiRequest request,
            std::string id, std::unique_ptr<ReplyTranslator> translator, Time arrived);
  OpenReply(const OpenReply&) = delete;
  OpenReply& operator=(const OpenReply&) = delete;

  void start();
  // The client is not there any more, or the server ends.
  void disconnected(std::string_view cause);
  // The server ends before the reply does: the client hears so.
  void abandon();

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] const std::string& key() const { return http_.key; }
  // Adds the tokens that its experts took so far. False: it has ended, and ExpertCounters have them.
  bool add_routing(const RoutingSnapshot& now, ExpertCounters::Counts& counts) const;

 private:
  struct Choice {
    explicit Choice(ReplyText words) : text(std::move(words)) {}

    TokenEngine::Ticket ticket = 0;
    ReplyText text;
    std::vector<std::int32_t> ids;
    std::vector<OwnedToken> scored;  // not reported yet; with logprobs
    std::size_t reported_ids = 0;
    std::int64_t cached = 0;
    std::optional<EndEvent> end;
    bool accepted = false, resolved = false, opened = false;
    Time started{}, first{}, last{};
  };

  template <class Work>
  void guard(const Work& work);
  [[nodiscard]] ReplyText text_of_choice(std::size_t index) const;
  void receive(std::size_t index, EngineEvent event);
  void handle_backlog();
  void on_event(std::size_t index, EngineEvent event);
  void add_outcome_routing(const std::vector<std::uint32_t>& counts);
  Result<> add_tokens(Choice& choice, const EngineEvent& event);
  Result<> add_token(Choice& choice, const OwnedToken& token);
  [[nodiscard]] EndEvent end_of(const RequestOutcome& outcome) const;
  Result<> end_choice(Choice& choice);
  [[nodiscard]] bool resolved() const;
  [[nodiscard]] bool ended() const;
  [[nodiscard]] std::vector<std::int32_t> prompt_of(std::size_t index) const;

  void add_headers(HeaderList& headers) const;
  void open_stream();
  [[nodiscard]] std::string frames_of(std::size_t index);
  void write(std::string frames);
  [[nodiscard]] ChoiceUpdate take_update(std::size_t index);
  [[nodiscard]] ReplyUsage usage() const;
  void finish();
  void fail(const Error& error);
  void cancel_rest();
  void hold(bool held);
  void log(int status, std::string_view end);
  void count_tokens();
  void observe_times();

  ServiceState& state_;
  InFlightGuard in_flight_;
  HttpRequest http_;
  std::shared_ptr<Exchange> exchange_;
  ApiRequest request_;
  StopRule ends_;
  std::string id_;
  std::unique_ptr<ReplyTranslator> translator_;
  Time arrived_;
  std::vector<Choice> choices_;
  std::deque<std::pair<std::size_t, EngineEvent>> backlog_;  // by choice, while the client is slower than the engine
  std::shared_ptr<OpenReply> self_;                          // this, while events wait: no listener may be left
  bool held_ = false;                                        // the client has a backlog
  bool engine_held_ = false;                                 // the engine knows
  ExpertCounters::Counts routing_;                           // of choices that have their outcome
  bool counted_ = false;                                     // its tokens are in the metrics
  bool streaming_ = false;                                   // the stream is open
  bool done_ = false;                                        // nothing more is reported
  bool answered_ = false;                                    // to its end, or the client is not there
};

}  // namespace moracle::serve
