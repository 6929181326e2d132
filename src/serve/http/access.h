// Who may ask: keys, hosts, origins. Rules are constant once a server is open, so every thread may read them; who asks
// is decided on the I/O thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace moracle::serve {

struct ApiKey {
  std::string name;  // for fairness and logs; the key itself is never shown
  std::string key;
};

// Lines "name:key" or "key"; empty lines and those that begin with # are left out. Errors: those of read_text,
// "access.keys" (no key, one that is too short, a name given twice).
Result<std::vector<ApiKey>> read_keys(const std::filesystem::path& file);
// The same of lines that are not in a file. Error: "access.keys".
Result<std::vector<ApiKey>> parse_keys(const std::vector<std::string>& lines);
// One key of a command line or variable. Error: "access.keys".
Result<ApiKey> make_key(std::string name, std::string key);

struct AccessRules {
  std::vector<ApiKey> keys{};                // none: everybody may ask
  std::vector<std::string> allowed_hosts{};  // beside loopback; "*": all
  std::vector<std::string> cors_origins{};   // exact
  bool checks_host = true;                   // false: of a socket that no browser reaches
};

// What the address says of who asks: browsers do not reach a Unix socket, and who is not on this machine needs a key or
// `everybody`. Error: "access.open".
Result<> resolve_address(AccessRules& rules, const std::string& listen, bool everybody);

// What of a request decides.
struct AccessRequest {
  std::string_view path{}, host{}, origin{}, authorization{}, api_key{};
};

class Access {
 public:
  explicit Access(AccessRules rules) : rules_(std::move(rules)) {}

  // The name of the key; empty where there is none. Errors: "request.forbidden" (host, origin), "request.key".
  [[nodiscard]] Result<std::string> check(const AccessRequest& request) const;
  // Whether answers to this origin say that it may read them.
  [[nodiscard]] bool shares_with(std::string_view origin) const;

 private:
  [[nodiscard]] Result<std::string> name_of(const AccessRequest& request) const;
  AccessRules rules_;
};

// Whether an address or name is this machine alone: "127.0.0.1", "::1", "localhost".
[[nodiscard]] bool is_loopback(std::string_view host);

}  // namespace moracle::serve
