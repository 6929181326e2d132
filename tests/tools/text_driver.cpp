// Does what each line of standard input asks of the text room, and answers with one line: for scripts that hold
// tokenizers and templates against other implementations.
//
//   {"op": "open", "folder": F}                                  -> {"named": {...}, "warnings": [...]}
//   {"op": "encode", "folder": F, "text": T, "special": true}    -> {"ids": [...]}
//   {"op": "decode", "folder": F, "ids": [...], "skip": true}    -> {"text": T}
//   {"op": "chat", "folder": F, "messages": [...], "tools": [...], "variables": {...}, "add_generation_prompt": true}
//                                                                -> {"text": T}
//   {"op": "render", "template": T, "context": {...}}            -> {"text": T}
//
// An error is {"error": CODE, "message": M}. A folder is opened once, and again after "open".
#include <iostream>
#include <map>
#include <optional>
#include <string>

#include "text/template/chat_templates.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {
namespace {

struct Folder {
  Tokenizer tokenizer;
  ChatTemplates templates;
};

Result<Folder> open_folder(const std::string& path) {
  MORACLE_ASSIGN(Tokenizer tokenizer, Tokenizer::load(path));
  ChatTemplates templates = ChatTemplates::load(path, tokenizer.config());
  return Folder{std::move(tokenizer), std::move(templates)};
}

class Driver {
 public:
  Result<OrderedJson> answer(const OrderedJson& ask) {
    const auto op = ask.at("op").get<std::string>();
    if (op == "render") {
      MORACLE_ASSIGN(const ChatTemplate made, ChatTemplate::parse(ask.at("template").get<std::string>(), "template"));
      MORACLE_ASSIGN(const std::string text, made.render(ask.at("context")));
      return OrderedJson{{"text", text}};
    }
    MORACLE_ASSIGN(const Folder* const folder, folder_of(ask.at("folder").get<std::string>(), op == "open"));
    if (op == "open") {
      OrderedJson named = OrderedJson::object();
      for (const auto& [name, token] : folder->tokenizer.config().named) named[name] = token;
      return OrderedJson{{"named", named}, {"warnings", folder->tokenizer.config().warnings}};
    }
    if (op == "encode") {
      const EncodeOptions options{.add_special_tokens = ask.value("special", true)};
      MORACLE_ASSIGN(const auto ids, folder->tokenizer.encode(ask.at("text").get<std::string>(), options));
      return OrderedJson{{"ids", ids}};
    }
    if (op == "decode") {
      const auto ids = ask.at("ids").get<std::vector<std::int32_t>>();
      MORACLE_ASSIGN(const std::string text, folder->tokenizer.decode(ids, ask.value("skip", true)));
      return OrderedJson{{"text", text}};
    }
    ChatRequest request;
    request.messages = ask.at("messages");
    request.tools = ask.value("tools", OrderedJson());
    request.variables = ask.value("variables", OrderedJson::object());
    request.add_generation_prompt = ask.value("add_generation_prompt", true);
    MORACLE_ASSIGN(const std::string text, folder->templates.render(request));
    return OrderedJson{{"text", text}};
  }

 private:
  Result<const Folder*> folder_of(const std::string& path, bool anew) {
    if (anew) opened_.clear();
    auto found = opened_.find(path);
    if (found == opened_.end()) found = opened_.emplace(path, open_folder(path)).first;
    if (!found->second.ok()) return found->second.error();
    return &*found->second;
  }

  std::map<std::string, Result<Folder>> opened_;
};

}  // namespace
}  // namespace moracle

int main() {
  moracle::Driver driver;
  for (std::string line; std::getline(std::cin, line);) {
    const auto answer = driver.answer(moracle::OrderedJson::parse(line));
    const moracle::OrderedJson json =
        answer.ok() ? *answer
                    : moracle::OrderedJson{{"error", answer.error().code}, {"message", answer.error().message()}};
    std::cout << json.dump() << '\n' << std::flush;
  }
  return 0;
}
