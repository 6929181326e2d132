// What a scheduler keeps of a request, and of its share of a step. It belongs to the thread that drives the scheduler,
// which calls sinks as well.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/result.h"
#include "generate/request.h"
#include "generate/token_chooser.h"
#include "model/model.h"

namespace moracle {

// A request that runs or waits.
struct ScheduledSequence {
  ScheduledSequence(RequestId id_, Request request_, RequestSink& sink_)
      : id(id_), request(std::move(request_)), sink(&sink_), ids(request.prompt), chooser(request) {}

  RequestId id;
  Request request;
  RequestSink* sink;
  std::vector<std::int32_t> ids;  // prompt and answer
  TokenChooser chooser;
  std::shared_ptr<SequenceState> state{};  // null: it waits; the caller's where the request has one
  std::int64_t most = 0;                   // tokens of the answer
  std::int64_t told = 0;                   // tokens of the prompt that the sink knows, with echo
  RequestUsage usage{};
  std::vector<std::uint32_t> routing{};  // [layers, experts]: tokens that each expert took
  std::int64_t stored = 0;               // blocks of it in the store of prefixes
  std::int64_t preemptions = 0;
  bool started = false;
  bool cancelled = false;
  bool held = false;  // takes no part in steps
  bool ended = false;
  std::int64_t waited = 0;  // steps in which its prompt got no token

  [[nodiscard]] std::int64_t prompt_size() const { return std::ssize(request.prompt); }
  // Tokens that the state has to hold before the next one is chosen, or, without an answer, before the end.
  [[nodiscard]] std::int64_t target() const {
    return most == 0 && request.state == nullptr ? prompt_size() - 1 : std::ssize(ids);
  }
  [[nodiscard]] std::int64_t missing() const { return target() - state->length(); }
  [[nodiscard]] bool decodes() const { return missing() == 1 && std::ssize(ids) > prompt_size(); }
  [[nodiscard]] bool scores_prompt() const { return request.echo && request.logprobs.has_value(); }
  [[nodiscard]] std::int64_t longest() const { return prompt_size() + most; }
};

// A token of a prompt with what it is worth.
struct ScoredPromptToken {
  std::int32_t id = 0;
  double logprob = 0.0;
  std::vector<TokenLogprob> top{};
};

// A sequence's part of a step.
struct StepPart {
  ScheduledSequence* sequence = nullptr;
  std::int64_t count = 0;
  std::int64_t end = 0;          // of the sequence, once it is computed
  std::int64_t rows = 0;         // of its last tokens, whose logits are wanted
  bool decodes = false;          // one token of an answer
  std::span<float> logits{};     // [rows, vocabulary], where all are wanted
  std::span<TokenLogit> top{};   // else the highest of the last row
  std::optional<Error> error{};  // why it has none
  std::vector<ScoredPromptToken> scored{};
  ScoredToken chosen{};

  // Whether the next token is chosen behind it.
  [[nodiscard]] bool chooses() const { return sequence->most > 0 && end == sequence->target(); }
};

}  // namespace moracle
