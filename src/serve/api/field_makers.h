// Makers of entries of the table of fields; `where` has GenerationApi values, or-ed.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "serve/api/fields.h"

namespace moracle::serve {

inline constexpr std::uint8_t kChatsAndCompletions = 3;
inline constexpr double kInt32 = 2147483647.0;  // the most that counts of tokens may be

constexpr RequestField flag(std::string_view name, std::uint8_t where, std::string_view words) {
  return {.name = name, .use = FieldUse::honoured, .endpoints = where, .type = FieldType::boolean, .text = words};
}

constexpr RequestField whole(std::string_view name, std::uint8_t where, double low, double high,
                             std::string_view words) {
  return {.name = name,
          .use = FieldUse::honoured,
          .endpoints = where,
          .type = FieldType::integer,
          .text = words,
          .low = low,
          .high = high};
}

constexpr RequestField word(std::string_view name, std::uint8_t where, std::string_view words) {
  return {.name = name, .use = FieldUse::honoured, .endpoints = where, .type = FieldType::text, .text = words};
}

constexpr RequestField shaped(std::string_view name, std::uint8_t where, Json (*schema)(), std::string_view words) {
  return {.name = name,
          .use = FieldUse::honoured,
          .endpoints = where,
          .type = FieldType::structure,
          .text = words,
          .schema = schema};
}

constexpr RequestField ignored_field(std::string_view name, std::string_view why,
                                     std::uint8_t where = kChatsAndCompletions) {
  return {.name = name, .use = FieldUse::inert, .endpoints = where, .type = FieldType::structure, .text = why};
}

constexpr RequestField refuse(std::string_view name, std::string_view instead, std::string_view off = "null",
                              std::uint8_t where = kChatsAndCompletions) {
  return {.name = name,
          .use = FieldUse::refused,
          .endpoints = where,
          .type = FieldType::structure,
          .text = instead,
          .off = off};
}

}  // namespace moracle::serve
