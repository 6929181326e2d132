// Screens of heads: what they hold is what screen.h says, their bounds are bounds, and the largest product that a
// linear finds with them is the one that run() has, to the last bit and row.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/head_screen.h"
#include "kernels/kernel.h"
#include "machine/machine.h"
#include "scheme/codes.h"
#include "support/random_experts.h"

namespace moracle::cpu {
namespace {

using Values = std::vector<float>;

// How the weights of a case are made: the i-th of a row.
struct Weights {
  const char* name;
  std::function<float(std::mt19937&, std::int64_t row, std::int64_t column)> value;
};

float normal(std::mt19937& rng) {
  return std::normal_distribution<float>()(rng);
}

const std::vector<Weights>& kinds_of_weights() {
  static const std::vector<Weights> kinds = {
      {"normal", [](auto& rng, auto, auto) { return 0.02F * normal(rng); }},
      {"rows of every size",
       [](auto& rng, auto row, auto) { return std::ldexp(normal(rng), static_cast<int>(row % 60) - 40); }},
      {"columns of every size",
       [](auto& rng, auto, auto col) { return std::ldexp(normal(rng), static_cast<int>(col % 40) - 30); }},
      {"outliers", [](auto& rng, auto, auto) { return normal(rng) * (rng() % 97 == 0 ? 300.0F : 0.01F); }},
      {"few distinct rows",
       [](auto&, auto row, auto col) { return std::sin(static_cast<float>(row % 3 * 1000 + col)); }},
      {"zeros", [](auto&, auto, auto) { return 0.0F; }},
      {"subnormal", [](auto& rng, auto, auto) { return 1e-39F * normal(rng); }},
      {"too large to bound", [](auto& rng, auto, auto) { return 1e30F * normal(rng); }},
  };
  return kinds;
}

CanonicalLinear linear_of(const Weights& weights, std::int64_t rows, std::int64_t cols, Element element,
                          unsigned seed = 1) {
  std::mt19937 rng(seed);
  MatrixPanel all;
  all.rows = rows;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < cols; ++k) {
      const float value = weights.value(rng, r, k);
      all.values.push_back(element == Element::bf16 ? decode_bf16(encode_bf16(value)) : value);
    }
  }
  const MatrixSpec spec{.name = "head", .rows = rows, .cols = cols, .key = {.element = element}};
  return {.weight = std::make_shared<test::MemoryMatrix>(spec, all)};
}

// Activations of several kinds, each once.
std::vector<Values> activations(std::int64_t cols) {
  std::mt19937 rng(7);
  std::vector<Values> all;
  const auto add = [&](const std::function<float(std::int64_t)>& value) {
    Values x;
    for (std::int64_t k = 0; k < cols; ++k) x.push_back(value(k));
    all.push_back(std::move(x));
  };
  for (int i = 0; i < 4; ++i) add([&](auto) { return normal(rng); });
  add([&](auto) { return rng() % 2 == 0 ? 1.0F : -1.0F; });
  add([&](auto k) { return k == cols / 2 ? 1000.0F : 0.01F * normal(rng); });
  add([&](auto k) { return std::ldexp(normal(rng), -static_cast<int>(k % 100)); });
  add([&](auto) { return 1e-38F * normal(rng); });
  add([&](auto) { return 1e14F * normal(rng); });
  add([](auto) { return 0.0F; });
  return all;
}

// Of this machine's panel kernels.
std::vector<const KernelCard*> dense_cards() {
  std::vector<const KernelCard*> cards;
  const CpuFeatures features = probe_machine().cpu_features;
  for (const std::string_view isa : {"avx2", "avx512", "avx512bf16", "amx"}) {
    const KernelImplementation* const kernel = find_implementation("cpu." + std::string(isa) + ".dense");
    if (kernel == nullptr) {
      ADD_FAILURE() << isa;
    } else if ((kernel->card->cpu_features & ~features) == 0) {
      cards.push_back(kernel->card);
    }
  }
  return cards;
}

