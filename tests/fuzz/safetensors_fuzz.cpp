// Headers and indices of safetensors checkpoints: whatever the bytes, an answer that holds, or an error that names the
// rule.
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "base/checked.h"
#include "base/unicode/utf8.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/shard_index.h"
#include "fuzz_input.h"

namespace {

using moracle::fuzz::require;

void check_error(const moracle::Error& error) {
  moracle::fuzz::check_error(error);
  require(error.file == "fuzz");
}

void check_header(std::span<const std::byte> bytes, std::uint64_t file_size) {
  const auto header = moracle::parse_header(bytes, file_size, "fuzz");
  if (!header.ok()) return check_error(header.error());
  std::set<std::string> names;
  std::uint64_t covered = 0;
  for (const moracle::TensorEntry& entry : header->tensors) {
    require(entry.begin == covered && entry.end > entry.begin);
    covered = entry.end;
    require(moracle::unicode::is_utf8(entry.name) && names.insert(entry.name).second);
    const auto elements = moracle::checked_product(std::span<const std::int64_t>(entry.shape));
    require(elements.has_value() && *elements > 0);
    // In 128 bits nothing wraps, so this is a second opinion on the size.
    const auto bits = static_cast<unsigned __int128>(*elements) * static_cast<unsigned>(moracle::bits_of(entry.dtype));
    require(bits == static_cast<unsigned __int128>(entry.end - entry.begin) * 8);
  }
  require(header->data_start + covered == file_size);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  check_header(bytes, size);
  if (size < 4) return 0;

  // A header text alone, with a prefix that fits and a file size from the first bytes: gets past the length rules.
  const std::string_view text(reinterpret_cast<const char*>(data) + 3, size - 3);
  std::string file(moracle::kSafetensorsPrefix, '\0');
  for (std::size_t i = 0; i < file.size(); ++i) file[i] = static_cast<char>(text.size() >> (8 * i));
  file += text;
  const std::uint64_t data_bytes = data[0] + 256U * data[1] + 65536U * data[2];
  check_header(std::as_bytes(std::span(file)), file.size() + data_bytes);

  const auto index = moracle::parse_shard_index(text, "fuzz");
  if (!index.ok()) {
    check_error(index.error());
  } else {
    for (const std::string& shard : index->files) {
      require(!shard.starts_with('/') && !shard.starts_with("../") && shard.find("/../") == std::string::npos);
    }
    for (const auto& [name, number] : index->tensors) require(number < index->files.size());
  }
  return 0;
}
