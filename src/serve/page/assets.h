// The files of the page, embedded by the build.
#pragma once

#include <optional>
#include <string_view>

namespace moracle::serve {

struct Asset {
  std::string_view type;  // "text/html; charset=utf-8"
  std::string_view text;
  std::string_view tag;  // of its content, quoted
};

// By the path of a request: "/", "/page.js", "/page.css".
[[nodiscard]] std::optional<Asset> find_asset(std::string_view path);

}  // namespace moracle::serve