// A packed linear, and what it makes of one row.
class Packed {
 public:
  Packed(const KernelCard& card, const CanonicalLinear& linear, int threads = 2, PackStore* store = nullptr)
      : pool_(threads), rows_(linear.weight->spec().rows) {
    auto packed = find_implementation(card.id)->pack_linear(
        linear, {.pool = pool_, .store = store, .name = "head", .find_largest = true});
    EXPECT_TRUE(packed.ok());
    linear_ = std::move(*packed);
    workspace_ = std::move(*PageBuffer::allocate(linear_->workspace_bytes(1, threads)));
  }
  [[nodiscard]] const PackedLinear& operator*() const { return *linear_; }
  // Rows of the `most` largest, or none.
  std::vector<std::int64_t> largest(const Values& x, std::size_t most = 1) {
    std::vector<RankedOutput> found(most);
    if (!linear_->largest(context(), x.data(), found)) return {};
    const Values y = run(x);
    std::vector<std::int64_t> rows;
    for (const RankedOutput& output : found) {
      EXPECT_EQ(output.value, y[static_cast<std::size_t>(output.row)]);
      rows.push_back(output.row);
    }
    return rows;
  }
  Values run(const Values& x) {
    Values y(static_cast<std::size_t>(rows_));
    linear_->run(context(), 1, x.data(), y.data());
    return y;
  }

 private:
  RunContext context() { return {.pool = pool_, .workspace = {workspace_.data(), workspace_.size()}}; }

  ThreadPool pool_;
  std::int64_t rows_;
  std::unique_ptr<PackedLinear> linear_;
  PageBuffer workspace_;
};

std::vector<std::int64_t> first_largest(const Values& y, std::size_t most) {
  std::vector<std::int64_t> rows(y.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::sort(rows.begin(), rows.end(), [&](std::int64_t a, std::int64_t b) {
    const float of_a = y[static_cast<std::size_t>(a)];
    const float of_b = y[static_cast<std::size_t>(b)];
    return of_a > of_b || (of_a == of_b && a < b);
  });
  rows.resize(most);
  return rows;
}

TEST(Screens, FindTheRowThatRunHas) {
  ASSERT_FALSE(dense_cards().empty());
  for (const KernelCard* card : dense_cards()) {
    for (const Element element : {Element::bf16, Element::f32}) {
      for (const Weights& weights : kinds_of_weights()) {
        for (const auto& [rows, cols] : {std::pair<std::int64_t, std::int64_t>{1, 1}, {33, 40}, {700, 320}}) {
          SCOPED_TRACE(std::string(card->id) + ", " + weights.name + ", " + std::to_string(rows) + " rows");
          Packed packed(*card, linear_of(weights, rows, cols, element));
          ASSERT_TRUE((*packed).finds_largest());
          for (const Values& x : activations(cols)) {
            for (const std::int64_t most : {std::int64_t{1}, std::int64_t{20}, kMostLargest}) {
              if (most > rows) continue;
              const auto found = packed.largest(x, static_cast<std::size_t>(most));
              if (found.empty()) continue;  // run() is asked then
              const Values y = packed.run(x);
              ASSERT_TRUE(std::all_of(y.begin(), y.end(), [](float v) { return std::isfinite(v); }));
              ASSERT_EQ(found, first_largest(y, static_cast<std::size_t>(most)));
            }
          }
        }
      }
    }
  }
}

// Else the test above could pass with nothing found.
TEST(Screens, KnowWhatIsUsual) {
  for (const KernelCard* card : dense_cards()) {
    Packed packed(*card, linear_of(kinds_of_weights().front(), 700, 320, Element::bf16));
    for (std::size_t i = 0; i < 7; ++i)
      EXPECT_EQ(packed.largest(activations(320)[i]).size(), 1U) << card->id << " " << i;
  }
}

TEST(Screens, DoNotGuess) {
  for (const KernelCard* card : dense_cards()) {
    Packed packed(*card, linear_of(kinds_of_weights().front(), 64, 320, Element::bf16));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -1e30F}) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{31}, std::size_t{319}}) {
        Values x(320, 1.0F);
        x[place] = bad;
        EXPECT_TRUE(packed.largest(x).empty()) << card->id << " " << bad;
      }
    }
    Packed large(*card, linear_of(kinds_of_weights().back(), 64, 320, Element::bf16));
    EXPECT_TRUE(large.largest(Values(320, 1.0F)).empty()) << card->id;
  }
}

