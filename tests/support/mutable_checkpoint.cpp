#include "support/mutable_checkpoint.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "checkpoint/safetensors_file.h"

namespace moracle::test {

namespace {

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Json parse_file(const std::filesystem::path& path) {
  Json json = Json::parse(read_bytes(path), nullptr, false);
  if (json.is_discarded()) ADD_FAILURE() << path << " is no JSON";
  return json;
}

std::uint64_t little_endian(const std::string& bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

std::map<std::string, MutableCheckpoint::Tensor> read_shard(const std::filesystem::path& path) {
  std::map<std::string, MutableCheckpoint::Tensor> tensors;
  const std::string bytes = read_bytes(path);
  const std::uint64_t size = little_endian(bytes);
  const Json header = Json::parse(bytes.begin() + 8, bytes.begin() + 8 + static_cast<std::ptrdiff_t>(size));
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = bytes.begin() + 8 + static_cast<std::ptrdiff_t>(size);
    tensors[name] = {.dtype = entry["dtype"],
                     .shape = entry["shape"],
                     .bytes = {begin + entry["data_offsets"][0].get<std::ptrdiff_t>(),
                               begin + entry["data_offsets"][1].get<std::ptrdiff_t>()}};
  }
  return tensors;
}

void write_shard(const std::filesystem::path& path, const std::map<std::string, MutableCheckpoint::Tensor>& tensors) {
  Json header{{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t end = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::uint64_t begin = end;
    end += tensor.bytes.size();
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t size = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&size), sizeof size);
  file << text;
  for (const auto& [name, tensor] : tensors)
    file.write(reinterpret_cast<const char*>(tensor.bytes.data()), static_cast<std::streamsize>(tensor.bytes.size()));
  if (!file.good()) ADD_FAILURE() << path << " could not be written";
}

void set_or_erase(Json& section, const std::string& pointer, const Json& value) {
  const Json::json_pointer at(pointer);
  if (!value.is_null()) {
    section[at] = value;
    return;
  }
  const Json::json_pointer parent = at.parent_pointer();
  if (section.contains(parent)) section[parent].erase(at.back());
}

}  // namespace

std::size_t dtype_bytes(const std::string& dtype) {
  static const std::map<std::string, std::size_t> kBytes{{"F32", 4},     {"I32", 4},    {"I64", 8}, {"F16", 2},
                                                         {"BF16", 2},    {"I16", 2},    {"U8", 1},  {"I8", 1},
                                                         {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  const auto found = kBytes.find(dtype);
  return found == kBytes.end() ? 0 : found->second;
}

MutableCheckpoint MutableCheckpoint::read(const std::filesystem::path& folder) {
  MutableCheckpoint checkpoint;
  checkpoint.config = parse_file(folder / "config.json");
  for (const char* name : {"quantize_config.json", "hf_quant_config.json"})
    if (std::filesystem::exists(folder / name)) checkpoint.side_files[name] = parse_file(folder / name);
  if (std::filesystem::exists(folder / "model.safetensors.index.json"))
    checkpoint.index = parse_file(folder / "model.safetensors.index.json");
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("model") && name.ends_with(".safetensors")) checkpoint.shards[name] = read_shard(entry.path());
  }
  EXPECT_FALSE(checkpoint.shards.empty()) << folder;
  return checkpoint;
}

void MutableCheckpoint::write(const std::filesystem::path& folder) const {
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config.dump(1);
  for (const auto& [name, json] : side_files) std::ofstream(folder / name) << json.dump(1);
  Json rebuilt = index;
  if (!index.is_null() && !keep_index) rebuilt["weight_map"] = Json::object();
  for (const auto& [file, tensors] : shards) {
    write_shard(folder / file, tensors);
    if (index.is_null() || keep_index) continue;
    for (const auto& [name, tensor] : tensors) rebuilt["weight_map"][name] = file;
  }
  if (!index.is_null()) std::ofstream(folder / "model.safetensors.index.json") << rebuilt.dump();
  for (const auto& change : after_) change(folder);
}

std::string MutableCheckpoint::shard_of(const std::string& name) const {
  for (const auto& [file, tensors] : shards)
    if (tensors.contains(name)) return file;
  return "";
}

bool MutableCheckpoint::has(const std::string& name) const {
  return !shard_of(name).empty();
}

MutableCheckpoint::Tensor& MutableCheckpoint::at(const std::string& name) {
  static Tensor nothing;
  const std::string file = shard_of(name);
  if (!file.empty()) return shards[file][name];
  ADD_FAILURE() << "no tensor " << name;
  nothing = {.dtype = "F32", .shape = {1}, .bytes = std::vector<std::uint8_t>(64)};
  return nothing;
}

std::vector<std::string> MutableCheckpoint::names() const {
  std::vector<std::string> all;
  for (const auto& [file, tensors] : shards)
    for (const auto& [name, tensor] : tensors) all.push_back(name);
  return all;
}

void MutableCheckpoint::drop(const std::string& name) {
  EXPECT_TRUE(has(name)) << name;
  shards[shard_of(name)].erase(name);
}

void MutableCheckpoint::drop_all(const std::string& prefix) {
  for (const std::string& name : names())
    if (name.starts_with(prefix)) drop(name);
}

void MutableCheckpoint::rename(const std::string& from, const std::string& to) {
  Tensor moved = std::move(at(from));
  auto& shard = shards[shard_of(from)];
  shard.erase(from);
  shard[to] = std::move(moved);
}

void MutableCheckpoint::add(const std::string& name, std::string dtype, std::vector<std::int64_t> shape,
                            std::vector<std::uint8_t> bytes) {
  const std::string file = has(name) ? shard_of(name) : shards.begin()->first;
  shards[file][name] = {.dtype = std::move(dtype), .shape = std::move(shape), .bytes = std::move(bytes)};
}

void MutableCheckpoint::add_zeros(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape) {
  std::size_t bytes = dtype_bytes(dtype);
  for (const std::int64_t dim : shape) bytes *= static_cast<std::size_t>(dim);
  add(name, dtype, std::move(shape), std::vector<std::uint8_t>(bytes));
}

void MutableCheckpoint::copy_all(const std::string& prefix, const std::string& to) {
  for (const std::string& name : names())
    if (name.starts_with(prefix)) shards[shard_of(name)][to + name.substr(prefix.size())] = at(name);
}

void MutableCheckpoint::quant(const std::string& pointer, const Json& value) {
  set_or_erase(config["quantization_config"], pointer, value);
  const std::string key = pointer.substr(1, pointer.find('/', 1) - 1);
  for (auto& [name, json] : side_files) {
    Json& section = json.contains("quantization") ? json["quantization"] : json;
    if (section.contains(key)) set_or_erase(section, pointer, value);
  }
}

}  // namespace moracle::test
