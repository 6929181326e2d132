#include "cli/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/interrupt.h"
#include "text/template/chat_fit.h"

namespace moracle::cli {

namespace {

bool is_from(const OrderedJson& message, const char* role) {
  return message.value("role", "") == role;
}

// Removes the first question and what follows up to the next; false: there is but one.
bool leave_out_oldest_turn(OrderedJson& messages) {
  const auto is_question = [](const OrderedJson& message) { return is_from(message, "user"); };
  const auto first = std::find_if(messages.begin(), messages.end(), is_question);
  if (first == messages.end()) return false;
  const auto next = std::find_if(std::next(first), messages.end(), is_question);
  if (next == messages.end()) return false;
  messages.erase(first, next);
  return true;
}

// What the conversation keeps of a reply. Calls of a reply that was cut, which get no result, are left out.
OrderedJson message_of(const Reply& reply) {
  OrderedJson message = {{"role", "assistant"}, {"content", reply.answer}};
  if (!reply.reasoning.empty()) message["reasoning_content"] = reply.reasoning;
  if (!reply.ended_to_call()) return message;
  message["tool_calls"] = calls_json(reply.calls);
  for (OrderedJson& call : message["tool_calls"]) open_arguments_of(call["function"]);
  return message;
}

// Templates may take white space off a message.
std::string_view without_ends(std::string_view text) {
  constexpr const char* kSpace = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

}  // namespace

void warn_of_hidden_system(const ChatRequest& request, const ChatPrompt& prompt, Console& console) {
  if (request.messages.empty() || !is_from(request.messages.front(), "system")) return;
  const auto& text = request.messages.front().at("content").get_ref<const std::string&>();
  if (prompt.text.find(without_ends(text)) == std::string::npos)
    console.warn("the chat template does not show the system prompt");
}

Conversation::Conversation(Session& session, ChatRequest request, const GenerationSettings& settings,
                           std::int64_t context, std::optional<AnswerForm> form, TurnTools callable)
    : session_(session),
      request_(std::move(request)),
      settings_(settings),
      context_(context == 0 ? session.info().max_context : context),
      form_(std::move(form)),
      tools_(std::move(callable)),
      may_reason_(session.text().reply_format().has_tokens()) {}

bool Conversation::Held::begins(std::span<const std::int32_t> whole) const {
  return state != nullptr && ids.size() < whole.size() && std::equal(ids.begin(), ids.end(), whole.begin());
}

std::int64_t Conversation::tokens() const {
  return whole_.state == nullptr ? 0 : whole_.state->length();
}

void Conversation::reset() {
  const bool has_system = !request_.messages.empty() && is_from(request_.messages.front(), "system");
  OrderedJson kept = OrderedJson::array();
  if (has_system) kept.push_back(request_.messages.front());
  request_.messages = std::move(kept);
}

void Conversation::set_system(const std::string& text) {
  OrderedJson& messages = request_.messages;
  if (!messages.empty() && is_from(messages.front(), "system")) messages.erase(messages.begin());
  system_checked_ = false;
  if (!text.empty()) messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", text}});
}

// The prompt of the request, without as many of its oldest turns as leave room for an answer.
Result<Conversation::Prompt> Conversation::fitting_prompt(ChatRequest& request) const {
  Prompt prompt;
  for (;; ++prompt.turns_left_out) {
    MORACLE_ASSIGN(prompt.rendered, session_.text().encode_chat(request));
    const auto tokens = std::ssize(prompt.rendered.ids);
    const std::int64_t room = std::min(settings_.answer_tokens(tokens), context_ / 4);
    if (tokens + room <= context_ || !leave_out_oldest_turn(request.messages)) break;
  }
  MORACLE_TRY(session_.text().check_prompt(prompt.rendered.ids, context_));
  return prompt;
}

// How many of the prompt's tokens the next prompt begins with, too: those in front of the opening of the reply.
Result<std::size_t> Conversation::question_end(const ChatRequest& request, std::span<const std::int32_t> ids) const {
  if (!may_reason_) return std::size_t{0};
  ChatRequest closed = request;
  closed.add_generation_prompt = false;
  MORACLE_ASSIGN(const ChatPrompt prompt, session_.text().encode_chat(closed));
  const auto& question = prompt.ids;
  const auto end = std::mismatch(ids.begin(), ids.end(), question.begin(), question.end()).first;
  return std::min(static_cast<std::size_t>(end - ids.begin()), ids.size() - 1);
}

// Makes `whole_` hold a beginning of the prompt, as long a one as there is; and `question_` the part up to
// `question_end`, unless that is 0.
Result<> Conversation::prepare(std::span<const std::int32_t> ids, std::size_t question_end) {
  const auto question = ids.first(question_end);
  if (question_end > 0) {
    if (whole_.begins(question) && whole_.ids.size() > question_.ids.size()) question_ = std::move(whole_);
    if (!question_.begins(question)) {
      MORACLE_ASSIGN(question_.state, session_.model().new_sequence());
      question_.ids.clear();
    }
    MORACLE_TRY(prefill(session_.model(), session_.pool(), *question_.state, question, [] { return interrupted(); }));
    question_.ids.assign(question.begin(), question.begin() + question_.state->length());
    whole_ = {question_.state->fork(), question_.ids};
    if (whole_.state == nullptr) whole_ = std::exchange(question_, {});  // no memory for two
  }
  if (whole_.begins(ids)) return Ok{};
  MORACLE_ASSIGN(whole_.state, session_.model().new_sequence());
  whole_.ids.clear();
  return Ok{};
}

Result<Reply> Conversation::answer(const std::string& question, const ReplyStyle& style, Console& console) {
  ChatRequest request = request_;
  request.messages.push_back({{"role", "user"}, {"content", question}});
  return reply_to(std::move(request), tools_.first, style, console);
}

Result<Reply> Conversation::go_on(std::span<const std::string> results, const ReplyStyle& style, Console& console) {
  ChatRequest request = request_;
  const OrderedJson calls = request.messages.back().at("tool_calls");
  for (std::size_t i = 0; i < results.size(); ++i) {
    request.messages.push_back({{"role", "tool"},
                                {"tool_call_id", calls.at(i).at("id")},
                                {"name", calls.at(i).at("function").at("name")},
                                {"content", results[i]}});
  }
  return reply_to(std::move(request), tools_.later, style, console);
}

Result<Reply> Conversation::reply_to(ChatRequest request, const ToolUse& tools, const ReplyStyle& style,
                                     Console& console) {
  MORACLE_ASSIGN(const Prompt prompt, fitting_prompt(request));
  if (!std::exchange(system_checked_, true)) warn_of_hidden_system(request, prompt.rendered, console);
  if (prompt.turns_left_out > 0) {
    console.note(
        fmt::format("moracle: the context of {} tokens is full: the oldest {} left out\n", context_,
                    prompt.turns_left_out == 1 ? "turn is" : fmt::format("{} turns are", prompt.turns_left_out)));
  }
  MORACLE_ASSIGN(const std::size_t end, question_end(request, prompt.rendered.ids));
  auto reply = [&]() -> Result<Reply> {
    MORACLE_TRY(prepare(prompt.rendered.ids, end));
    return generate_reply(session_, *whole_.state,
                          {.prompt = prompt.rendered.text,
                           .ids = prompt.rendered.ids,
                           .context = context_,
                           .settings = settings_,
                           .form = form_ ? &*form_ : nullptr,
                           .tools = tools},
                          style, console);
  }();
  if (!reply.ok()) {
    question_ = {};
    whole_ = {};
    return reply;
  }
  whole_.ids = prompt.rendered.ids;
  whole_.ids.insert(whole_.ids.end(), reply->generation.ids.begin(), reply->generation.ids.end());
  // The last token was chosen, not fed.
  whole_.ids.resize(static_cast<std::size_t>(std::min<std::int64_t>(whole_.state->length(), std::ssize(whole_.ids))));
  if (reply->text.empty() && reply->generation.finish == FinishReason::interrupted) return reply;  // nothing was said
  request_ = std::move(request);
  request_.messages.push_back(message_of(*reply));
  return reply;
}

}  // namespace moracle::cli
