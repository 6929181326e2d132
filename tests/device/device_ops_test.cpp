// What DeviceOps answers by itself: sizes, and refusals before a kernel is launched.
#include "kernels/device_ops.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/fake_device.h"

namespace moracle {
namespace {

// Over a device whose kernels do nothing but count.
class DeviceOpsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    launches = 0;
    fake_.kernels().attention = count<AttentionArgs>;
    fake_.kernels().latent_attention = count<LatentAttentionArgs>;
    fake_.kernels().delta_rule = count<DeltaRuleArgs>;
    fake_.kernels().route = count<RouteArgs>;
    auto device = GpuDevice::open(fake_.api(), 0);
    ASSERT_TRUE(device.ok());
    device_ = std::move(*device);
    auto stream = device_->make_stream();
    auto ops = device_ops(*device_);
    ASSERT_TRUE(stream.ok() && ops.ok());
    stream_ = std::move(*stream);
    ops_ = std::move(*ops);
  }

  template <class Args>
  static int count(void*, void*, const Args*, std::byte*) {
    ++launches;
    return 0;
  }

  // What a call fails with; empty: it was launched.
  template <class Args>
  std::string failure(void (Ops::*operation)(const RunContext&, const Args&) const, const Args& args,
                      std::size_t less = 0) {
    std::vector<std::byte> workspace(ops_->workspace(args, 1) - less);
    const int before = launches;
    (ops_.get()->*operation)({.stream = stream_, .workspace = workspace}, args);
    const Result<> waited = stream_.wait();
    EXPECT_EQ(launches - before, waited.ok() ? 1 : 0);
    if (less == 0) {
      EXPECT_EQ(ops_->check(args).ok(), waited.ok()) << "before a load as in a call";
    }
    return waited.ok() ? "" : waited.error().message();
  }

  static AttentionArgs attention(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                                 std::int64_t tokens) {
    return {
        .shape = {.heads = heads, .kv_heads = kv_heads, .head_dim = head_dim}, .kv = KvType::bf16, .tokens = tokens};
  }

  static inline int launches = 0;
  test::FakeDevice fake_;
  std::shared_ptr<GpuDevice> device_;
  Stream stream_;
  std::unique_ptr<Ops> ops_;
};

TEST_F(DeviceOpsTest, AttentionRefusesWhatItsKernelsDoNotServe) {
  EXPECT_EQ(failure(&Ops::attention, attention(64, 4, 256, 3)), "");
  AttentionArgs args = attention(4, 2, 64, 1);
  args.kv = KvType::f32;
  EXPECT_EQ(failure(&Ops::attention, args), "cuda:0: wanted keys and values in bf16, found f32 [device.operation]");
  args.kv = KvType::int8;
  EXPECT_EQ(failure(&Ops::attention, args), "cuda:0: wanted keys and values in bf16, found int8 [device.operation]");
  EXPECT_EQ(failure(&Ops::attention, attention(4, 2, 40, 1)),
            "cuda:0: wanted a head size of up to 256 in multiples of 16, found 40 [device.operation]");
  EXPECT_EQ(failure(&Ops::attention, attention(4, 2, 272, 1)),
            "cuda:0: wanted a head size of up to 256 in multiples of 16, found 272 [device.operation]");
  EXPECT_EQ(failure(&Ops::attention, attention(34, 2, 64, 1)),
            "cuda:0: wanted query heads of a key head of up to 16, found 17 [device.operation]");
}

TEST_F(DeviceOpsTest, FormsWithoutAKernelAreRefusedByName) {
  const auto refused = [&](auto change) {
    AttentionArgs args = attention(4, 2, 64, 1);
    change(args.shape);
    const std::string found = failure(&Ops::attention, args);
    const std::size_t at = found.find("found ");
    return at == std::string::npos ? found : found.substr(at);
  };
  EXPECT_EQ(refused([](AttentionShape& s) { s.wide_gate = true; }),
            "found gates of their own array [device.operation]");
  EXPECT_EQ(refused([](AttentionShape& s) { s.softplus_gates = true; }), "found softplus gates [device.operation]");
  EXPECT_EQ(refused([](AttentionShape& s) { s.chunked = true; }), "found windows side by side [device.operation]");
  EXPECT_EQ(refused([](AttentionShape& s) { s.pairwise = true; }), "found pairs side by side [device.operation]");
  EXPECT_EQ(refused([](AttentionShape& s) { s.norm_behind_rope = true; }),
            "found norms behind the rotation [device.operation]");
  EXPECT_EQ(refused([](AttentionShape& s) { s.scale = 1.0F; }), "found a scale of scores [device.operation]");
  EXPECT_EQ(refused([](AttentionShape& s) { s.value_eps = 1e-6F; }), "found norms without weights [device.operation]");
  EXPECT_EQ(refused([](AttentionShape& s) { s.position_scale.beta = 0.1F; }),
            "found queries scaled by position [device.operation]");
  EXPECT_EQ(refused([](AttentionShape&) {}), "");
  RouteArgs route{};
  route.shape.experts = 8;
  route.shape.biased_softmax = 1;
  EXPECT_EQ(failure(&Ops::route, route),
            "cuda:0: wanted a bias on logits or sigmoids, found on probabilities [device.operation]");
  route.shape.zero_experts = 2;
  EXPECT_EQ(failure(&Ops::route, route),
            "cuda:0: wanted experts with weights, found zero experts, which give what they read [device.operation]");
}

