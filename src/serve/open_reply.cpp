#include "serve/open_reply.h"

#include <algorithm>
#include <span>

#include "base/guarded.h"
#include "serve/api/api_error.h"

namespace moracle::serve {

namespace {

double seconds(OpenReply::Time from, OpenReply::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

OpenReply::Time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

OpenReply::OpenReply(Service& service, HttpRequest request, std::shared_ptr<Exchange> exchange,
                     PreparedRequest prepared, ReplyHead head, Time arrived)
    : service_(service),
      request_(std::move(request)),
      exchange_(std::move(exchange)),
      prepared_(std::move(prepared)),
      ends_(prepared_.request),
      head_(std::move(head)),
      arrived_(arrived) {
  ++service_.open_;
}

OpenReply::~OpenReply() {
  --service_.open_;
}

void OpenReply::start() {
  guard([&] { submit(); });
}

void OpenReply::submit() {
  const ApiRequest& api = prepared_.api;
  const ModelText& text = *service_.model_->text;
  exchange_->on_gone([weak = weak_from_this()](std::string_view cause) {
    if (const auto self = weak.lock()) self->gone(cause);
  });
  exchange_->on_lag([weak = weak_from_this()](bool lags) {
    if (const auto self = weak.lock()) self->hold(lags);
  });
  const std::size_t count = api.replies();
  choices_.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const PreparedPrompt& prompt = prepared_.prompts[i / static_cast<std::size_t>(api.n)];
    ChoiceTextOptions options{.stop = prepared_.stop_texts,
                              .include_stop = api.include_stop,
                              .min_tokens = api.min_tokens,
                              .skip_special_tokens = api.skip_special_tokens};
    if (api.endpoint == Endpoint::chat) {
      options.format = text.reply_format();
      options.prompt = prompt.text;
    }
    choices_.emplace_back(ChoiceText(text.tokenizer(), std::move(options)));
    if (api.echo) choices_.back().before = prompt.text;
  }
  service_.metrics_.observe_params(api.n, prepared_.request.max_tokens.value_or(0));
  for (std::size_t i = 0; i < count && !done_; ++i) {
    Request request = prepared_.engine_request(i);
    request.key = request_.key;
    request.salt = api.cache_salt;
    request.count_routing = true;
    choices_[i].ticket = service_.model_->engine->submit(
        std::move(request), [self = shared_from_this(), server = service_.server_, i](EngineEvent&& event) {
          server->post([self, i, event = std::move(event)]() mutable { self->take(i, std::move(event)); });
        });
  }
}

void OpenReply::gone(std::string_view cause) {
  if (done_) return;
  done_ = answered_ = true;
  service_.metrics_.count_cancel(cause);
  for (const Choice& choice : choices_) {
    if (!choice.end) service_.metrics_.count_success("abort");
  }
  count_tokens();
  cancel_rest();
  log(0, cause);
  take_waiting();
}

// What nobody reads is not made: others have the steps. What was made before waits here, so that a reader that keeps up
// is not left for what the I/O thread was late to write.
void OpenReply::hold(bool held) {
  held_ = held;
  take_waiting();
  // What waited may be enough for the client: then the engine stays held.
  if (std::exchange(engine_held_, held_) == held_) return;
  for (const Choice& choice : choices_) {
    if (!choice.settled) service_.model_->engine->hold(choice.ticket, held_);
  }
}

void OpenReply::take_waiting() {
  while (!waiting_.empty() && (done_ || !held_)) {
    auto [index, event] = std::move(waiting_.front());
    waiting_.pop_front();
    guard([&] { on_event(index, std::move(event)); });
  }
  kept_ = waiting_.empty() ? nullptr : shared_from_this();
}

void OpenReply::abandon() {
  if (done_) return;
  service_.metrics_.count_cancel("shutdown");
  fail(Error{.code = "server.shutdown", .wanted = "time to finish the reply", .found = "the server is ending"});
}

void OpenReply::cancel_rest() {
  for (const Choice& choice : choices_) {
    if (!choice.settled) service_.model_->engine->cancel(choice.ticket);
  }
}

// What fails here, as where memory runs out, ends this reply alone.
template <class Work>
void OpenReply::guard(const Work& work) {
  const auto done = guarded("answer a request", [&]() -> Result<> {
    work();
    return Ok{};
  });
  if (!done.ok() && !answered_) fail(done.error());
}

void OpenReply::take(std::size_t index, EngineEvent event) {
  guard([&] { waiting_.emplace_back(index, std::move(event)); });
  take_waiting();
}

void OpenReply::on_event(std::size_t index, EngineEvent event) {
  Choice& choice = choices_[index];
  if (event.outcome) {
    choice.settled = true;
    take_routing(event.routing);
  }
  if (done_) return;
  if (event.outcome && event.outcome->error) {
    fail(*event.outcome->error);
    return;
  }
  if (event.accepted) {
    choice.accepted = true;
    const bool all = std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.accepted; });
    if (all && prepared_.api.stream) open_stream();
  }
  if (event.started) {
    choice.started = *event.started;
    choice.cached = event.cached;
  }
  if (choice.end) return;  // tokens behind a stop text
  const auto taken = take_tokens(choice, event);
  if (!taken.ok()) {
    fail(taken.error());
    return;
  }
  if (event.outcome && !choice.end) take_end(choice, *event.outcome);
  if (choice.end) {
    const auto settled = settle(choice);
    if (!settled.ok()) {
      fail(settled.error());
      return;
    }
  }
  if (prepared_.api.stream) tell(index);
  if (done_) return;  // the client does not read
  if (std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.end.has_value(); })) finish();
}

