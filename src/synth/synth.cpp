#include "synth/synth.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <span>

#include "base/clock.h"
#include "base/random/random.h"
#include "checkpoint/atomic_file.h"
#include "scheme/codes.h"
#include "synth/synth_model.h"

namespace moracle {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kChunk = std::size_t{16} << 20;
constexpr std::size_t kPool = std::size_t{1} << 20;
constexpr std::size_t kPiece = std::size_t{64} << 10;

using Bytes = std::vector<std::byte>;

template <class T, class Make>
Bytes make_pool(Make make) {
  Bytes pool(kPool);
  for (std::size_t i = 0; i + sizeof(T) <= kPool; i += sizeof(T)) {
    const T value = make();
    std::memcpy(pool.data() + i, &value, sizeof value);
  }
  return pool;
}

// Fills buffers with random values by copying pieces of a prepared pool from random places, as fast as memory allows.
class Filler {
 public:
  explicit Filler(std::uint64_t seed) : random_(seed) {}

  // Bytes [begin, begin + out.size()) of a tensor.
  void fill(const SynthFill& fill, std::uint64_t begin, std::span<std::byte> out) {
    if (fill.kind == SynthFill::Kind::group_index) return fill_groups(fill, begin, out);
    const Bytes& pool = pool_for(fill);
    for (std::size_t done = 0; done < out.size();) {
      const std::size_t n = std::min(kPiece, out.size() - done);
      const std::size_t place = random_.below(static_cast<std::uint32_t>((kPool - kPiece) / 8)) * std::size_t{8};
      std::memcpy(out.data() + done, pool.data() + place, n);
      done += n;
    }
  }

 private:
  const Bytes& pool_for(const SynthFill& fill) {
    const auto key =
        std::make_pair(static_cast<int>(fill.kind), fill.kind == SynthFill::Kind::word ? fill.word : fill.value);
    if (const auto it = pools_.find(key); it != pools_.end()) return it->second;
    return pools_.emplace(key, make(fill)).first->second;
  }

  double scale_around(double value) { return value * (0.75 + 0.5 * random_.uniform()); }

  Bytes make(const SynthFill& fill) {
    switch (fill.kind) {
      case SynthFill::Kind::bits:
        return make_pool<std::uint64_t>([&] { return random_.next(); });
      case SynthFill::Kind::word:
        return make_pool<std::uint32_t>([&] { return fill.word; });
      case SynthFill::Kind::near_middle:
        return make_pool<std::uint8_t>(
            [&] { return static_cast<std::uint8_t>((6 + random_.below(4)) << 4U | (6 + random_.below(4))); });
      case SynthFill::Kind::f16_scales:
        return make_pool<std::uint16_t>([&] { return encode_f16(static_cast<float>(scale_around(fill.value))); });
      case SynthFill::Kind::e8m0_scales:
        return make_pool<std::uint8_t>(
            [&] { return static_cast<std::uint8_t>(127 + std::lround(std::log2(scale_around(fill.value)))); });
      case SynthFill::Kind::e4m3_scales:
        return make_pool<std::uint8_t>([&] { return encode_e4m3(static_cast<float>(scale_around(fill.value))); });
      case SynthFill::Kind::bf16_normal:
        return make_pool<std::uint16_t>([&] { return encode_bf16(static_cast<float>(fill.value) * random_.normal()); });
      case SynthFill::Kind::bf16_ones:
        return make_pool<std::uint16_t>([] { return encode_bf16(1.0F); });
      case SynthFill::Kind::group_index:
        break;
    }
    return Bytes(kPool);
  }

  // Index tensors are small: they come in one piece, and gate and up are given the same seed.
  static void fill_groups(const SynthFill& fill, std::uint64_t begin, std::span<std::byte> out) {
    std::vector<std::int32_t> groups(out.size() / 4);
    const std::uint64_t first = begin / 4;
    for (std::size_t k = 0; k < groups.size(); ++k)
      groups[k] = static_cast<std::int32_t>(static_cast<std::int64_t>(first + k) / fill.group);
    if (fill.shuffled) {
      Random random(mix64(fill.seed));
      for (std::size_t k = groups.size() - 1; k > 0; --k)
        std::swap(groups[k], groups[random.below(static_cast<std::uint32_t>(k + 1))]);
    }
    std::memcpy(out.data(), groups.data(), groups.size() * 4);
  }

  Random random_;
  std::map<std::pair<int, double>, Bytes> pools_;
};

// Removes what was written unless it was put in its place.
class PartialFolder {
 public:
  explicit PartialFolder(fs::path path) : path_(std::move(path)) {}
  PartialFolder(const PartialFolder&) = delete;
  PartialFolder& operator=(const PartialFolder&) = delete;
  ~PartialFolder() {
    std::error_code code;
    if (!kept_) fs::remove_all(path_, code);
  }
  [[nodiscard]] const fs::path& path() const { return path_; }
  Result<> rename_to(const fs::path& target) {
    std::error_code code;
    fs::rename(path_, target, code);
    if (code) {
      return Error{.code = "file.write",
                   .file = target.string(),
                   .wanted = "to put the folder in its place",
                   .found = code.message()};
    }
    kept_ = true;
    return Ok{};
  }