TEST(Screens, AnyNumberOfThreadsFindsTheSame) {
  const CanonicalLinear linear = linear_of(kinds_of_weights().front(), 5000, 128, Element::bf16);
  for (const KernelCard* card : dense_cards()) {
    Packed one(*card, linear, 1);
    Packed three(*card, linear, 3);
    for (const Values& x : activations(128)) EXPECT_EQ(one.largest(x, 20), three.largest(x, 20)) << card->id;
  }
}

TEST(Screens, AreForUnquantizedMatricesWithoutABias) {
  std::mt19937 rng(5);
  ThreadPool pool(1);
  for (const KernelCard* card : dense_cards()) {
    CanonicalLinear linear = linear_of(kinds_of_weights().front(), 64, 128, Element::bf16);
    const auto kernel = find_implementation(card->id);
    const auto without = kernel->pack_linear(linear, {.pool = pool});
    const auto with = kernel->pack_linear(linear, {.pool = pool, .find_largest = true});
    ASSERT_TRUE(without.ok() && with.ok());
    EXPECT_FALSE((*without)->finds_largest());
    EXPECT_EQ((*with)->bytes() - (*without)->bytes(), HeadScreen(64, 128).bytes());
    linear.bias.assign(64, 1.0F);
    const auto biased = kernel->pack_linear(linear, {.pool = pool, .find_largest = true});
    ASSERT_TRUE(biased.ok());
    EXPECT_FALSE((*biased)->finds_largest());
    EXPECT_FALSE((*biased)->largest({.pool = pool, .workspace = {}}, nullptr, {}));
  }
}

// Keeps packs in memory.
class Shelf : public PackStore {
 public:
  bool restore(std::string_view pack, std::span<std::byte> memory, ThreadPool&) override {
    const auto kept = packs.find(std::string(pack));
    if (kept == packs.end() || kept->second.size() != memory.size()) return false;
    std::copy(kept->second.begin(), kept->second.end(), memory.begin());
    ++restored;
    return true;
  }
  void keep(std::string_view pack, std::span<const std::byte> memory) override {
    packs[std::string(pack)].assign(memory.begin(), memory.end());
  }

  std::map<std::string, std::vector<std::byte>> packs;
  int restored = 0;
};

TEST(Screens, AreKeptBesideTheirMatrix) {
  const CanonicalLinear linear = linear_of(kinds_of_weights().front(), 700, 320, Element::bf16);
  for (const KernelCard* card : dense_cards()) {
    Shelf shelf;
    Packed packed(*card, linear, 2, &shelf);
    ASSERT_EQ(shelf.packs.size(), 2U);
    const auto all = shelf.packs;
    for (const auto& [name, bytes] : all) {  // one of them missing, either one, then none
      shelf.packs.erase(name);
      shelf.restored = 0;
      Packed again(*card, linear, 2, &shelf);
      EXPECT_EQ(shelf.restored, 1);
      EXPECT_EQ(shelf.packs, all) << name;
      for (const Values& x : activations(320)) EXPECT_EQ(again.largest(x), packed.largest(x));
    }
    shelf.restored = 0;
    Packed restored(*card, linear, 2, &shelf);
    EXPECT_EQ(shelf.restored, 2);
    for (const Values& x : activations(320)) EXPECT_EQ(restored.largest(x), packed.largest(x));
  }
}