// The last choice's go to the board.
void OpenReply::take_routing(const std::vector<std::uint32_t>& counts) {
  routing_.resize(std::max(routing_.size(), counts.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) routing_[i] += counts[i];
  if (settled()) service_.routing_.keep(head_.id, request_.key, std::move(routing_));
}

bool OpenReply::settled() const {
  return std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.settled; });
}

bool OpenReply::add_routing(const RoutingSnapshot& now, RoutingBoard::Counts& counts) const {
  if (settled()) return false;
  counts.resize(std::max(counts.size(), routing_.size()));
  for (std::size_t i = 0; i < routing_.size(); ++i) counts[i] += routing_[i];
  for (const Choice& choice : choices_) {
    const auto at = now.running.find(choice.ticket);
    if (choice.settled || at == now.running.end()) continue;
    for (std::size_t i = 0; i < std::min(counts.size(), at->second.size()); ++i) counts[i] += at->second[i];
  }
  return true;
}

Result<> OpenReply::take_tokens(Choice& choice, const EngineEvent& event) {
  const bool scores = prepared_.api.logprobs.has_value();
  if (scores) choice.scored.insert(choice.scored.end(), event.prompt.begin(), event.prompt.end());
  for (const HeldToken& token : event.tokens) {
    MORACLE_TRY(take_token(choice, token));
    if (!choice.text.stopped()) continue;
    choice.end = ReplyEnd{.reason = "stop", .stop_reason = choice.text.stop_text()};
    if (!event.outcome) service_.model_->engine->cancel(choice.ticket);
    break;
  }
  return Ok{};
}

Result<> OpenReply::take_token(Choice& choice, const HeldToken& token) {
  const Time time = now();
  if (choice.ids.empty()) {
    choice.first = time;
    service_.metrics_.observe_first_token(seconds(arrived_, time));
  } else {
    service_.metrics_.observe_token_gap(seconds(choice.last, time));
  }
  choice.last = time;
  const bool last = ends_.at(token.id, std::ssize(choice.ids));
  choice.ids.push_back(token.id);
  if (prepared_.api.logprobs) choice.scored.push_back(token);
  return last ? Ok{} : choice.text.push(token.id);
}

const std::string* OpenReply::stop_text_of(std::int32_t id) const {
  const auto& all = prepared_.stop_tokens;
  const auto found = std::find_if(all.begin(), all.end(), [id](const StopToken& stop) { return stop.id == id; });
  return found == all.end() ? nullptr : &found->text;
}

std::vector<std::int32_t> OpenReply::prompt_of(std::size_t index) const {
  return prepared_.prompts[index / static_cast<std::size_t>(prepared_.api.n)].ids;
}

