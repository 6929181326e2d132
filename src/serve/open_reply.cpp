#include "serve/open_reply.h"

#include <algorithm>
#include <span>

#include "base/guarded.h"
#include "base/random/mix64.h"
#include "serve/api/json_text.h"

namespace moracle::serve {

namespace {

double seconds(OpenReply::Time from, OpenReply::Time to) {
  return std::chrono::duration<double>(to - from).count();
}

// What ids of calls follow from.
std::uint64_t seed_of(std::string_view id) {
  std::uint64_t seed = 0;
  for (const char c : id) seed = mix64(seed ^ static_cast<unsigned char>(c));
  return seed;
}

OpenReply::Time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

OpenReply::OpenReply(ServiceState& state, HttpRequest http, std::shared_ptr<Exchange> exchange, ApiRequest request,
                     std::string id, std::unique_ptr<ReplyTranslator> translator, Time arrived)
    : state_(state),
      in_flight_(state.open),
      http_(std::move(http)),
      exchange_(std::move(exchange)),
      request_(std::move(request)),
      ends_(request_.engine),
      id_(std::move(id)),
      translator_(std::move(translator)),
      arrived_(arrived) {}

void OpenReply::start() {
  guard([&] {
    exchange_->on_disconnect([weak = weak_from_this()](std::string_view cause) {
      if (const auto self = weak.lock()) self->disconnected(cause);
    });
    exchange_->on_backlog([weak = weak_from_this()](bool backlogged) {
      if (const auto self = weak.lock()) self->hold(backlogged);
    });
    const std::size_t count = request_.replies();
    choices_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) choices_.emplace_back(text_of_choice(i));
    state_.metrics.observe_params(request_.n, request_.engine.max_tokens.value_or(0));
    for (std::size_t i = 0; i < count && !done_; ++i) {
      Request asked = request_.engine_request(i);
      asked.key = http_.key;
      choices_[i].ticket = state_.model()->engine->submit(
          std::move(asked), [self = shared_from_this(), server = state_.server, i](EngineEvent&& event) {
            server->post([self, i, event = std::move(event)]() mutable { self->receive(i, std::move(event)); });
          });
    }
  });
}

ReplyText OpenReply::text_of_choice(std::size_t index) const {
  const ModelText& text = *state_.model()->text;
  const PreparedPrompt& prompt = request_.prompts[index / static_cast<std::size_t>(request_.n)];
  ReplyTextOptions options{.stop = request_.stop_texts,
                           .include_stop = request_.include_stop,
                           .min_tokens = request_.min_tokens,
                           .skip_special_tokens = request_.skip_special_tokens};
  if (request_.kind == GenerationApi::chat) {
    const bool calls = request_.tools.may_call();
    options.format = calls ? text.call_format() : text.reply_format();
    options.prompt = prompt.text;
    if (calls) {
      options.calls = {
          .tools = request_.tools.schemas, .id_seed = seed_of(id_) + index, .max_calls = request_.tools.max_calls};
    }
  }
  if (request_.echo) options.echo = prompt.text;
  return {text.tokenizer(), std::move(options)};
}

void OpenReply::disconnected(std::string_view cause) {
  if (done_) return;
  done_ = answered_ = true;
  state_.metrics.count_cancel(cause);
  for (const Choice& choice : choices_) {
    if (!choice.end) state_.metrics.count_success("abort");
  }
  count_tokens();
  cancel_rest();
  log(0, cause);
  handle_backlog();
}

// Tokens that no client reads are not made: others have the steps. Earlier ones wait here, so that a reader that keeps
// up is not left for what the I/O thread was late to write.
void OpenReply::hold(bool held) {
  held_ = held;
  handle_backlog();
  // The backlog may be enough for the client: then the engine stays held.
  if (std::exchange(engine_held_, held_) == held_) return;
  for (const Choice& choice : choices_) {
    if (!choice.resolved) state_.model()->engine->hold(choice.ticket, held_);
  }
}

void OpenReply::handle_backlog() {
  while (!backlog_.empty() && (done_ || !held_)) {
    auto [index, event] = std::move(backlog_.front());
    backlog_.pop_front();
    guard([&] { on_event(index, std::move(event)); });
  }
  self_ = backlog_.empty() ? nullptr : shared_from_this();
}

void OpenReply::abandon() {
  if (done_) return;
  state_.metrics.count_cancel("shutdown");
  fail(Error{.code = "server.shutdown", .wanted = "time to finish the reply", .found = "the server is ending"});
}

void OpenReply::cancel_rest() {
  for (const Choice& choice : choices_) {
    if (!choice.resolved) state_.model()->engine->cancel(choice.ticket);
  }
}

// A failure here, as where memory runs out, ends this reply alone.
template <class Work>
void OpenReply::guard(const Work& work) {
  const auto done = guarded("answer a request", [&]() -> Result<> {
    work();
    return Ok{};
  });
  if (!done.ok() && !answered_) fail(done.error());
}

void OpenReply::receive(std::size_t index, EngineEvent event) {
  guard([&] {
    if (backlog_.empty() && (done_ || !held_)) {
      on_event(index, std::move(event));
    } else {
      backlog_.emplace_back(index, std::move(event));
    }
  });
  handle_backlog();
}

void OpenReply::on_event(std::size_t index, EngineEvent event) {
  Choice& choice = choices_[index];
  if (event.outcome) {
    choice.resolved = true;
    add_outcome_routing(event.routing);
  }
  if (done_) return;
  if (event.outcome && event.outcome->error) {
    fail(*event.outcome->error);
    return;
  }
  if (event.accepted) {
    choice.accepted = true;
    const bool all = std::all_of(choices_.begin(), choices_.end(), [](const Choice& c) { return c.accepted; });
    if (all && request_.stream) open_stream();
  }
  if (event.started) {
    choice.started = *event.started;
    choice.cached = event.cached;
  }
  if (choice.end) return;  // tokens behind a stop text
  if (const auto added = add_tokens(choice, event); !added.ok()) {
    fail(added.error());
    return;
  }
  if (event.outcome && !choice.end) choice.end = end_of(*event.outcome);
  if (choice.end) {
    if (const auto rest = end_choice(choice); !rest.ok()) {
      fail(rest.error());
      return;
    }
  }
  if (request_.stream) write(frames_of(index));
  if (done_) return;  // the client does not read
  if (ended()) finish();
}

// Counters get them behind the last choice's.
void OpenReply::add_outcome_routing(const std::vector<std::uint32_t>& counts) {
  routing_.resize(std::max(routing_.size(), counts.size()));
  for (std::size_t i = 0; i < counts.size(); ++i) routing_[i] += counts[i];
  if (resolved()) state_.routing.keep(id_, http_.key, std::move(routing_));
}

bool OpenReply::ended() const {
  return std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.end.has_value(); });
}

