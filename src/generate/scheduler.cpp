#include "generate/scheduler.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "generate/request_queue.h"
#include "generate/token_chooser.h"

namespace moracle {

namespace {

// What the measured rate follows: a quarter of each new measurement.
constexpr double kRateShare = 0.25;

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

// A request that runs or waits.
struct Sequence {
  Sequence(RequestId id_, Request request_, RequestSink& sink_)
      : id(id_), request(std::move(request_)), sink(&sink_), ids(request.prompt), chooser(request) {}

  RequestId id;
  Request request;
  RequestSink* sink;
  std::vector<std::int32_t> ids;  // prompt and answer
  TokenChooser chooser;
  std::unique_ptr<SequenceState> state{};  // null: it waits
  std::int64_t most = 0;                   // tokens of the answer
  std::int64_t told = 0;                   // tokens of the prompt that the sink knows, with echo
  RequestUsage usage{};
  bool started = false;
  bool cancelled = false;
  bool ended = false;
  std::int64_t waited = 0;  // steps in which its prompt got no token

  [[nodiscard]] std::int64_t prompt_size() const { return std::ssize(request.prompt); }
  // Tokens that the state has to hold before the next one is chosen.
  [[nodiscard]] std::int64_t target() const { return most == 0 ? prompt_size() - 1 : std::ssize(ids); }
  [[nodiscard]] std::int64_t missing() const { return target() - state->length(); }
  [[nodiscard]] bool decodes() const { return missing() == 1 && std::ssize(ids) > prompt_size(); }
  [[nodiscard]] bool scores_prompt() const { return request.echo && request.logprobs.has_value(); }
};

// A token of a prompt with what it is worth.
struct Scored {
  std::int32_t id = 0;
  double logprob = 0.0;
  std::vector<TokenLogprob> top{};
};

// A sequence's part of a step.
struct Part {
  Sequence* sequence = nullptr;
  std::int64_t count = 0;
  std::int64_t end = 0;          // of the sequence, once it is computed
  std::int64_t rows = 0;         // of its last tokens, whose logits are wanted
  bool decodes = false;          // one token of an answer
  std::span<float> logits{};     // [rows, vocabulary], where all are wanted
  std::span<TokenLogit> top{};   // else the highest of the last row
  std::optional<Error> error{};  // why it has none
  std::vector<Scored> scored{};
  ChosenToken chosen{};
};

Error range_error(const char* where, std::string wanted, std::string found) {
  return Error{.code = "sampling.range", .where = where, .wanted = std::move(wanted), .found = std::move(found)};
}

Result<> check_ids(const char* where, std::span<const std::int32_t> ids, std::int64_t vocabulary) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] >= 0 && ids[i] < vocabulary) continue;
    return Error{.code = "model.token",
                 .where = std::string(where) + "[" + std::to_string(i) + "]",
                 .wanted = "an id from 0 to " + std::to_string(vocabulary - 1),
                 .found = std::to_string(ids[i])};
  }
  return Ok{};
}

Result<> check_request(const Request& request, std::int64_t vocabulary) {
  if (request.prompt.empty()) {
    return Error{.code = "prompt.empty", .wanted = "a prompt of at least one token", .found = "none"};
  }
  MORACLE_TRY(check_ids("prompt", request.prompt, vocabulary));
  MORACLE_TRY(check_ids("end_ids", request.end_ids, vocabulary));
  MORACLE_TRY(check_ids("stop_ids", request.stop_ids, vocabulary));
  MORACLE_TRY(check(request.sampling));
  for (const LogitBias& bias : request.logit_bias) {
    MORACLE_TRY(check_ids("logit_bias", {&bias.id, 1}, vocabulary));
    if (!(std::abs(bias.bias) <= 100.0F)) {
      return range_error("logit_bias", "a number from -100 to 100", std::to_string(bias.bias));
    }
  }
  const std::int64_t least = request.echo ? 0 : 1;
  if (request.max_tokens && *request.max_tokens < least) {
    return range_error("max_tokens", "at least " + std::to_string(least), std::to_string(*request.max_tokens));
  }
  if (request.min_tokens < 0 || (request.max_tokens && request.min_tokens > *request.max_tokens)) {
    return range_error("min_tokens", "from 0 to max_tokens", std::to_string(request.min_tokens));
  }
  if (request.logprobs && (*request.logprobs < 0 || *request.logprobs > kMostTopLogprobs)) {
    return range_error("logprobs", "from 0 to " + std::to_string(kMostTopLogprobs), std::to_string(*request.logprobs));
  }
  return Ok{};
}

