#include "cli/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>
#include <utf8proc.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "text/unicode.h"

namespace moracle::cli {

namespace {

constexpr std::size_t kLeastWidth = 40;
constexpr std::size_t kLeastWrapped = 16;  // of a column whose cells break
constexpr std::string_view kGap = "  ";

// The length of the colour sequence at the start of `text`; 0: none is there.
std::size_t colour_size(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const std::size_t end = text.find_first_not_of("0123456789;", 2);
  return end != std::string_view::npos && text[end] == 'm' ? end + 1 : 0;
}

// One character, or one colour sequence of no columns.
struct Glyph {
  std::size_t bytes = 1;
  std::size_t columns = 1;
};

Glyph glyph_at(std::string_view text, std::size_t at) {
  if (const std::size_t size = colour_size(text.substr(at)); size > 0) return {size, 0};
  const unicode::Decoded decoded = unicode::decode_at(text, at);
  const int columns = utf8proc_charwidth(static_cast<utf8proc_int32_t>(decoded.code));
  return {std::max<std::size_t>(1, decoded.size), static_cast<std::size_t>(std::max(0, columns))};
}

// Where a line of at most `width` columns of `text` ends, and where the next one begins.
struct Break {
  std::size_t end = 0;
  std::size_t next = 0;
};

Break find_break(std::string_view text, std::size_t width) {
  std::optional<Break> space, joint, weak_joint;  // where words, parts of a path, and parts of a name end
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Glyph glyph = glyph_at(text, at);
    if (text[at] == ' ' && columns <= width && at > 0) space = Break{at, at + 1};
    if (columns + glyph.columns > width) {
      for (const auto& best : {space, joint, weak_joint}) {
        if (best) return *best;
      }
      return at > 0 ? Break{at, at} : Break{glyph.bytes, glyph.bytes};
    }
    columns += glyph.columns;
    at += glyph.bytes;
    if (at == text.size()) break;
    if (std::string_view(".,/").find(text[at - 1]) != std::string_view::npos) joint = Break{at, at};
    if (std::string_view("_+-").find(text[at - 1]) != std::string_view::npos) weak_joint = Break{at, at};
  }
  return {text.size(), text.size()};
}

std::string padded(std::string_view text, std::size_t width, bool right) {
  const std::size_t taken = columns_of(text);
  const std::string pad(width > taken ? width - taken : 0, ' ');
  return right ? pad + std::string(text) : std::string(text) + pad;
}

// Lays one table out: which columns stay, how wide they are, what goes under the rows.
class Layout {
 public:
  Layout(const std::vector<Column>& columns, const std::vector<std::vector<std::string>>& rows, std::size_t width)
      : columns_(columns), width_(width) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      std::size_t widest = columns_of(columns[i].title);
      for (const auto& row : rows) widest = std::max(widest, columns_of(row[i]));
      widths_.push_back(widest);
      shown_.push_back(i);
    }
    while (total() > width_ && take_out()) {
    }
    while (total() > width_ && shrink()) {
    }
  }

  [[nodiscard]] const std::vector<std::size_t>& shown() const { return shown_; }
  [[nodiscard]] const std::vector<std::size_t>& below() const { return below_; }
  [[nodiscard]] const std::vector<std::size_t>& dropped() const { return dropped_; }
  [[nodiscard]] std::size_t width_of(std::size_t column) const { return widths_[column]; }

 private:
  [[nodiscard]] std::size_t total() const {
    return std::accumulate(shown_.begin(), shown_.end(), (shown_.size() - 1) * kGap.size(),
                           [this](std::size_t sum, std::size_t column) { return sum + widths_[column]; });
  }
  // Takes the column out that goes first.
  bool take_out() {
    auto first = shown_.end();
    for (auto it = shown_.begin(); it != shown_.end(); ++it) {
      const Column& column = columns_[*it];
      if (column.narrow != Narrow::below && column.narrow != Narrow::drop) continue;
      if (first == shown_.end() || column.rank >= columns_[*first].rank) first = it;
    }
    if (first == shown_.end()) return false;
    (columns_[*first].narrow == Narrow::below ? below_ : dropped_).push_back(*first);
    shown_.erase(first);
    return true;
  }
  // Makes the widest column that may break narrower.
  bool shrink() {
    std::optional<std::size_t> widest;
    for (const std::size_t column : shown_) {
      const bool breaks = columns_[column].narrow == Narrow::wrap && widths_[column] > kLeastWrapped;
      if (breaks && (!widest || widths_[column] > widths_[*widest])) widest = column;
    }
    if (widest) --widths_[*widest];
    return widest.has_value();
  }

  const std::vector<Column>& columns_;
  std::size_t width_;
  std::vector<std::size_t> widths_;
  std::vector<std::size_t> shown_;
  std::vector<std::size_t> below_;
  std::vector<std::size_t> dropped_;
};

