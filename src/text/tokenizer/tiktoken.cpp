#include "text/tokenizer/tiktoken.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "base/files/lfs_pointer.h"
#include "text/unicode.h"

namespace moracle {
namespace {

// Every split of a token is looked up; this bounds the bytes that are hashed for it. Real vocabularies need a few 10^7.
constexpr std::size_t kMaxSplitBytes = std::size_t{1} << 28U;

constexpr std::string_view kPattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kKimiPattern =
    R"([\p{Han}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::array<std::int8_t, 256> kBase64 = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kDigits.size(); ++i) {
    values[static_cast<unsigned char>(kDigits[i])] = static_cast<std::int8_t>(i);
  }
  return values;
}();

std::optional<std::string> decode_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::size_t digits = text.size();
  while (digits > text.size() - 2 && text[digits - 1] == '=') --digits;
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text.substr(0, digits)) {
    const int value = kBase64[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(value);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes.push_back(static_cast<char>(bits >> count & 0xFFU));
  }
  return bytes;
}

Error bad_line(const std::string& file, std::size_t line, std::string found) {
  return {.code = "tokenizer.tiktoken",
          .file = file,
          .where = fmt::format("line {}", line),
          .wanted = "a token in base64, a space and its rank",
          .found = std::move(found),
          .advice = "download the file again"};
}

}  // namespace

Result<Bpe> read_tiktoken(std::string_view text, const std::string& file) {
  if (text.starts_with(kLfsStart)) {
    Error pointer = bad_line(file, 1, std::string(kLfsFound));
    pointer.advice = kLfsAdvice;
    return pointer;
  }
  Bpe::Ranks ranks;
  std::size_t line_number = 0;
  std::size_t split_bytes = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = std::min(line.find(' '), line.size());
    auto bytes = decode_base64(line.substr(0, space));
    const std::string_view digits = line.substr(std::min(space + 1, line.size()));
    std::int32_t rank = -1;
    const auto [stop, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
    const bool number = failed == std::errc{} && stop == digits.data() + digits.size();
    if (!bytes || bytes->empty() || !number || rank < 0 || rank == std::numeric_limits<std::int32_t>::max()) {
      return bad_line(file, line_number, fmt::format("{} bytes of something else", line.size()));
    }
    split_bytes += bytes->size() * bytes->size();
    if (split_bytes > kMaxSplitBytes) return bad_line(file, line_number, "tokens of too many bytes in all");
    ranks.emplace_back(*std::move(bytes), rank);
  }
  return Bpe::from_ranks(ranks, file);
}

Json tiktoken_pre_tokenizer(bool kimi) {
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", kimi ? kKimiPattern : kPattern}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}}}}};
}

void kimi_parts(std::string_view text, std::vector<std::size_t>& ends) {
  constexpr std::size_t kMaxCharacters = 400'000;
  constexpr std::size_t kMaxAlike = 25'000;
  ends.clear();
  std::size_t characters = 0;
  std::size_t alike = 0;
  bool space = false;
  for (std::size_t at = 0; at < text.size();) {
    const auto next = unicode::decode_at(text, at);
    // Python's isspace takes four separators beside White_Space.
    const bool is_space = unicode::is_white_space(next.code) || (next.code >= 0x1C && next.code <= 0x1F);
    if (characters == kMaxCharacters) {
      ends.push_back(at);
      characters = alike = 0;
    }
    alike = alike > 0 && is_space == space ? alike + 1 : 1;
    space = is_space;
    if (alike > kMaxAlike) {
      ends.push_back(at);
      alike = 1;
    }
    ++characters;
    at += next.size;
  }
  ends.push_back(text.size());
}

}  // namespace moracle
