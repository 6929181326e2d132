#include "format/decode/stored_fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/checked.h"
#include "format/decode/plain.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

const TensorView* find_scales(const ModuleRef& module, const TensorClaims& claims) {
  for (const std::string_view part : kFp8Scales)
    if (const TensorView* scales = find_part(claims, module.path, part); scales != nullptr) return scales;
  return nullptr;
}

std::int64_t rows_of(const ModuleRef& module) {
  return module.slice ? module.slice->total_rows : module.out;
}

// The size of blocks of which `blocks` cover `size`, all but the last whole: a power of two, else an equal part; 0 for
// none. One block may be larger than what it covers.
std::int64_t block_size(std::int64_t size, std::int64_t blocks) {
  if (blocks < 1 || blocks > size) return 0;
  const std::int64_t least = ceil_div(size, blocks);
  const auto power = narrow<std::int64_t>(std::bit_ceil(narrow<std::uint64_t>(least)));
  if (ceil_div(size, power) == blocks) return power;
  return size % blocks == 0 ? least : 0;
}

// Blocks are square where a single one leaves its size open, and of the published size where both dimensions do.
Granularity square_where_open(std::int64_t height, bool one_row, std::int64_t width, bool one_column) {
  constexpr std::int64_t kPublished = 128;
  if (one_row && one_column) height = width = std::max({height, width, kPublished});
  if (one_row) height = std::max(height, width);
  if (one_column) width = std::max(width, height);
  return Granularity::block(narrow<std::int32_t>(height), narrow<std::int32_t>(width));
}

// Without the dimension of the experts, and without dimensions of one between others.
std::vector<std::int64_t> matrix_shape(const ModuleRef& module, const TensorView& scales) {
  std::vector<std::int64_t> shape = scales.shape;
  if (module.slice && !shape.empty() && shape.front() == module.slice->experts) shape.erase(shape.begin());
  if (shape.size() == 4 && shape[1] == 1 && shape[3] == 1) shape = {shape[0], shape[2]};
  if (shape.size() == 1 && shape[0] == 1) shape.clear();
  return shape;
}

class StoredFp8 final : public StoredScheme {
 public:
  StoredFp8(Fp8Activations activations, std::optional<Granularity> said, std::shared_ptr<ValueNotes> notes)
      : activations_(activations), said_(said), notes_(std::move(notes)) {}

  std::string_view codes_part() const override { return "weight"; }

  Scheme scheme(const ModuleRef& module, const TensorClaims& claims) const override {
    return scheme_for(granularity(module, claims).value_or(Granularity::tensor()))->scheme(module, claims);
  }

  Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const override {
    const std::optional<Granularity> found = granularity(module, claims);
    if (found) return scheme_for(*found)->open(module, claims);
    const TensorView* scales = find_scales(module, claims);
    if (scales == nullptr) return incomplete_error(claims, part_name(claims, module.path, kFp8Scales.front()));
    return tensor_error("tensor.shape", *scales,
                        fmt::format("one scale, one a row, or one a block of {}", shape_text({module.out, module.in})),
                        shape_text(scales->shape));
  }

 private:
  [[nodiscard]] std::optional<Granularity> granularity(const ModuleRef& module, const TensorClaims& claims) const {
    const TensorView* scales = find_scales(module, claims);
    return scales == nullptr ? std::nullopt : fp8_granularity(module, *scales, said_);
  }

  [[nodiscard]] std::shared_ptr<const StoredScheme> scheme_for(const Granularity& granularity) const {
    CodeScheme scheme{.weight = fp8_key(granularity)};
    const bool groups = granularity.kind == Granularity::Kind::block || granularity.kind == Granularity::Kind::group;
    if (activations_ == Fp8Activations::fixed) scheme.activation = fp8_key(Granularity::tensor());
    if (activations_ == Fp8Activations::dynamic)
      scheme.activation = dynamic(fp8_key(groups ? Granularity::group(granularity.cols) : Granularity::token()));
    scheme.parts.scales = {kFp8Scales.begin(), kFp8Scales.end()};
    return make_code_scheme(std::move(scheme), notes_);
  }

  Fp8Activations activations_;
  std::optional<Granularity> said_;
  std::shared_ptr<ValueNotes> notes_;
};

}  // namespace

std::shared_ptr<const StoredScheme> make_stored_fp8(Fp8Activations activations, std::optional<Granularity> said,
                                                    std::shared_ptr<ValueNotes> notes) {
  return std::make_shared<StoredFp8>(activations, said, std::move(notes));
}

bool is_stored_fp8(const ModuleRef& module, const TensorClaims& claims) {
  const TensorView* codes = find_part(claims, module.path, "weight");
  return codes != nullptr && codes->dtype == Dtype::f8_e4m3 && find_scales(module, claims) != nullptr;
}

std::optional<Granularity> fp8_granularity(const ModuleRef& module, const TensorView& scales,
                                           const std::optional<Granularity>& said) {
  const std::int64_t rows = rows_of(module);
  const std::vector<std::int64_t> shape = matrix_shape(module, scales);
  if (shape.empty()) return Granularity::tensor();
  const auto fits = [&](const Granularity& g) {
    return g.kind == Granularity::Kind::block && shape.size() == 2 &&
           ceil_div(rows, std::int64_t{g.rows}) == shape[0] && ceil_div(module.in, std::int64_t{g.cols}) == shape[1];
  };
  if (said && fits(*said)) return said;
  if (shape[0] == rows && (shape.size() == 1 || (shape.size() == 2 && shape[1] == 1))) return Granularity::channel();
  if (shape.size() != 2) return std::nullopt;
  if (shape[0] == rows && rows > 1 && module.in % shape[1] == 0)
    return Granularity::group(narrow<std::int32_t>(module.in / shape[1]));
  const std::int64_t height = block_size(rows, shape[0]);
  const std::int64_t width = block_size(module.in, shape[1]);
  constexpr std::int64_t kMax = std::int64_t{1} << 30;
  if (height < 1 || width < 1 || height > kMax || width > kMax) return std::nullopt;
  return square_where_open(height, shape[0] == 1, width, shape[1] == 1);
}

Result<Scheme> excluded_scheme(const ModuleRef& module, const TensorClaims& claims) {
  if (!is_stored_fp8(module, claims)) return plain_scheme(module, claims);
  return make_stored_fp8(Fp8Activations::none, std::nullopt, nullptr)->scheme(module, claims);
}

Result<StoredLinear> open_excluded(const ModuleRef& module, std::string rule, TensorClaims& claims,
                                   const std::shared_ptr<ValueNotes>& notes) {
  const bool fp8 = is_stored_fp8(module, claims);
  if (fp8) notes->stored_fp8.fetch_add(1, std::memory_order_relaxed);
  MORACLE_ASSIGN(StoredLinear linear,
                 fp8 ? make_stored_fp8(Fp8Activations::none, std::nullopt, notes)->open(module, claims)
                     : open_plain(module, claims));
  linear.excluded_by = std::move(rule);
  return linear;
}

}  // namespace moracle
