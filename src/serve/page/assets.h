// The files of the page, embedded by the build.
#pragma once

#include <string_view>

namespace moracle::serve {

struct Asset {
  std::string_view type;  // "text/html; charset=utf-8"
  std::string_view text;
  std::string_view tag;  // of its content, quoted
};

extern const Asset kPageHtml, kPageScript, kPageStyle;

}  // namespace moracle::serve
