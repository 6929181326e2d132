// What tests of operations share: a call whose arrays are restored before each run, and the host's definitions.
#pragma once

#include <bit>
#include <cstring>
#include <deque>

#include "base/thread_pool.h"
#include "device/kernels_fixture.h"
#include "kernels/ops.h"

namespace moracle {

// Arrays of one call. Outputs are NaN before it.
class CallArrays {
 public:
  explicit CallArrays(Stream& stream) : stream_(stream) {}

  template <class T>
  T* hold(const std::vector<T>& values) {
    if (values.empty()) return nullptr;
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return reinterpret_cast<T*>(add(std::move(bytes)));
  }
  template <class T>
  T* out(std::size_t count) {
    return reinterpret_cast<T*>(add(std::vector<std::byte>(count * sizeof(T), std::byte{0xFF})));
  }
  void restore() {
    for (const Held& held : held_) stream_.to_device(held.array.data(), held.bytes.data(), held.bytes.size());
    EXPECT_TRUE(stream_.wait().ok());
  }
  [[nodiscard]] std::vector<std::vector<std::byte>> read() const {
    std::vector<std::vector<std::byte>> all;
    for (const Held& held : held_) all.push_back(held.array.read(stream_));
    return all;
  }
  template <class T>
  [[nodiscard]] std::vector<T> read(const T* at) const {
    for (const Held& held : held_) {
      if (reinterpret_cast<const std::byte*>(at) != held.array.data()) continue;
      const std::vector<std::byte> bytes = held.array.read(stream_);
      std::vector<T> values(bytes.size() / sizeof(T));
      std::memcpy(values.data(), bytes.data(), bytes.size());
      return values;
    }
    ADD_FAILURE() << "no such array";
    return {};
  }

 private:
  struct Held {
    std::vector<std::byte> bytes;
    Array<std::byte> array;
  };

  std::byte* add(std::vector<std::byte> bytes) {
    Array<std::byte> array(bytes.size());
    std::byte* const at = array.data();
    held_.push_back({std::move(bytes), std::move(array)});
    return at;
  }

  Stream& stream_;
  std::deque<Held> held_;
};

class OperationsTest : public DeviceKernelsTest {
 protected:
  void SetUp() override {
    if (!test::has_gpu()) GTEST_SKIP() << "operations are held against the host's on a GPU";
    DeviceKernelsTest::SetUp();
    auto ops = device_ops(*test_device());
    ASSERT_TRUE(ops.ok()) << ops.error().message();
    ops_ = std::move(*ops);
  }

  template <class Args>
  using Operation = void (Ops::*)(const RunContext&, const Args&) const;

  template <class Args>
  static std::size_t workspace_of(const Ops& ops, const Args& args, int threads) {
    if constexpr (requires { ops.workspace(args, threads); }) {
      return ops.workspace(args, threads);
    } else {
      return 0;
    }
  }

  template <class Args>
  static void on_host(const Ops& ops, Operation<Args> operation, const Args& args) {
    static ThreadPool pool(static_cast<int>(std::thread::hardware_concurrency()));
    Stream stream(pool);
    std::vector<std::byte> workspace(workspace_of(ops, args, pool.threads()));
    (ops.*operation)({.stream = stream, .workspace = workspace}, args);
    ASSERT_TRUE(stream.wait().ok());
  }

  // Twice, then by a graph: the same bits each time.
  template <class Args>
  void on_device(CallArrays& arrays, Operation<Args> operation, const Args& args) {
    const std::size_t bytes = workspace_of(*ops_, args, 1);
    const Array<std::byte> workspace(std::max<std::size_t>(bytes, 1));
    const RunContext context{.stream = stream_, .workspace = {workspace.data(), bytes}};
    workspace.poison(stream_);
    arrays.restore();
    (ops_.get()->*operation)(context, args);
    const auto first = arrays.read();
    workspace.poison(stream_);
    arrays.restore();
    (ops_.get()->*operation)(context, args);
    EXPECT_TRUE(arrays.read() == first) << "another run gave other bits";
    auto graph = stream_.capture([&] { (ops_.get()->*operation)(context, args); });
    ASSERT_TRUE(graph.ok()) << graph.error().message();
    workspace.poison(stream_);
    arrays.restore();
    stream_.launch(*graph);
    EXPECT_TRUE(arrays.read() == first) << "a graph gave other bits";
  }

  std::vector<float> uniform_values(std::size_t count, float low, float high) {
    std::uniform_real_distribution<float> uniform(low, high);
    std::vector<float> values(count);
    for (float& value : values) value = uniform(rng_);
    return values;
  }
  std::int64_t drawn(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(rng_);
  }

  std::unique_ptr<Ops> ops_;
};

inline void expect_near(const std::vector<float>& found, const std::vector<float>& wanted, float bound,
                        const char* what) {
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    ASSERT_NEAR(found[i], wanted[i], bound * std::max(1.0F, std::fabs(wanted[i]))) << what << " " << i;
}

// The whole by its norm, and every row by its own or the usual one: a row that is wrong does not hide among others.
inline void expect_rows_near(const std::vector<float>& found, const std::vector<float>& wanted, std::size_t width,
                             double bound, const std::string& what) {
  ASSERT_EQ(found.size(), wanted.size());
  EXPECT_LE(relative_error(found, wanted), bound) << what;
  const auto norm = [](const auto& number, std::size_t from, std::size_t end) {
    double squares = 0.0;
    for (std::size_t i = from; i < end; ++i) squares += number(i) * number(i);
    return std::sqrt(squares);
  };
  const auto value = [&](std::size_t i) { return static_cast<double>(wanted[i]); };
  const auto error = [&](std::size_t i) { return static_cast<double>(found[i]) - static_cast<double>(wanted[i]); };
  const double usual = norm(value, 0, wanted.size()) / std::sqrt(static_cast<double>(wanted.size() / width));
  for (std::size_t row = 0; row < wanted.size(); row += width) {
    ASSERT_LE(norm(error, row, row + width), 16 * bound * std::max(usual, norm(value, row, row + width)))
        << what << ", row " << row / width;
  }
}

}  // namespace moracle
