// The C interface of the scheduler: many requests share an engine.
#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "api/engine.h"
#include "api/output.h"
#include "generate/scheduler.h"
#include "generate/token_text.h"

namespace moracle::api {
namespace {

constexpr std::int64_t kMaxRequests = 1'000'000;

// An event that waits to be told; owns what the caller's struct points to.
struct HeldEvent {
  moracle_event event{};
  std::string text{};
  std::vector<std::int32_t> top_ids{};
  std::vector<double> top_logprobs{};
  std::optional<Error> error{};
};

class OpenScheduler : public RequestSink {
 public:
  static constexpr Kind kKind = Kind::scheduler;

  static Result<std::shared_ptr<OpenScheduler>> open(const std::shared_ptr<OpenEngine>& engine,
                                                     const SchedulerOptions& options) {
    MORACLE_ASSIGN(const auto turn, engine->lock().acquire());
    return std::make_shared<OpenScheduler>(engine, options);
  }
  // In the engine's turn.
  OpenScheduler(std::shared_ptr<OpenEngine> engine, const SchedulerOptions& options)
      : context_(options.context), engine_(std::move(engine)) {
    scheduler_.emplace(engine_->session().model(), engine_->session().pool(), options);
  }
  ~OpenScheduler() override {
    // A callback of the engine may close it: nothing computes then.
    FairMutex& mutex = engine_->lock().mutex();
    std::unique_lock lock(mutex, std::defer_lock);
    if (!mutex.held_here()) lock.lock();
    scheduler_.reset();  // requests end untold; their memory goes back to the engine
  }
  OpenScheduler(const OpenScheduler&) = delete;
  OpenScheduler& operator=(const OpenScheduler&) = delete;

  Result<RequestId> submit(Request request, TokenText::Options text) {
    MORACLE_ASSIGN(const auto turn, engine_->lock().acquire());
    Answer answer{.text = TokenText(engine_->session().text().tokenizer(), std::move(text)),
                  .ends = StopRule(request),
                  .scored = request.logprobs.has_value()};
    // Memory for it is taken first: what is submitted is known.
    std::map<RequestId, Answer> made;
    made.emplace(0, std::move(answer));
    auto node = made.extract(made.begin());
    MORACLE_ASSIGN(node.key(), scheduler_->submit(std::move(request), *this));
    return answers_.insert(std::move(node)).position->first;
  }

  Result<bool> cancel(RequestId id) {
    MORACLE_ASSIGN(const auto turn, engine_->lock().acquire());
    return scheduler_->cancel(id);
  }

  // One step, then tell(event) of what it and the calls before it brought; whether another has anything to do or to
  // tell. Events of a request come in order, whichever threads step.
  template <class Tell>
  Result<bool> step(const Tell& tell) {
    // First, since who has the turn to step may wait for the engine's.
    MORACLE_TRY(engine_->lock().check_not_held());
    MORACLE_ASSIGN(const auto stepping, steps_.acquire());
    std::deque<HeldEvent> events;
    {
      MORACLE_ASSIGN(const auto turn, engine_->lock().acquire());
      if (scheduler_->busy()) scheduler_->step();
      events.swap(events_);
    }
    for (HeldEvent& held : events) tell(held);
    MORACLE_ASSIGN(const auto turn, engine_->lock().acquire());
    return scheduler_->busy() || !events_.empty();
  }

  [[nodiscard]] Session& session() { return engine_->session(); }
  [[nodiscard]] std::int64_t context() const { return context_; }

  void on_start(RequestId id, std::int64_t cached) override {
    add(MORACLE_EVENT_START, id).event.cached_tokens = cached;
  }

  void on_token(RequestId id, const ScoredToken& token) override {
    Answer& answer = answers_.at(id);
    if (answer.stopped || answer.error) return;  // behind a stop text, while the cancellation is under way
    HeldEvent& held = add(MORACLE_EVENT_TOKEN, id);
    held.event.token = token.id;
    held.event.has_logprob = answer.scored && token.logprob ? 1 : 0;
    held.event.logprob = token.logprob.value_or(0);
    for (const TokenLogprob& top : token.top) {
      held.top_ids.push_back(top.id);
      held.top_logprobs.push_back(top.logprob);
    }
    if (answer.ends.at(token.id, answer.tokens++)) return;
    const auto pushed = answer.text.push(token.id, emit_to(held));
    if (!pushed.ok()) answer.error = pushed.error();
    answer.stopped = answer.text.stops().reached();
    if (answer.stopped || answer.error) scheduler_->cancel(id);
  }