 private:
  fs::path path_;
  bool kept_ = false;
};

Result<> check_target(const fs::path& out) {
  std::error_code code;
  if (out.empty() || !fs::exists(fs::symlink_status(out, code))) return Ok{};
  if (fs::is_directory(out, code) && fs::is_empty(out, code)) return Ok{};
  return Error{.code = "synth.exists",
               .file = out.string(),
               .wanted = "a new or empty folder",
               .found = fs::is_directory(out, code) ? "a folder with files in it" : "a file",
               .advice = "choose another --out or remove it"};
}

Result<std::uint64_t> total_bytes(const SynthModel& model) {
  std::uint64_t total = 0;
  for (const SynthTensor& tensor : model.tensors) {
    MORACLE_ASSIGN(const std::uint64_t bytes, tensor_bytes(tensor.spec.dtype, tensor.spec.shape));
    total += bytes;
  }
  return total;
}

// Consecutive tensors, split so that no shard exceeds the limit (a single tensor may).
Result<std::vector<std::span<const SynthTensor>>> split_shards(const SynthModel& model, std::uint64_t limit) {
  std::vector<std::span<const SynthTensor>> shards;
  const std::span all(model.tensors);
  std::size_t begin = 0;
  std::uint64_t size = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    MORACLE_ASSIGN(const std::uint64_t bytes, tensor_bytes(all[i].spec.dtype, all[i].spec.shape));
    if (i > begin && size + bytes > limit) {
      shards.push_back(all.subspan(begin, i - begin));
      begin = i;
      size = 0;
    }
    size += bytes;
  }
  shards.push_back(all.subspan(begin));
  return shards;
}

class Synthesizer {
 public:
  Synthesizer(const SynthOptions& options, std::uint64_t total)
      : options_(options), total_(total), filler_(options.seed) {}

  Result<> write_shard(const fs::path& path, std::span<const SynthTensor> tensors) {
    std::vector<TensorSpec> specs;
    for (const SynthTensor& tensor : tensors) specs.push_back(tensor.spec);
    MORACLE_ASSIGN(auto writer, SafetensorsWriter::create(path, std::move(specs)));
    for (const SynthTensor& tensor : tensors) {
      MORACLE_ASSIGN(const std::uint64_t bytes, tensor_bytes(tensor.spec.dtype, tensor.spec.shape));
      for (std::uint64_t begin = 0; begin < bytes; begin += kChunk) {
        const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kChunk, bytes - begin));
        buffer_.resize(std::max(buffer_.size(), count));
        const std::span chunk(buffer_.data(), count);
        filler_.fill(tensor.fill, begin, chunk);
        MORACLE_TRY(writer.write(tensor.spec.name, chunk));
        MORACLE_TRY(report(count));
      }
    }
    return writer.finish();
  }

 private:
  Result<> report(std::size_t count) {
    done_ += count;
    if (options_.on_progress) options_.on_progress(done_, total_);
    if (options_.interrupted && options_.interrupted()) {
      return Error{.code = "interrupted", .file = options_.out.string(), .found = "stopped; nothing was left behind"};
    }
    return Ok{};
  }

  const SynthOptions& options_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  Filler filler_;
  Bytes buffer_;
};

Result<> write_text(const fs::path& path, const std::string& text) {
  MORACLE_ASSIGN(AtomicFile file, AtomicFile::create(path, 0));
  MORACLE_TRY(file.write(text));
  return file.commit();
}

// The folder that is written, beside the one that is wanted.
Result<fs::path> make_partial(const fs::path& out, std::uint64_t bytes) {
  std::error_code code;
  fs::path target = fs::absolute(out, code).lexically_normal();
  if (!target.has_filename()) target = target.parent_path();
  const fs::path parent = target.parent_path();
  fs::create_directories(parent, code);
  const fs::path partial = parent / (target.filename().string() + ".partial-" + std::to_string(getpid()));
  if (!fs::create_directory(partial, code)) {
    return Error{.code = "file.write",
                 .file = partial.string(),
                 .wanted = "to create a folder",
                 .found = code ? code.message() : "it exists"};
  }
  const auto space = fs::space(partial, code);
  if (!code && space.available < bytes) {
    fs::remove(partial, code);
    return Error{.code = "disk.space",
                 .file = parent.string(),
                 .wanted = std::to_string(bytes) + " bytes of free space",
                 .found = std::to_string(space.available),
                 .advice = "free space there, write fewer --layers, or write somewhere else"};
  }
  return partial;
}

}  // namespace

std::vector<std::string> synth_architectures() {
  return synth_model_names();
}

std::vector<std::string> synth_schemes() {
  return synth_scheme_names();
}

Result<SynthResult> synthesize(const SynthOptions& options) {
  const Stopwatch watch;
  MORACLE_ASSIGN(const SynthModel model,
                 describe_synth_model(options.architecture, options.scheme, options.layers, options.seed));
  MORACLE_TRY(check_target(options.out));
  MORACLE_ASSIGN(const std::uint64_t total, total_bytes(model));
  MORACLE_ASSIGN(const auto shards, split_shards(model, options.shard_bytes));
  MORACLE_ASSIGN(fs::path partial, make_partial(options.out, total));
  PartialFolder folder(std::move(partial));
  Synthesizer writer(options, total);
  std::map<std::string, std::string> weight_map;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const auto number = [](std::size_t n) {
      const std::string digits = std::to_string(n);
      return std::string(5 - std::min<std::size_t>(5, digits.size()), '0') + digits;
    };
    const std::string name = shards.size() == 1
                                 ? "model.safetensors"
                                 : "model-" + number(i + 1) + "-of-" + number(shards.size()) + ".safetensors";
    MORACLE_TRY(writer.write_shard(folder.path() / name, shards[i]));
    for (const SynthTensor& tensor : shards[i]) weight_map[tensor.spec.name] = name;
  }
  MORACLE_TRY(write_shard_index(folder.path(), weight_map, total));
  for (const SynthFile& file : model.files) MORACLE_TRY(write_text(folder.path() / file.name, file.text));
  MORACLE_TRY(folder.rename_to(options.out));
  return SynthResult{.bytes = total, .files = static_cast<std::int64_t>(shards.size()), .seconds = watch.seconds()};
}

}  // namespace moracle