// Those of the host alone.
TEST_F(DeviceOpsTest, OperationsOfTheHostFailTheStream) {
  const std::string wanted = "cuda:0: wanted a kernel for softcap, found none in the device object [device.operation]";
  const Result<> asked = ops_->check_host_operation("softcap");
  ASSERT_FALSE(asked.ok());
  EXPECT_EQ(asked.error().message(), wanted);
  ops_->softcap({.stream = stream_, .workspace = {}}, {});
  const Result<> waited = stream_.wait();
  ASSERT_FALSE(waited.ok());
  EXPECT_EQ(waited.error().message(), wanted);
  EXPECT_EQ(launches, 0);
}

TEST_F(DeviceOpsTest, OthersRefuseSizesBeyondTheirs) {
  LatentAttentionArgs latents{.shape = {.heads = 3, .qk_rope_head_dim = 64, .kv_lora_rank = 512}, .kv = KvType::bf16};
  latents.tokens = 1;
  EXPECT_EQ(failure(&Ops::latent_attention, latents), "");
  latents.shape.kv_lora_rank = 520;
  EXPECT_EQ(failure(&Ops::latent_attention, latents),
            "cuda:0: wanted a latent of up to 512 in multiples of 16, found 520 [device.operation]");
  DeltaRuleArgs delta{.shape = {.key_heads = 1, .value_heads = 1, .key_dim = 256, .value_dim = 8}, .tokens = 1};
  EXPECT_EQ(failure(&Ops::delta_rule, delta), "");
  delta.shape.key_dim = 257;
  EXPECT_EQ(failure(&Ops::delta_rule, delta), "cuda:0: wanted a key head of up to 256, found 257 [device.operation]");
  delta.shape.key_dim = 256;
  delta.shape.decay_by_channel = true;
  EXPECT_EQ(failure(&Ops::delta_rule, delta), "cuda:0: wanted decays by head, found by channel [device.operation]");
  delta.shape.decay_by_channel = false;
  delta.shape.sigmoid_gate = true;
  EXPECT_EQ(failure(&Ops::delta_rule, delta),
            "cuda:0: wanted outputs gated by silu, found by sigmoid [device.operation]");
  latents.shape.kv_lora_rank = 512;
  latents.shape.rotated = false;
  EXPECT_EQ(failure(&Ops::latent_attention, latents),
            "cuda:0: wanted latent attention that turns by position, found one that does not [device.operation]");
  latents.shape.rotated = true;
  latents.shape.head_gate = true;
  EXPECT_EQ(failure(&Ops::latent_attention, latents),
            "cuda:0: wanted latent attention without gates, found gates by heads [device.operation]");
  RouteArgs route{};
  route.shape.experts = kMostRouted;
  EXPECT_EQ(failure(&Ops::route, route), "");
  route.shape.experts += 1;
  EXPECT_EQ(failure(&Ops::route, route), "cuda:0: wanted experts of up to 1024, found 1025 [device.operation]");
}

// A share of a block has whole units of 256 bytes, whatever the size of heads. Attention by grouped queries takes no
// workspace; that of latents is one for any call of fewer tokens, and a smaller one is refused.
TEST_F(DeviceOpsTest, SizesOfBlocksAndWorkspaces) {
  for (std::int64_t dim = 16; dim <= 256; dim += 16) {
    const AttentionShape shape{.heads = 6, .kv_heads = 3, .head_dim = dim};
    const std::int64_t bytes = ops_->block_bytes(shape, KvType::bf16);
    EXPECT_EQ(bytes % 256, 0) << dim;
    EXPECT_GE(bytes, 2 * shape.kv_width() * kKvBlock * 2) << dim;
    EXPECT_EQ(ops_->workspace(attention(6, 3, dim, 4096), 1), 0U) << dim;
  }
  LatentAttentionArgs args{.shape = {.heads = 2, .qk_rope_head_dim = 6, .kv_lora_rank = 48}, .kv = KvType::bf16};
  EXPECT_EQ(ops_->block_bytes(args.shape, KvType::bf16), 64 * 64 * 2);
  std::size_t last = 0;
  for (const std::int64_t tokens : {1, 2, 63, 64, 65, 4096}) {
    args.tokens = tokens;
    const std::size_t needed = ops_->workspace(args, 1);
    EXPECT_GE(needed, std::max<std::size_t>(last, 1));
    last = needed;
    EXPECT_EQ(failure(&Ops::latent_attention, args, 1), "cuda:0: wanted a workspace of " + std::to_string(needed) +
                                                            " bytes, found " + std::to_string(needed - 1) +
                                                            " [device.operation]");
  }
}

}  // namespace
}  // namespace moracle
