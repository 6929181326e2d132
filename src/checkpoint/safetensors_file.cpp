#include "checkpoint/safetensors_file.h"

#include <algorithm>

#include "checkpoint/safetensors_header.h"

namespace moracle {

namespace {

constexpr std::uint64_t kFirstRead = 1024;  // prefix, or a whole git-LFS pointer

// The header is read into memory of our own: what was checked cannot change under a write to the file.
Result<SafetensorsHeader> read_header(const InputFile& file) {
  MORACLE_ASSIGN(const std::string start, file.read_start(std::min(file.size(), kFirstRead)));
  MORACLE_ASSIGN(const std::uint64_t length, header_length(std::as_bytes(std::span(start)), file.size(), file.path()));
  MORACLE_ASSIGN(const std::string whole, file.read_start(kSafetensorsPrefix + length));
  return parse_header(std::as_bytes(std::span(whole)), file.size(), file.path());
}

}  // namespace

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  MORACLE_ASSIGN(InputFile input, InputFile::open(path));
  MORACLE_ASSIGN(SafetensorsHeader header, read_header(input));
  SafetensorsFile file;
  MORACLE_ASSIGN(file.mapping_, MappedFile::map(std::move(input)));
  // By name: each goes to the end of the map, however the file orders them.
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.name < b.name; });
  for (TensorEntry& entry : header.tensors) {
    TensorView view{.name = entry.name,
                    .dtype = entry.dtype,
                    .shape = std::move(entry.shape),
                    .bytes = file.mapping_->bytes().subspan(header.data_start + entry.begin, entry.end - entry.begin),
                    .file = file.mapping_->path(),
                    .offset = header.data_start + entry.begin};
    file.tensors_.emplace_hint(file.tensors_.end(), std::move(entry.name), std::move(view));
  }
  return file;
}

const TensorView* SafetensorsFile::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace moracle
