#include "text/template/chat_template.h"

#include <cmath>
#include <limits>
#include <utility>

#include "text/template/deferred_names.h"
#include "text/template/interpreter.h"
#include "text/template/names.h"
#include "text/template/python_text.h"
#include "text/template/syntax/parser.h"

namespace moracle {
namespace {

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
    if (unicode::find_invalid_utf8(text)) return in.type_error("a string of the context that is not UTF-8");
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
    if (unicode::find_invalid_utf8(key)) return in.type_error("a key of the context that is not UTF-8");
    const auto name = in.text(key);
    auto value = name ? convert(in, item, depth + 1) : std::nullopt;
    if (!value || !in.insert(dict.get(), *name, std::move(*value))) return std::nullopt;
  }
  return in.dict(std::move(dict));
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
  if (source.size() > kTemplateSourceBytes) {
    return Error{.code = "template.limit",
                 .file = std::move(file),
                 .wanted = "a template of at most " + std::to_string(kTemplateSourceBytes) + " bytes",
                 .found = std::to_string(source.size())};
  }
  auto program = std::make_shared<Program>();
  program->file = std::move(file);
  program->limits = limits;
  MORACLE_ASSIGN(program->body, jinja::parse_template(source, program->file, limits.depth));
  MORACLE_TRY(jinja::check_names(program->body, program->file));
  jinja::find_deferred_names(program->body);
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

}  // namespace moracle
