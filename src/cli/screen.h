// Text for a screen of some width: wrapping, tables, colours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace moracle::cli {

// The width of text that no terminal shows: nothing is wrapped.
inline constexpr std::size_t kUnlimited = std::size_t{1} << 30;

// Columns of the terminal on `fd`, at least 40; kUnlimited where `fd` is none.
[[nodiscard]] std::size_t screen_width(int fd);

// Columns that UTF-8 text takes on a screen. Colour sequences take none.
[[nodiscard]] std::size_t columns_of(std::string_view text);

// `text` in lines of at most `width` columns, broken at spaces, else behind one of . , / or else _ + -, else anywhere.
// Newlines in `text` stay. There is at least one line.
[[nodiscard]] std::vector<std::string> wrapped(std::string_view text, std::size_t width);

// `lead` and then `text`, wrapped, its further lines indented by `indent` columns; ends in a newline.
[[nodiscard]] std::string paragraph(std::string_view lead, std::string_view text, std::size_t width,
                                    std::size_t indent);

// `text`, wrapped, its further lines indented by two columns; ends in a newline.
[[nodiscard]] std::string hanging(std::string_view text, std::size_t width);

// ANSI colours, for terminals that show them.
class Paint {
 public:
  explicit Paint(bool on = false) : on_(on) {}
  [[nodiscard]] std::string good(std::string_view text) const { return paint("32", text); }
  [[nodiscard]] std::string bad(std::string_view text) const { return paint("31", text); }
  [[nodiscard]] std::string warning(std::string_view text) const { return paint("33", text); }
  [[nodiscard]] std::string faint(std::string_view text) const { return paint("2", text); }
  [[nodiscard]] std::string strong(std::string_view text) const { return paint("1", text); }
  [[nodiscard]] bool on() const { return on_; }

 private:
  [[nodiscard]] std::string paint(std::string_view code, std::string_view text) const;
  bool on_;
};

// What happens to a column where the table is wider than the screen.
enum class Narrow : std::uint8_t {
  keep,   // stays as it is
  wrap,   // its cells break into several lines
  below,  // its cells go under their row, behind the column's title
  drop,   // it is left out, which a line under the table says
};

struct Column {
  std::string title;
  bool right = false;  // aligned to the right
  Narrow narrow = Narrow::keep;
  int rank = 0;  // of the columns that go below or out, the largest goes first
};

class TextTable {
 public:
  explicit TextTable(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as there are columns.
  void row(std::vector<std::string> cells);
  // Columns padded to their widest cell, and no wider than `width` where the columns' rules allow it.
  [[nodiscard]] std::string text(std::size_t width, const Paint& paint = Paint()) const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace moracle::cli
