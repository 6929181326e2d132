// Golden files: single safetensors files outside of a model folder.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <string>
#include <vector>

#include "checkpoint/safetensors_file.h"
#include "support/test_data.h"

namespace moracle::test {

class GoldenFile {
 public:
  // `name` without extension, below golden/ of the reference data.
  explicit GoldenFile(const std::string& name)
      : file_(SafetensorsFile::open(reference_dir() / "golden" / (name + ".safetensors"))) {
    if (!file_.ok()) ADD_FAILURE() << file_.error().message();
  }
  [[nodiscard]] bool ok() const { return file_.ok(); }
  // Null when there is no such tensor.
  [[nodiscard]] const TensorView* find(const std::string& name) const {
    return file_.ok() ? file_->find(name) : nullptr;
  }
  [[nodiscard]] const TensorView& at(const std::string& name) const {
    static const TensorView empty;
    const TensorView* tensor = file_.ok() ? file_->find(name) : nullptr;
    if (tensor == nullptr) ADD_FAILURE() << "golden file without tensor " << name;
    return tensor == nullptr ? empty : *tensor;
  }
  template <class T>
  [[nodiscard]] std::vector<T> values(const std::string& name) const {
    const TensorView& tensor = at(name);
    std::vector<T> values(tensor.bytes.size() / sizeof(T));
    std::memcpy(values.data(), tensor.bytes.data(), values.size() * sizeof(T));
    return values;
  }
  [[nodiscard]] std::vector<float> bf16(const std::string& name) const {
    std::vector<float> widened;
    for (const std::uint16_t code : values<std::uint16_t>(name))
      widened.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16));
    return widened;
  }
  // Part `index` of a tensor stacked along its first dimension.
  [[nodiscard]] TensorView part(const std::string& name, std::int64_t index) const {
    TensorView view = at(name);
    if (view.shape.empty()) return view;
    const std::size_t bytes = view.bytes.size() / static_cast<std::size_t>(view.shape[0]);
    view.bytes = view.bytes.subspan(static_cast<std::size_t>(index) * bytes, bytes);
    view.shape.erase(view.shape.begin());
    return view;
  }

 private:
  Result<SafetensorsFile> file_;
};

// Every bit alike, or the first difference with its index.
inline ::testing::AssertionResult same_bits(const std::vector<float>& found, const std::vector<float>& wanted) {
  if (found.size() != wanted.size())
    return ::testing::AssertionFailure() << found.size() << " values instead of " << wanted.size();
  for (std::size_t i = 0; i < found.size(); ++i)
    if (std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i]))
      return ::testing::AssertionFailure() << "element " << i << ": " << found[i] << " instead of " << wanted[i];
  return ::testing::AssertionSuccess();
}

}  // namespace moracle::test
