// A model folder in memory, to be changed at will and written out again, valid or not.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moracle::test {

class MutableCheckpoint {
 public:
  struct Tensor {
    std::string dtype;  // as the header spells it
    Json shape;         // an array of anything, once it is changed
    std::vector<std::uint8_t> bytes;
  };

  // The config, the side files with quantization sections, and the tensors. A failure is recorded.
  static MutableCheckpoint read(const std::filesystem::path& folder);
  // Shards with contiguous tensors in the order of their names, the index rebuilt (where there are several shards and
  // `keep_index` is false), then what was asked for with after().
  void write(const std::filesystem::path& folder) const;

  Json config;
  std::map<std::string, Json> side_files;                       // "quantize_config.json", "hf_quant_config.json"
  std::map<std::string, std::map<std::string, Tensor>> shards;  // by file name
  Json index;                                                   // null where there is none
  bool keep_index = false;

  [[nodiscard]] bool has(const std::string& name) const;
  [[nodiscard]] Tensor& at(const std::string& name);
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::string shard_of(const std::string& name) const;  // empty when there is no such tensor
  void drop(const std::string& name);
  // All tensors whose name begins so.
  void drop_all(const std::string& prefix);
  void rename(const std::string& from, const std::string& to);
  void add(const std::string& name, std::string dtype, std::vector<std::int64_t> shape,
           std::vector<std::uint8_t> bytes);
  void add_zeros(const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape);
  void copy_all(const std::string& prefix, const std::string& to);
  template <class T>
  void poke(const std::string& name, std::size_t index_, T value) {
    std::memcpy(at(name).bytes.data() + index_ * sizeof value, &value, sizeof value);
  }
  // A value of the quantization section, in config.json and in the side files that have the key; null erases it.
  void quant(const std::string& pointer, const Json& value);
  // Something done to the written folder.
  void after(std::function<void(const std::filesystem::path&)> change) { after_.push_back(std::move(change)); }

 private:
  std::vector<std::function<void(const std::filesystem::path&)>> after_;
};

// Bytes of one element; 0 for a type that has none of its own.
[[nodiscard]] std::size_t dtype_bytes(const std::string& dtype);

}  // namespace moracle::test
