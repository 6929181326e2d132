// All tensors of a checkpoint that are no routed expert's, one after the other, decoded.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/edge/handles.h"
#include "api/layer/checkpoint.h"
#include "base/memory.h"

namespace moracle::api {

class DenseWalk {
 public:
  static constexpr Kind kKind = Kind::dense;
  // `bf16`: else f32. The pool's threads decode.
  DenseWalk(std::shared_ptr<OpenCheckpoint> checkpoint, std::shared_ptr<Pool> pool, bool bf16)
      : checkpoint_(std::move(checkpoint)), pool_(std::move(pool)), bf16_(bf16) {}

  struct Tensor {
    std::string name;
    std::vector<std::int64_t> shape;
    std::span<const std::byte> data;
  };
  [[nodiscard]] bool bf16() const { return bf16_; }
  [[nodiscard]] std::mutex& mutex() { return mutex_; }  // held while a tensor is decoded
  // Null: there are no more. The tensor is valid until the next call. Errors: those of reading.
  Result<const Tensor*> next();

 private:
  Result<> decode_matrix(const MatrixSource& source);
  Result<> make_room(std::vector<std::int64_t> shape);
  void store(std::span<const float> values, std::size_t at);

  std::shared_ptr<OpenCheckpoint> checkpoint_;
  std::shared_ptr<Pool> pool_;
  bool bf16_;
  std::mutex mutex_;
  std::size_t module_ = 0;
  std::vector<float> bias_;  // of the module before, which comes next
  std::string bias_name_;
  Tensor tensor_;
  PageBuffer data_;
};

}  // namespace moracle::api
