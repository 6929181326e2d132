#include "text/constrain/schema/keywords.h"

#include <algorithm>
#include <array>
#include <utility>

#include "base/unicode/utf8.h"

namespace moracle {

namespace {

using enum KeywordUse;

struct Keyword {
  std::string_view name;
  KeywordUse use;
};

constexpr std::array kKeywords = {
    Keyword{"$anchor", annotation},
    Keyword{"$comment", annotation},
    Keyword{"$defs", annotation},
    Keyword{"$dynamicAnchor", annotation},
    Keyword{"$dynamicRef", refused},
    Keyword{"$id", annotation},
    Keyword{"$recursiveAnchor", annotation},
    Keyword{"$recursiveRef", refused},
    Keyword{"$ref", enforced},
    Keyword{"$schema", annotation},
    Keyword{"$vocabulary", annotation},
    Keyword{"additionalItems", enforced},
    Keyword{"additionalProperties", enforced},
    Keyword{"allOf", enforced},
    Keyword{"anyOf", enforced},
    Keyword{"const", enforced},
    Keyword{"contains", refused},
    Keyword{"contentEncoding", annotation},
    Keyword{"contentMediaType", annotation},
    Keyword{"contentSchema", annotation},
    Keyword{"default", annotation},
    Keyword{"definitions", annotation},
    Keyword{"dependencies", refused},
    Keyword{"dependentRequired", refused},
    Keyword{"dependentSchemas", refused},
    Keyword{"deprecated", annotation},
    Keyword{"description", annotation},
    Keyword{"discriminator", annotation},
    Keyword{"else", annotation},  // with `if` alone, which is refused then
    Keyword{"enum", enforced},
    Keyword{"example", annotation},
    Keyword{"examples", annotation},
    Keyword{"exclusiveMaximum", enforced},
    Keyword{"exclusiveMinimum", enforced},
    Keyword{"externalDocs", annotation},
    Keyword{"format", enforced},
    Keyword{"id", annotation},
    Keyword{"if", enforced},
    Keyword{"items", enforced},
    Keyword{"maxContains", annotation},  // of `contains`, which is refused
    Keyword{"maxItems", enforced},
    Keyword{"maxLength", enforced},
    Keyword{"maxProperties", enforced},
    Keyword{"maximum", enforced},
    Keyword{"minContains", annotation},
    Keyword{"minItems", enforced},
    Keyword{"minLength", enforced},
    Keyword{"minProperties", enforced},
    Keyword{"minimum", enforced},
    Keyword{"multipleOf", enforced},
    Keyword{"not", refused},
    Keyword{"nullable", annotation},
    Keyword{"oneOf", enforced},
    Keyword{"pattern", enforced},
    Keyword{"patternProperties", refused},
    Keyword{"prefixItems", enforced},
    Keyword{"properties", enforced},
    Keyword{"propertyNames", enforced},
    Keyword{"readOnly", annotation},
    Keyword{"required", enforced},
    Keyword{"strict", annotation},
    Keyword{"then", annotation},
    Keyword{"title", annotation},
    Keyword{"type", enforced},
    Keyword{"unevaluatedItems", enforced},
    Keyword{"unevaluatedProperties", enforced},
    Keyword{"uniqueItems", enforced},
    Keyword{"writeOnly", annotation},
    Keyword{"xml", annotation},
};

static_assert(std::is_sorted(kKeywords.begin(), kKeywords.end(),
                             [](const Keyword& a, const Keyword& b) { return a.name < b.name; }));

bool asks_for_nothing(const OrderedJson& value) {
  return (value.is_boolean() && !value.get<bool>()) || (value.is_object() && value.empty());
}

}  // namespace

std::optional<KeywordUse> use_of_keyword(std::string_view name) {
  if (name.starts_with("x-")) return annotation;
  const auto found =
      std::lower_bound(kKeywords.begin(), kKeywords.end(), name,
                       [](const Keyword& keyword, std::string_view wanted) { return keyword.name < wanted; });
  return found != kKeywords.end() && found->name == name ? std::optional(found->use) : std::nullopt;
}

std::string pointer_to(const std::string& parent, std::string_view step) {
  std::string out = parent + "/";
  for (const char c : step) out += c == '~' ? std::string("~0") : c == '/' ? std::string("~1") : std::string(1, c);
  return out;
}

Error wrong_value(std::string pointer, std::string wanted, const OrderedJson& found) {
  std::string shown = found.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return {.code = "schema.value",
          .where = std::move(pointer),
          .wanted = std::move(wanted),
          .found = unicode::shortened(shown, 80)};
}

Result<> check_keywords(const OrderedJson& schema, const std::string& pointer) {
  for (const auto& [name, value] : schema.items()) {
    const auto use = use_of_keyword(name);
    if (!use) {
      return Error{.code = "schema.unknown",
                   .where = pointer_to(pointer, name),
                   .wanted = "a keyword of JSON Schema, or a name that begins with \"x-\"",
                   .found = "a name that means nothing",
                   .advice = "take it out, or correct its spelling"};
    }
    const bool harmless = *use != refused || (asks_for_nothing(value) && name != "not" && name != "contains") ||
                          (name == "not" && value.is_boolean() && !value.get<bool>());
    if (harmless) continue;
    return Error{.code = "schema.unsupported",
                 .where = pointer_to(pointer, name),
                 .wanted = "keywords that a reply can be held to",
                 .found = name,
                 .advice = "take it out, and check the reply for it"};
  }
  return Ok{};
}

}  // namespace moracle
