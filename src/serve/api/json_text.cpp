#include "serve/api/json_text.h"

namespace moracle::serve {

std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string event_of(const Json& json) {
  return "data: " + dump(json) + "\n\n";
}

}  // namespace moracle::serve
