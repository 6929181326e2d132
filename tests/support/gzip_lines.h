// Lines of a text file, plain or compressed with gzip.
#pragma once

#include <zlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

namespace moracle::test {

// Empty where the file cannot be read to its end.
[[nodiscard]] inline std::vector<std::string> gzip_lines(const std::filesystem::path& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return {};
  std::string text;
  std::vector<char> block(std::size_t{1} << 16);
  int got = 0;
  while ((got = gzread(file, block.data(), static_cast<unsigned>(block.size()))) > 0)
    text.append(block.data(), static_cast<std::size_t>(got));
  gzclose(file);
  std::vector<std::string> lines;
  if (got < 0) return lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

}  // namespace moracle::test
