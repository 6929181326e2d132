// In place of engine_server.cpp where Boost is missing.
#include "api/server.h"

namespace moracle::api {

// NOLINTNEXTLINE(performance-unnecessary-value-param): the server takes them
Result<std::shared_ptr<OpenServer>> open_server(std::shared_ptr<OpenEngine> /*engine*/, ServerChoice /*choice*/) {
  return Error{.code = "server.absent",
               .wanted = "a library with the server",
               .found = "one that was built without Boost 1.81",
               .advice = "install libboost1.81-dev and build it again"};
}

}  // namespace moracle::api
