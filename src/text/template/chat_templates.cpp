#include "text/template/chat_templates.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "base/files/config_file.h"
#include "base/files/file_error.h"
#include "base/files/folder.h"
#include "text/budgets.h"

namespace moracle {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kDefault = "default";
constexpr std::string_view kToolUse = "tool_use";
constexpr std::size_t kShownNames = 200;  // bytes

struct Source {
  std::string text, file;
};

// Templates by name, or why one cannot be had. Of those that nobody can ask for the name alone is kept.
class Sources {
 public:
  void add(const std::string& name, const std::function<Result<Source>()>& read) {
    const bool wanted = name == kDefault || name == kToolUse;
    found_.insert_or_assign(name, wanted ? read() : Result<Source>(Source{}));
  }
  void fail(Error error) { found_.insert_or_assign(std::string(kDefault), std::move(error)); }
  void merge(Sources other) { found_.merge(other.found_); }
  [[nodiscard]] bool has_default() const { return found_.contains(std::string(kDefault)); }
  // The default template, where it can be had.
  [[nodiscard]] const Source* default_source() const {
    const auto found = found_.find(std::string(kDefault));
    return found != found_.end() && found->second.ok() ? &*found->second : nullptr;
  }
  [[nodiscard]] const std::map<std::string, Result<Source>>& found() const { return found_; }

 private:
  std::map<std::string, Result<Source>> found_;
};

// A string, a list of {name, template}, or an object of templates by name.
Sources read_member(const Json& json, const std::string& file) {
  Sources sources;
  const auto add = [&](const std::string& name, const Json& text) {
    if (text.is_string()) return sources.add(name, [&] { return Source{text.get<std::string>(), file}; });
    sources.fail({.code = "template.config",
                  .file = file,
                  .where = "/chat_template",
                  .wanted = "a string, or named templates: a list of {name, template}",
                  .found = text.type_name()});
  };
  if (json.is_object()) {
    for (const auto& [name, text] : json.items()) add(name, text);
  } else if (json.is_array()) {
    for (const Json& entry : json) {
      const Json name = entry.is_object() ? entry.value("name", Json()) : Json();
      add(name.is_string() ? name.get<std::string>() : "", name.is_string() ? entry.value("template", Json()) : Json());
    }
  } else if (!json.is_null()) {
    add(std::string(kDefault), json);
  }
  return sources;
}

Result<std::vector<std::string>> names_if_there(const fs::path& folder) {
  MORACLE_ASSIGN(const bool there, file_exists(folder));
  return there ? names_in(folder) : std::vector<std::string>();
}

// chat_template.jinja, and the files of additional_chat_templates by their names.
Sources read_files(const fs::path& folder) {
  Sources sources;
  const auto add = [&](const std::string& name, const fs::path& path) {
    sources.add(name, [&]() -> Result<Source> {
      MORACLE_ASSIGN(std::string text, read_text(path, kTemplateSourceBytes));
      return Source{std::move(text), path.string()};
    });
  };
  const fs::path own = folder / "chat_template.jinja";
  const Result<bool> there = file_exists(own);
  if (!there.ok()) sources.fail(there.error());
  if (there.ok() && *there) add(std::string(kDefault), own);
  const fs::path more = folder / "additional_chat_templates";
  const auto names = names_if_there(more);
  if (!names.ok()) {  // a template for tools may be among them
    sources.add(std::string(kToolUse), [&] { return names.error(); });
    return sources;
  }
  for (const fs::path name : *names) {
    if (name.extension() == ".jinja") add(name.stem().string(), more / name);
  }
  return sources;
}

// What processors wrote.
Sources read_legacy(const fs::path& folder) {
  const fs::path path = folder / "chat_template.json";
  Sources sources;
  const Result<bool> there = file_exists(path);
  if (!there.ok()) sources.fail(there.error());
  if (!there.ok() || !*there) return sources;
  auto json = read_config_file(path);
  if (json.ok()) return read_member(json->is_object() ? json->value("chat_template", Json()) : *json, path.string());
  sources.fail(std::move(json).error());
  return sources;
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

// Line breaks at the end are no part of what a template says.
std::string_view without_end(std::string_view text) {
  const std::size_t last = text.find_last_not_of(" \n\r\t");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

// Whether the text has the word, between characters that no name has.
bool names(std::string_view text, std::string_view word) {
  const auto in_name = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !in_name(text[at - 1])) && (end == text.size() || !in_name(text[end]))) return true;
  }
  return false;
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

ChatTemplates ChatTemplates::load(const fs::path& folder, const TokenizerConfig& config) {
  ChatTemplates result;
  result.folder_ = folder.string();
  result.sorts_tools_ = config.tokenizer_class == "TikTokenTokenizer";
  for (const auto& [name, token] : config.named) result.special_tokens_[name] = token;
  Sources sources = read_files(folder);
  Sources configured = read_member(config.chat_template, config.file);
  Sources legacy = read_legacy(folder);
  std::vector<Source> others;
  for (const Sources* place : {&configured, &legacy}) {
    if (const Source* source = place->default_source()) others.push_back(*source);
  }
  if (!sources.has_default() && (sources.found().empty() || configured.has_default())) {
    sources.merge(std::move(configured));
  }
  if (sources.found().empty()) sources = std::move(legacy);
  if (const Source* used = sources.default_source()) {
    for (const Source& other : others) {
      if (other.file == used->file || without_end(other.text) == without_end(used->text)) continue;
      result.unread_.push_back(other.file + ": chat_template is not used: that of " + used->file +
                               ", which is another, counts");
    }
  }
  for (const auto& [name, source] : sources.found()) {
    if (result.names_.size() < kShownNames) result.names_ += (result.names_.empty() ? "" : ", ") + name;
    if (name != kDefault && name != kToolUse) continue;
    if (source.ok()) result.sources_ += source->text;
    result.templates_.emplace(name, source.ok() ? ChatTemplate::parse(source->text, source->file) : source.error());
  }
  return result;
}

Result<ChatTemplate> ChatTemplates::choose(bool tools) const {
  auto found = tools ? templates_.find(std::string(kToolUse)) : templates_.end();
  if (found == templates_.end()) found = templates_.find(std::string(kDefault));
  if (found != templates_.end()) return found->second;
  if (!names_.empty()) {
    return Error{.code = "template.missing",
                 .file = folder_,
                 .wanted = "a chat template named default",
                 .found = "only " + names_,
                 .advice = "copy the one that fits to chat_template.jinja"};
  }
  return Error{.code = "template.missing",
               .file = folder_,
               .wanted = "a chat template: chat_template.jinja, or a member of tokenizer_config.json",
               .found = "none",
               .advice = "give a plain prompt instead"};
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

std::vector<std::string> ChatTemplates::warnings(const ChatRequest& request) const {
  std::vector<std::string> lines = unread_;
  const auto unless_named = [&](std::string_view word, const std::string& what) {
    if (!names(sources_, word)) lines.push_back("the chat template does not use " + what);
  };
  if (!request.tools.is_null()) unless_named("tools", "tools");
  for (const auto& [name, value] : request.variables.items()) unless_named(name, "the variable " + name);
  return lines;
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
