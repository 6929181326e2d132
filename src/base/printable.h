// Text from files, fit for terminals and logs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moracle {

// Bytes of a text that people are shown.
inline constexpr std::size_t kShownBytes = 300;
// Bytes of a line that is composed of several.
inline constexpr std::size_t kShownLineBytes = 1000;

// `text` with an escape (\n, \t, \xNN for each byte) in place of whatever a terminal acts on: control codes (C0, DEL,
// C1), marks that change the direction of text, separators of lines and paragraphs, bytes that are not UTF-8. What
// goes beyond `most` bytes is cut, and its size told. Applied twice it changes nothing more.
[[nodiscard]] std::string printable(std::string_view text, std::size_t most = kShownBytes);

// The same of a path, cut in the middle: its end tells most.
[[nodiscard]] std::string printable_path(std::string_view path);

// A name in single quotes, cut where it is long.
[[nodiscard]] std::string in_quotes(std::string_view name);

// JSON text with \uNNNN in place of the same characters, which occur in its strings alone: the same document.
[[nodiscard]] std::string printable_json(std::string_view json);

}  // namespace moracle
