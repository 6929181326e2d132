// The reference kernel: fp32, plain, the truth the others are held against.
//
// It keeps the canonical form itself (a code a byte, f32 scales), matrix after matrix, and dequantizes one row at a
// time, so what it computes is the definition: y = sum over k of value(r, k) * x[k].
#include "kernels/ref/ref.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/checked.h"
#include "base/first_error.h"
#include "base/memory.h"
#include "kernels/row_experts.h"
#include "kernels/weight_sink.h"

namespace moracle::ref {

namespace {

// Where the parts of one matrix lie in its bytes: scales, then codes or values, then zero points.
struct MatrixParts {
  std::size_t scales = 0;  // bytes
  std::size_t elements = 0;
  std::size_t zeros = 0;

  explicit MatrixParts(const MatrixSpec& spec) {
    const auto groups = static_cast<std::size_t>(spec.rows * spec.groups);
    const bool quantized = spec.key.quantized();
    if (quantized) scales = sizeof(float) * groups;
    elements = static_cast<std::size_t>(spec.rows * spec.cols) * (quantized ? 1 : sizeof(float));
    if (quantized && !spec.key.symmetric) zeros = groups;
  }
  // Whole words, so that what follows is aligned.
  [[nodiscard]] std::size_t bytes() const { return (scales + elements + zeros + 3) / 4 * 4; }
};

using Pack = std::shared_ptr<const PageBuffer>;  // of all matrices; empty where only their sizes are asked for

// One matrix in canonical form.
class RefMatrix final : public RowMatrix {
 public:
  RefMatrix(const CanonicalLinear& linear, Pack pack, std::size_t offset)
      : RowMatrix(linear),
        spec_(linear.weight->spec()),
        parts_(spec_),
        pack_(std::move(pack)),
        offset_(offset),
        bias_(linear.bias) {}

  void row(std::int64_t r, float* out) const override {
    const std::byte* const scales = pack_->data() + offset_;
    const std::byte* const elements = scales + parts_.scales;
    const auto element = static_cast<std::size_t>(r * spec_.cols);
    const auto group = static_cast<std::size_t>(r * spec_.groups);
    MatrixRow row;
    if (spec_.key.quantized()) {
      row.codes = reinterpret_cast<const std::uint8_t*>(elements) + element;
      row.scales = reinterpret_cast<const float*>(scales) + group;
      if (parts_.zeros > 0) row.zeros = reinterpret_cast<const std::uint8_t*>(elements + parts_.elements) + group;
    } else {
      row.values = reinterpret_cast<const float*>(elements) + element;
    }
    dequantize_row(spec_, row, {out, static_cast<std::size_t>(spec_.cols)});
  }
  [[nodiscard]] float bias(std::int64_t r) const override {
    return bias_.empty() ? 0.0F : bias_[static_cast<std::size_t>(r)];
  }
  [[nodiscard]] std::size_t bytes() const override { return parts_.bytes(); }

 private:
  MatrixSpec spec_;
  MatrixParts parts_;
  Pack pack_;
  std::size_t offset_;
  std::vector<float> bias_;
};

template <class T>
void append(const std::vector<T>& part, std::byte*& to) {
  if (!part.empty()) std::memcpy(to, part.data(), part.size() * sizeof(T));
  to += part.size() * sizeof(T);
}

// Writes linears one behind the other.
Result<> write(const std::vector<const CanonicalLinear*>& linears, std::span<std::byte> bytes) {
  MatrixPanel panel;
  std::byte* begin = bytes.data();
  for (const CanonicalLinear* linear : linears) {
    const MatrixSpec& spec = linear->weight->spec();
    MORACLE_TRY(linear->weight->read(0, spec.rows, panel));
    linear->weight->release();
    std::byte* to = begin;
    append(panel.scales, to);
    append(panel.codes, to);
    append(panel.values, to);
    append(panel.zeros, to);
    begin += MatrixParts(spec).bytes();
  }
  return Ok{};
}

std::size_t bytes_of(const CanonicalLinear& linear) {
  return MatrixParts(linear.weight->spec()).bytes();
}

}  // namespace

Result<std::unique_ptr<PackedExperts>> pack_experts(const CanonicalExperts& experts, const PackOptions& options) {
  std::vector<std::size_t> begins{0};
  for (const auto& expert : experts.experts) {
    begins.push_back(begins.back());
    for (const CanonicalLinear* linear : matrices_of(expert)) begins.back() += bytes_of(*linear);
  }
  const std::size_t count = experts.experts.size();
  auto pack = std::make_shared<PageBuffer>();
  if (!options.layout_only) {
    MORACLE_ASSIGN(*pack, PageBuffer::allocate(begins.back()));
    HostSink sink(pack->data());
    FirstError failed;
    options.pool.parallel_for(narrow<std::int64_t>(count), [&](std::int64_t index, int worker) {
      if (failed.failed()) return;
      const auto e = static_cast<std::size_t>(index);
      Result<> written =
          write(matrices_of(experts.experts[e]), sink.stage(begins[e], begins[e + 1] - begins[e], worker));
      failed.keep(index, written.ok() ? sink.commit(worker) : std::move(written));
    });
    MORACLE_TRY(failed.take());
  }
  std::vector<RowExpert> rows(count);
  for (std::size_t e = 0; e < count; ++e) {
    const auto& [gate, up, down] = experts.experts[e];
    std::size_t at = begins[e];
    const auto next = [&](const CanonicalLinear& linear) {
      auto matrix = std::make_unique<RefMatrix>(linear, pack, at);
      at += bytes_of(linear);
      return matrix;
    };
    rows[e].gate = next(gate);
    if (experts.experts[e].gated()) rows[e].up = next(up);
    rows[e].down = next(down);
    if (!options.layout_only) rows[e].bytes = {pack->data() + begins[e], begins[e + 1] - begins[e]};
  }
  return make_row_experts(std::move(rows), options.activation);
}

Result<std::unique_ptr<PackedLinear>> pack_linear(const CanonicalLinear& linear, const PackOptions& options) {
  auto pack = std::make_shared<PageBuffer>();
  if (!options.layout_only) {
    MORACLE_ASSIGN(*pack, PageBuffer::allocate(bytes_of(linear)));
    HostSink sink(pack->data());
    MORACLE_TRY(write({&linear}, sink.stage(0, pack->size(), 0)));
    MORACLE_TRY(sink.commit(0));
  }
  return make_row_linear(std::make_unique<RefMatrix>(linear, std::move(pack), 0));
}

}  // namespace moracle::ref