// The same matrix as it would lie in a file, rows some columns apart.
class StoredBf16 final : public MatrixSource {
 public:
  StoredBf16(const MatrixSource& other, const MatrixPanel& all) : MatrixSource(other.spec()) {
    for (std::int64_t r = 0; r < spec_.rows; ++r) {
      for (std::int64_t k = 0; k < spec_.cols + 2; ++k)
        words_.push_back(k < spec_.cols ? encode_bf16(all.values[static_cast<std::size_t>(r * spec_.cols + k)])
                                        : 0x7FC0);
    }
  }
  Result<> read(std::int64_t, std::int64_t, MatrixPanel&) const override { return Error{.code = "not to be read"}; }
  std::optional<StoredWords> stored() const override {
    return StoredWords{
        .first = reinterpret_cast<const std::byte*>(words_.data()), .row_bytes = 2 * (spec_.cols + 2), .bits = 16};
  }

 private:
  std::vector<std::uint16_t> words_;
};

TEST(Screens, AreTheSameOfWordsOfAFile) {
  const CanonicalLinear decoded = linear_of(kinds_of_weights().front(), 70, 200, Element::bf16);
  MatrixPanel all;
  ASSERT_TRUE(decoded.weight->read(0, 70, all).ok());
  const CanonicalLinear stored{.weight = std::make_shared<StoredBf16>(*decoded.weight, all)};
  for (const KernelCard* card : dense_cards()) {
    Shelf of_decoded;
    Shelf of_stored;
    Packed first(*card, decoded, 2, &of_decoded);
    Packed second(*card, stored, 2, &of_stored);
    EXPECT_EQ(of_stored.packs, of_decoded.packs) << card->id;
  }
}

// The kernels against the layout's description.
class ScreenRows : public ::testing::Test {
 protected:
  static constexpr std::int64_t kBlocks = 3;
  static constexpr std::int64_t kCols = kBlocks * kScreenBlock;
  static constexpr std::int64_t kPanels = 3;
  static constexpr std::int64_t kCount = 70;  // rows, the last panel not full
  static constexpr std::int64_t kPanelBytes = screen_panel_bytes(kBlocks);
  static constexpr std::int64_t kFineRow = fine_row_bytes(kBlocks);

  ScreenRows() {
    std::mt19937 rng(11);
    for (float& w : weights_) w = normal(rng) * (rng() % 50 == 0 ? 10.0F : 1.0F);
    pack(pack_screen_row_avx2);
    for (std::int64_t k = 0; k < kCols; ++k) {
      codes_.push_back(static_cast<std::int8_t>(static_cast<int>(rng() % 255) - 127));
    }
    codes_[0] = codes_[1] = 127;
    for (std::int64_t g = 0; g < kCols / kScreenGroup; ++g) {
      scales_.push_back(0.01F * static_cast<float>(1 + rng() % 10));
      std::int32_t sum = 0;
      for (std::int64_t k = 0; k < kScreenGroup; ++k) {
        sum += codes_[static_cast<std::size_t>(g * kScreenGroup + k)];
      }
      start_.push_back(-16 * sum);
    }
    scales_.resize(scales_.size() + kScreenPadding);
    start_.resize(start_.size() + kScreenPadding);
  }

  void pack(void (*pack_row)(const ScreenRow&)) {
    for (std::int64_t r = 0; r < kCount; ++r) {
      pack_row({.weights = weights_.data() + r * kCols,
                .blocks = kBlocks,
                .panel = panels_.data() + r / 32 * kPanelBytes,
                .row = r % 32,
                .fine = fine_.data() + r * kFineRow,
                .scratch = scratch_.data()});
    }
  }