bool OpenReply::resolved() const {
  return std::all_of(choices_.begin(), choices_.end(), [](const Choice& choice) { return choice.resolved; });
}

bool OpenReply::add_routing(const RoutingSnapshot& now, ExpertCounters::Counts& counts) const {
  if (resolved()) return false;
  counts.resize(std::max(counts.size(), routing_.size()));
  for (std::size_t i = 0; i < routing_.size(); ++i) counts[i] += routing_[i];
  for (const Choice& choice : choices_) {
    const auto at = now.running.find(choice.ticket);
    if (choice.resolved || at == now.running.end()) continue;
    for (std::size_t i = 0; i < std::min(counts.size(), at->second.size()); ++i) counts[i] += at->second[i];
  }
  return true;
}

Result<> OpenReply::add_tokens(Choice& choice, const EngineEvent& event) {
  const bool scores = request_.logprobs.has_value();
  if (scores) choice.scored.insert(choice.scored.end(), event.prompt.begin(), event.prompt.end());
  for (const OwnedToken& token : event.tokens) {
    MORACLE_TRY(add_token(choice, token));
    if (!choice.text.stopped() && !choice.text.has_last_call()) continue;
    choice.end = EndEvent{};
    if (choice.text.stopped()) choice.end->by = choice.text.stop_text();
    if (!event.outcome) state_.model()->engine->cancel(choice.ticket);
    break;
  }
  return Ok{};
}

