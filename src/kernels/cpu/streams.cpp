#include "kernels/cpu/streams.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string_view>

#include "base/checked.h"
#include "kernels/cpu/calibrate.h"

namespace moracle::cpu {

namespace {

constexpr std::int64_t kMeasured = std::int64_t{64}
                                   << 20U;               // bytes; what lies in front of the last ones is out of cache
constexpr std::int64_t kPiece = std::int64_t{2} << 20U;  // read by one thread at a time
constexpr int kMany = 8;
constexpr double kClear = 1.1;  // a gain that is not noise

enum class Mode : int { unknown, one, many };

Mode from_environment() {
  const char* text = std::getenv("MORACLE_STREAMS");  // NOLINT(concurrency-mt-unsafe): nothing here sets variables
  if (text == nullptr) return Mode::unknown;
  if (std::string_view(text) == "one") return Mode::one;
  return std::string_view(text) == "many" ? Mode::many : Mode::unknown;
}

std::atomic<Mode>& mode() {
  static std::atomic<Mode> value{from_environment()};
  return value;
}

double seconds_to_read(std::span<const std::byte> weights, ThreadPool& pool, int streams) {
  std::atomic<std::uint64_t> sum{0};  // kept, so that no read is left out
  const auto start = std::chrono::steady_clock::now();
  pool.parallel_for(narrow<std::int64_t>(weights.size()) / kPiece, [&](std::int64_t piece, int) {
    sum += kAvx2Calibration.read(weights.data() + piece * kPiece, kPiece, streams);
  });
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool many_streams() {
  return mode().load(std::memory_order_relaxed) == Mode::many;
}

void choose_streams(bool many) {
  mode().store(many ? Mode::many : Mode::one);
}

void measure_streams(std::span<const std::byte> weights, ThreadPool& pool) {
  // Two parts, so that neither way of reading finds in a cache what the other has read.
  if (narrow<std::int64_t>(weights.size()) < 2 * kMeasured || mode().load() != Mode::unknown) return;
  const auto size = static_cast<std::size_t>(kMeasured);
  const double one = seconds_to_read(weights.first(size), pool, 1);
  const double many = seconds_to_read(weights.subspan(size, size), pool, kMany);
  mode().store(one > kClear * many ? Mode::many : Mode::one);
}

}  // namespace moracle::cpu
