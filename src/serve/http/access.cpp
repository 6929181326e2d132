#include "serve/http/access.h"

#include <algorithm>
#include <set>

#include "base/files/file.h"

namespace moracle::serve {

namespace {

constexpr std::size_t kLeastKeyBytes = 8;
constexpr std::size_t kMaxKeyBytes = 512;
constexpr std::string_view kHealthPath = "/health";
constexpr std::size_t kKeyFileBytes = std::size_t{1} << 20;

// Probes of an orchestrator, which name the address of a container as host.
bool is_probe(std::string_view path) {
  return path == "/livez" || path == "/readyz";
}

// Probes, and the files of the page, which hold nothing of model and clients: a browser asks for them before its user
// can name a key.
bool needs_key(std::string_view path) {
  return path != kHealthPath && !is_probe(path) && path != "/" && !path.starts_with("/page/");
}

// In time that depends on the longest key's length alone.
bool same_secret(std::string_view given, std::string_view key) {
  unsigned differs = given.size() == key.size() ? 0U : 1U;
  for (std::size_t i = 0; i < kMaxKeyBytes; ++i) {
    const unsigned a = i < given.size() ? static_cast<unsigned char>(given[i]) : 0U;
    const unsigned b = i < key.size() ? static_cast<unsigned char>(key[i]) : 0U;
    differs |= a ^ b;
  }
  return differs == 0U && given.size() <= kMaxKeyBytes;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

// "localhost" of "localhost:8080", "::1" of "[::1]:8080".
std::string_view without_port(std::string_view host) {
  if (host.starts_with('[')) {
    const std::size_t close = host.find(']');
    return close == std::string_view::npos ? host : host.substr(1, close - 1);
  }
  const std::size_t colon = host.rfind(':');
  return colon == std::string_view::npos || host.find(':') != colon ? host : host.substr(0, colon);
}

std::string_view host_of_origin(std::string_view origin) {
  const std::size_t scheme = origin.find("://");
  return scheme == std::string_view::npos ? std::string_view() : origin.substr(scheme + 3);
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r";
  const std::size_t first = text.find_first_not_of(kSpace);
  return first == std::string_view::npos ? "" : text.substr(first, text.find_last_not_of(kSpace) + 1 - first);
}

}  // namespace

Result<ApiKey> make_key(std::string name, std::string key) {
  const bool printable = std::all_of(key.begin(), key.end(), [](char c) { return c > ' ' && c < 0x7F; });
  if (printable && key.size() >= kLeastKeyBytes && key.size() <= kMaxKeyBytes) {
    return ApiKey{.name = std::move(name), .key = std::move(key)};
  }
  return Error{.code = "access.keys",
               .where = "key '" + name + "'",
               .wanted = "8 to 512 visible ASCII characters",
               .found = printable ? std::to_string(key.size()) + " characters" : "others"};
}

Result<std::vector<ApiKey>> parse_keys(const std::vector<std::string>& lines) {
  std::vector<ApiKey> keys;
  std::set<std::string> names;
  for (const std::string& text : lines) {
    const std::string_view line = trimmed(text);
    if (line.empty() || line.starts_with('#')) continue;
    const std::size_t colon = line.find(':');
    std::string name(colon == std::string_view::npos ? std::string_view() : trimmed(line.substr(0, colon)));
    if (name.empty()) name = "key" + std::to_string(keys.size() + 1);
    auto key = make_key(name, std::string(colon == std::string_view::npos ? line : trimmed(line.substr(colon + 1))));
    if (!key.ok()) return key.error();
    if (!names.insert(name).second)
      return Error{.code = "access.keys", .wanted = "names that differ", .found = "'" + name + "' twice"};
    keys.push_back(*std::move(key));
  }
  if (keys.empty()) return Error{.code = "access.keys", .wanted = "lines name:key", .found = "none"};
  return keys;
}

Result<std::vector<ApiKey>> read_keys(const std::filesystem::path& file) {
  MORACLE_ASSIGN(const std::string text, read_text(file, kKeyFileBytes));
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  auto keys = parse_keys(lines);
  if (keys.ok()) return keys;
  Error error = keys.error();
  error.file = file.string();
  return error;
}

Result<> resolve_address(AccessRules& rules, const std::string& listen, bool everybody) {
  rules.checks_host = !listen.starts_with("unix:");
  if (!rules.checks_host || is_loopback(listen)) return Ok{};
  rules.allowed_hosts.push_back(listen);
  if (!rules.keys.empty() || everybody) return Ok{};
  return Error{.code = "access.open",
               .where = listen,
               .wanted = "a key, as others reach this address",
               .found = "none",
               .advice = "give keys, or say that everybody may ask"};
}

bool is_loopback(std::string_view host) {
  const std::string name = lower(host);
  if (name == "localhost" || name == "::1") return true;
  const bool digits = std::all_of(name.begin(), name.end(), [](char c) { return c == '.' || (c >= '0' && c <= '9'); });
  return digits && name.starts_with("127.");
}

Result<std::string> Access::name_of(const AccessRequest& request) const {
  if (rules_.keys.empty()) return std::string();
  std::string_view given = request.api_key;
  constexpr std::string_view kBearer = "bearer ";
  if (given.empty() && lower(request.authorization.substr(0, kBearer.size())) == kBearer)
    given = trimmed(request.authorization.substr(kBearer.size()));
  const ApiKey* found = nullptr;
  for (const ApiKey& key : rules_.keys) {
    if (same_secret(given, key.key)) found = &key;
  }
  if (found != nullptr) return found->name;
  return Error{.code = "request.key",
               .wanted = "a key of this server",
               .found = given.empty() ? "none" : "another",
               .advice = "send it as Authorization: Bearer KEY, or x-api-key: KEY"};
}

Result<std::string> Access::check(const AccessRequest& request) const {
  const auto listed = [](const std::vector<std::string>& list, std::string_view word) {
    return std::any_of(list.begin(), list.end(), [&](const std::string& item) { return item == "*" || item == word; });
  };
  const std::string host = lower(without_port(request.host));
  // Probes of HTTP/1.0 name no host; browsers, which pages may mislead, always do.
  const bool probes = is_probe(request.path) || (request.host.empty() && request.path == kHealthPath);
  if (rules_.checks_host && !probes && !is_loopback(host) && !listed(rules_.allowed_hosts, host)) {
    return Error{.code = "request.forbidden",
                 .wanted = "a host name of this server",
                 .found = "'" + host.substr(0, 80) + "'",
                 .advice = "start the server with --allowed-host NAME"};
  }
  if (!request.origin.empty() && !shares_with(request.origin)) {
    const std::string_view from = host_of_origin(request.origin);
    if (from.empty() || lower(from) != lower(request.host)) {
      return Error{.code = "request.forbidden",
                   .wanted = "a page of this server, or one that --cors-origin names",
                   .found = "another origin"};
    }
  }
  if (!needs_key(request.path)) return std::string();
  return name_of(request);
}

bool Access::shares_with(std::string_view origin) const {
  return !origin.empty() &&
         std::find(rules_.cors_origins.begin(), rules_.cors_origins.end(), origin) != rules_.cors_origins.end();
}

}  // namespace moracle::serve
