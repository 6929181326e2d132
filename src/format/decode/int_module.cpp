#include "format/decode/int_module.h"

#include <fmt/format.h>

#include "base/checked.h"
#include "format/decode/row_view.h"
#include "format/rules/spelling.h"
#include "format/rules/tensor_check.h"

namespace moracle {
namespace {

ScaleType scale_type(Dtype dtype) {
  if (dtype == Dtype::f32) return ScaleType::f32;
  return dtype == Dtype::f16 ? ScaleType::f16 : ScaleType::bf16;
}

std::vector<std::int64_t> codes_shape(std::int64_t bits, std::int64_t packed, std::int64_t across, bool words_first) {
  const std::int64_t words = ceil_div(packed, 32 / bits);
  return words_first ? std::vector<std::int64_t>{words, across} : std::vector<std::int64_t>{across, words};
}

}  // namespace

QuantKey IntScheme::key(Dtype scale_dtype) const {
  return QuantKey{
      .element = bits == 4 ? Element::int4 : Element::int8,
      .scale = scale_type(scale_dtype),
      .granularity = group_size < 0 ? Granularity::channel() : Granularity::group(narrow<std::int32_t>(group_size)),
      .symmetric = symmetric};
}

Result<> check_scales(const TensorView& scales, const IntScheme& scheme, const ModuleRef& module, bool by_out) {
  MORACLE_TRY(expect_dtype(scales, {Dtype::bf16, Dtype::f16, Dtype::f32}));
  const std::int64_t groups = scheme.groups(module.in);
  const std::vector<std::int64_t> wanted =
      by_out ? std::vector<std::int64_t>{module.out, groups} : std::vector<std::int64_t>{groups, module.out};
  const std::vector<std::int64_t>& found = scales.shape;
  if (groups == 1 && (found == std::vector{module.out} || found == std::vector{module.out, std::int64_t{1}} ||
                      found == std::vector{std::int64_t{1}, module.out}))
    return expect_shape(scales, found);
  const bool other_groups = found.size() == 2 && found[by_out ? 0 : 1] == module.out && found[by_out ? 1 : 0] != groups;
  if (other_groups)
    return tensor_error("quant.group", scales,
                        fmt::format("{} groups of {} over {} inputs", groups, scheme.group_cols(module.in), module.in),
                        fmt::format("{} groups", found[by_out ? 1 : 0]));
  // A last group that is smaller is believed only where no size of equal groups gives as many of them.
  const std::int64_t width = scheme.group_cols(module.in);
  if (module.in % width != 0 && module.in % groups == 0)
    return tensor_error("quant.group", scales, fmt::format("a group size that divides {} inputs", module.in),
                        fmt::format("{}, with {} groups stored", width, groups));
  return expect_shape(scales, wanted);
}

Result<> check_codes(const TensorView& codes, std::int64_t bits, std::int64_t packed, std::int64_t across,
                     bool words_first) {
  MORACLE_TRY(expect_dtype(codes, {Dtype::i32, Dtype::u32}));
  const auto wanted = codes_shape(bits, packed, across, words_first);
  if (codes.shape != wanted) {
    for (const std::int64_t other : {2, 4, 8})
      if (other != bits && codes.shape == codes_shape(other, packed, across, words_first))
        return tensor_error("config.contradiction", codes,
                            fmt::format("{}-bit codes {}, as the config says", bits, shape_text(wanted)),
                            fmt::format("{}-bit codes {}", other, shape_text(codes.shape)));
  }
  return expect_shape(codes, wanted);
}

MatrixSpec int_spec(const ModuleRef& module, const IntScheme& scheme, Dtype scale_dtype) {
  return MatrixSpec{.name = module.path,
                    .rows = module.out,
                    .cols = module.in,
                    .key = scheme.key(scale_dtype),
                    .group_cols = scheme.group_cols(module.in),
                    .groups = scheme.groups(module.in)};
}

Result<std::optional<TensorView>> claim_int_part(TensorClaims& claims, const ModuleRef& module, std::string_view part,
                                                 bool needed) {
  const TensorView* stored = find_part(claims, module.path, part);
  if (stored == nullptr) {
    if (needed) return incomplete_error(claims, part_name(claims, module.path, part));
    return std::optional<TensorView>();
  }
  MORACLE_ASSIGN(stored, module.slice ? claims.claim_shared(stored->name) : claims.claim(stored->name));
  TensorView view = *stored;
  if (!module.slice) return std::optional<TensorView>(std::move(view));
  const ModuleRef::Slice& slice = *module.slice;
  if (view.shape.empty() || view.shape.front() != slice.experts)
    return tensor_error("experts.count", *stored, std::to_string(slice.experts) + " experts",
                        shape_text(stored->shape));
  MORACLE_TRY(expect_shape(view, view.shape));
  const std::size_t bytes = view.bytes.size() / narrow<std::size_t>(slice.experts);
  view.shape.erase(view.shape.begin());
  view.bytes = view.bytes.subspan(bytes * narrow<std::size_t>(slice.expert), bytes);
  view.name += fmt::format("[{}]", slice.expert);
  return std::optional<TensorView>(std::move(view));
}

Result<StoredLinear> open_rows(const ModuleRef& module, FunctionRef<Result<StoredLinear>(const ModuleRef&)> open) {
  if (!module.slice || module.slice->total_rows == module.out) return open(module);
  ModuleRef whole = module;
  whole.out = module.slice->total_rows;
  whole.slice->row_begin = 0;
  whole.slice->row_stride = 1;
  MORACLE_ASSIGN(const StoredLinear linear, open(whole));
  return select_rows(linear, module.slice->row_begin, module.slice->row_stride, module.out);
}

Error stacked_error(const ModuleRef& module, const TensorClaims& claims, std::string_view format) {
  return Error{.code = "quant.unsupported",
               .file = claims.checkpoint()->folder().string(),
               .where = module.path,
               .wanted = fmt::format("one tensor per expert, or unquantized experts, in a {} checkpoint", format),
               .found = "stacked experts that are not BF16, F16 or F32"};
}

Error absent_error(const ModuleRef& module, const TensorClaims& claims, std::string_view codes_part) {
  const std::string name = part_name(claims, module.path, codes_part);
  const bool some = has_parts(claims, module.path);
  return Error{.code = some ? "quant.incomplete" : "tensor.missing",
               .file = claims.checkpoint()->folder().string(),
               .where = name,
               .wanted = fmt::format("the weight of {}, quantized or not", module.path),
               .found = some ? "other tensors of the module, but neither this one nor a plain weight" : "no tensor"};
}

std::vector<std::string> value_warnings(const ValueNotes& notes) {
  std::vector<std::string> texts;
  const std::uint64_t zeros = notes.zero_scales.load(std::memory_order_relaxed);
  if (zeros != 0)
    texts.push_back(fmt::format("{} scales of zero over codes that are not zero: these weights are lost", zeros));
  const std::uint64_t fp8 = notes.stored_fp8.load(std::memory_order_relaxed);
  if (fp8 != 0)
    texts.push_back(fmt::format(
        "{} modules that quantization_config leaves unquantized hold FP8 codes with scales; they are read as stored",
        fp8));
  return texts;
}

}  // namespace moracle