void OpenReply::take_end(Choice& choice, const RequestOutcome& outcome) {
  if (outcome.end == RequestEnd::length) {
    choice.end = ReplyEnd{.reason = "length"};
    return;
  }
  choice.end = ReplyEnd{.reason = "stop"};
  if (!outcome.stop_id) return;
  const auto& asked = prepared_.api.stop_token_ids;
  if (const std::string* const text = stop_text_of(*outcome.stop_id)) {
    choice.end->stop_reason = *text;
  } else if (std::find(asked.begin(), asked.end(), *outcome.stop_id) != asked.end()) {
    choice.end->stop_reason = *outcome.stop_id;
  }
}

// The text of a choice that has ended, whole.
Result<> OpenReply::settle(Choice& choice) {
  MORACLE_TRY(choice.text.finish());
  // What a token's text held back may complete a stop text.
  if (choice.text.stopped()) choice.end = ReplyEnd{.reason = "stop", .stop_reason = choice.text.stop_text()};
  const bool by_token = !choice.text.stopped() && choice.end->stop_reason.is_string();
  if (by_token && prepared_.api.include_stop) choice.after = choice.end->stop_reason.get<std::string>();
  service_.metrics_.count_success(choice.end->reason);
  return Ok{};
}

void OpenReply::open_stream() {
  if (streaming_) return;
  streaming_ = true;
  HeaderList headers = service_.stream_headers(request_);
  headers.emplace_back("x-request-id", head_.id);
  if (!prepared_.api.ignored.empty()) headers.emplace_back("x-moracle-ignored", header_list(prepared_.api.ignored));
  exchange_->begin_stream(std::move(headers));
}

Json OpenReply::take_logprobs(Choice& choice) {
  if (!prepared_.api.logprobs) return nullptr;
  const Tokenizer& tokenizer = service_.model_->text->tokenizer();
  const auto tokens = std::exchange(choice.scored, {});
  if (prepared_.api.endpoint == Endpoint::chat) return chat_logprobs(tokenizer, tokens, *prepared_.api.logprobs);
  return completion_logprobs(tokenizer, tokens, *prepared_.api.logprobs, choice.offset);
}

// What of a choice was not told yet.
ReplyPiece OpenReply::take_piece(std::size_t index) {
  Choice& choice = choices_[index];
  ReplyPiece piece{.index = static_cast<std::int64_t>(index)};
  piece.reasoning = choice.text.take_reasoning();
  piece.text = std::exchange(choice.before, {}) + choice.text.take_answer() + std::exchange(choice.after, {});
  if (!prepared_.api.include_reasoning) piece.reasoning.clear();
  if (!choice.scored.empty()) piece.logprobs = take_logprobs(choice);
  if (prepared_.api.return_token_ids) {
    piece.token_ids.emplace(choice.ids.begin() + static_cast<std::ptrdiff_t>(choice.told_ids), choice.ids.end());
    choice.told_ids = choice.ids.size();
  }
  return piece;
}

void OpenReply::tell(std::size_t index) {
  Choice& choice = choices_[index];
  const ApiRequest& api = prepared_.api;
  const bool chat = api.endpoint == Endpoint::chat;
  const bool with_usage = api.include_usage || api.continuous_usage;
  std::string events;
  const auto add = [&](const ReplyPiece& piece) {
    const auto figures = api.continuous_usage ? std::optional(usage()) : std::nullopt;
    events += event_of(frame_json(head_, piece, with_usage, figures));
  };
  // Scores wait for the text that they belong to.
  const bool quiet =
      !choice.has_text() && !choice.end && !(api.return_token_ids && choice.ids.size() > choice.told_ids);
  if (quiet && (choice.opened || choice.ids.empty())) return;
  open_stream();
  if (!choice.opened) {
    choice.opened = true;
    ReplyPiece opening{.index = static_cast<std::int64_t>(index), .opens = chat};
    if (api.return_token_ids) opening.prompt_ids = prompt_of(index);
    if (chat || opening.prompt_ids) add(opening);
  }
  if (!quiet) {
    ReplyPiece piece = take_piece(index);
    const bool says = !piece.text.empty() || !piece.reasoning.empty() || !piece.logprobs.is_null() ||
                      (piece.token_ids && !piece.token_ids->empty());
    if (says) add(piece);
    if (choice.end) add({.index = static_cast<std::int64_t>(index), .end = choice.end});
  }
  exchange_->write(std::move(events));
}

