// Places of a chat's fields in the words of the API whose request was read as a chat.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moracle::serve {

// A place in a chat's body, and where another API has the same. "[]" stands for an index, which both share.
struct SamePlace {
  std::string_view chat, here;
};

// A default one is a chat's own: places stay as they are.
struct ChatPlaces {
  std::span<const SamePlace> fields{};  // the first row that fits a place, or what it is within
  std::vector<std::string> messages{};  // where the request has what each message was made of

  [[nodiscard]] std::string here(const std::string& place) const;
  // The error with its place in the API's words.
  [[nodiscard]] Error named(Error error) const;
};

}  // namespace moracle::serve
