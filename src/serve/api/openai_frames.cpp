#include "serve/api/openai_frames.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "serve/api/json_text.h"

namespace moracle::serve {

namespace {

constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";
constexpr double kLeastLogprob = -9999.0;

}  // namespace

Json head_json(const ReplyHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint},
          {"seed", head.seed}};
}

Json usage_json(const ReplyUsage& usage) {
  return {{"prompt_tokens", usage.prompt},
          {"completion_tokens", usage.completion},
          {"total_tokens", usage.prompt + usage.completion},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.reasoning}}}};
}

Json choice_json(std::int64_t index, Json logprobs, const EndEvent* end) {
  Json stop_reason = nullptr;
  if (end != nullptr) {
    std::visit(EventVisitor{[](std::monostate) {}, [&](const auto& by) { stop_reason = by; }}, end->by);
  }
  return {{"index", index},
          {"logprobs", std::move(logprobs)},
          {"finish_reason", end != nullptr ? Json(to_string(end->reason)) : Json(nullptr)},
          {"stop_reason", std::move(stop_reason)}};
}

GatheredEvents::GatheredEvents(std::span<const ReplyEvent> events) {
  for (const ReplyEvent& event : events) {
    std::visit(EventVisitor{[&](const TextEvent& one) { text += one.text; },
                            [&](const ReasoningEvent& one) { reasoning += one.text; },
                            [&](const CallStartEvent& one) {
                              calls.push_back({{"index", one.index},
                                               {"id", one.id},
                                               {"type", "function"},
                                               {"function", {{"name", one.name}, {"arguments", ""}}}});
                            },
                            [&](const CallArgumentsEvent& one) {
                              calls.push_back({{"index", one.index}, {"function", {{"arguments", one.text}}}});
                            },
                            [&](const EndEvent& one) { end = &one; }},
               event);
  }
}

double finite_logprob(double logprob) {
  return std::max(logprob, kLeastLogprob);
}

std::string token_text(const Tokenizer& tokenizer, std::int32_t id) {
  auto text = tokenizer.decode({&id, 1}, false);
  return text.ok() ? *std::move(text) : std::string();
}

std::string OpenAiTranslator::frame(Json choice, const ReplyUsage& usage) const {
  Json frame = head_json(options_.head, frame_object_);
  frame["choices"] = Json::array({std::move(choice)});
  if (options_.continuous_usage) {
    frame["usage"] = usage_json(usage);
  } else if (options_.include_usage) {
    frame["usage"] = nullptr;
  }
  return event_of(frame);
}

std::string OpenAiTranslator::last_frames(const ReplyUsage& usage) {
  if (!options_.include_usage) return std::string(kDoneEvent);
  Json frame = head_json(options_.head, frame_object_);
  frame["choices"] = Json::array();
  frame["usage"] = usage_json(usage);
  return event_of(frame) + std::string(kDoneEvent);
}

std::string OpenAiTranslator::error_frame(const std::string& body) {
  return "data: " + body + "\n\n";
}

Json OpenAiTranslator::reply_json(const char* object, Json choices, const ReplyUsage& usage) const {
  Json reply = head_json(options_.head, object);
  reply["choices"] = std::move(choices);
  reply["usage"] = usage_json(usage);
  return reply;
}

}  // namespace moracle::serve
