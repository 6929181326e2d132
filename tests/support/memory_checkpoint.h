// A checkpoint made of tensors in memory, for tests of whatever reads one.
#pragma once

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "checkpoint/checkpoint.h"

namespace moracle::test {

class MemoryCheckpoint final : public Checkpoint {
 public:
  explicit MemoryCheckpoint(Json config = Json::object(), std::filesystem::path folder = "/nowhere")
      : config_(std::move(config)), folder_(std::move(folder)) {}

  void add(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape, std::span<const std::byte> bytes) {
    auto copy = std::make_unique<std::vector<std::byte>>(bytes.begin(), bytes.end());
    tensors_[name] = TensorView{.name = name,
                                .dtype = dtype,
                                .shape = std::move(shape),
                                .bytes = *copy,
                                .file = (folder_ / "model.safetensors").string()};
    storage_.push_back(std::move(copy));
  }
  template <class T>
  void add(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape, const std::vector<T>& values) {
    add(name, dtype, std::move(shape), std::as_bytes(std::span(values)));
  }
  // As many zero bytes as the shape needs: for tests that only look at names and shapes.
  void add_zeros(const std::string& name, Dtype dtype, std::vector<std::int64_t> shape) {
    std::int64_t bits = bits_of(dtype);
    for (const std::int64_t dim : shape) bits *= dim;
    add(name, dtype, std::move(shape), std::vector<std::byte>(static_cast<std::size_t>(bits / 8)));
  }
  void remove(const std::string& name) { tensors_.erase(name); }
  // The bytes of a tensor, to be changed.
  [[nodiscard]] std::span<std::byte> bytes(const std::string& name) {
    const auto view = tensors_.at(name).bytes;
    return {const_cast<std::byte*>(view.data()), view.size()};
  }
  template <class T>
  void poke(const std::string& name, std::size_t index, T value) {
    std::memcpy(bytes(name).subspan(index * sizeof value, sizeof value).data(), &value, sizeof value);
  }
  Json& mutable_config() { return config_; }

  const std::filesystem::path& folder() const override { return folder_; }
  const Json& config() const override { return config_; }
  const std::map<std::string, TensorView, std::less<>>& tensors() const override { return tensors_; }
  std::uint64_t total_bytes() const override {
    std::uint64_t total = 0;
    for (const auto& [name, tensor] : tensors_) total += tensor.bytes.size();
    return total;
  }
  Result<> verify_unchanged() const override { return Ok{}; }
  void release(std::span<const std::byte> released) const override { released_ += released.size(); }
  [[nodiscard]] std::size_t released() const { return released_; }

 private:
  Json config_;
  std::filesystem::path folder_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::vector<std::unique_ptr<std::vector<std::byte>>> storage_;
  mutable std::size_t released_ = 0;
};

}  // namespace moracle::test