Error queue_error(std::string wanted, std::string found) {
  return Error{
      .code = "scheduler.queue", .wanted = std::move(wanted), .found = std::move(found), .advice = "try again later"};
}

}  // namespace

std::string_view to_string(RequestEnd end) {
  switch (end) {
    case RequestEnd::stop:
      return "stop";
    case RequestEnd::length:
      return "length";
    case RequestEnd::cancelled:
      return "cancelled";
    case RequestEnd::error:
      return "error";
  }
  return "";
}

class Scheduler::Impl {
 public:
  Impl(Model& model, ThreadPool& pool, const SchedulerOptions& options)
      : model_(model), pool_(pool), options_(options) {
    const std::int64_t most = model.info().max_positions;
    context_ = options.context > 0 ? std::min(options.context, most) : most;
  }

  Result<RequestId> submit(Request request, RequestSink& sink);
  bool cancel(RequestId id);
  bool step();
  [[nodiscard]] bool busy() const { return !sequences_.empty(); }
  [[nodiscard]] SchedulerStatus status() const;

 private:
  [[nodiscard]] std::int64_t running_of(const std::string& key) const;
  void end(Sequence& sequence, RequestEnd end, std::optional<Error> error = {}, std::optional<std::int32_t> stop = {});
  void end_cancelled();
  void forget_ended();
  void admit();
  bool start(Sequence& sequence);
  void plan();
  void plan_prompts();
  void add_part(Sequence& sequence, std::int64_t tokens);
  [[nodiscard]] std::int64_t prompt_budget() const;
  void compute();
  void compute_alone(Part& part);
  Result<> forward(std::span<Part* const> parts);
  void choose();
  void score_prompt(Part& part) const;
  void deliver();
  void tell_prompt(const Part& part);
  void tell_token(const Part& part);
  void measure(double seconds);

  Model& model_;
  ThreadPool& pool_;
  SchedulerOptions options_;
  std::int64_t context_ = 0;
  RequestId last_id_ = 0;
  std::map<RequestId, std::unique_ptr<Sequence>> sequences_;  // all that have not ended
  std::vector<Sequence*> running_;                            // in the order of their start
  RequestQueue queue_;
  std::vector<RequestId> ended_;  // in this step
  bool stepping_ = false;
  SchedulerStatus status_;
  // Kept between steps.
  std::vector<Part> parts_;
  std::vector<std::int32_t> ids_, positions_;
  std::vector<Batch::Span> spans_;
  std::vector<SequenceState*> states_;
  std::vector<float> logits_;
  std::vector<TokenLogit> top_;
  std::vector<std::vector<float>> scored_;  // logits of parts that score their prompt
};

Result<RequestId> Scheduler::Impl::submit(Request request, RequestSink& sink) {
  MORACLE_TRY(check_request(request, model_.info().vocabulary));
  const auto prompt = std::ssize(request.prompt);
  const std::int64_t least = request.max_tokens.value_or(1);
  if (prompt + least > context_) {
    return Error{.code = "model.context",
                 .wanted = "at most " + std::to_string(context_) + " tokens in all",
                 .found = std::to_string(prompt + least) + " tokens (" + std::to_string(prompt) + " of prompt, " +
                          std::to_string(least) + " to come)",
                 .advice = "shorten the prompt or ask for fewer tokens"};
  }
  if (queue_.size() >= options_.max_queue) {
    return queue_error("at most " + std::to_string(options_.max_queue) + " waiting requests",
                       std::to_string(queue_.size()));
  }
  if (options_.max_queue_tokens > 0 && queue_.tokens() + prompt > options_.max_queue_tokens) {
    return queue_error("at most " + std::to_string(options_.max_queue_tokens) + " waiting prompt tokens",
                       std::to_string(queue_.tokens() + prompt));
  }
  const RequestId id = ++last_id_;
  auto sequence = std::make_unique<Sequence>(id, std::move(request), sink);
  sequence->most = sequence->request.max_tokens.value_or(context_ - prompt);
  sequence->usage.prompt = prompt;
  queue_.push(sequence->request.key, {.id = id, .priority = sequence->request.priority, .tokens = prompt});
  sequences_.emplace(id, std::move(sequence));
  return id;
}

