#include "checkpoint/text_config.h"

#include <algorithm>
#include <array>

#include "base/json.h"

namespace moracle {

namespace {

// Where a wrapper that says nothing of layers itself keeps its text model.
constexpr std::array<std::string_view, 4> kPlaces{"/llm_config", "/language_config", "/lm_config",
                                                  "/thinker_config/text_config"};

}  // namespace

const Json* at_pointer(const Json& config, std::string_view pointer) {
  const Json* at = &config;
  while (!pointer.empty()) {
    pointer.remove_prefix(1);
    const std::size_t end = std::min(pointer.find('/'), pointer.size());
    if (!at->is_object()) return nullptr;
    const auto member = at->find(std::string(pointer.substr(0, end)));
    if (member == at->end() || member->is_null()) return nullptr;
    at = &*member;
    pointer.remove_prefix(end);
  }
  return at;
}

std::string text_pointer(const Json& config) {
  constexpr const char* kUsual = "/text_config";
  constexpr const char* kLayers = "/num_hidden_layers";
  if (at_pointer(config, kUsual) != nullptr) return kUsual;
  if (at_pointer(config, kLayers) != nullptr) return "";
  for (const std::string_view place : kPlaces) {
    const std::string pointer(place);
    if (at_pointer(config, pointer + kLayers) != nullptr || at_pointer(config, pointer + "/model_type") != nullptr) {
      return pointer;
    }
  }
  return "";
}

}  // namespace moracle