Result<> OpenReply::add_token(Choice& choice, const OwnedToken& token) {
  const Time time = now();
  if (choice.ids.empty()) {
    choice.first = time;
    state_.metrics.observe_first_token(seconds(arrived_, time));
  } else {
    state_.metrics.observe_token_gap(seconds(choice.last, time));
  }
  choice.last = time;
  const bool last = ends_.at(token.id, std::ssize(choice.ids));
  choice.ids.push_back(token.id);
  if (request_.logprobs) choice.scored.push_back(token);
  return last ? Ok{} : choice.text.push(token.id);
}

std::vector<std::int32_t> OpenReply::prompt_of(std::size_t index) const {
  return request_.prompts[index / static_cast<std::size_t>(request_.n)].ids;
}

EndEvent OpenReply::end_of(const RequestOutcome& outcome) const {
  if (outcome.end == RequestEnd::length) return {.reason = EndEvent::Reason::length};
  if (!outcome.stop_id) return {};
  const auto& texts = request_.stop_tokens;
  const auto text =
      std::find_if(texts.begin(), texts.end(), [&](const StopToken& stop) { return stop.id == outcome.stop_id; });
  if (text != texts.end()) return {.by = text->text};
  const auto& ids = request_.stop_token_ids;
  if (std::find(ids.begin(), ids.end(), *outcome.stop_id) != ids.end()) return {.by = *outcome.stop_id};
  return {};
}

// The rest of a choice's events.
Result<> OpenReply::end_choice(Choice& choice) {
  MORACLE_TRY(choice.text.finish(choice.end->reason == EndEvent::Reason::length));
  std::string rest;             // a stop text that was a token
  if (choice.text.stopped()) {  // what a token's text held back may complete a stop text
    choice.end = EndEvent{.by = choice.text.stop_text()};
  } else if (const auto* const text = std::get_if<std::string>(&choice.end->by); text && request_.include_stop) {
    rest = *text;
  }
  state_.metrics.count_success(to_string(choice.end->reason));
  choice.text.end(*choice.end, std::move(rest));
  return Ok{};
}

void OpenReply::add_headers(HeaderList& headers) const {
  headers.emplace_back("x-request-id", id_);
  if (!request_.ignored.empty()) headers.emplace_back("x-moracle-ignored", header_list(request_.ignored));
  if (!request_.changed.empty()) headers.emplace_back("x-moracle-changed", header_list(request_.changed));
}

void OpenReply::open_stream() {
  if (streaming_) return;
  streaming_ = true;
  HeaderList headers = state_.stream_headers(http_);
  add_headers(headers);
  exchange_->begin_stream(std::move(headers));
}

// All of a choice that was not reported yet.
ChoiceUpdate OpenReply::take_update(std::size_t index) {
  Choice& choice = choices_[index];
  ChoiceUpdate update{.index = static_cast<std::int64_t>(index),
                      .events = choice.text.take_events(),
                      .scored = std::exchange(choice.scored, {})};
  if (request_.return_token_ids) {
    update.token_ids.emplace(choice.ids.begin() + static_cast<std::ptrdiff_t>(choice.reported_ids), choice.ids.end());
    choice.reported_ids = choice.ids.size();
  }
  return update;
}

