// GET /tokenizer_info: special tokens and the chat template, in vLLM's shape.
#include "serve/endpoints/endpoint.h"
#include "serve/service_state.h"

namespace moracle::serve {

namespace {

HttpReply tokenizer_info(ServiceState& state, const HttpRequest& /*request*/) {
  const ModelText& text = *state.model()->text;
  const TokenizerConfig& config = text.tokenizer().config();
  const auto token = [&](const char* name) {
    const std::string words = config.token(name);
    return words.empty() ? Json(nullptr) : Json(words);
  };
  const ChatTemplates& templates = text.templates();
  return json_reply({{"eos_token", token("eos_token")},
                     {"bos_token", token("bos_token")},
                     {"pad_token", token("pad_token")},
                     {"chat_template", templates.empty() ? Json(nullptr) : Json(templates.sources())},
                     {"vocab_size", text.tokenizer().vocab_size()}});
}

constexpr std::array kRoutes = {
    Route{.path = "/tokenizer_info", .method = "GET", .needs_model = true, .answer = tokenizer_info}};

void describe(OpenApi& document) {
  document.paths["/tokenizer_info"]["get"] = get_operation("Special tokens and chat template", {{"type", "object"}});
}

}  // namespace

extern const Endpoint tokenizer_info_endpoint{.routes = kRoutes, .describe = describe};

}  // namespace moracle::serve
