#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "base/memory.h"
#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/load.h"
#include "kernels/cuda/pack.h"

namespace moracle::cuda {

namespace {

std::size_t count(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

class Linear final : public PackedLinear {
 public:
  Linear(std::shared_ptr<Device> device, const LinearArgs& args) : device_(std::move(device)), args_(args) {}

  void hold(Buffer weights) {
    weights_ = std::move(weights);
    args_.pack.weights = reinterpret_cast<const std::uint8_t*>(weights_.data());
  }

  [[nodiscard]] std::size_t bytes() const override { return args_.pack.expert_bytes; }
  [[nodiscard]] std::size_t workspace_bytes(std::int64_t, int) const override { return 0; }

  Result<> reserve(std::int64_t tokens) const override {
    BumpArena counting = BumpArena::counting();
    LinearArgs args = args_;
    const Places places(counting, tokens, args);
    return device_->reserve_stage(counting.used(), counting.used() + BumpArena::kAlignment);
  }

  void run(const RunContext&, std::int64_t tokens, const float* x, float* y) const override {
    if (tokens == 0) return;
    Stage& stage = device_->stage();
    Stream& stream = stage.stream();
    LinearArgs args = args_;
    LinearArgs unused = args_;
    BumpArena pinned(stage.pinned());
    const Places host(pinned, tokens, unused);
    BumpArena scratch(stage.scratch());
    const Places there(scratch, tokens, args);
    const std::size_t outputs = count(tokens * args.matrix.rows);
    const auto fail = [&](Error error) {
      std::fill_n(y, outputs, std::numeric_limits<float>::quiet_NaN());
      stage.fail(std::move(error));
    };
    if (host.y.empty() || there.y.empty()) {
      fail({.code = "device.batch",
            .where = device_->name(),
            .wanted = "a batch that was reserved",
            .found = std::to_string(tokens) + " tokens"});
      return;
    }
    std::copy_n(x, host.x.size(), host.x.begin());
    stream.to_device(there.x.data(), host.x.data(), host.x.size_bytes());
    stream.launch("linear", device_->api().linear, args);
    stream.to_host(host.y.data(), there.y.data(), host.y.size_bytes());
    if (auto done = stream.wait(); !done.ok()) {
      fail(std::move(done).error());
      return;
    }
    std::copy(host.y.begin(), host.y.end(), y);
  }

 private:
  // Where one call finds inputs, outputs and scratch; sets the pointers of `args`.
  struct Places {
    std::span<float> x;
    std::span<float> y;

    Places(BumpArena& arena, std::int64_t tokens, LinearArgs& args) {
      const MatrixArgs& matrix = args.matrix;
      const InputKind input = args.pack.input;
      args.tokens = narrow<std::int32_t>(tokens);
      x = arena.take<float>(count(tokens * matrix.cols));
      args.x_codes = arena.take<std::uint16_t>(count(input_parts(input) * tokens * matrix.padded)).data();
      args.x_scales = arena.take<float>(count(tokens * input_groups(input, matrix.padded))).data();
      y = arena.take<float>(count(tokens * matrix.rows));
      args.x = x.data();
      args.y = y.data();
    }
  };

  std::shared_ptr<Device> device_;
  Buffer weights_;
  LinearArgs args_;
};

}  // namespace

Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions& options) {
  MORACLE_ASSIGN(const PackForm form, form_of(linear.scheme()));
  const MatrixSpec& spec = linear.weight->spec();
  LinearArgs args{};
  args.pack = {.weights = nullptr, .expert_bytes = 0, .code = form.code, .scale = form.scale, .input = form.input};
  std::uint64_t end = 0;
  MORACLE_ASSIGN(args.matrix, lay_out(spec, form, {.bias = !linear.bias.empty(), .order = !spec.g_idx.empty()}, end));
  args.pack.expert_bytes = end;
  if (options.layout_only) return std::unique_ptr<PackedLinear>(std::make_unique<Linear>(nullptr, args));
  MORACLE_ASSIGN(std::shared_ptr<Device> device, device_of(options.device));
  auto packed = std::make_unique<Linear>(device, args);
  const auto write = [&](std::int64_t, std::span<std::byte> block) {
    return pack_matrix(linear, form, args.matrix, block);
  };
  MORACLE_ASSIGN(Buffer weights, load_blocks(*device, options.pool, 1, end, write));
  packed->hold(std::move(weights));
  return std::unique_ptr<PackedLinear>(std::move(packed));
}

}  // namespace moracle::cuda