  static int byte(const std::vector<std::byte>& bytes, std::int64_t at) {
    return std::to_integer<int>(bytes[static_cast<std::size_t>(at)]);
  }
  // Block by block: 64 bytes of scales, then for each 64 columns and 16 rows two steps of five lines.
  int code(std::int64_t row, std::int64_t k) const {
    const std::int64_t step = row / 32 * kPanelBytes + k / 128 * (64 + 40 * 64) + 64 + k % 128 / 64 * 20 * 64 +
                              row % 32 / 16 * 10 * 64 + k % 64 / 32 * 5 * 64;
    const std::int64_t lane = step + row % 16 * 4 + k % 4;
    const std::int64_t line = k % 16 / 4;
    const int five = byte(panels_, lane + (1 + line) * 64);
    if (k % 32 < 16) return (five & 31) - 16;
    return (five >> 5) * 4 + (byte(panels_, lane) >> line * 2 & 3) - 16;
  }
  int fine(std::int64_t row, std::int64_t k) const {
    const int both = byte(fine_, row * kFineRow + k / 128 * 64 + k % 64);
    return (k % 128 < 64 ? both & 15 : both >> 4) - 8;
  }
  ScreenNorms norms(std::int64_t row) const {
    ScreenNorms norms;
    std::memcpy(&norms, fine_.data() + row * kFineRow + fine_norms_at(kBlocks), sizeof norms);
    return norms;
  }
  double scale(std::int64_t row, std::int64_t k) const {
    const int multiple = byte(fine_, row * kFineRow + kBlocks * 64 + k / 64);
    return multiple * static_cast<double>(norms(row).unit);
  }
  double weight(std::int64_t row, std::int64_t k) const {
    return static_cast<double>(weights_[static_cast<std::size_t>(row * kCols + k)]);
  }

  void expect_half_a_step() const {
    for (std::int64_t r = 0; r < kCount; ++r) {
      double error = 0;
      double norm = 0;
      double left = 0;
      for (std::int64_t k = 0; k < kCols; ++k) {
        const double step = scale(r, k);
        const double value = step * code(r, k);
        const double finer = value + step / 16 * fine(r, k);
        ASSERT_LE(std::abs(weight(r, k) - value), step * 0.5001) << r << " " << k;
        ASSERT_LE(std::abs(weight(r, k) - finer), step / 16 * 1.0001) << r << " " << k;  // 7 of 8 steps upwards
        error += std::pow(weight(r, k) - value, 2);
        norm += value * value;
        left += std::pow(weight(r, k) - finer, 2);
      }
      const ScreenNorms of_row = norms(r);
      const auto close = [](float found, double wanted) {
        EXPECT_GE(static_cast<double>(found), wanted);
        EXPECT_LE(static_cast<double>(found), 1.01 * wanted);
      };
      close(of_row.error, std::sqrt(error));
      close(of_row.norm, std::sqrt(norm));
      close(of_row.left, std::sqrt(left));
    }
  }

  // What a panel has of its rows too.
  void expect_copies() const {
    for (std::int64_t r = 0; r < kCount; ++r) {
      const std::int64_t panel = r / 32 * kPanelBytes;
      for (std::int64_t g = 0; g < 2 * kBlocks; ++g) {
        ASSERT_EQ(byte(panels_, panel + g / 2 * (64 + 40 * 64) + g % 2 * 32 + r % 32),
                  byte(fine_, r * kFineRow + kBlocks * 64 + g));
      }
      PanelNorms all;
      std::memcpy(&all, panels_.data() + panel + screen_norms_at(kBlocks), sizeof all);
      const auto of_panel = [&](const float(&values)[32]) { return values[r % 32]; };
      EXPECT_EQ(of_panel(all.unit), norms(r).unit);
      EXPECT_EQ(of_panel(all.error), norms(r).error);
      EXPECT_EQ(of_panel(all.norm), norms(r).norm);
    }
  }