std::string OpenReply::frames_of(std::size_t index) {
  Choice& choice = choices_[index];
  // Scores wait for the text that they belong to.
  const bool quiet =
      !choice.text.has_events() && !(request_.return_token_ids && choice.ids.size() > choice.reported_ids);
  if (quiet && (choice.opened || choice.ids.empty())) return {};
  ChoiceUpdate update = quiet ? ChoiceUpdate{.index = static_cast<std::int64_t>(index)} : take_update(index);
  update.opens = !std::exchange(choice.opened, true);
  if (update.opens && request_.return_token_ids) update.prompt_ids = prompt_of(index);
  return translator_->frames(update, request_.continuous_usage ? usage() : ReplyUsage{});
}

void OpenReply::write(std::string frames) {
  if (frames.empty()) return;
  open_stream();
  exchange_->write(std::move(frames));
}

ReplyUsage OpenReply::usage() const {
  ReplyUsage sum;
  for (const PreparedPrompt& prompt : request_.prompts) sum.prompt += std::ssize(prompt.ids);
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    sum.completion += std::ssize(choice.ids);
    sum.reasoning += choice.text.reasoning_tokens();
    if (i % static_cast<std::size_t>(request_.n) == 0) sum.cached += choice.cached;
  }
  return sum;
}

// Once, however it ends. A prompt that no choice has begun with, as where the queue is full, cost nothing.
void OpenReply::count_tokens() {
  if (std::exchange(counted_, true)) return;
  const ReplyUsage sum = usage();
  const auto n = static_cast<std::size_t>(request_.n);
  std::int64_t prompts = 0;
  for (std::size_t i = 0; i < choices_.size(); i += n) {
    const std::span<const Choice> same = std::span(choices_).subspan(i, std::min(n, choices_.size() - i));
    const bool begun = std::any_of(same.begin(), same.end(), [](const Choice& c) { return c.started != Time{}; });
    if (begun) prompts += std::ssize(request_.prompts[i / n].ids);
  }
  state_.metrics.count_tokens(prompts, sum.cached, sum.completion);
}

void OpenReply::observe_times() {
  const Time end = now();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    const Choice& choice = choices_[i];
    if (choice.started == Time{}) continue;
    const Time first = choice.ids.empty() ? end : choice.first;
    const auto& prompt = request_.prompts[i / static_cast<std::size_t>(request_.n)];
    state_.metrics.observe_request({.queue_s = seconds(arrived_, choice.started),
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
  if (request_.stream) {
    write(translator_->last_frames(usage()));
    exchange_->end();
    answered_ = true;
    log(200, "done");
    return;
  }
  std::vector<ChoiceUpdate> updates;
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    updates.push_back(take_update(i));
    if (request_.return_token_ids) updates.back().prompt_ids = prompt_of(i);
  }
  HttpReply reply{.body = dump(translator_->whole(updates, usage()))};
  add_headers(reply.headers);
  state_.answer(http_, *exchange_, std::move(reply));
  answered_ = true;
  log(200, "done");
}

void OpenReply::fail(const Error& error) {
  done_ = answered_ = true;
  count_tokens();
  cancel_rest();
  HttpReply reply = state_.error_reply(error, http_.route);
  log(reply.status, "error");
  if (streaming_) {
    exchange_->write(translator_->error_frame(reply.body));
    exchange_->end();
  } else {
    state_.answer(http_, *exchange_, std::move(reply));
  }
  handle_backlog();
}

void OpenReply::log(int status, std::string_view end) {
  const ReplyUsage sum = usage();
  Json line = {{"event", "request"},
               {"id", id_},
               {"path", http_.path},
               {"key", http_.key},
               {"status", status},
               {"end", end},
               {"stream", request_.stream},
               {"seed", static_cast<std::int64_t>(*request_.seed)},
               {"prompt_tokens", sum.prompt},
               {"cached_tokens", sum.cached},
               {"completion_tokens", sum.completion},
               {"seconds", seconds(arrived_, now())}};
  if (state_.options.log_prompts) {
    Json prompts = Json::array();
    for (const PreparedPrompt& prompt : request_.prompts) prompts.push_back(prompt.text);
    line["prompts"] = std::move(prompts);
  }
  state_.log.line(std::move(line));
}

}  // namespace moracle::serve
