#include "checkpoint/prefetcher.h"

#include <chrono>
#include <thread>

#include "checkpoint/checkpoint.h"
#include "unit/checkpoint/fixture.h"

namespace moracle {
namespace {

using Bytes = std::span<const std::byte>;

constexpr std::size_t kStep = std::size_t{1} << 20;
constexpr std::size_t kWindow = std::size_t{512} << 10;

class PrefetcherTest : public test::FolderTest {
 protected:
  void SetUp() override {
    put("config.json", "{}");
    put("model.safetensors",
        test::safetensors_text(test::braces(test::tensor_text("w", "U8", "[4194304]", "[0,4194304]")), 4 * kStep));
    auto opened = Checkpoint::open(folder_);
    ASSERT_TRUE(opened.ok()) << opened.error().message();
    checkpoint_ = *opened;
    const Bytes all = checkpoint_->find("w")->bytes;
    for (std::size_t at = 0; at < all.size(); at += kStep) {
      steps_.push_back({all.subspan(at + kStep / 2, kStep / 2), {}, all.subspan(at, kStep / 2)});
    }
  }
  // What was asked for once that no longer grows.
  static std::uint64_t settled(const Prefetcher& ahead, std::uint64_t wanted) {
    using std::chrono::milliseconds;
    for (int i = 0; i < 5000 && ahead.prefetched() < wanted; ++i) std::this_thread::sleep_for(milliseconds(1));
    std::this_thread::sleep_for(milliseconds(20));
    return ahead.prefetched();
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  Prefetcher::Steps steps_;
};

TEST_F(PrefetcherTest, AsksForTheStepAndTheWindowBeyondIt) {
  Prefetcher ahead(steps_, kWindow);
  EXPECT_EQ(settled(ahead, kStep + kWindow), kStep + kWindow);
  ahead.packed(0);
  EXPECT_EQ(settled(ahead, 2 * kStep + kWindow), 2 * kStep + kWindow);
  ahead.packed(3);
  EXPECT_EQ(settled(ahead, 4 * kStep), 4 * kStep);
}

TEST_F(PrefetcherTest, EndsBeforeAllIsRead) {
  {
    const Prefetcher ahead(steps_, 0);
  }
  {
    const Prefetcher ahead({}, 0);
  }
}

}  // namespace
}  // namespace moracle
