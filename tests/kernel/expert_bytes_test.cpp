// Packs are expert by expert, and hold no address: an expert's bytes are the same whichever place it has, and wherever
// the pack lies.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "kernels/kernel.h"
#include "oracle/scheme_rule.h"
#include "support/random_experts.h"
#include "support/test_device.h"

namespace moracle {
namespace {

std::vector<std::byte> bytes_of(const PackedExperts& packed, std::int64_t index,
                                const std::shared_ptr<GpuDevice>& device) {
  const std::span<const std::byte> there = packed.expert(index);
  std::vector<std::byte> here(there.size());
  if (device == nullptr) {
    std::copy(there.begin(), there.end(), here.begin());
  } else {
    auto stream = device->make_stream();
    EXPECT_TRUE(stream.ok());
    stream->to_host(here.data(), there.data(), there.size());
    EXPECT_TRUE(stream->wait().ok());
  }
  return here;
}

TEST(ExpertBytes, AreTheSameInAnyPlace) {
  const QuantKey int4{
      .element = Element::int4, .scale = ScaleType::bf16, .granularity = Granularity::group(32), .symmetric = true};
  const QuantKey mxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
  ThreadPool pool(2);
  std::mt19937 rng(11);
  std::set<std::string_view> backends;
  for (const QuantKey& key : {int4, mxfp4, QuantKey{.element = Element::bf16}}) {
    const CanonicalExperts experts =
        test::random_experts({.key = key, .experts = 3, .hidden = 192, .intermediate = 64}, rng);
    CanonicalExperts turned = experts;
    std::rotate(turned.experts.begin(), turned.experts.begin() + 1, turned.experts.end());
    for (const TableRow& row : test::table_of(experts.scheme).rows) {
      const KernelCard& card = *row.card;
      const KernelImplementation* const kernel = find_implementation(card.id);
      const bool in_one_piece = card.kind == CardKind::native;
      const bool fits = std::any_of(card.schemes.begin(), card.schemes.end(), [&](const SchemeRule& rule) {
        return scheme_matches(rule, card.group_sizes, experts.scheme);
      });
      if (kernel == nullptr || !card.serves_experts || !in_one_piece || !fits || !test::runs_here(card)) continue;
      SCOPED_TRACE(card.id);
      const std::shared_ptr<GpuDevice> device = test::device_for(card);
      const auto packed = kernel->pack_experts(experts, {.pool = pool, .device = device});
      const auto other = kernel->pack_experts(turned, {.pool = pool, .device = device});
      ASSERT_TRUE(packed.ok()) << packed.error().message();
      ASSERT_TRUE(other.ok()) << other.error().message();
      std::size_t sum = 0;
      for (std::int64_t e = 0; e < 3; ++e) {
        const std::vector<std::byte> bytes = bytes_of(**packed, (e + 1) % 3, device);
        EXPECT_FALSE(bytes.empty());
        EXPECT_EQ(bytes, bytes_of(**other, e, device)) << e;
        EXPECT_NE(bytes, bytes_of(**other, (e + 1) % 3, device)) << "experts differ";
        sum += bytes.size();
      }
      EXPECT_EQ(sum, (*packed)->bytes());
      backends.insert(card.backend);
    }
  }
  EXPECT_TRUE(backends.contains("portable"));
  EXPECT_TRUE(backends.contains("sm90-stream"));
  EXPECT_TRUE(backends.contains("ref"));
  EXPECT_GE(backends.size(), 3U) << "no kernel of this CPU";
}

}  // namespace
}  // namespace moracle