bool Scheduler::Impl::cancel(RequestId id) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end() || at->second->cancelled || at->second->ended) return false;
  Sequence& sequence = *at->second;
  sequence.cancelled = true;
  if (stepping_) return true;
  end(sequence, RequestEnd::cancelled);
  forget_ended();
  return true;
}

// Frees what the sequence holds; it goes away when the step ends.
void Scheduler::Impl::end(Sequence& sequence, RequestEnd end, std::optional<Error> error,
                          std::optional<std::int32_t> stop) {
  queue_.remove(sequence.id);
  std::erase(running_, &sequence);
  sequence.state.reset();
  sequence.ended = true;
  ended_.push_back(sequence.id);
  ++status_.ended[static_cast<std::size_t>(end)];
  sequence.sink->on_end(sequence.id, {.end = end, .stop_id = stop, .error = std::move(error), .usage = sequence.usage});
}

void Scheduler::Impl::forget_ended() {
  for (const RequestId id : ended_) sequences_.erase(id);
  ended_.clear();
}

std::int64_t Scheduler::Impl::running_of(const std::string& key) const {
  return std::count_if(running_.begin(), running_.end(),
                       [&](const Sequence* each) { return each->request.key == key; });
}

void Scheduler::Impl::admit() {
  const auto may_run = [&](const std::string& key) {
    return options_.max_running_per_key == 0 || running_of(key) < options_.max_running_per_key;
  };
  while (std::ssize(running_) < options_.max_running) {
    const auto id = queue_.next(may_run);
    if (!id) return;
    Sequence& sequence = *sequences_.at(*id);
    queue_.pop();
    if (!start(sequence)) return;
  }
}

// False: there is no memory for it now.
bool Scheduler::Impl::start(Sequence& sequence) {
  auto state = model_.new_sequence();
  if (!state.ok()) {
    end(sequence, RequestEnd::error, std::move(state).error());
    return true;
  }
  sequence.state = *std::move(state);
  running_.push_back(&sequence);
  sequence.started = true;
  sequence.sink->on_start(sequence.id, sequence.usage.cached);
  if (sequence.request.echo && (!sequence.scores_prompt() || sequence.prompt_size() == 1)) {
    std::vector<ScoredToken> tokens;
    for (const std::int32_t id : sequence.request.prompt) tokens.push_back({.id = id, .logprob = {}, .top = {}});
    sequence.told = sequence.prompt_size();
    sequence.sink->on_prompt(sequence.id, tokens);
    if (sequence.most == 0) end(sequence, RequestEnd::length);
  }
  return true;
}

std::int64_t Scheduler::Impl::prompt_budget() const {
  if (status_.prefill_rate <= 0) return options_.max_prefill;
  const double fits = status_.prefill_rate * options_.step_ms / 1000;
  return std::clamp(static_cast<std::int64_t>(fits), options_.min_prefill, options_.max_prefill);
}

void Scheduler::Impl::add_part(Sequence& sequence, std::int64_t tokens) {
  Part part{.sequence = &sequence, .count = tokens, .end = sequence.state->length() + tokens};
  part.decodes = sequence.decodes();
  if (part.end == sequence.target() && sequence.most > 0) part.rows = 1;
  if (sequence.scores_prompt() && sequence.told < sequence.prompt_size()) part.rows = tokens;
  parts_.push_back(std::move(part));
}

// What decodes takes one token each; prompts share the rest, the shortest first, at least two in turn.
void Scheduler::Impl::plan() {
  parts_.clear();
  for (Sequence* const sequence : running_) {
    if (sequence->decodes()) add_part(*sequence, 1);
  }
  plan_prompts();
}

void Scheduler::Impl::plan_prompts() {
  std::vector<Sequence*> prompts;
  for (Sequence* const sequence : running_) {
    if (!sequence->decodes() && sequence->missing() > 0) prompts.push_back(sequence);
  }
  if (prompts.empty()) return;
  // A step without a token is worth as many tokens as the least chunk.
  const auto rank = [&](const Sequence* each) { return each->missing() - each->waited * options_.min_prefill; };
  std::stable_sort(prompts.begin(), prompts.end(),
                   [&](const Sequence* a, const Sequence* b) { return rank(a) < rank(b); });
  std::int64_t left = prompt_budget();
  // The second keeps a least chunk, where the first would take all.
  const std::int64_t kept = prompts.size() > 1 ? std::min(options_.min_prefill, prompts[1]->missing()) : 0;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const std::int64_t most = i == 0 ? std::max<std::int64_t>(1, left - kept) : left;
    const std::int64_t tokens = std::min(prompts[i]->missing(), most);
    prompts[i]->waited = tokens > 0 ? 0 : prompts[i]->waited + 1;
    if (tokens <= 0) continue;
    add_part(*prompts[i], tokens);
    left -= tokens;
  }
}

