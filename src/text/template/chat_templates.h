// The chat templates of a model folder, and what a template sees: what transformers' apply_chat_template gives it.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json/document.h"
#include "base/result.h"
#include "text/template/chat_template.h"
#include "text/tokenizer/tokenizer_config.h"

namespace moracle {

// One conversation to be written as text.
struct ChatRequest {
  OrderedJson messages = OrderedJson::array();    // [{"role", "content", ...}]
  OrderedJson tools{};                            // a list of JSON schemas; null: none
  OrderedJson variables = OrderedJson::object();  // further variables; they win over all but the messages
  bool add_generation_prompt = true;              // with the opening of the assistant's turn
};

class ChatTemplates {
 public:
  ChatTemplates() = default;

  // Reads chat_template.jinja and additional_chat_templates/*.jinja, else "chat_template" of tokenizer_config.json (a
  // string, or named templates), else that of chat_template.json. A template that cannot be read or does not parse is
  // an error only for who asks for it.
  static ChatTemplates load(const std::filesystem::path& folder, const TokenizerConfig& config);

  [[nodiscard]] bool empty() const { return names_.empty(); }
  // What all templates are written as, one behind the other.
  [[nodiscard]] const std::string& sources() const { return sources_; }

  // The conversation as text: with tools by the template named "tool_use" where there is one, else by "default".
  // Errors: "template.missing", "template.arguments" (tools or variables that no template can take),
  // "template.config" (a member of a wrong type), those of read_json, read_text, ChatTemplate::parse and render.
  [[nodiscard]] Result<std::string> render(const ChatRequest& request) const;
  // Whether there is a template for it, and it parses.
  [[nodiscard]] Result<> check(const ChatRequest& request) const;
  // What people should hear of: another template that goes unread, a variable or tools that no template names.
  [[nodiscard]] std::vector<std::string> warnings(const ChatRequest& request) const;

 private:
  [[nodiscard]] Result<ChatTemplate> choose(bool tools) const;

  std::string folder_;
  std::string sources_;
  std::string names_;                                      // of all templates, for messages
  std::vector<std::string> unread_;                        // warnings of templates in other places
  std::map<std::string, Result<ChatTemplate>> templates_;  // "default" and "tool_use"
  OrderedJson special_tokens_ = OrderedJson::object();
  bool sorts_tools_ = false;  // as Kimi's tokenizer sorts their keys
};

}  // namespace moracle
