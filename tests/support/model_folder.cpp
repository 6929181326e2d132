#include "support/model_folder.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <utility>

namespace moracle::test {

namespace {

constexpr std::array kFileNames = {"config.json", "quantize_config.json", "quant_config.json", "hf_quant_config.json"};
constexpr std::int64_t kMostExperts = 16;
constexpr std::size_t kMostTensors = 4096;

std::size_t bits_of(const std::string& dtype) {
  static const std::map<std::string, std::size_t> kBits{
      {"F64", 64}, {"F32", 32}, {"F16", 16},    {"BF16", 16},   {"I64", 64},   {"I32", 32},
      {"I16", 16}, {"I8", 8},   {"U64", 64},    {"U32", 32},    {"U16", 16},   {"U8", 8},
      {"BOOL", 8}, {"F4", 4},   {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8}};
  const auto found = kBits.find(dtype);
  return found == kBits.end() ? 8 : found->second;
}

// The size that the shape asks for; nothing where it is beyond `most`.
std::optional<std::size_t> bytes_of(const std::string& dtype, const Json& shape, std::size_t most) {
  std::size_t bits = bits_of(dtype);
  for (const Json& dim : shape) {
    if (!dim.is_number_integer()) return 1;
    const auto size = dim.get<std::int64_t>();
    if (size <= 0) return 0;
    if (static_cast<std::size_t>(size) > most * 8 / bits) return std::nullopt;
    bits *= static_cast<std::size_t>(size);
  }
  return bits / 8;
}

void repeat(std::string& bytes, const void* pattern, std::size_t size) {
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<const char*>(pattern)[i % size];
}

void fill_integers(std::string& bytes, const Json& values, std::size_t width) {
  const bool ramp = values.is_object() && values.contains("every") && values["every"].is_number_integer();
  const std::int64_t every = ramp ? values["every"].get<std::int64_t>() : 1;
  if (!ramp && (!values.is_array() || values.empty())) return;
  for (std::size_t i = 0; (i + 1) * width <= bytes.size(); ++i) {
    std::int64_t value = every > 0 ? static_cast<std::int64_t>(i) / every : 0;
    if (!ramp) {
      const Json& element = values[i % values.size()];
      value = element.is_number_integer() ? element.get<std::int64_t>() : 0;
    }
    std::memcpy(bytes.data() + i * width, &value, width);
  }
}

// Numbers that no reader refuses: finite, scales positive.
std::string weights(const std::string& name, const std::string& dtype, std::size_t size) {
  static constexpr std::array<float, 3> kScales32 = {0.01F, 0.02F, 0.015F};
  static constexpr std::array<float, 7> kValues32 = {0.05F, -0.07F, 0.02F, 0.11F, -0.03F, 0.09F, -0.1F};
  static constexpr std::array<std::uint16_t, 3> kScalesF16 = {0x211F, 0x251F, 0x23AE};
  static constexpr std::array<std::uint16_t, 3> kScalesBf16 = {0x3C24, 0x3CA4, 0x3C75};
  static constexpr std::array<std::uint16_t, 5> kValuesF16 = {0x2A66, 0xAC7B, 0x251F, 0x2F0A, 0xA7AE};
  static constexpr std::array<std::uint16_t, 5> kValuesBf16 = {0x3D4D, 0xBD8F, 0x3CA4, 0x3DE1, 0xBCF6};
  static constexpr std::array<std::uint8_t, 3> kScalesE4m3 = {0x38, 0x30, 0x34};
  static constexpr std::array<std::uint8_t, 3> kScalesE8m0 = {0x78, 0x79, 0x77};
  std::string bytes(size, '\0');
  const bool scale = name.find("scale") != std::string::npos;
  const auto of = [&](const auto& values) { repeat(bytes, values.data(), sizeof values); };
  if (dtype == "F32") {
    scale ? of(kScales32) : of(kValues32);
  } else if (dtype == "F16") {
    scale ? of(kScalesF16) : of(kValuesF16);
  } else if (dtype == "BF16") {
    scale ? of(kScalesBf16) : of(kValuesBf16);
  } else if (scale && dtype == "F8_E4M3") {
    of(kScalesE4m3);
  } else if (scale && (dtype == "U8" || dtype == "F8_E8M0")) {
    of(kScalesE8m0);
  } else {
    std::uint32_t state = 1;
    for (char& byte : bytes) {
      state = state * 1664525 + 1013904223;
      byte = static_cast<char>(state >> 24U);
      if (dtype == "F8_E4M3" && (byte & 0x7F) == 0x7F) byte = 0x38;
    }
  }
  return bytes;
}

struct Tensor {
  std::string name;
  const Json* entry;
};

std::vector<Tensor> tensors_of(const Json& description) {
  std::vector<Tensor> tensors;
  std::int64_t experts = 0;
  if (description.contains("experts") && description["experts"].is_number_integer())
    experts = std::min(description["experts"].get<std::int64_t>(), kMostExperts);
  for (const auto& [name, entry] : description["tensors"].items()) {
    const std::size_t mark = name.find("experts.#.");
    if (mark == std::string::npos) {
      tensors.push_back({name, &entry});
      continue;
    }
    for (std::int64_t expert = 0; expert < experts; ++expert) {
      std::string one = name;
      tensors.push_back({one.replace(mark + 8, 1, std::to_string(expert)), &entry});
    }
  }
  return tensors;
}

}  // namespace

std::optional<ModelFolder> make_folder(const Json& description, std::size_t most_bytes) {
  if (!description.is_object() || !description.contains("files") || !description["files"].is_object()) return {};
  if (!description.contains("tensors") || !description["tensors"].is_object()) return {};
  ModelFolder folder;
  for (const char* name : kFileNames)
    if (description["files"].contains(name))
      folder.files[name] = description["files"][name].dump(-1, ' ', false, Json::error_handler_t::replace);
  const std::vector<Tensor> tensors = tensors_of(description);
  if (tensors.size() > kMostTensors) return {};
  Json header = Json::object();
  std::string data;
  for (const auto& [name, entry] : tensors) {
    if (!entry->is_array() || entry->size() < 2 || !(*entry)[0].is_string() || !(*entry)[1].is_array()) continue;
    const std::string& dtype = (*entry)[0].get_ref<const std::string&>();
    const auto size = bytes_of(dtype, (*entry)[1], most_bytes);
    if (!size || *size > most_bytes - data.size()) return {};
    std::string bytes = weights(name, dtype, *size);
    if (entry->size() > 2)
      fill_integers(bytes, (*entry)[2], std::min<std::size_t>(8, std::max<std::size_t>(1, bits_of(dtype) / 8)));
    header[name] = {{"dtype", dtype}, {"shape", (*entry)[1]}, {"data_offsets", {data.size(), data.size() + *size}}};
    data += bytes;
  }
  const std::string text = header.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string file(8, '\0');
  const std::uint64_t length = text.size();
  std::memcpy(file.data(), &length, sizeof length);
  folder.files["model.safetensors"] = file + text + data;
  return folder;
}

void write_folder(const ModelFolder& folder, const std::filesystem::path& path) {
  for (const char* name : kFileNames)
    if (!folder.files.contains(name)) std::filesystem::remove(path / name);
  for (const auto& [name, text] : folder.files)
    std::ofstream(path / name, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

}  // namespace moracle::test
