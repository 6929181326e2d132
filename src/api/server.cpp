// The C interface of the server.
#include "api/server.h"

#include <cmath>

namespace moracle::api {

namespace {

constexpr std::uint64_t kMaxTexts = 1024;
constexpr std::int32_t kMaxPort = 65535;

Result<std::vector<std::string>> read_texts(const char* const* texts, std::uint64_t count, std::string_view name) {
  if (count > kMaxTexts) return wrong_argument("range", name, "at most 1024", std::to_string(count));
  if (count > 0) MORACLE_TRY(check_not_null(texts, name));
  std::vector<std::string> made;
  for (std::uint64_t i = 0; i < count; ++i) {
    MORACLE_ASSIGN(made.emplace_back(), read_text(texts[i], name));
    if (made.back().empty()) return wrong_argument("range", name, "texts that are not empty", "an empty one");
  }
  return made;
}

Result<ServerChoice> read_server_choice(const moracle_server_options* given, Session& session) {
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  ServerChoice choice;
  if (options.listen != nullptr) {
    MORACLE_ASSIGN(choice.listen, read_text(options.listen, "options.listen"));
  }
  if (options.port < 0 || options.port > kMaxPort)
    return wrong_argument("range", "options.port", "0 to 65535", std::to_string(options.port));
  choice.port = static_cast<std::uint16_t>(options.port);
  MORACLE_ASSIGN(choice.names, read_texts(options.names, options.name_count, "options.names"));
  MORACLE_ASSIGN(choice.keys, read_texts(options.keys, options.key_count, "options.keys"));
  MORACLE_ASSIGN(choice.hosts, read_texts(options.hosts, options.host_count, "options.hosts"));
  MORACLE_ASSIGN(choice.origins, read_texts(options.origins, options.origin_count, "options.origins"));
  choice.everybody = options.everybody != 0;
  choice.any_model = options.any_model != 0;
  choice.strict = options.strict != 0;
  constexpr double kDay = 86400;
  if (!(options.drain_s <= kDay))
    return wrong_argument("range", "options.drain_s", "at most 86400", std::to_string(options.drain_s));
  choice.drain_s = options.drain_s;
  MORACLE_ASSIGN(choice.scheduler, read_scheduler_options(options.scheduler, session));
  return choice;
}

}  // namespace
}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_server_open(moracle_engine* engine, const moracle_server_options* options,
                                   moracle_server** server, moracle_error** error) {
  return api::call(error, "open a server", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(server, "server"));
    *server = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenEngine>(engine));
    MORACLE_TRY(opened->lock().check_not_held());  // it starts with a turn of the server's thread
    MORACLE_ASSIGN(auto choice, api::read_server_choice(options, opened->session()));
    MORACLE_ASSIGN(auto made, api::open_server(opened, std::move(choice)));
    *server = static_cast<moracle_server*>(api::add_handle(api::Kind::server, std::move(made)));
    return Ok{};
  });
}

moracle_status moracle_server_json(moracle_server* server, char** json, moracle_error** error) {
  return api::call(error, "describe the server", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(json, "json"));
    *json = nullptr;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenServer>(server));
    *json = api::copy_json(opened->describe());
    return Ok{};
  });
}

moracle_status moracle_server_stop(moracle_server* server, moracle_error** error) {
  return api::call(error, "stop the server", [&]() -> Result<> {
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenServer>(server));
    opened->stop();
    return Ok{};
  });
}

moracle_status moracle_server_wait(moracle_server* server, double seconds, int32_t* ended, moracle_error** error) {
  return api::call(error, "wait for the server", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(ended, "ended"));
    *ended = 0;
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenServer>(server));
    constexpr double kLong = 1e9;  // seconds, which clocks can count
    if (std::isnan(seconds)) return api::wrong_argument("range", "seconds", "a number", "NaN");
    MORACLE_ASSIGN(const bool over, opened->wait(seconds < kLong ? seconds : -1));
    *ended = over ? 1 : 0;
    return Ok{};
  });
}

moracle_status moracle_server_close(moracle_server* server) {
  bool nested = false;
  const moracle_status ended = api::call(nullptr, "end the server", [&]() -> Result<> {
    MORACLE_ASSIGN(const auto opened, api::find<api::OpenServer>(server));
    const auto done = opened->end();
    nested = !done.ok();
    return done;
  });
  if (nested) return ended;
  const moracle_status closed = api::close(api::Kind::server, server);
  return closed != MORACLE_OK || ended == MORACLE_INVALID ? closed : ended;
}

}  // extern "C"
