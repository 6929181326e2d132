// The files of the page, embedded by the build.
#pragma once

#include <span>
#include <string_view>

namespace moracle::serve {

struct Asset {
  std::string_view name;  // "page.html"
  std::string_view type;  // "text/html; charset=utf-8"
  std::string_view text;
  std::string_view tag;  // of its content, quoted
};

[[nodiscard]] std::span<const Asset> page_assets();

}  // namespace moracle::serve
