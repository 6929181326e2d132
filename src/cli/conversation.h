// A conversation with a model: its messages, and the state that holds what the model has read of them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/console.h"
#include "cli/reply.h"
#include "generate/session.h"

namespace moracle::cli {

// Tells the console where a prompt lacks the system's message that its request has.
void warn_of_hidden_system(const ChatRequest& request, const ChatPrompt& prompt, Console& console);

// What the first reply to a question may or must call, and what those behind results may.
struct TurnTools {
  ToolUse first{}, later{};
};

class Conversation {
 public:
  // `request` holds the system's message, if any, tools and variables. `context`: most tokens in all; 0: what the model
  // can hold. `form`: of all answers; empty: any. `callable`: the request's tools.
  Conversation(Session& session, ChatRequest request, const GenerationSettings& settings, std::int64_t context,
               std::optional<AnswerForm> form, TurnTools callable);

  // Asks and answers. Where the context is full, the oldest turns are left out, which the console is told. After an
  // error the conversation is as it was before.
  Result<Reply> answer(const std::string& question, const ReplyStyle& style, Console& console);
  // Goes on with the results of the calls that the last reply ended for, in their order.
  Result<Reply> go_on(std::span<const std::string> results, const ReplyStyle& style, Console& console);

  void reset();                              // forgets all but the system's message
  void set_system(const std::string& text);  // empty: none; the next answer tells where the template hides it
  void restore(OrderedJson messages) { request_.messages = std::move(messages); }
  // It was told before where the template hides the system's message.
  void skip_system_check() { system_checked_ = true; }
  void set_settings(const GenerationSettings& settings) { settings_ = settings; }

  [[nodiscard]] const OrderedJson& messages() const { return request_.messages; }
  [[nodiscard]] std::int64_t context() const { return context_; }
  [[nodiscard]] std::int64_t tokens() const;  // that the model has read

 private:
  // A state and the tokens that it holds.
  struct Held {
    std::unique_ptr<SequenceState> state;
    std::vector<std::int32_t> ids;
    [[nodiscard]] bool begins(std::span<const std::int32_t> whole) const;
  };
  struct Prompt {
    ChatPrompt rendered;
    std::size_t turns_left_out = 0;
  };
  Result<Reply> reply_to(ChatRequest request, const ToolUse& tools, const ReplyStyle& style, Console& console);
  Result<Prompt> fitting_prompt(ChatRequest& request) const;
  Result<std::size_t> question_end(const ChatRequest& request, std::span<const std::int32_t> ids) const;
  Result<> prepare(std::span<const std::int32_t> ids, std::size_t question_end);

  Session& session_;
  ChatRequest request_;
  GenerationSettings settings_;
  std::int64_t context_;
  std::optional<AnswerForm> form_;
  TurnTools tools_;
  bool may_reason_;
  bool system_checked_ = false;  // whether the template shows the system's message is known, and told
  Held question_;                // to the end of the last question: reasoning behind it is not part of the next prompt
  Held whole_;                   // with the last reply
};

}  // namespace moracle::cli