// The lines of one row. Cells that break are continued with an indent of two.
void append_row(std::string& out, const std::vector<Column>& columns, const std::vector<std::string>& cells,
                const Layout& layout) {
  std::vector<std::vector<std::string>> lines;
  std::size_t height = 1;
  for (const std::size_t column : layout.shown()) {
    const std::size_t width = layout.width_of(column);
    std::vector<std::string> cell = {cells[column]};
    if (columns_of(cells[column]) > width) {
      cell = wrapped(cells[column], width - 2);
      for (std::size_t i = 1; i < cell.size(); ++i) cell[i].insert(0, "  ");
    }
    height = std::max(height, cell.size());
    lines.push_back(std::move(cell));
  }
  for (std::size_t i = 0; i < height; ++i) {
    std::string line;
    for (std::size_t j = 0; j < lines.size(); ++j) {
      const std::size_t column = layout.shown()[j];
      if (j > 0) line += kGap;
      line += padded(i < lines[j].size() ? lines[j][i] : "", layout.width_of(column), columns[column].right);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
}

}  // namespace

std::size_t screen_width(int fd) {
  winsize size{};
  if (isatty(fd) != 1) return kUnlimited;
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<std::size_t>(kLeastWidth, size.ws_col);
}

std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Glyph glyph = glyph_at(text, at);
    columns += glyph.columns;
    at += glyph.bytes;
  }
  return columns;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view rest = text.substr(begin, end - begin);
    do {
      const Break found = find_break(rest, std::max<std::size_t>(1, width));
      lines.emplace_back(rest.substr(0, found.end));
      rest.remove_prefix(found.next);
      while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
    } while (!rest.empty());
    begin = end + 1;
  }
  return lines;
}

std::string paragraph(std::string_view lead, std::string_view text, std::size_t width, std::size_t indent) {
  const std::size_t taken = columns_of(lead);
  std::string out(lead);
  if (taken > indent) out += "\n" + std::string(indent, ' ');  // the lead reaches into the text's columns
  if (taken < indent) out.append(indent - taken, ' ');
  const std::vector<std::string> lines = wrapped(text, std::max<std::size_t>(width, indent + 8) - indent);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    out += (i == 0 ? "" : std::string(indent, ' ')) + lines[i];
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
  }
  return out;
}

std::string hanging(std::string_view text, std::size_t width) {
  const std::vector<std::string> lines = wrapped(text, width);
  if (lines.size() == 1) return lines.front() + "\n";
  std::string_view rest = text.substr(lines.front().size());
  rest.remove_prefix(std::min(rest.find_first_not_of(" \n"), rest.size()));
  return lines.front() + "\n" + paragraph("  ", rest, width, 2);
}

std::string Paint::paint(std::string_view code, std::string_view text) const {
  if (!on_ || text.empty()) return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

void TextTable::row(std::vector<std::string> cells) {
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::text(std::size_t width, const Paint& paint) const {
  const Layout layout(columns_, rows_, width);
  std::vector<std::string> titles;
  for (const Column& column : columns_) titles.push_back(column.title);
  std::string out;
  append_row(out, columns_, titles, layout);
  for (const auto& row : rows_) {
    append_row(out, columns_, row, layout);
    for (const std::size_t column : layout.below()) {
      if (row[column].empty()) continue;
      for (const std::string& line : wrapped(columns_[column].title + ": " + row[column], width - 4))
        out += "    " + paint.faint(line) + "\n";
    }
  }
  if (layout.dropped().empty()) return out;
  std::string names;
  for (const std::size_t column : layout.dropped()) names += (names.empty() ? "" : ", ") + columns_[column].title;
  for (const std::string& line : wrapped("(left out at this width: " + names + ")", width))
    out += paint.faint(line) + "\n";
  return out;
}

}  // namespace moracle::cli