  Values weights_ = Values(kCount * kCols);
  std::vector<std::byte> panels_ = std::vector<std::byte>(kPanels * kPanelBytes);
  std::vector<std::byte> fine_ = std::vector<std::byte>(kCount * kFineRow);
  Values scratch_ = Values(kBlocks * kScreenGroups);
  std::vector<std::int8_t> codes_;
  Values scales_;
  std::vector<std::int32_t> start_;
};

TEST_F(ScreenRows, HoldWeightsToHalfAStep) {
  expect_half_a_step();
  expect_copies();
  if (!has(probe_machine().cpu_features, CpuFeature::avx512)) GTEST_SKIP() << "AVX2 alone: this CPU lacks AVX-512";
  // Their norms sum in another order.
  const auto without_norms = [](std::vector<std::byte> bytes, std::int64_t at, std::int64_t stride) {
    for (auto row = bytes.begin(); row != bytes.end(); row += stride) std::fill(row + at, row + stride, std::byte{});
    return bytes;
  };
  const auto codes = [&] { return without_norms(panels_, screen_norms_at(kBlocks), kPanelBytes); };
  const auto finer = [&] { return without_norms(fine_, fine_norms_at(kBlocks), kFineRow); };
  const std::vector<std::byte> panels = codes();
  const std::vector<std::byte> fine = finer();
  panels_.assign(panels_.size(), std::byte{});
  fine_.assign(fine_.size(), std::byte{});
  pack(pack_screen_row_avx512);
  expect_half_a_step();
  expect_copies();
  EXPECT_EQ(codes(), panels);
  EXPECT_EQ(finer(), fine);
}

TEST_F(ScreenRows, BoundsAreProductsOfTheCodesAndMargins) {
  const CpuFeatures features = probe_machine().cpu_features;
  std::vector<void (*)(const ScreenArgs&)> kernels = {screen_panels_avx2};
  if (has(features, CpuFeature::avx512)) kernels.push_back(screen_panels_avx512);
  if (has(features, CpuFeature::avx512) && has(features, CpuFeature::avx512_vnni)) {
    kernels.push_back(screen_panels_vnni);
  }
  Values first;
  for (const auto kernel : kernels) {
    const ScreenInput x{.codes = codes_.data(), .scales = scales_.data(), .start = start_.data(), .blocks = kBlocks};
    const ScreenMargin margin{.per_error = 0.5F, .per_norm = 0.25F, .rest = 0.125F};
    const auto bounds = [&](bool streams) {
      Values out(kPanels * kScreenRows);
      kernel({.x = x,
              .margin = margin,
              .panels = panels_.data(),
              .count = kPanels,
              .after = panels_.data(),
              .out = out.data(),
              .streams = streams});
      return out;
    };
    const Values out = bounds(false);
    EXPECT_EQ(out, bounds(true));
    if (first.empty()) first = out;
    EXPECT_EQ(out, first);
    for (std::int64_t r = 0; r < kCount; ++r) {
      double wanted = 0;
      double finely = 0;
      double all = 0;
      for (std::int64_t k = 0; k < kCols; ++k) {
        const auto at = static_cast<std::size_t>(k);
        const double step =
            scale(r, k) / static_cast<double>(norms(r).unit) * static_cast<double>(scales_[at / kScreenGroup]);
        wanted += step * code(r, k) * codes_[at];
        finely += step * fine(r, k) * codes_[at];
        all += step * (std::abs(code(r, k)) + 16) * std::abs(codes_[at]);
      }
      const ScreenNorms of_row = norms(r);
      const double width = 0.5 * static_cast<double>(of_row.error) + 0.25 * static_cast<double>(of_row.norm) + 0.125;
      const auto unit = static_cast<double>(of_row.unit);
      EXPECT_NEAR(static_cast<double>(out[static_cast<std::size_t>(r)]), wanted * unit + width,
                  all * unit * 0x1p-20 + width * 0x1p-22);
      const float found = screen_row_finely(x, fine_.data() + r * kFineRow);
      EXPECT_NEAR(static_cast<double>(found), finely, all * 0x1p-20);
    }
  }
}

