#include "api/output.h"

#include <optional>
#include <string>
#include <utility>

#include "text/constrain/output_request.h"

namespace moracle::api {

namespace {

Error of_options(Error error) {
  error.where = "options." + error.where;
  return error;
}

// Of the option `name`; null: it is not given.
Result<std::optional<OutputField>> read_one(const std::string& name, const char* given) {
  if (given == nullptr) return std::optional<OutputField>();
  MORACLE_ASSIGN(const std::string text, read_text(given, "options." + name));
  const auto json = parse_ordered_json(text, "");
  if (!json.ok()) return wrong_argument("json", "options." + name, "JSON", json.error().message());
  auto field = read_output_request(name, *json);
  if (field.ok()) return field;
  Error error = of_options(std::move(field).error());
  error.code = "argument" + error.code.substr(error.code.find('.'));
  return error;
}

}  // namespace

Result<std::shared_ptr<const ConstraintSource>> hold_output(const Session& session,
                                                            const moracle_generate_options& options,
                                                            std::string_view prompt,
                                                            const GenerationSettings& settings) {
  MORACLE_ASSIGN(auto field, read_one("response_format", options.response_format));
  MORACLE_ASSIGN(auto other, read_one("structured_outputs", options.structured_outputs));
  if (field && other)
    return wrong_argument("value", "options.structured_outputs", "nothing beside response_format", "both");
  if (other) field = std::move(other);
  if (!field) return std::shared_ptr<const ConstraintSource>();
  if (options.ignore_eos != 0)
    return wrong_argument("range", "options.ignore_eos", "0 where the answer is held to a form", "1");
  auto held = hold_reply(session, field->format, prompt, settings);
  if (held.ok()) return held;
  Error error = std::move(held).error();
  error.where = field->place + error.where;
  return of_options(std::move(error));
}

}  // namespace moracle::api