  void on_end(RequestId id, const RequestOutcome& outcome) override {
    const auto found = answers_.find(id);
    if (found == answers_.end()) return;
    Answer& answer = found->second;
    HeldEvent& held = add(MORACLE_EVENT_END, id);
    held.event.end = answer.stopped ? MORACLE_END_STOP : end_of(outcome.end);
    held.event.prompt_tokens = outcome.usage.prompt;
    held.event.completion_tokens = outcome.usage.completion;
    held.event.cached_tokens = outcome.usage.cached;
    held.error = answer.error ? answer.error : outcome.error;
    if (!held.error) {
      const auto finished = answer.text.finish(emit_to(held));
      if (!finished.ok()) held.error = finished.error();
    }
    if (held.error) held.event.end = MORACLE_END_ERROR;
    answers_.erase(found);
  }

 private:
  // What is known of a request until its end.
  struct Answer {
    TokenText text;
    StopRule ends;
    bool scored = false;
    std::int64_t tokens = 0;
    bool stopped = false;  // by a stop text
    std::optional<Error> error{};
  };

  static TokenText::Emit emit_to(HeldEvent& held) {
    return [&held](std::string_view text, bool /*is_mark*/) { held.text += text; };
  }

  static std::int32_t end_of(RequestEnd end) {
    switch (end) {
      case RequestEnd::stop:
        return MORACLE_END_STOP;
      case RequestEnd::length:
        return MORACLE_END_LENGTH;
      case RequestEnd::cancelled:
        return MORACLE_END_CANCELLED;
      case RequestEnd::error:
        return MORACLE_END_ERROR;
    }
    return MORACLE_END_ERROR;
  }

  HeldEvent& add(std::int32_t kind, RequestId id) {
    HeldEvent& held = events_.emplace_back();
    held.event.size = sizeof held.event;
    held.event.kind = kind;
    held.event.request = id;
    return held;
  }

  std::int64_t context_;
  std::shared_ptr<OpenEngine> engine_;
  std::optional<Scheduler> scheduler_;
  std::map<RequestId, Answer> answers_;
  TicketLock steps_{"scheduler", "its step's callback"};
  std::deque<HeldEvent> events_;
};

Result<> in_range(const char* name, std::int64_t value, std::int64_t most) {
  if (value >= 0 && value <= most) return Ok{};
  return wrong_argument("range", name, "0 to " + std::to_string(most), std::to_string(value));
}

struct Submission {
  Request request{};
  TokenText::Options text{};
};

Result<Submission> read_request(OpenScheduler& scheduler, std::span<const std::int32_t> ids,
                                const moracle_request* given) {
  MORACLE_ASSIGN(const auto request, read_struct(given, "request"));
  MORACLE_ASSIGN(const auto options, read_struct(request.options, "request.options"));
  if (options.context != 0)
    return wrong_argument("range", "request.options.context", "0: the scheduler's", std::to_string(options.context));
  if (request.logprobs == 0 && request.top_logprobs != 0)
    return wrong_argument("range", "request.top_logprobs", "0 without logprobs", std::to_string(request.top_logprobs));
  MORACLE_TRY(in_range("request.top_logprobs", request.top_logprobs, kMostTopLogprobs));
  if (options.tools != nullptr)
    return wrong_argument("unsupported", "request.options.tools", "none: moracle_engine_generate tells calls", "some");
  MORACLE_ASSIGN(const GenerationChoice choice, read_choice(options));
  const ModelText& text = scheduler.session().text();
  MORACLE_ASSIGN(const GenerationSettings settings, text.generation().settle(choice));
  Submission made;
  made.request.prompt.assign(ids.begin(), ids.end());
  made.request.sampling = settings.sampling;
  made.request.end_ids = settings.stop_ids;
  made.request.min_tokens = request.min_tokens;
  made.request.priority = request.priority;
  if (request.logprobs != 0) made.request.logprobs = request.top_logprobs;
  if (request.key != nullptr) {
    MORACLE_ASSIGN(made.request.key, read_text(request.key, "request.key"));
  }
  if (request.salt != nullptr) {
    MORACLE_ASSIGN(made.request.salt, read_text(request.salt, "request.salt"));
  }
  std::string prompt;
  if (request.prompt != nullptr) {
    MORACLE_ASSIGN(prompt, read_text(request.prompt, "request.prompt"));
  }
  MORACLE_ASSIGN(const ReplyRules rules, read_rules(scheduler.session(), options));
  MORACLE_ASSIGN(made.request.output, hold_options(scheduler.session(), rules, prompt, settings));
  // A publisher's limit is lowered to what there is room for; the caller's is not.
  const std::int64_t room = std::max<std::int64_t>(1, scheduler.context() - std::ssize(ids));
  made.request.max_tokens =
      choice.max_tokens ? *choice.max_tokens : std::min(settings.answer_tokens(std::ssize(ids)), room);
  for (const StopToken& stop : text.stop_tokens(settings.stop_texts)) made.request.stop_ids.push_back(stop.id);
  made.text = {.stop = settings.stop_texts, .min_tokens = request.min_tokens};
  return made;
}

// Tells an event; its error lives as long as the call.
void tell(HeldEvent& held, moracle_on_event on_event, void* context) {
  held.event.text = held.text.data();
  held.event.bytes = held.text.size();
  held.event.top_ids = held.top_ids.data();
  held.event.top_logprobs = held.top_logprobs.data();
  held.event.top_count = held.top_ids.size();
  moracle_error* error = nullptr;
  if (held.error) fail(&error, *held.error);
  held.event.error = error;
  on_event(context, &held.event);
  moracle_error_free(error);
}

}  // namespace

Result<SchedulerOptions> read_scheduler_options(const moracle_scheduler_options* given, Session& session) {
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  MORACLE_TRY(in_range("options.context", options.context, session.info().max_context));
  MORACLE_TRY(in_range("options.max_running", options.max_running, kMaxRequests));
  MORACLE_TRY(in_range("options.max_queue", options.max_queue, kMaxRequests));
  SchedulerOptions made;
  made.context = options.context != 0 ? options.context : session.info().max_context;
  if (options.max_running != 0) made.max_running = options.max_running;
  if (options.max_queue != 0) made.max_queue = options.max_queue;
  made.reuse_prefixes = options.no_prefix_reuse == 0;
  made.share_prefixes = options.share_prefixes != 0;
  return made;
}

}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_scheduler_open(moracle_engine* engine, const moracle_scheduler_options* options,
                                      moracle_scheduler** scheduler, moracle_error** error) {
  return api::call(error, "open a scheduler", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(scheduler, "scheduler"));
    *scheduler = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenEngine>(engine));
    MORACLE_ASSIGN(const SchedulerOptions how, api::read_scheduler_options(options, opened->session()));
    MORACLE_ASSIGN(auto made, api::OpenScheduler::open(opened, how));
    *scheduler = static_cast<moracle_scheduler*>(api::add_handle(api::Kind::scheduler, std::move(made)));
    return Ok{};
  });
}