TEST_F(ScreenRows, WithoutABoundHaveAnInfiniteError) {
  weights_[40 * kCols] = 0x1p+27F;
  std::vector<void (*)(const ScreenRow&)> packers = {pack_screen_row_avx2};
  if (has(probe_machine().cpu_features, CpuFeature::avx512)) packers.push_back(pack_screen_row_avx512);
  for (const auto packer : packers) {
    pack(packer);
    for (std::int64_t r = 0; r < kCount; ++r) EXPECT_EQ(std::isinf(norms(r).error), r == 40) << r;
    expect_copies();
  }
}

// Products of the weights as double precision has them. A bound is above each, and by no more than what screen.h says.
TEST(ScreenBounds, HoldAndAreTight) {
  constexpr std::int64_t kRows = 400;
  constexpr std::int64_t kCols = 2048;
  const CanonicalLinear linear = linear_of(kinds_of_weights().front(), kRows, kCols, Element::bf16);
  MatrixPanel all;
  ASSERT_TRUE(linear.weight->read(0, kRows, all).ok());
  HeadScreen screen(kRows, kCols);
  auto memory = PageBuffer::allocate(screen.bytes());
  Fetched fetched;
  HeadScreen::Scratch scratch;
  ASSERT_TRUE(screen.pack(kAvx2Ops, *linear.weight, 0, kRows, {memory->data(), memory->size()}, fetched, scratch).ok());
  screen.take(std::move(*memory));
  const double deviation = 0.02 * std::sqrt(static_cast<double>(kCols));
  std::vector<std::byte> workspace(screen.query_bytes());
  for (const InputForm input : {InputForm::f32, InputForm::bf16}) {
    for (std::size_t i = 0; i < 4; ++i) {
      const Values x = activations(kCols)[i];
      BumpArena arena(workspace);
      const auto query = screen.prepare(x.data(), input, arena);
      ASSERT_TRUE(query.has_value());
      constexpr std::int64_t kPanels = (kRows + kScreenRows - 1) / kScreenRows;
      Values coarse(kPanels * kScreenRows);
      screen.bound(kAvx2Ops, *query, {.begin = 0, .end = kPanels, .after = 0}, false, coarse.data());
      Values fine = coarse;
      screen.narrow_bounds(*query, 0, kRows, -INFINITY, fine.data());
      double coarse_width = 0;
      double fine_width = 0;
      for (std::size_t r = 0; r < kRows; ++r) {
        double product = 0;
        for (std::size_t k = 0; k < kCols; ++k)
          product += static_cast<double>(all.values[r * kCols + k]) * static_cast<double>(x[k]);
        ASSERT_GE(static_cast<double>(coarse[r]), product);
        ASSERT_GE(static_cast<double>(fine[r]), product);
        coarse_width += (static_cast<double>(coarse[r]) - product) / deviation / kRows;
        fine_width += (static_cast<double>(fine[r]) - product) / deviation / kRows;
      }
      // Half a step, 2.63 / 30 of a weight (the largest of 64), is 1 / sqrt(3) of that at a time and sqrt(2048) times a
      // product's deviation together: 2.29. F leaves a sixteenth of it, and 1.09 times that since it ends at 7 of 8.
      // Activations in 8 bits add 0.27 and bf16 0.09, of a norm that is known to 1.05 with F. A tenth more, since
      // lengths of activations and weights differ from what is expected.
      EXPECT_LE(coarse_width, 1.1 * (2.29 + 0.36));
      EXPECT_LE(fine_width, 1.1 * (1.09 * 2.29 / 16 + 1.05 * 0.36));
    }
  }
}

}  // namespace
}  // namespace moracle::cpu
