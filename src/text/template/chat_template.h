// Chat templates: a sandboxed subset of Jinja that renders what transformers' apply_chat_template renders (trim_blocks,
// lstrip_blocks, loop controls, the generation tag, raise_exception, strftime_now and its own tojson). A template is
// constant once parsed: threads may render it at once, each with values and a budget of its own.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "text/budgets.h"

namespace moracle {

class ChatTemplate {
 public:
  // Errors: "template.syntax" (with the line), "template.limit".
  static Result<ChatTemplate> parse(std::string source, std::string file, TemplateLimits limits = {});

  // `context`: messages, tools, add_generation_prompt, bos_token, eos_token and any further variables. Values keep the
  // key order of an ordered_json; a Json is sorted by key.
  // Errors: "template.raised" (raise_exception; its message), "template.type" (Python would raise),
  // "template.undefined", "template.limit".
  [[nodiscard]] Result<std::string> render(const Json& context) const;
  [[nodiscard]] Result<std::string> render(const nlohmann::ordered_json& context) const;

 private:
  struct Program;
  std::shared_ptr<const Program> program_;
};

}  // namespace moracle