Result<> Scheduler::Impl::forward(std::span<Part* const> parts) {
  ids_.clear();
  positions_.clear();
  spans_.clear();
  states_.clear();
  std::int64_t most = 0;
  bool all = false;
  for (const Part* const part : parts) {
    const Sequence& sequence = *part->sequence;
    const std::int64_t begin = sequence.state->length();
    spans_.push_back({.begin = std::ssize(ids_), .count = part->count});
    states_.push_back(sequence.state.get());
    for (std::int64_t i = begin; i < begin + part->count; ++i) {
      ids_.push_back(sequence.ids[count(i)]);
      positions_.push_back(static_cast<std::int32_t>(i));
    }
    if (part->rows == 0) continue;
    const std::int64_t wanted = sequence.chooser.wanted();
    most = std::max(most, wanted);
    all = all || wanted == 0 || sequence.chooser.seed();
  }
  const Batch batch{.ids = ids_, .positions = positions_, .spans = spans_};
  const std::int64_t vocabulary = model_.info().vocabulary;
  if (all) {
    MORACLE_TRY(model_.forward(batch, states_, LogitRows::last_of_each, logits_));
    for (std::size_t i = 0; i < parts.size(); ++i) {
      parts[i]->logits = std::span(logits_).subspan(i * count(vocabulary), count(vocabulary));
    }
    return Ok{};
  }
  most = std::clamp<std::int64_t>(most, 1, vocabulary);
  MORACLE_TRY(model_.forward_top_k(batch, states_, {.k = most}, top_));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::int64_t own = std::clamp<std::int64_t>(parts[i]->sequence->chooser.wanted(), 1, most);
    parts[i]->top = std::span(top_).subspan(i * count(most), count(own));
  }
  return Ok{};
}

// A failure belongs to one of them: each is then computed alone.
void Scheduler::Impl::compute() {
  scored_.clear();
  scored_.reserve(parts_.size());
  std::vector<Part*> together;
  for (Part& part : parts_) {
    if (part.rows > 1) {
      compute_alone(part);
    } else {
      together.push_back(&part);
    }
  }
  if (together.empty() || forward(together).ok()) return;
  for (Part* const part : together) compute_alone(*part);
}

void Scheduler::Impl::compute_alone(Part& part) {
  ids_.clear();
  positions_.clear();
  const std::int64_t begin = part.sequence->state->length();
  for (std::int64_t i = begin; i < begin + part.count; ++i) {
    ids_.push_back(part.sequence->ids[count(i)]);
    positions_.push_back(static_cast<std::int32_t>(i));
  }
  const Batch::Span whole{.begin = 0, .count = part.count};
  SequenceState* state = part.sequence->state.get();
  std::vector<float>& logits = scored_.emplace_back();
  Result<> done = model_.forward({.ids = ids_, .positions = positions_, .spans = {&whole, 1}}, {&state, 1},
                                 part.rows > 1 ? LogitRows::all : LogitRows::last_of_each, logits);
  if (!done.ok()) part.error = std::move(done).error();
  part.logits = logits;
  part.top = {};
}

// All rows on all threads: nothing of one depends on another.
void Scheduler::Impl::choose() {
  const std::int64_t vocabulary = model_.info().vocabulary;
  pool_.parallel_for(std::ssize(parts_), [&](std::int64_t index, int) {
    Part& part = parts_[count(index)];
    Sequence& sequence = *part.sequence;
    if (part.error) return;
    if (sequence.scores_prompt()) score_prompt(part);
    if (part.end < std::ssize(sequence.ids)) return;
    Result<ChosenToken> chosen = part.logits.empty() ? sequence.chooser.choose(part.top)
                                                     : sequence.chooser.choose(part.logits.last(count(vocabulary)));
    if (chosen.ok()) {
      part.chosen = *chosen;
    } else {
      part.error = std::move(chosen).error();
    }
  });
}

