#include "api/layer/dense_walk.h"

#include <algorithm>
#include <cstring>

#include "api/edge/call.h"
#include "base/checked.h"
#include "base/first_error.h"
#include "format/rules/tensor_check.h"
#include "scheme/codes.h"

namespace moracle::api {

namespace {

constexpr std::int64_t kPanelRows = 32;

// "model.layers.0.mlp.gate" of a module whose bias is stored as "model.layers.0.mlp.gate.bias".
std::string bias_name(const StoredLinear& stored) {
  const std::string& name = stored.bias->tensor.name;
  return name.empty() ? stored.spec.name + ".bias" : name;
}

}  // namespace

Result<> DenseWalk::make_room(std::vector<std::int64_t> shape) {
  const auto elements = checked_product(std::span<const std::int64_t>(shape));
  const auto bytes = elements ? checked_mul<std::int64_t>(*elements, bf16_ ? 2 : 4) : std::nullopt;
  if (!bytes) return Error{.code = "shape.overflow", .where = tensor_.name, .found = "more bytes than memory can hold"};
  const auto size = narrow<std::size_t>(*bytes);
  if (size > data_.size()) {
    data_ = PageBuffer();
    MORACLE_ASSIGN(data_, PageBuffer::allocate(size));
  }
  tensor_.shape = std::move(shape);
  tensor_.data = {data_.data(), size};
  return Ok{};
}

void DenseWalk::store(std::span<const float> values, std::size_t at) {
  if (!bf16_) {
    std::memcpy(data_.data() + sizeof(float) * at, values.data(), values.size_bytes());
    return;
  }
  auto* const to = reinterpret_cast<std::uint16_t*>(data_.data()) + at;
  for (std::size_t i = 0; i < values.size(); ++i) to[i] = encode_bf16(values[i]);
}

Result<> DenseWalk::decode_matrix(const MatrixSource& source) {
  const MatrixSpec& spec = source.spec();
  MORACLE_TRY(make_room({spec.rows, spec.cols}));
  MORACLE_ASSIGN(const auto turn, pool_->lock().acquire());
  FirstError failed;
  pool_->threads().parallel_for(ceil_div(spec.rows, kPanelRows), [&](std::int64_t item, int) {
    if (failed.failed()) return;
    const std::int64_t begin = item * kPanelRows;
    const std::int64_t end = std::min(begin + kPanelRows, spec.rows);
    MatrixPanel panel;
    if (auto read = source.read(begin, end, panel); !read.ok()) {
      failed.keep(item, std::move(read));
      return;
    }
    std::vector<float> values(narrow<std::size_t>((end - begin) * spec.cols));
    dequantize_panel(spec, panel, values);
    store(values, narrow<std::size_t>(begin * spec.cols));
  });
  return failed.take();
}

Result<const DenseWalk::Tensor*> DenseWalk::next() {
  const Plan& plan = checkpoint_->plan();
  if (!bias_.empty()) {
    tensor_.name = bias_name_;
    MORACLE_TRY(make_room({narrow<std::int64_t>(bias_.size())}));
    store(bias_, 0);
    bias_.clear();
    return &tensor_;
  }
  const bool tied = plan.spec().head.path.empty();
  for (; module_ < plan.modules().size(); ++module_) {
    const ModuleReport& report = plan.modules()[module_];
    const OpenedModule& opened = plan.opened(module_);
    if (report.kind == "experts" || (tied && report.name == "lm_head")) continue;
    if (opened.tensor != nullptr) {
      tensor_.name = opened.tensor->name;
      MORACLE_ASSIGN(const auto values, read_floats(*opened.tensor));
      MORACLE_TRY(make_room(opened.tensor->shape));
      store(values, 0);
      ++module_;
      return &tensor_;
    }
    MORACLE_ASSIGN(CanonicalLinear linear, plan.read_linear(module_));
    tensor_.name = opened.linear.spec.name + ".weight";
    MORACLE_TRY(unless_changed(plan.checkpoint(), decode_matrix(*linear.weight)));
    linear.weight->release();
    bias_ = std::move(linear.bias);
    if (!bias_.empty()) bias_name_ = bias_name(opened.linear);
    ++module_;
    return &tensor_;
  }
  MORACLE_TRY(plan.checkpoint().verify_unchanged());
  return nullptr;
}

}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_dense_open(moracle_checkpoint* checkpoint, const moracle_dense_options* options,
                                  moracle_dense** dense, moracle_error** error) {
  return api::call(error, "open the dense tensors", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(dense, "dense"));
    *dense = nullptr;
    MORACLE_ASSIGN(auto opened, api::find<api::OpenCheckpoint>(checkpoint));
    MORACLE_ASSIGN(const auto how, api::read_struct(options, "options"));
    const int32_t dtype = how.dtype == 0 ? MORACLE_BF16 : how.dtype;
    if (dtype != MORACLE_BF16 && dtype != MORACLE_F32)
      return api::wrong_argument("dtype", "options.dtype", "MORACLE_BF16 or MORACLE_F32", std::to_string(dtype));
    MORACLE_ASSIGN(auto pool, opened->pool_or(how.pool));
    auto walk = std::make_shared<api::DenseWalk>(std::move(opened), std::move(pool), dtype == MORACLE_BF16);
    *dense = static_cast<moracle_dense*>(api::add_handle(api::Kind::dense, std::move(walk)));
    return Ok{};
  });
}

moracle_status moracle_dense_next(moracle_dense* dense, moracle_tensor* tensor, moracle_error** error) {
  return api::call(error, "decode a tensor", [&]() -> Result<moracle_status> {
    MORACLE_ASSIGN(const auto walk, api::find<api::DenseWalk>(dense));
    MORACLE_TRY(api::check_not_null(tensor, "tensor"));
    const std::lock_guard lock(walk->mutex());
    MORACLE_ASSIGN(const api::DenseWalk::Tensor* const decoded, walk->next());
    if (decoded == nullptr) return moracle_status{MORACLE_END};
    moracle_tensor filled{};
    if (decoded->shape.size() > std::size(filled.dims)) {
      return Error{.code = "tensor.rank",
                   .where = decoded->name,
                   .wanted = "at most 4 dimensions",
                   .found = std::to_string(decoded->shape.size())};
    }
    filled.dtype = walk->bf16() ? MORACLE_BF16 : MORACLE_F32;
    filled.name = decoded->name.c_str();
    filled.rank = static_cast<int32_t>(decoded->shape.size());
    std::copy(decoded->shape.begin(), decoded->shape.end(), filled.dims);
    filled.data = decoded->data.data();
    filled.bytes = decoded->data.size();
    MORACLE_TRY(api::write_struct(&filled, sizeof filled, tensor, "tensor"));
    return moracle_status{MORACLE_OK};
  });
}

moracle_status moracle_dense_close(moracle_dense* dense) {
  return api::close(api::Kind::dense, dense);
}

}  // extern "C"
