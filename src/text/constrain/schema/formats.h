// The formats of texts that replies are held to.
#pragma once

#include <optional>
#include <string_view>

namespace moracle {

// A regular expression that every text of the format's subset matches; empty text: the format says nothing about
// texts, or nothing that can be checked. No value: no such format is known.
[[nodiscard]] std::optional<std::string_view> expression_of_format(std::string_view name);

}  // namespace moracle
