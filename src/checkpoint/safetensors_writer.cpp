#include "checkpoint/safetensors_writer.h"

#include <set>

#include "base/checked.h"
#include "base/json.h"
#include "base/printable.h"
#include "base/unicode/utf8.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/shard_index.h"

namespace moracle {

namespace {

constexpr std::uint64_t kDataAlignment = 8;

Error name_error(const std::string& path, const std::string& name) {
  return Error{.code = "header.syntax",
               .file = path,
               .where = in_quotes(name),
               .wanted = "a name in UTF-8 other than __metadata__",
               .found = "this one"};
}

std::string quoted(const std::string& name) {
  return Json(name).dump();  // throws on what is not UTF-8: checked by the callers
}

std::string entry_text(const TensorSpec& tensor, std::uint64_t begin, std::uint64_t end) {
  std::string shape;
  for (const std::int64_t dim : tensor.shape) {
    if (!shape.empty()) shape += ',';
    shape += std::to_string(dim);
  }
  return quoted(tensor.name) + ":{\"dtype\":\"" + std::string(to_string(tensor.dtype)) + "\",\"shape\":[" + shape +
         "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
}

struct Layout {
  std::string start;  // prefix and header
  std::vector<std::uint64_t> sizes;
  std::uint64_t data_bytes = 0;
};

Result<Layout> lay_out(const std::vector<TensorSpec>& tensors, const std::string& path) {
  Layout layout;
  std::set<std::string_view> names;
  std::string json = "{";
  for (const TensorSpec& tensor : tensors) {
    const auto with_place = [&](Error error) {
      error.file = path;
      error.where = in_quotes(tensor.name);
      return error;
    };
    if (!unicode::is_utf8(tensor.name) || tensor.name == "__metadata__") return name_error(path, tensor.name);
    if (!names.insert(tensor.name).second) {
      return with_place(Error{.code = "tensor.duplicate", .wanted = "each name once", .found = "a second one"});
    }
    auto size = tensor_bytes(tensor.dtype, tensor.shape);
    if (!size.ok()) return with_place(std::move(size).error());
    const auto end = checked_add(static_cast<std::int64_t>(layout.data_bytes), static_cast<std::int64_t>(*size));
    if (!end) return with_place(Error{.code = "shape.overflow", .wanted = "a file below 2^63 bytes", .found = "more"});
    if (json.size() > 1) json += ',';
    json += entry_text(tensor, layout.data_bytes, static_cast<std::uint64_t>(*end));
    layout.sizes.push_back(*size);
    layout.data_bytes = static_cast<std::uint64_t>(*end);
  }
  json += "}";
  while ((kSafetensorsPrefix + json.size()) % kDataAlignment != 0) json += ' ';
  if (json.size() > kMaxHeaderBytes || tensors.size() > kMaxHeaderEntries) {
    return Error{.code = "header.length",
                 .file = path,
                 .wanted = "a header of at most " + std::to_string(kMaxHeaderBytes) + " bytes",
                 .found = std::to_string(json.size()) + " bytes for " + std::to_string(tensors.size()) + " tensors",
                 .advice = "spread the tensors over several files"};
  }
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i) {
    layout.start += static_cast<char>(static_cast<unsigned char>(json.size() >> (8 * i)));
  }
  layout.start += json;
  return layout;
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    std::vector<TensorSpec> tensors) {
  MORACLE_ASSIGN(Layout layout, lay_out(tensors, path.string()));
  MORACLE_ASSIGN(AtomicFile file, AtomicFile::create(path, layout.start.size() + layout.data_bytes));
  SafetensorsWriter writer(std::move(file));
  writer.tensors_ = std::move(tensors);
  writer.missing_ = std::move(layout.sizes);
  MORACLE_TRY(writer.file_.write(layout.start));
  return writer;
}

Result<> SafetensorsWriter::write(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return Ok{};
  const std::string next = current_ < tensors_.size() ? tensors_[current_].name : "";
  if (current_ >= tensors_.size() || next != name) {
    return Error{.code = "writer.order",
                 .file = file_.path(),
                 .where = in_quotes(name),
                 .wanted = current_ < tensors_.size() ? "bytes of " + in_quotes(next) : "no more bytes",
                 .found = std::to_string(bytes.size()) + " bytes of this tensor"};
  }
  if (bytes.size() > missing_[current_]) {
    return Error{.code = "writer.size",
                 .file = file_.path(),
                 .where = in_quotes(name),
                 .wanted = "at most " + std::to_string(missing_[current_]) + " more bytes",
                 .found = std::to_string(bytes.size()) + " bytes"};
  }
  MORACLE_TRY(file_.write(bytes));
  missing_[current_] -= bytes.size();
  if (missing_[current_] == 0) ++current_;
  return Ok{};
}

Result<> SafetensorsWriter::finish() {
  if (current_ < tensors_.size()) {
    return Error{.code = "writer.size",
                 .file = file_.path(),
                 .where = in_quotes(tensors_[current_].name),
                 .wanted = std::to_string(missing_[current_]) + " more bytes",
                 .found = "the end"};
  }
  return file_.commit();
}

Result<> write_shard_index(const std::filesystem::path& folder, const std::map<std::string, std::string>& weight_map,
                           std::uint64_t total_size) {
  const std::filesystem::path path = folder / kIndexName;
  MORACLE_ASSIGN(AtomicFile file, AtomicFile::create(path, 0));
  std::string text = "{\n  \"metadata\": {\"total_size\": " + std::to_string(total_size) + "},\n  \"weight_map\": {";
  const char* separator = "\n";
  for (const auto& [tensor, shard] : weight_map) {
    if (!unicode::is_utf8(tensor) || !unicode::is_utf8(shard)) return name_error(path.string(), tensor);
    text += separator + ("    " + quoted(tensor)) + ": " + quoted(shard);
    separator = ",\n";
  }
  MORACLE_TRY(file.write(text + "\n  }\n}\n"));
  return file.commit();
}

}  // namespace moracle
