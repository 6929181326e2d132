// What a kernel implementation offers: it packs canonical weights once, at load, and the packed layer runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/gpu_device.h"
#include "kernels/args/rank.h"
#include "oracle/card.h"
#include "oracle/decide.h"
#include "scheme/canonical.h"
#include "scheme/glu.h"

namespace moracle {

class ExpertStore;
class PersistentScratch;
class UploadBuffer;

// What a forward pass finds wrong with its tokens, in memory of the stream's device: read once, when the pass is done.
struct DeviceStatus {
  static constexpr std::int32_t kRouted = 0x7F7F7F7F;  // what Stream::fill() writes with kRoutedByte
  static constexpr int kRoutedByte = 0x7F;
  static constexpr std::int32_t kUnread = -1;  // in place of a layer: an expert of the token could not be read
  std::int32_t* bad_layer = nullptr;           // [tokens]: the first layer that could not route the token, or kRouted
};

// The hot path's surroundings. Workspace is memory of the stream's device; it was sized by workspace_bytes and is
// reused from layer to layer.
struct RunContext {
  Stream& stream;
  std::span<std::byte> workspace;
  const DeviceStatus* status = nullptr;  // null: nobody asks

  [[nodiscard]] ThreadPool& pool() const { return stream.pool(); }  // of the host's stream
  // Of the host's stream; of a device 0, which sizes of workspaces do not depend on.
  [[nodiscard]] int threads() const { return stream.on_host() ? stream.pool().threads() : 0; }
};

// Numbers that a run reads, in memory of the stream's device: rows one behind the other, as wide as the kernel's input.
class ConstActivations {
 public:
  ConstActivations() = default;
  ConstActivations(const float* data) : data_(data) {}  // NOLINT(google-explicit-constructor): the type is in the name
  ConstActivations(const void* data, Element type) : data_(data), type_(type) {}

  [[nodiscard]] Element type() const { return type_; }
  [[nodiscard]] const void* data() const { return data_; }
  [[nodiscard]] const float* f32() const { return static_cast<const float*>(data_); }

 private:
  const void* data_ = nullptr;
  Element type_ = Element::f32;
};

// The same, that a run writes.
class Activations {
 public:
  Activations() = default;
  Activations(float* data) : data_(data) {}  // NOLINT(google-explicit-constructor): the type is in the name
  Activations(void* data, Element type) : data_(data), type_(type) {}

  [[nodiscard]] Element type() const { return type_; }
  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] float* f32() const { return static_cast<float*>(data_); }

 private:
  void* data_ = nullptr;
  Element type_ = Element::f32;
};

// Tokens of one call with their routing, in memory of the stream's device.
struct ExpertsInput {
  std::int64_t tokens = 0;
  std::int64_t top_k = 0;
  ConstActivations x{};               // [tokens, hidden]
  const std::int32_t* ids = nullptr;  // [tokens, top_k], 0 <= id < experts, or -1: contributes nothing
  const float* weights = nullptr;     // [tokens, top_k]
};

// The routed experts of one layer in a kernel's own layout, in the memory of one device.
class PackedExperts {
 public:
  virtual ~PackedExperts() = default;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  // Where the weights of one expert lie in the memory of the pack's device: bytes without an address in them, the same
  // wherever they lie. Empty: not in one piece.
  [[nodiscard]] virtual std::span<const std::byte> expert(std::int64_t /*index*/) const { return {}; }
  // What an ExpertStore keeps of one expert; 0: the kernel packs all at once, and needs them.
  [[nodiscard]] virtual std::size_t slot_bytes() const { return 0; }
  // Enough for any call of at most `tokens` tokens; of the host, on a pool of `threads`.
  [[nodiscard]] virtual std::size_t workspace_bytes(std::int64_t tokens, std::int64_t top_k, int threads) const = 0;
  // What its kernels keep on the device from call to call, one memory for all packs.
  [[nodiscard]] virtual std::size_t kept_bytes() const { return 0; }
  // out[tokens, hidden] = sum over the chosen experts of weight * w2(act(w13 x)). Overwrites `out`. Enqueues on a
  // stream of the pack's device: never blocks, never allocates, may be captured. All kernels take and give f32. What
  // goes wrong on a device, the stream's wait() tells; `out` is no answer then. A pack whose experts are in a store
  // waits for them; a token of which one could not be read has DeviceStatus::kUnread, and no answer.
  virtual void run(const RunContext& context, const ExpertsInput& input, const Activations& out) const = 0;
};

