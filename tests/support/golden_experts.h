// The layers of the moe_* golden files, stored as a publisher stores them and opened through that publisher's format.
#pragma once

#include <array>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/dtype.h"
#include "scheme/canonical.h"

namespace moracle::test {

// Where a part of a module comes from. Golden files hold some types as bytes.
struct GoldenPart {
  const char* name;    // on disk, after "<module>."
  const char* golden;  // after "w13." or "w2."
  std::optional<Dtype> dtype{};
};

struct GoldenLayer {
  const char* file;
  Json config;
  std::vector<GoldenPart> parts;
  std::string scheme;   // as to_string(Scheme) says it
  bool halves = false;  // gate and up are opened apart: they have scales of their own
};

inline void PrintTo(const GoldenLayer& layer, std::ostream* out) {
  *out << layer.file;
}

inline constexpr std::int64_t kGoldenExperts = 8;
inline constexpr std::int64_t kGoldenHidden = 256;
inline constexpr std::int64_t kGoldenIntermediate = 128;
inline constexpr std::int64_t kGoldenTokens = 33;
inline constexpr std::int64_t kGoldenTopK = 2;

// One layer for every scheme that has a file.
[[nodiscard]] std::vector<GoldenLayer> golden_layers();

// The experts of a layer. Split: gate rows, then up rows, no bias. Interleaved: rows alternate, with the biases of
// moe_common. A failure is recorded and nothing returned where the format refuses.
[[nodiscard]] std::optional<CanonicalExperts> open_golden(const GoldenLayer& layer, bool interleaved);

}  // namespace moracle::test