ReplyUsage OpenReply::usage() const {
  ReplyUsage sum;
  for (const PreparedPrompt& prompt : prepared_.prompts) sum.prompt += std::ssize(prompt.ids);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    sum.completion += std::ssize(choice.ids);
    sum.reasoning += choice.text.reasoning_tokens();
    if (i % static_cast<std::size_t>(prepared_.api.n) == 0) sum.cached += choice.cached;
  }
  return sum;
}

// Once, however it ends. A prompt that no choice has begun with, as where the queue is full, cost nothing.
void OpenReply::count_tokens() {
  if (std::exchange(counted_, true)) return;
  const ReplyUsage sum = usage();
  const auto n = static_cast<std::size_t>(prepared_.api.n);
  std::int64_t prompts = 0;
  for (std::size_t i = 0; i < choices_.size(); i += n) {
    const std::span<const Choice> same = std::span(choices_).subspan(i, std::min(n, choices_.size() - i));
    const bool begun = std::any_of(same.begin(), same.end(), [](const Choice& c) { return c.started != Time{}; });
    if (begun) prompts += std::ssize(prepared_.prompts[i / n].ids);
  }
  service_.metrics_.count_tokens(prompts, sum.cached, sum.completion);
}

void OpenReply::observe_times() {
  const Time end = now();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    if (choice.started == Time{}) continue;
    const Time first = choice.ids.empty() ? end : choice.first;
    const auto& prompt = prepared_.prompts[i / static_cast<std::size_t>(prepared_.api.n)];
    service_.metrics_.observe_request({.queue_s = seconds(arrived_, choice.started),
                                       .prefill_s = seconds(choice.started, first),
                                       .decode_s = choice.ids.empty() ? 0 : seconds(first, choice.last),
                                       .whole_s = seconds(arrived_, end),
                                       .first_token_s = seconds(arrived_, first),
                                       .prompt = std::ssize(prompt.ids),
                                       .cached = choice.cached,
                                       .completion = std::ssize(choice.ids)});
  }
}

void OpenReply::finish() {
  done_ = true;
  count_tokens();
  observe_times();
  const ApiRequest& api = prepared_.api;
  if (api.stream) {
    std::string events;
    if (api.include_usage) events = event_of(usage_frame_json(head_, usage()));
    events += kDoneEvent;
    exchange_->write(std::move(events));
    exchange_->end();
    answered_ = true;
    log(200, "done");
    return;
  }
  std::vector<ReplyPiece> pieces;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    ReplyPiece piece = take_piece(i);
    if (api.return_token_ids) piece.prompt_ids = prompt_of(i);
    piece.end = choices_[i].end;
    pieces.push_back(std::move(piece));
  }
  HttpReply reply{.body = dump(reply_json(head_, pieces, usage(), api.include_reasoning))};
  reply.headers.emplace_back("x-request-id", head_.id);
  if (!api.ignored.empty()) reply.headers.emplace_back("x-moracle-ignored", header_list(api.ignored));
  service_.answer(request_, *exchange_, std::move(reply));
  answered_ = true;
  log(200, "done");
}

void OpenReply::fail(const Error& error) {
  done_ = answered_ = true;
  count_tokens();
  cancel_rest();
  HttpReply reply = service_.reply_of(error);
  log(reply.status, "error");
  if (streaming_) {
    exchange_->write("data: " + reply.body + "\n\n");
    exchange_->end();
  } else {
    service_.answer(request_, *exchange_, std::move(reply));
  }
  take_waiting();
}

void OpenReply::log(int status, std::string_view end) {
  const ReplyUsage sum = usage();
  Json line = {{"event", "request"},
               {"id", head_.id},
               {"path", request_.path},
               {"key", request_.key},
               {"status", status},
               {"end", end},
               {"stream", prepared_.api.stream},
               {"seed", head_.seed},
               {"prompt_tokens", sum.prompt},
               {"cached_tokens", sum.cached},
               {"completion_tokens", sum.completion},
               {"seconds", seconds(arrived_, now())}};
  if (service_.options_.log_prompts) {
    Json prompts = Json::array();
    for (const PreparedPrompt& prompt : prepared_.prompts) prompts.push_back(prompt.text);
    line["prompts"] = std::move(prompts);
  }
  service_.log_.line(std::move(line));
}

}  // namespace moracle::serve
