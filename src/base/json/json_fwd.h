// Json, declared alone: headers that only pass it on leave reading nlohmann's to whoever looks into it (base/json.h).
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace moracle {

using Json = nlohmann::json;

}  // namespace moracle
