#include "verify/weight_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace moracle {

namespace {

// Scratch of one thread: codes, and four times that for unquantized values.
constexpr std::int64_t kPanelElements = std::int64_t{1} << 20;

// Which codes are zero whatever the scale, and which sit at an end of the range.
struct CodeTraits {
  std::uint8_t mask = 0xFF;  // bits that count
  std::uint8_t low_end = 0;  // masked codes at the ends
  std::uint8_t high_end = 0;
  bool offset_binary = false;   // integers: zero is the zero point, not code 0
  std::uint8_t zero_point = 0;  // of a symmetric integer
};

CodeTraits traits_of(Element element) {
  switch (element) {
    case Element::int4:
      return {.mask = 0x0F, .low_end = 0, .high_end = 15, .offset_binary = true, .zero_point = 8};
    case Element::int8:
      return {.mask = 0xFF, .low_end = 0, .high_end = 255, .offset_binary = true, .zero_point = 128};
    case Element::e4m3:
      return {.mask = 0x7F, .low_end = 0x7E, .high_end = 0x7E};
    case Element::e5m2:
      return {.mask = 0x7F, .low_end = 0x7B, .high_end = 0x7B};
    case Element::e2m1:
      return {.mask = 0x07, .low_end = 0x07, .high_end = 0x07};
    case Element::e2m3:
    case Element::e3m2:
      return {.mask = 0x1F, .low_end = 0x1F, .high_end = 0x1F};
    case Element::f32:
    case Element::f16:
    case Element::bf16:
      return {};
  }
  return {};
}

void count_values(const MatrixPanel& panel, MatrixAudit& audit) {
  for (const float value : panel.values) {
    audit.zero += value == 0.0F ? 1 : 0;
    audit.non_finite += std::isfinite(value) ? 0 : 1;
  }
}

// Elements [begin, end) of one row that share scale and zero point.
void count_run(const CodeTraits& traits, const std::uint8_t* codes, std::int64_t begin, std::int64_t end,
               std::uint8_t zero, float scale, MatrixAudit& audit) {
  std::int64_t zeros = 0;
  std::int64_t ends = 0;
  for (std::int64_t k = begin; k < end; ++k) {
    const auto code = static_cast<std::uint8_t>(codes[k] & traits.mask);
    zeros += code == zero ? 1 : 0;
    ends += code == traits.low_end || code == traits.high_end ? 1 : 0;
  }
  audit.saturated += ends;
  audit.zero += scale == 0.0F ? end - begin : zeros;
  if (scale == 0.0F) audit.lost += end - begin - zeros;
}

void count_codes(const MatrixSpec& spec, const MatrixPanel& panel, MatrixAudit& audit) {
  const CodeTraits traits = traits_of(spec.key.element);
  const std::int64_t groups = spec.groups;
  for (const float scale : panel.scales) {
    audit.non_finite += std::isfinite(scale) ? 0 : 1;
    audit.zero_scales += scale == 0.0F ? 1 : 0;
  }
  for (std::int64_t row = 0; row < panel.rows; ++row) {
    const std::uint8_t* codes = panel.codes.data() + row * spec.cols;
    const auto run = [&](std::int64_t begin, std::int64_t end, std::int64_t group) {
      const auto at = static_cast<std::size_t>(row * groups + group);
      const std::uint8_t zero =
          traits.offset_binary ? (panel.zeros.empty() ? traits.zero_point : panel.zeros[at]) : std::uint8_t{0};
      count_run(traits, codes, begin, end, zero, panel.scales[at] * spec.global_scale, audit);
    };
    if (!spec.g_idx.empty()) {
      for (std::int64_t k = 0; k < spec.cols; ++k) run(k, k + 1, spec.g_idx[static_cast<std::size_t>(k)]);
      continue;
    }
    for (std::int64_t g = 0; g < groups; ++g)
      run(g * spec.group_cols, std::min(spec.cols, (g + 1) * spec.group_cols), g);
  }
}

std::string share(std::int64_t part, std::int64_t whole) {
  return fmt::format("{} of {} ({:.1f} %)", part, whole,
                     100.0 * static_cast<double>(part) / static_cast<double>(std::max<std::int64_t>(1, whole)));
}

}  // namespace

Result<MatrixAudit> audit_matrix(const MatrixSource& matrix) {
  const MatrixSpec& spec = matrix.spec();
  MatrixAudit audit;
  audit.elements = spec.rows * spec.cols;
  const std::int64_t step = std::max<std::int64_t>(1, kPanelElements / std::max<std::int64_t>(1, spec.cols));
  MatrixPanel panel;
  for (std::int64_t row = 0; row < spec.rows; row += step) {
    MORACLE_TRY(matrix.read(row, std::min(spec.rows, row + step), panel));
    if (spec.key.quantized()) {
      count_codes(spec, panel, audit);
    } else {
      count_values(panel, audit);
    }
  }
  if (!std::isfinite(spec.global_scale)) ++audit.non_finite;
  return audit;
}

std::vector<Finding> examine(const MatrixSource& matrix, bool expert) {
  using Severity = Finding::Severity;
  const MatrixSpec& spec = matrix.spec();
  std::vector<Finding> findings;
  const auto add = [&](Severity severity, std::string text) {
    findings.push_back({.tensor = spec.name, .finding = std::move(text), .severity = severity});
  };
  const auto measured = audit_matrix(matrix);
  if (!measured.ok()) {
    add(Severity::error, measured.error().message());
    return findings;
  }
  const MatrixAudit& audit = *measured;
  if (audit.non_finite > 0) add(Severity::error, fmt::format("{} scales or values are NaN or Inf", audit.non_finite));
  if (audit.elements > 0 && audit.zero == audit.elements) {
    add(Severity::error, expert ? "dead expert: every weight of this matrix is zero" : "every weight is zero");
  } else if (audit.lost > 0) {
    // A block of tiny weights may round its 8-bit float scale to zero; an integer quantizer never does that.
    const bool float_block = spec.key.second_level || spec.key.scale == ScaleType::e4m3;
    add(float_block ? Severity::warning : Severity::error,
        fmt::format("{} scales are zero and wipe out {} non-zero codes", audit.zero_scales, audit.lost));
  }
  if (static_cast<double>(audit.saturated) > kSaturatedShare * static_cast<double>(audit.elements) &&
      audit.elements > 0) {
    add(Severity::error,
        "saturated: " + share(audit.saturated, audit.elements) + " codes are at the end of their range");
  }
  return findings;
}

std::vector<Finding> examine_all(const std::vector<const MatrixSource*>& matrices, bool experts, ThreadPool& pool) {
  std::vector<std::vector<Finding>> each(matrices.size());
  pool.parallel_for(static_cast<std::int64_t>(matrices.size()), [&](std::int64_t index, int) {
    const auto i = static_cast<std::size_t>(index);
    each[i] = examine(*matrices[i], experts);
  });
  std::vector<Finding> all;
  for (auto& findings : each)
    all.insert(all.end(), std::make_move_iterator(findings.begin()), std::make_move_iterator(findings.end()));
  return all;
}

}  // namespace moracle