// Row p says what token p + 1 is worth.
void Scheduler::Impl::score_prompt(Part& part) const {
  const Sequence& sequence = *part.sequence;
  const std::int64_t vocabulary = model_.info().vocabulary;
  const std::int64_t first_row = part.end - std::ssize(part.logits) / vocabulary;
  for (std::int64_t p = std::max(first_row, sequence.told - 1); p + 1 < std::min(part.end + 1, sequence.prompt_size());
       ++p) {
    const LogSoftmax scores(part.logits.subspan(count((p - first_row) * vocabulary), count(vocabulary)));
    Scored& scored = part.scored.emplace_back();
    scored.id = sequence.ids[count(p + 1)];
    scored.logprob = scores.of(scored.id);
    scores.top(*sequence.request.logprobs, scored.top);
  }
}

void Scheduler::Impl::deliver() {
  for (Part& part : parts_) {
    Sequence& sequence = *part.sequence;
    if (sequence.cancelled || sequence.ended) continue;
    if (part.error) {
      end(sequence, RequestEnd::error, std::move(part.error));
      continue;
    }
    if (!part.scored.empty()) tell_prompt(part);
    if (!sequence.cancelled && part.end == sequence.target()) {
      if (sequence.most == 0) {
        end(sequence, RequestEnd::length);
      } else {
        tell_token(part);
      }
    }
  }
}

// What sinks cancelled on the way.
void Scheduler::Impl::end_cancelled() {
  for (const auto& [id, sequence] : sequences_) {
    if (sequence->cancelled && !sequence->ended) end(*sequence, RequestEnd::cancelled);
  }
}

void Scheduler::Impl::tell_prompt(const Part& part) {
  Sequence& sequence = *part.sequence;
  std::vector<ScoredToken> tokens;
  if (sequence.told == 0) tokens.push_back({.id = sequence.ids.front(), .logprob = {}, .top = {}});
  for (const Scored& scored : part.scored) {
    tokens.push_back({.id = scored.id, .logprob = scored.logprob, .top = scored.top});
  }
  sequence.told += std::ssize(tokens);
  sequence.sink->on_prompt(sequence.id, tokens);
}

void Scheduler::Impl::tell_token(const Part& part) {
  Sequence& sequence = *part.sequence;
  const std::int32_t id = part.chosen.id;
  sequence.ids.push_back(id);
  ++sequence.usage.completion;
  ++status_.generated_tokens;
  sequence.sink->on_token(sequence.id, {.id = id, .logprob = part.chosen.logprob, .top = sequence.chooser.top()});
  if (sequence.cancelled) return;
  if (sequence.chooser.ends(id)) {
    end(sequence, RequestEnd::stop, {}, id);
  } else if (sequence.usage.completion == sequence.most) {
    end(sequence, RequestEnd::length);
  }
}

void Scheduler::Impl::measure(double seconds) {
  std::int64_t decoded = 0;
  std::int64_t prompted = 0;
  for (const Part& part : parts_) (part.decodes ? decoded : prompted) += part.count;
  ++status_.steps;
  status_.step_tokens = decoded + prompted;
  status_.step_seconds = seconds;
  status_.prompt_tokens += static_cast<std::uint64_t>(prompted);
  // Steps with decodes are slower than their prompt alone: the rate that they give errs on the short side.
  if (prompted < options_.min_prefill || seconds <= 0) return;
  const double rate = static_cast<double>(prompted) / seconds;
  status_.prefill_rate += (status_.prefill_rate > 0 ? kRateShare : 1.0) * (rate - status_.prefill_rate);
}

bool Scheduler::Impl::step() {
  stepping_ = true;
  end_cancelled();
  admit();
  plan();
  if (!parts_.empty()) {
    const Stopwatch watch;
    compute();
    choose();
    measure(watch.seconds());
  }
  deliver();
  end_cancelled();
  stepping_ = false;
  forget_ended();
  return busy();
}

SchedulerStatus Scheduler::Impl::status() const {
  SchedulerStatus status = status_;
  status.running = std::ssize(running_);
  status.waiting = queue_.size();
  status.waiting_tokens = queue_.tokens();
  return status;
}

Scheduler::Scheduler(Model& model, ThreadPool& pool, const SchedulerOptions& options)
    : impl_(std::make_unique<Impl>(model, pool, options)) {}

Scheduler::~Scheduler() = default;

Result<RequestId> Scheduler::submit(Request request, RequestSink& sink) {
  return impl_->submit(std::move(request), sink);
}

bool Scheduler::cancel(RequestId id) {
  return impl_->cancel(id);
}

bool Scheduler::step() {
  return impl_->step();
}

bool Scheduler::busy() const {
  return impl_->busy();
}

SchedulerStatus Scheduler::status() const {
  return impl_->status();
}

}  // namespace moracle
