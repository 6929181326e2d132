// What a model computes beside its matrices, on one device. Arguments are plain structs (kernels/args), which the
// model's blocks build; their pointers belong to the device of the stream, numbers are f32, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "kernels/args/operations.h"
#include "kernels/kernel.h"

namespace moracle {

// Calls enqueue: they never block and never allocate.
class Ops {
 public:
  virtual ~Ops() = default;
  [[nodiscard]] virtual std::string_view name() const = 0;

  // Of a layer's share of a block of kKvBlock positions, which the operations lay out.
  [[nodiscard]] virtual std::int64_t block_bytes(const AttentionShape& shape, KvType kv) const = 0;
  [[nodiscard]] virtual std::int64_t block_bytes(const LatentAttentionShape& shape, KvType kv) const = 0;

  // What a call takes of its context, by the sizes of its arguments alone; others take none. Of the host, on a pool of
  // `threads`.
  [[nodiscard]] virtual std::size_t workspace(const RankArgs& args, int threads) const = 0;
  [[nodiscard]] virtual std::size_t workspace(const RouteArgs& args, int threads) const = 0;
  [[nodiscard]] virtual std::size_t workspace(const AttentionArgs& args, int threads) const = 0;
  [[nodiscard]] virtual std::size_t workspace(const LatentAttentionArgs& args, int threads) const = 0;
  [[nodiscard]] virtual std::size_t workspace(const DeltaRuleArgs& args, int threads) const = 0;
  [[nodiscard]] virtual std::size_t workspace(const SampleArgs& args, int threads) const = 0;
  [[nodiscard]] virtual std::size_t workspace(const IndexArgs& args, int threads) const = 0;

  // Whether the device computes calls of such shapes and pages. Errors: "device.operation"; of the host none.
  [[nodiscard]] virtual Result<> check(const RouteArgs& /*args*/) const { return Ok{}; }
  [[nodiscard]] virtual Result<> check(const AttentionArgs& /*args*/) const { return Ok{}; }
  [[nodiscard]] virtual Result<> check(const LatentAttentionArgs& /*args*/) const { return Ok{}; }
  [[nodiscard]] virtual Result<> check(const DeltaRuleArgs& /*args*/) const { return Ok{}; }

  // The same of an operation of the host alone, by its name.
  [[nodiscard]] virtual Result<> check_host_operation(std::string_view /*name*/) const { return Ok{}; }

#define MORACLE_OPERATION(name, Args) virtual void name(const RunContext& context, const Args& args) const = 0;
  MORACLE_OPERATIONS(MORACLE_OPERATION)
  MORACLE_HOST_OPERATIONS(MORACLE_OPERATION)
#undef MORACLE_OPERATION
};

// Of the host: the widest loops that the features allow, or the plain ones that go with the kernels of `ref`.
[[nodiscard]] const Ops& host_ops(CpuFeatures features);
[[nodiscard]] const Ops& ref_ops();

}  // namespace moracle
