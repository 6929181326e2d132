#include "serve/api/chat/places.h"

#include <charconv>
#include <optional>
#include <utility>

namespace moracle::serve {

namespace {

constexpr std::string_view kIndex = "[]";
constexpr std::string_view kMessage = "messages[";

bool ends_name(std::string_view rest) {
  return rest.empty() || rest.front() == '.' || rest.front() == '[' || rest.front() == '/';
}

// `place` with the row's words in front; nothing: the row is of another place.
std::optional<std::string> renamed(std::string_view place, const SamePlace& row) {
  std::string here(row.here);
  std::string_view chat = row.chat;
  for (std::size_t index = chat.find(kIndex); index != chat.npos; index = chat.find(kIndex)) {
    const std::size_t close = place.find(']', index);
    if (place.substr(0, index + 1) != chat.substr(0, index + 1) || close == place.npos) return std::nullopt;
    const std::size_t at = here.find(kIndex);
    if (at != std::string::npos) here.replace(at, kIndex.size(), place.substr(index, close + 1 - index));
    place.remove_prefix(close + 1);
    chat.remove_prefix(index + kIndex.size());
  }
  if (!place.starts_with(chat) || !ends_name(place.substr(chat.size()))) return std::nullopt;
  return here + std::string(place.substr(chat.size()));
}

}  // namespace

std::string ChatPlaces::here(const std::string& place) const {
  if (place.starts_with(kMessage)) {
    std::size_t index = messages.size();
    std::from_chars(place.data() + kMessage.size(), place.data() + place.size(), index);
    if (index < messages.size()) return messages[index];
  }
  for (const SamePlace& row : fields) {
    if (auto found = renamed(place, row)) return *std::move(found);
  }
  return place;
}

Error ChatPlaces::named(Error error) const {
  error.where = here(error.where);
  return error;
}

}  // namespace moracle::serve
