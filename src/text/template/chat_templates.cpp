#include "text/template/chat_templates.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/file_error.h"

namespace moracle {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostTemplates = 256;

struct Source {
  std::string text, file;
};
using Sources = std::map<std::string, Source>;

// A string, a list of {name, template}, or an object of templates by name.
Result<> read_member(const Json& json, const std::string& file, Sources& sources) {
  const auto wrong = [&](std::string found) {
    return Error{.code = "template.config",
                 .file = file,
                 .where = "/chat_template",
                 .wanted = "a string, or named templates: a list of {name, template}",
                 .found = std::move(found)};
  };
  if (json.is_null()) return Ok{};
  if (json.is_string()) {
    sources["default"] = {json.get<std::string>(), file};
    return Ok{};
  }
  if (json.is_object()) {
    for (const auto& [name, text] : json.items()) {
      if (!text.is_string()) return wrong(text.type_name());
      sources[name] = {text.get<std::string>(), file};
    }
    return Ok{};
  }
  if (!json.is_array()) return wrong(json.type_name());
  for (const Json& entry : json) {
    const Json name = entry.is_object() ? entry.value("name", Json()) : Json();
    const Json text = entry.is_object() ? entry.value("template", Json()) : Json();
    if (!name.is_string() || !text.is_string()) return wrong("an entry without both");
    sources[name.get<std::string>()] = {text.get<std::string>(), file};
  }
  return Ok{};
}

// chat_template.jinja, and the files of additional_chat_templates by their names.
Result<> read_files(const fs::path& folder, Sources& sources) {
  std::error_code code;
  const auto take = [&](const std::string& name, const fs::path& path) -> Result<> {
    MORACLE_ASSIGN(std::string text, read_text(path, kTemplateSourceBytes));
    sources[name] = {std::move(text), path.string()};
    return Ok{};
  };
  const fs::path own = folder / "chat_template.jinja";
  MORACLE_ASSIGN(const bool has_own, file_exists(own));
  if (has_own) MORACLE_TRY(take("default", own));
  std::vector<fs::path> more;
  for (const auto& entry : fs::directory_iterator(folder / "additional_chat_templates", code)) {
    if (entry.path().extension() == ".jinja" && more.size() < kMostTemplates) more.push_back(entry.path());
  }
  for (const fs::path& path : more) MORACLE_TRY(take(path.stem().string(), path));
  return Ok{};
}

// As transformers hands a message to a template: no member without a value, and the reasoning under both of its names.
OrderedJson seen_message(const OrderedJson& message) {
  if (!message.is_object()) return message;
  OrderedJson seen = OrderedJson::object();
  for (const auto& [key, value] : message.items()) {
    if (!value.is_null()) seen[key] = value;
  }
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    if (!seen.contains(name)) continue;
    const OrderedJson reasoning = seen.at(name);
    if (!seen.contains("thinking")) {
      OrderedJson led = {{"thinking", reasoning}};
      led.update(seen);
      seen = std::move(led);
    }
    seen["reasoning_content"] = reasoning;
    break;
  }
  return seen;
}

OrderedJson seen_messages(const OrderedJson& messages) {
  OrderedJson seen = OrderedJson::array();
  for (const OrderedJson& message : messages) seen.push_back(seen_message(message));
  return seen;
}

Result<> check_list(const OrderedJson& list, const char* name) {
  if (list.is_null()) return Ok{};
  const bool objects =
      list.is_array() && std::all_of(list.begin(), list.end(), [](const auto& e) { return e.is_object(); });
  if (objects) return Ok{};
  return Error{.code = "template.arguments",
               .where = name,
               .wanted = "a list of objects",
               .found = list.is_array() ? "something else in it" : list.type_name()};
}

}  // namespace

Result<ChatTemplates> ChatTemplates::load(const fs::path& folder, const TokenizerConfig& config) {
  ChatTemplates result;
  result.folder_ = folder.string();
  result.sorts_tools_ = config.tokenizer_class == "TikTokenTokenizer";
  for (const auto& [name, token] : config.named) result.special_tokens_[name] = token;
  Sources sources;
  MORACLE_TRY(read_files(folder, sources));
  Sources configured;
  if (!sources.contains("default")) MORACLE_TRY(read_member(config.chat_template, config.file, configured));
  if (sources.empty()) {
    sources = std::move(configured);
  } else if (configured.contains("default")) {
    sources.merge(configured);
  }
  const fs::path legacy = folder / "chat_template.json";
  MORACLE_ASSIGN(const bool has_legacy, file_exists(legacy));
  if (sources.empty() && has_legacy) {
    MORACLE_ASSIGN(const Json json, read_json(legacy));
    MORACLE_TRY(read_member(json.is_object() ? json.value("chat_template", Json()) : json, legacy.string(), sources));
  }
  for (auto& [name, source] : sources) {
    result.sources_ += source.text;
    result.templates_.emplace(name, ChatTemplate::parse(std::move(source.text), std::move(source.file)));
  }
  return result;
}

Result<ChatTemplate> ChatTemplates::choose(bool tools) const {
  if (templates_.empty()) {
    return Error{.code = "template.missing",
                 .file = folder_,
                 .wanted = "a chat template: chat_template.jinja, or a member of tokenizer_config.json",
                 .found = "none",
                 .advice = "give a plain prompt instead"};
  }
  auto found = tools ? templates_.find("tool_use") : templates_.end();
  if (found == templates_.end()) found = templates_.find("default");
  if (found != templates_.end()) return found->second;
  std::string names;
  for (const auto& [name, parsed] : templates_) names += (names.empty() ? "" : ", ") + name;
  return Error{.code = "template.missing",
               .file = folder_,
               .wanted = "a chat template named default",
               .found = "only " + names,
               .advice = "copy the one that fits to chat_template.jinja"};
}

Result<> ChatTemplates::check(const ChatRequest& request) const {
  MORACLE_TRY(check_list(request.tools, "tools"));
  MORACLE_TRY(check_list(request.variables.value("documents", OrderedJson()), "documents"));
  if (request.variables.contains("messages")) {
    return Error{.code = "template.arguments", .where = "messages", .wanted = "another name", .found = "a variable"};
  }
  MORACLE_TRY(choose(!request.tools.is_null()));
  return Ok{};
}

Result<std::string> ChatTemplates::render(const ChatRequest& request) const {
  MORACLE_TRY(check(request));
  MORACLE_ASSIGN(const ChatTemplate chosen, choose(!request.tools.is_null()));
  OrderedJson context = special_tokens_;
  context["tools"] = sorts_tools_ ? OrderedJson(Json(request.tools)) : request.tools;
  context["documents"] = nullptr;
  context["add_generation_prompt"] = request.add_generation_prompt;
  for (const auto& [name, value] : request.variables.items()) context[name] = value;
  context["messages"] = seen_messages(request.messages);
  return chosen.render(context);
}

}  // namespace moracle
