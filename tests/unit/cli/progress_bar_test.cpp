#include "cli/progress_bar.h"

#include <gtest/gtest.h>

namespace moracle::cli {
namespace {

constexpr Progress kHalf{.label = "loading", .done = 8e9, .total = 15.9e9, .of_bytes = true, .seconds = 7.3};

TEST(ProgressBar, TellsAmountRateAndTimeLeftAtEveryWidth) {
  EXPECT_EQ(progress_bar(kHalf, 200),
            "loading [" + std::string(16, '#') + std::string(16, ' ') + "]  50 %  8.0 of 15.9 GB  1.1 GB/s  7 s left");
  EXPECT_EQ(progress_bar(kHalf, 80),
            "loading [" + std::string(13, '#') + std::string(14, ' ') + "]  50 %  8.0 of 15.9 GB  1.1 GB/s  7 s left");
  EXPECT_EQ(progress_bar(kHalf, 60), "loading [###    ]  50 %  8.0 of 15.9 GB  1.1 GB/s  7 s left");
  Progress slow = kHalf;
  slow.done = 100.1e9;
  slow.total = 159.9e9;
  slow.seconds = 180;
  EXPECT_EQ(progress_bar(slow, 60), "loading  63 %  100.1 of 159.9 GB  556 MB/s  1 min 48 s left");
}

TEST(ProgressBar, IsAlwaysNarrowerThanTheScreen) {
  for (std::size_t width = 40; width < 120; ++width) {
    for (const double done : {0.0, 1.0, 5e8, 7.7e9, 15.9e9}) {
      for (const double seconds : {0.0, 1.0, 100.0, 4000.0, 1e9}) {
        const std::string text = progress_bar(
            {.label = "loading", .done = done, .total = 15.9e9, .of_bytes = true, .seconds = seconds}, width);
        EXPECT_LT(text.size(), width) << text;
        EXPECT_NE(text.find(" %"), std::string::npos) << text;
      }
    }
  }
}

TEST(ProgressBar, WordsOfTimeAndRate) {
  const auto shown = [](double done, double total, double seconds) {
    const std::string text =
        progress_bar({.label = "", .done = done, .total = total, .of_bytes = true, .seconds = seconds}, 200);
    return text.substr(text.find("%") + 3);
  };
  EXPECT_EQ(shown(1e6, 61e6, 1), "1.0 of 61.0 MB  1 MB/s  1 min 00 s left");
  EXPECT_EQ(shown(1e9, 1e12, 1), "1.0 of 1000.0 GB  1.0 GB/s  16 min left");
  EXPECT_EQ(shown(1e9, 2e12, 4), "1.0 of 2000.0 GB  250 MB/s  2 h 13 min left");
  EXPECT_EQ(shown(1e9, 2e9, 0.4), "1.0 of 2.0 GB") << "too early to judge";
  EXPECT_EQ(shown(0, 2e9, 9), "0.0 of 2.0 GB");
}

TEST(ProgressBar, OfASharesTellsThePercentageAlone) {
  EXPECT_EQ(progress_bar({.label = "packing", .done = 1, .total = 3, .seconds = 9}, 80),
            "packing [" + std::string(10, '#') + std::string(22, ' ') + "]  33 %");
  EXPECT_EQ(progress_bar({.label = "packing"}, 80), "packing [" + std::string(32, ' ') + "]   0 %");
}

}  // namespace
}  // namespace moracle::cli
