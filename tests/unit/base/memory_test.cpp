#include "base/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>

namespace moracle {
namespace {

TEST(PageBuffer, IsZeroedWritableAndMovable) {
  auto allocated = PageBuffer::allocate((std::size_t{4} << 20) + 5);
  ASSERT_TRUE(allocated.ok()) << allocated.error().message();
  PageBuffer buffer = std::move(allocated).value();
  EXPECT_EQ(buffer.size(), (std::size_t{4} << 20) + 5);
  EXPECT_TRUE(std::all_of(buffer.data(), buffer.data() + buffer.size(), [](std::byte b) { return b == std::byte{0}; }));
  buffer.data()[buffer.size() - 1] = std::byte{7};
  PageBuffer other = std::move(buffer);
  EXPECT_EQ(other.data()[other.size() - 1], std::byte{7});
  PageBuffer third;
  third = std::move(other);
  EXPECT_EQ(third.data()[third.size() - 1], std::byte{7});
}

// Threads that fill equal parts of whole huge pages must not meet inside one.
TEST(PageBuffer, BeginsOnAHugePage) {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  for (const std::size_t bytes : {kHugePage, kHugePage + 1, 3 * kHugePage - 4096, 5 * kHugePage}) {
    auto buffer = PageBuffer::allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer->data()) % kHugePage, 0U);
    EXPECT_EQ(buffer->size(), bytes);
    buffer->data()[0] = buffer->data()[bytes - 1] = std::byte{1};
  }
}

TEST(PageBuffer, OfNothingIsEmpty) {
  const auto buffer = PageBuffer::allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->size(), 0U);
}

TEST(PageBuffer, RefusesWhatTheSystemRefuses) {
  const auto buffer = PageBuffer::allocate(std::size_t{1} << 60);
  ASSERT_FALSE(buffer.ok());
  EXPECT_EQ(buffer.error().code, "memory.allocate");
  EXPECT_FALSE(buffer.error().advice.empty());
}

TEST(PeakResidentBytes, GrowsWithWhatIsTouched) {
  constexpr std::size_t kBytes = std::size_t{64} << 20;
  const std::size_t before = peak_resident_bytes();
  if (before == 0) GTEST_SKIP() << "the system does not tell";
  auto buffer = PageBuffer::allocate(kBytes);
  ASSERT_TRUE(buffer.ok());
  std::fill_n(buffer->data(), kBytes, std::byte{1});
  EXPECT_GE(peak_resident_bytes(), kBytes);
  EXPECT_GE(peak_resident_bytes(), before);
}

TEST(BumpArena, AlignsAndStopsAtTheEnd) {
  alignas(64) std::array<std::byte, 256> memory{};
  BumpArena arena(memory);
  const auto first = arena.take<float>(3);
  const auto second = arena.take<std::int64_t>(8);
  ASSERT_EQ(first.size(), 3U);
  ASSERT_EQ(second.size(), 8U);
  EXPECT_EQ(reinterpret_cast<std::byte*>(second.data()) - memory.data(), 64);
  EXPECT_TRUE(arena.take<float>(100).empty());
  EXPECT_EQ(arena.take<std::byte>(128).size(), 128U) << "a refused request takes nothing";
  EXPECT_TRUE(arena.take<std::byte>(1).empty());
}

TEST(BumpArena, CostCoversTheSameCalls) {
  const std::size_t cost = BumpArena::cost<float>(3) + BumpArena::cost<std::byte>(1) + BumpArena::cost<double>(5);
  auto memory = PageBuffer::allocate(cost);
  ASSERT_TRUE(memory.ok());
  BumpArena arena({memory->data(), memory->size()});
  EXPECT_FALSE(arena.take<float>(3).empty());
  EXPECT_FALSE(arena.take<std::byte>(1).empty());
  EXPECT_FALSE(arena.take<double>(5).empty());
}

}  // namespace
}  // namespace moracle
