#include "text/template/chat_template.h"

#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "text/template/interpreter.h"
#include "text/template/parser.h"
#include "text/template/unicode.h"

namespace moracle {
namespace {

constexpr std::size_t kMaxTemplateBytes = std::size_t{4} << 20;

// A JSON value as a template sees it. Errors go to the interpreter.
template <class AnyJson>
jinja::Maybe convert(jinja::Interpreter& in, const AnyJson& json, int depth) {
  using jinja::Value;
  if (depth > in.limits().depth) return in.limit("a context nested too deeply");
  if (!in.charge(1)) return std::nullopt;
  if (json.is_null()) return Value::none();
  if (json.is_boolean()) return Value::boolean(json.template get<bool>());
  if (json.is_number_unsigned() &&
      json.template get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return in.limit("an integer of more than 64 bits");
  if (json.is_number_integer()) return Value::integer(json.template get<std::int64_t>());
  if (json.is_number_float()) return Value::real(json.template get<double>());
  if (json.is_string()) {
    const auto& text = json.template get_ref<const std::string&>();
    if (!jinja::valid_utf8(text)) return in.type_error("a string of the context that is not UTF-8");
    return in.text(text);
  }
  if (json.is_array()) {
    std::vector<Value> items;
    for (const auto& item : json) {
      auto value = convert(in, item, depth + 1);
      if (!value) return std::nullopt;
      items.push_back(std::move(*value));
    }
    return in.sequence(std::move(items));
  }
  if (!json.is_object()) return in.type_error("binary data in the context");
  auto dict = std::make_shared<jinja::Dict>();
  for (const auto& [key, item] : json.items()) {
    if (!jinja::valid_utf8(key)) return in.type_error("a key of the context that is not UTF-8");
    auto value = convert(in, item, depth + 1);
    if (!value || !in.insert(dict.get(), Value::text(key), std::move(*value))) return std::nullopt;
  }
  return in.dict(std::move(dict));
}

// The default template of tokenizer_config.json; nullopt: it names none.
Result<std::optional<std::string>> configured(const Json& config, const std::string& file) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::optional<std::string>();
  if (found->is_string()) return std::optional<std::string>(found->get<std::string>());
  Error error{.code = "template.config",
              .file = file,
              .where = "/chat_template",
              .wanted = "a string, or a list of {name, template} with one named \"default\"",
              .found = found->type_name()};
  if (!found->is_array()) return error;
  for (const auto& entry : *found) {
    if (!entry.is_object() || entry.value("name", Json()) != "default") continue;
    const auto text = entry.find("template");
    if (text != entry.end() && text->is_string()) return std::optional<std::string>(text->get<std::string>());
  }
  error.found = "a list without it";
  return error;
}

void read_tokens(const Json& config, Json* out) {
  static constexpr const char* kNames[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                           "sep_token", "cls_token", "mask_token"};
  for (const char* name : kNames) {
    const auto found = config.find(name);
    if (found == config.end() || out->contains(name)) continue;
    if (found->is_string()) (*out)[name] = *found;
    if (!found->is_object()) continue;
    const auto content = found->find("content");
    if (content != found->end() && content->is_string()) (*out)[name] = *content;
  }
}

Result<Json> read_object(const std::filesystem::path& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return Json::object();
  MORACLE_ASSIGN(Json json, read_json(path));
  if (!json.is_object()) {
    return Error{.code = "template.config", .file = path.string(), .wanted = "an object", .found = json.type_name()};
  }
  return json;
}

template <class AnyJson>
Result<std::string> render_with(const jinja::Body& body, const TemplateLimits& limits, const std::string& file,
                                const AnyJson& context) {
  if (!context.is_object())
    return Error{.code = "template.type", .file = file, .wanted = "an object as context", .found = context.type_name()};
  // A large conversation is no runaway template: the conversion has a budget of its own.
  jinja::Interpreter reader(limits, file);
  const auto value = convert(reader, context, 0);
  if (!value) return reader.error();
  return jinja::Interpreter(limits, file).run(body, *value->template as<jinja::DictPtr>());
}

}  // namespace

struct ChatTemplate::Program {
  std::string file;
  TemplateLimits limits;
  jinja::Body body;
};

Result<ChatTemplate> ChatTemplate::parse(std::string source, std::string file, TemplateLimits limits) {
  if (source.size() > kMaxTemplateBytes) {
    return Error{.code = "template.limit",
                 .file = std::move(file),
                 .wanted = "a template of at most " + std::to_string(kMaxTemplateBytes) + " bytes",
                 .found = std::to_string(source.size())};
  }
  auto program = std::make_shared<Program>();
  program->file = std::move(file);
  program->limits = limits;
  MORACLE_ASSIGN(program->body, jinja::parse_template(source, program->file, limits.depth));
  ChatTemplate made;
  made.program_ = std::move(program);
  return made;
}

Result<std::string> ChatTemplate::render(const Json& context) const {
  return render_with(program_->body, program_->limits, program_->file, context);
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json& context) const {
  return render_with(program_->body, program_->limits, program_->file, context);
}

Result<std::optional<ChatTemplate>> ChatTemplate::load(const std::filesystem::path& folder) {
  const auto config_path = folder / "tokenizer_config.json";
  MORACLE_ASSIGN(const Json config, read_object(config_path));
  MORACLE_ASSIGN(const Json map, read_object(folder / "special_tokens_map.json"));
  std::optional<std::string> source;
  auto path = folder / "chat_template.jinja";
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    MORACLE_ASSIGN(source, read_text(path, kMaxTemplateBytes));
  } else {
    path = config_path;
    MORACLE_ASSIGN(source, configured(config, path.string()));
  }
  if (!source) return std::optional<ChatTemplate>();
  MORACLE_ASSIGN(ChatTemplate made, parse(std::move(*source), path.string()));
  read_tokens(config, &made.special_tokens_);
  read_tokens(map, &made.special_tokens_);
  return std::optional<ChatTemplate>(std::move(made));
}

}  // namespace moracle
