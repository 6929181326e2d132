#include "serve/api/body.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "base/json_scanner.h"
#include "serve/limits.h"
#include "text/unicode.h"

namespace moracle::serve {

namespace {

constexpr std::array<std::string_view, 2> kOrdered = {"messages", "tools"};

Error wrong(const char* code, std::string wanted, std::string found) {
  return Error{.code = code, .wanted = std::move(wanted), .found = std::move(found)};
}

Error invalid_utf8(std::string found) {
  return wrong("request.invalid_utf8", "Unicode text in UTF-8 without NUL", std::move(found));
}

// The byte of the first "\u0000" that a string holds; a model's text has no use for NUL, and much software ends there.
std::optional<std::size_t> find_nul(std::string_view body) {
  for (std::size_t at = body.find("\\u0000"); at != std::string_view::npos; at = body.find("\\u0000", at + 1)) {
    std::size_t slashes = 0;
    while (slashes < at && body[at - 1 - slashes] == '\\') ++slashes;
    if (slashes % 2 == 0) return at;
  }
  return std::nullopt;
}

// The byte of the first number that is none: the parser takes the words that Python writes, which JSON has not.
std::optional<std::size_t> find_not_finite(std::string_view body) {
  bool in_text = false;
  for (std::size_t at = 0; at < body.size(); ++at) {
    if (body[at] == '"') in_text = !in_text;
    if (in_text && body[at] == '\\') ++at;
    if (!in_text && (body[at] == 'N' || body[at] == 'I')) return at;
  }
  return std::nullopt;
}

template <class AnyJson>
bool is_finite(const AnyJson& value) {
  if (value.is_structured()) return std::all_of(value.begin(), value.end(), is_finite<AnyJson>);
  return !value.is_number_float() || std::isfinite(value.template get<double>());
}

Error not_finite(std::string_view body, const JsonDocument& document) {
  const auto& members = document.json.get_ref<const Json::object_t&>();
  const auto field = std::find_if(members.begin(), members.end(), [&](const auto& member) {
    const auto name = std::find(kOrdered.begin(), kOrdered.end(), member.first);
    if (name == kOrdered.end()) return !is_finite(member.second);
    return !is_finite(document.ordered[static_cast<std::size_t>(name - kOrdered.begin())]);
  });
  Error error = wrong("request.value", "finite numbers",
                      fmt::format("NaN or Infinity at byte {}", find_not_finite(body).value_or(0)));
  if (field != members.end()) error.where = field->first.substr(0, kNameBytes);
  return error;
}

// The field whose value nests deeper than a body may; empty: the body itself is no object.
std::string deep_field(std::string_view body) {
  std::string name;
  JsonScanner scanner(body, 0, "", "json.syntax");
  const Result<> read = scanner.object([&](const std::string& key, std::uint64_t) {
    name = key.substr(0, kNameBytes);
    return scanner.skip_value(kBodyDepth - 1);
  });
  return read.ok() ? "" : name;
}

// A fault of the text goes before one of JSON.
Error unreadable(std::string_view body, Error error) {
  if (const auto bad = unicode::find_invalid_utf8(body))
    return invalid_utf8(fmt::format("bytes that are none at byte {}", *bad));
  if (const auto nul = find_nul(body)) return invalid_utf8(fmt::format("NUL at byte {}", *nul));
  const bool deep = error.code == "json.depth";
  const bool lone = error.wanted.find("surrogate") != std::string::npos;
  const bool limit = deep || error.code == "json.values";
  error.code = lone ? "request.invalid_utf8" : limit ? "request.limit" : "request.invalid_json";
  error.advice.clear();                                                              // it is of files
  error.found += " at " + std::exchange(error.where, deep ? deep_field(body) : "");  // a byte is no field
  return error;
}

// Few requests have such fields, so that most bodies are read once.
Result<OrderedJson> read_formats(std::string_view body, const Json& fields, const JsonLimits& limits) {
  OrderedJson formats = OrderedJson::object();
  const auto is_there = [&](const char* name) { return fields.contains(name); };
  if (std::none_of(kFormatFields.begin(), kFormatFields.end(), is_there)) return formats;
  MORACLE_ASSIGN(OrderedJson whole, parse_ordered_json(body, "", limits));
  for (const char* const name : kFormatFields) {
    if (is_there(name)) formats[name] = std::move(whole[name]);
  }
  return formats;
}

}  // namespace

Result<RequestBody> parse_body(std::string_view body) {
  if (body.size() > kBodyBytes) {
    return wrong("request.too_large", fmt::format("a body of at most {} bytes", kBodyBytes),
                 fmt::format("{} bytes", body.size()));
  }
  constexpr JsonLimits kLimits{.bytes = kBodyBytes, .depth = kBodyDepth, .values = kBodyValues};
  auto parsed = parse_document(body, "", kLimits, kOrdered);
  if (!parsed.ok()) return unreadable(body, std::move(parsed).error());
  if (parsed->has_nul) return invalid_utf8(fmt::format("NUL at byte {}", find_nul(body).value_or(0)));
  if (!parsed->json.is_object()) return wrong("request.type", "a JSON object", parsed->json.type_name());
  if (parsed->has_not_finite) return not_finite(body, *parsed);
  if (!parsed->ordered[1].is_null()) parsed->json["tools"] = Json(parsed->ordered[1]);
  MORACLE_ASSIGN(OrderedJson formats, read_formats(body, parsed->json, kLimits));
  return RequestBody{.fields = std::move(parsed->json),
                     .messages = std::move(parsed->ordered[0]),
                     .tools = std::move(parsed->ordered[1]),
                     .formats = std::move(formats)};
}

}  // namespace moracle::serve
