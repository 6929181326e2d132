// openapi.json: each endpoint describes its part, with the words of this file.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace moracle::serve {

// The document while endpoints add to it.
struct OpenApi {
  Json paths = Json::object();    // by path, then method
  Json schemas = Json::object();  // by name
};

// OpenAPI 3.1 of this server, of all endpoints: generated, never written by hand.
[[nodiscard]] Json openapi_json(const std::string& version);
[[nodiscard]] std::string openapi_yaml(const std::string& version);

namespace schema {

[[nodiscard]] Json text();
[[nodiscard]] Json integer();
[[nodiscard]] Json real();
[[nodiscard]] Json token_ids();
[[nodiscard]] Json words(const std::vector<std::string>& words);  // a text, one of these
[[nodiscard]] Json list_of(Json items);
[[nodiscard]] Json object(std::initializer_list<std::string_view> required, Json properties);
// One of OpenApi::schemas.
[[nodiscard]] Json ref(std::string_view name);
// A reply of generated text, with choices as of `choice`.
[[nodiscard]] Json reply(Json choice);

}  // namespace schema

// An operation of a path. `streams`: the answer may be events.
[[nodiscard]] Json post_operation(std::string_view summary, Json body, Json reply, bool streams = false);
[[nodiscard]] Json get_operation(std::string_view summary, Json reply, const char* type = "application/json");

}  // namespace moracle::serve