moracle_status moracle_scheduler_close(moracle_scheduler* scheduler) {
  return api::close(api::Kind::scheduler, scheduler);
}

moracle_status moracle_scheduler_submit(moracle_scheduler* scheduler, const int32_t* ids, uint64_t count,
                                        const moracle_request* request, uint64_t* id, moracle_error** error) {
  return api::call(error, "submit a request", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(id, "id"));
    *id = 0;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenScheduler>(scheduler));
    if (count == 0 || count > api::kMaxIds)
      return api::wrong_argument("range", "count", "1 to 2^31", std::to_string(count));
    MORACLE_TRY(api::check_not_null(ids, "ids"));
    MORACLE_ASSIGN(auto made, api::read_request(*opened, {ids, static_cast<std::size_t>(count)}, request));
    MORACLE_ASSIGN(*id, opened->submit(std::move(made.request), std::move(made.text)));
    return Ok{};
  });
}

moracle_status moracle_scheduler_step(moracle_scheduler* scheduler, moracle_on_event on_event, void* context,
                                      int32_t* more, moracle_error** error) {
  return api::call(error, "take a step", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(more, "more"));
    *more = 0;
    if (on_event == nullptr) return api::null_argument("on_event");
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenScheduler>(scheduler));
    const auto tell = [&](api::HeldEvent& held) { api::tell(held, on_event, context); };
    MORACLE_ASSIGN(const bool busy, opened->step(tell));
    *more = busy ? 1 : 0;
    return Ok{};
  });
}

moracle_status moracle_scheduler_cancel(moracle_scheduler* scheduler, uint64_t id, int32_t* found,
                                        moracle_error** error) {
  return api::call(error, "cancel a request", [&]() -> Result<> {
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenScheduler>(scheduler));
    MORACLE_ASSIGN(const bool cancelled, opened->cancel(id));
    if (found != nullptr) *found = cancelled ? 1 : 0;
    return Ok{};
  });
}

}  // extern "C"