inline constexpr std::int64_t kMaxHeadTopK = 64;

// Which outputs of each row of a batch are wanted.
struct TopKQuery {
  std::int64_t tokens = 0;
  const float* x = nullptr;  // [tokens, in]
  std::int64_t k = 1;        // up to kMaxHeadTopK, and no more than there are outputs
  // [tokens], or null. With seeds, output i of token t ranks by value / temperature + gumbel(seeds[t], i), so
  // that its first is a draw from the softmax of all outputs.
  const std::uint64_t* seeds = nullptr;
  double temperature = 1.0;
};

class PackedLinear;
// One of several linears that read the same rows, and where its own go: y[tokens, out].
struct LinearRun {
  const PackedLinear* linear = nullptr;
  Activations y{};
};

// One linear layer: y[tokens, out] = x[tokens, in] W^T + bias.
class PackedLinear {
 public:
  virtual ~PackedLinear() = default;
  [[nodiscard]] virtual std::size_t bytes() const = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes(std::int64_t tokens, int threads) const = 0;
  virtual void run(const RunContext& context, std::int64_t tokens, const ConstActivations& x,
                   const Activations& y) const = 0;
  // Fused linears: what run() of each would do, the first of which is this one's. The workspace is enough for each
  // alone.
  virtual void run_fused(const RunContext& context, std::span<const LinearRun> linears, std::int64_t tokens,
                         const ConstActivations& x) const {
    for (const LinearRun& of : linears) of.linear->run(context, tokens, x, of.y);
  }
  // Whether top_k() may know, at less cost than run().
  [[nodiscard]] virtual bool has_top_k() const { return false; }
  // out[tokens, k]: the outputs that run() would give and that rank highest, best first, of equal ones the lower row
  // first. False: only run() can tell.
  [[nodiscard]] virtual bool top_k(const RunContext& /*context*/, const TopKQuery& /*query*/,
                                   std::span<RankedOutput> /*out*/) const {
    return false;
  }
};

struct PackOptions {
  ThreadPool& pool;
  ActivationSpec activation{};  // of experts
  // Lays out without reading or storing a weight: what comes back tells its bytes and workspace, and must not run.
  bool layout_only = false;
  // One accumulation order for every batch, of a card that promises it: where a kernel has several, it takes one.
  bool batch_invariant = false;
  // Of experts: keeps them in place of the pack, which then has them read and packed in its runs; null: the pack holds
  // them. A pack that has no PackedExperts::slot_bytes() takes no notice.
  ExpertStore* store = nullptr;
  // Of a linear: top_k() will be asked for. A kernel may pack for it, or not.
  bool head = false;
  // Where kernels of a GPU put their packs; kernels of the host need none.
  std::shared_ptr<GpuDevice> device{};
  // What packs of a GPU share; null: each has its own.
  UploadBuffer* upload = nullptr;  // for the time of the pack
  std::shared_ptr<PersistentScratch> scratch{};
};

// The implementation behind a card; what a card does not serve is null. A card without one in this build is
// `not_built`. Of a `external` card it packs that kernel's layout and runs the packed bytes on this host, for proof: no
// decision takes it.
struct KernelImplementation {
  const KernelCard* card;
  Result<std::unique_ptr<PackedExperts>> (*pack_experts)(const CanonicalExperts&, const PackOptions&);
  Result<std::unique_ptr<PackedLinear>> (*pack_linear)(const CanonicalLinear&, const PackOptions&);
};

// Null when this build has no implementation of the card.
[[nodiscard]] const KernelImplementation* find_implementation(std::string_view card_id);

// The priority table that serves a scheme. Errors: "oracle.no_table" when no table knows the scheme.
[[nodiscard]] Result<const Table*> table_for(const Scheme& scheme);
[[nodiscard]] std::span<const Table* const> all_tables();

}  // namespace moracle
