// One layer through the C interface: against `ref`, in slices, in all types and strides.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "format/rules/tensor_check.h"
#include "model/load/plan.h"
#include "scheme/codes.h"
#include "unit/api/c_layer.h"

namespace moracle::test {
namespace {

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
    size += double{b[i]} * b[i];
  }
  return std::sqrt(difference / size);
}

// The definition: sum over k of weight * w2 (act(w13 x)), from dequantized weights, in double.
std::vector<float> by_definition(const std::string& folder, std::int64_t layer, const Input& input) {
  std::vector<float> out(input.x.size());
  const auto files = Checkpoint::open(folder);
  const auto plan = LoadPlan::make(*files, probe_machine(), {});
  const auto& modules = (*plan)->modules();
  std::int64_t seen = 0;
  for (std::size_t m = 0; m < modules.size(); ++m) {
    if (modules[m].kind != "experts" || seen++ != layer) continue;
    const auto experts = (*plan)->read_experts(m);
    const auto hidden = static_cast<std::size_t>(input.hidden);
    for (std::int64_t t = 0; t < input.tokens; ++t) {
      std::vector<double> sum(hidden);
      for (std::int64_t k = 0; k < input.top_k; ++k) {
        const auto pair = static_cast<std::size_t>(t * input.top_k + k);
        const auto& expert = experts->experts[static_cast<std::size_t>(input.ids[pair])];
        const auto gate = dequantize(*expert.gate.weight);
        const auto up = dequantize(*expert.up.weight);
        const auto down = dequantize(*expert.down.weight);
        const auto width = static_cast<std::size_t>(experts->intermediate);
        std::vector<double> h(width);
        for (std::size_t i = 0; i < width; ++i) {
          double g = 0;
          double u = 0;
          for (std::size_t c = 0; c < hidden; ++c) {
            const double x = input.x[static_cast<std::size_t>(t) * hidden + c];
            g += (*gate)[i * hidden + c] * x;
            u += (*up)[i * hidden + c] * x;
          }
          h[i] = g / (1 + std::exp(-g)) * u;
        }
        for (std::size_t r = 0; r < hidden; ++r) {
          double y = 0;
          for (std::size_t i = 0; i < width; ++i) y += (*down)[r * width + i] * h[i];
          sum[r] += input.weights[pair] * y;
        }
      }
      for (std::size_t r = 0; r < hidden; ++r)
        out[static_cast<std::size_t>(t) * hidden + r] = static_cast<float>(sum[r]);
    }
  }
  return out;
}

class CExperts : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string folder_ = checkpoint_folder(GetParam());
};

TEST_P(CExperts, ComputeTheDefinition) {
  const auto checkpoint = open_checkpoint(folder_);
  const auto experts = open_experts(checkpoint, no_options());
  const moracle_experts_info info = info_of(experts);
  const Input input(3, info.top_k, info);
  const auto expected = by_definition(folder_, 0, input);
  EXPECT_LT(distance(run(experts, input), expected), 1e-3);  // 16-bit activations, as the scheme says
  const auto ref = open_experts(open_checkpoint(folder_, "ref"), no_options());
  EXPECT_LT(distance(run(ref, input), expected), 1e-6);
}

// Ids are numbers in the layer, of whatever a rank holds.
TEST_P(CExperts, ExpertSlicesAddUp) {
  const auto checkpoint = open_checkpoint(folder_, "ref");
  const auto whole = open_experts(checkpoint, no_options());
  const moracle_experts_info info = info_of(whole);
  std::vector<std::int64_t> first, second;
  for (std::int64_t e = info.experts - 1; e >= 0; --e) (e % 3 == 0 ? first : second).push_back(e);
  std::vector<ExpertsPtr> ranks;
  for (const auto* const list : {&first, &second}) {
    moracle_experts_options options = no_options();
    options.experts = list->data();
    options.expert_count = list->size();
    ranks.push_back(open_experts(checkpoint, options));
    EXPECT_EQ(info_of(ranks.back()).held, static_cast<std::int64_t>(list->size()));
  }
  for (const std::int64_t top_k : {std::int64_t{2}, info.top_k}) {
    const Input input(5, top_k, info);
    auto sum = run(ranks[0], input);
    const auto other = run(ranks[1], input);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += other[i];
    const auto expected = run(whole, input);
    if (top_k == 2) {
      EXPECT_EQ(sum, expected);  // one addition, whoever makes it
    } else {
      EXPECT_LT(distance(sum, expected), 1e-6);
    }
  }
}

// Outputs of all ranks, added up; empty: the cut is refused.
std::vector<float> sum_of_ranks(const CheckpointPtr& checkpoint, const moracle_experts_info& whole, std::int32_t tp,
                                const Input& input) {
  std::vector<float> sum(input.x.size());
  for (std::int32_t rank = 0; rank < tp; ++rank) {
    moracle_experts_options options = no_options();
    options.tp = tp;
    options.tp_rank = rank;
    moracle_experts* handle = nullptr;
    CallError error;
    if (moracle_experts_open(checkpoint.get(), whole.layer, &options, &handle, &error.error) != MORACLE_OK) {
      EXPECT_EQ(error.code(), "plan.tp") << error.message();
      return {};
    }
    const ExpertsPtr slice(handle);
    EXPECT_EQ(info_of(slice).intermediate * tp, whole.intermediate);
    const auto part = run(slice, input);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += part[i];
  }
  return sum;
}

TEST_P(CExperts, TensorSlicesAddUp) {
  for (const char* const backend : {"ref", static_cast<const char*>(nullptr)}) {
    const auto checkpoint = open_checkpoint(folder_, backend);
    const auto whole = open_experts(checkpoint, no_options());
    const moracle_experts_info info = info_of(whole);
    const Input input(5, info.top_k, info);
    const auto expected = run(whole, input);
    for (const std::int32_t tp : {2, 4}) {
      const auto sum = sum_of_ranks(checkpoint, info, tp, input);
      const bool legal = !sum.empty();
      // What a plan forbids is refused, and only that: groups of 128 columns, and columns out of order.
      EXPECT_EQ(legal, std::string(GetParam()) == kMixtral) << "tp " << tp;
      if (legal) {
        EXPECT_LT(distance(sum, expected), backend != nullptr ? 1e-6 : 1e-3);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, CExperts, ::testing::Values(kMixtral, kQwen, kActOrder), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

// The first layer with routed experts.
std::int64_t first_moe_layer(const CheckpointPtr& checkpoint) {
  for (std::int64_t layer = 0; layer < 8; ++layer) {
    const moracle_experts_options options = no_options();
    moracle_experts* handle = nullptr;
    if (moracle_experts_open(checkpoint.get(), layer, &options, &handle, nullptr) == MORACLE_OK) {
      moracle_experts_close(handle);
      return layer;
    }
  }
  return -1;
}

// How far two ranks may be from one. A hidden value is rounded twice, where its scale is that of a rank's share: each
// time by a uniform error, of root mean square a step over sqrt(12). A step of int8 is a 127th of the row's largest
// value, which is up to six times the row's root mean square; a step of E4M3 is up to an 8th of the value.
double bound_of_slices(const std::string& activation) {
  const bool shared = activation.find("token") != std::string::npos || activation.find("g128") != std::string::npos;
  if (!shared) return 1e-6;  // the same codes: only sums differ
  return (activation.starts_with("int8") ? 6.0 / 127 : 1.0 / 8) * std::sqrt(2.0 / 12);
}

// Two ranks with `ref`: of what a plan lets them cut, outputs add up.
TEST(CSlices, OfEveryPublishedFormatAddUp) {
  if (!shared_dir()) GTEST_SKIP() << "needs the published checkpoints";
  std::size_t cut = 0;
  for (const auto& entry : std::filesystem::directory_iterator(*shared_dir() / "checkpoints")) {
    if (!std::filesystem::exists(entry.path() / "config.json")) continue;
    SCOPED_TRACE(entry.path().filename().string());
    const auto checkpoint = open_checkpoint(entry.path().string(), "ref");
    const std::int64_t layer = first_moe_layer(checkpoint);
    ASSERT_GE(layer, 0);
    const auto whole = open_experts(checkpoint, no_options(), layer);
    const moracle_experts_info info = info_of(whole);
    const Input input(5, info.top_k, info);
    const auto expected = run(whole, input);
    const auto sum = sum_of_ranks(checkpoint, info, 2, input);
    const Json decision =
        document_of([&](char** json, auto** error) { return moracle_experts_decision_json(whole.get(), json, error); });
    const Json scheme = decision["scheme"];
    const bool groups_of_128 = scheme["weight"].get<std::string>().starts_with("int4 g128");
    const bool in_order = entry.path().filename().string().find("actorder") == std::string::npos;
    EXPECT_EQ(sum.empty(), (groups_of_128 && info.intermediate % 256 != 0) || !in_order) << scheme;
    if (sum.empty()) continue;
    ++cut;
    const std::string activation = scheme["activation"].is_null() ? "" : scheme["activation"].get<std::string>();
    EXPECT_LT(distance(sum, expected), bound_of_slices(activation)) << scheme;
  }
  EXPECT_GE(cut, 8U);
}

TEST_F(CExpertsCall, RowsOfEveryTypeAndStride) {
  for (const std::int32_t dtype : {MORACLE_F32, MORACLE_BF16, MORACLE_F16}) {
    for (const std::int64_t gap : {0, 3}) {
      const std::size_t bytes = dtype == MORACLE_F32 ? 4 : 2;
      const std::int64_t stride = info_.hidden + gap;
      const std::size_t extent = static_cast<std::size_t>(input_.tokens * stride) * bytes;
      // One byte off: no alignment is promised.
      std::vector<unsigned char> x(extent + 1, 0xFF), out(extent + 1, 0xAB);
      const auto code = [&](float value) { return dtype == MORACLE_BF16 ? encode_bf16(value) : encode_f16(value); };
      for (std::int64_t t = 0; t < input_.tokens; ++t) {
        for (std::int64_t c = 0; c < info_.hidden; ++c) {
          const float value = input_.x[static_cast<std::size_t>(t * info_.hidden + c)];
          const std::uint16_t half = code(value);
          unsigned char* const at = x.data() + 1 + static_cast<std::size_t>(t * stride + c) * bytes;
          std::memcpy(at, bytes == 4 ? static_cast<const void*>(&value) : &half, bytes);
        }
      }
      std::vector<std::int64_t> ids(static_cast<std::size_t>(input_.tokens * (info_.top_k + 1)), 1 << 20);
      std::vector<std::uint16_t> weights(ids.size());
      for (std::int64_t t = 0; t < input_.tokens; ++t) {
        for (std::int64_t k = 0; k < info_.top_k; ++k) {
          const auto to = static_cast<std::size_t>(t * (info_.top_k + 1) + k);
          const auto from = static_cast<std::size_t>(t * info_.top_k + k);
          ids[to] = input_.ids[from];
          weights[to] = encode_bf16(input_.weights[from]);
        }
      }
      std::vector<float> unused;
      moracle_experts_call call = input_.call(unused);
      call.x_dtype = call.out_dtype = dtype;
      call.ids_dtype = MORACLE_INT64;
      call.weights_dtype = MORACLE_BF16;
      call.x = x.data() + 1;
      call.out = out.data() + 1;
      call.ids = ids.data();
      call.weights = weights.data();
      call.x_stride = call.out_stride = gap == 0 ? 0 : stride;
      call.ids_stride = call.weights_stride = info_.top_k + 1;
      CallError error;
      ASSERT_EQ(moracle_experts_run(experts_.get(), &call, &error.error), MORACLE_OK) << error.message();
      for (std::int64_t t = 0; t < input_.tokens; ++t) {
        for (std::int64_t c = 0; c < info_.hidden; ++c) {
          const float value = expected_[static_cast<std::size_t>(t * info_.hidden + c)];
          const std::uint16_t half = code(value);
          const unsigned char* const at = out.data() + 1 + static_cast<std::size_t>(t * stride + c) * bytes;
          ASSERT_EQ(std::memcmp(at, bytes == 4 ? static_cast<const void*>(&value) : &half, bytes), 0)
              << dtype << " " << t << " " << c;
        }
        for (std::size_t g = 0; g < static_cast<std::size_t>(gap) * bytes; ++g)
          ASSERT_EQ(out[1 + static_cast<std::size_t>(t * stride + info_.hidden) * bytes + g], 0xAB);
      }
    }
  }
}

TEST_F(CExpertsCall, InPlaceAndOverlapping) {
  std::vector<float> rows = input_.x;
  std::vector<float> unused;
  moracle_experts_call call = input_.call(unused);
  call.x = call.out = rows.data();
  EXPECT_EQ(moracle_experts_run(experts_.get(), &call, nullptr), MORACLE_OK);
  EXPECT_EQ(rows, expected_);
}

TEST_F(CExpertsCall, AbsentExpertsContributeNothing) {
  Input input = input_;
  for (std::size_t i = 0; i < input.ids.size(); ++i) {
    if (i % 2 == 1) input.ids[i] = -1;
  }
  Input zeros = input_;
  for (std::size_t i = 1; i < zeros.ids.size(); i += 2) zeros.weights[i] = 0;
  EXPECT_LT(distance(run(experts_, input), run(experts_, zeros)), 1e-6);
  std::fill(input.ids.begin(), input.ids.end(), -1);
  for (const float value : run(experts_, input)) ASSERT_EQ(value, 0.0F);
}

TEST_F(CExpertsCall, AWorkspaceOfTheCallers) {
  std::uint64_t bytes = 0;
  ASSERT_EQ(moracle_experts_workspace_bytes(experts_.get(), input_.tokens, input_.top_k, &bytes, nullptr), MORACLE_OK);
  std::vector<unsigned char> memory(bytes + 128, 0xCD);
  std::vector<float> out;
  moracle_experts_call call = input_.call(out);
  void* at = memory.data();
  std::size_t space = memory.size();
  call.workspace = std::align(64, bytes, at, space);
  call.workspace_bytes = bytes;
  CallError error;
  ASSERT_EQ(moracle_experts_run(experts_.get(), &call, &error.error), MORACLE_OK) << error.message();
  EXPECT_EQ(out, expected_);
  EXPECT_EQ(static_cast<unsigned char*>(call.workspace)[bytes], 0xCD);
  const auto again = [&](auto** e) { return moracle_experts_run(experts_.get(), &call, e); };
  call.workspace_bytes = bytes - 1;
  EXPECT_EQ(code_of(MORACLE_INVALID, again), "argument.workspace");
  call.workspace_bytes = bytes;
  call.workspace = static_cast<unsigned char*>(call.workspace) + 4;
  EXPECT_EQ(code_of(MORACLE_INVALID, again), "argument.workspace");
}

TEST_F(CExpertsCall, WrongCallsAreErrors) {
  std::vector<float> out;
  const moracle_experts_call good = input_.call(out);
  const auto code = [&](const auto& change) {
    moracle_experts_call call = good;
    change(call);
    return code_of(MORACLE_INVALID, [&](auto** error) { return moracle_experts_run(experts_.get(), &call, error); });
  };
  EXPECT_EQ(code([](auto& c) { c.size = 2; }), "argument.size");
  EXPECT_EQ(code([](auto& c) { c.x_dtype = 0; }), "argument.dtype");
  EXPECT_EQ(code([](auto& c) { c.out_dtype = MORACLE_INT32; }), "argument.dtype");
  EXPECT_EQ(code([](auto& c) { c.ids_dtype = MORACLE_F32; }), "argument.dtype");
  EXPECT_EQ(code([](auto& c) { c.weights_dtype = 99; }), "argument.dtype");
  EXPECT_EQ(code([](auto& c) { c.x = nullptr; }), "argument.null");
  EXPECT_EQ(code([](auto& c) { c.out = nullptr; }), "argument.null");
  EXPECT_EQ(code([](auto& c) { c.ids = nullptr; }), "argument.null");
  EXPECT_EQ(code([](auto& c) { c.weights = nullptr; }), "argument.null");
  EXPECT_EQ(code([](auto& c) { c.tokens = -1; }), "argument.range");
  EXPECT_EQ(code([](auto& c) { c.tokens = INT64_MAX; }), "argument.range");
  EXPECT_EQ(code([](auto& c) { c.top_k = 0; }), "argument.range");
  EXPECT_EQ(code([](auto& c) { c.top_k = 17; }), "argument.range");
  EXPECT_EQ(code([](auto& c) { c.x_stride = 255; }), "argument.stride");
  EXPECT_EQ(code([](auto& c) { c.out_stride = INT64_MAX; }), "argument.stride");
  EXPECT_EQ(code([](auto& c) { c.ids_stride = -4; }), "argument.stride");
  for (const std::int32_t id : {-2, 16, INT32_MIN, INT32_MAX}) {
    std::vector<std::int32_t> ids = input_.ids;
    ids[5] = id;
    EXPECT_EQ(code([&](auto& c) { c.ids = ids.data(); }), "argument.id") << id;
  }
  moracle_experts_call none = good;
  none.tokens = 0;
  none.x = none.out = nullptr;
  EXPECT_EQ(moracle_experts_run(experts_.get(), &none, nullptr), MORACLE_OK);
}

TEST_F(CExpertsCall, WrongSlicesAreErrors) {
  const auto code = [&](moracle_status status, std::int64_t layer, const moracle_experts_options& options) {
    moracle_experts* handle = nullptr;
    const std::string found = code_of(
        status, [&](auto** error) { return moracle_experts_open(checkpoint_.get(), layer, &options, &handle, error); });
    EXPECT_EQ(handle, nullptr);
    return found;
  };
  EXPECT_EQ(code(MORACLE_FAILED, -1, no_options()), "experts.layer");
  EXPECT_EQ(code(MORACLE_FAILED, 3, no_options()), "experts.layer");
  moracle_experts_options options = no_options();
  options.tp = 2;
  options.tp_rank = 2;
  EXPECT_EQ(code(MORACLE_INVALID, 0, options), "argument.range");
  options.tp = -1;
  EXPECT_EQ(code(MORACLE_INVALID, 0, options), "argument.range");
  options = no_options();
  for (const std::vector<std::int64_t>& list : {std::vector<std::int64_t>{16}, {-1}, {3, 4, 3}}) {
    options.experts = list.data();
    options.expert_count = list.size();
    EXPECT_EQ(code(MORACLE_FAILED, 0, options), "experts.list");
  }
  options.expert_count = 0;
  EXPECT_EQ(code(MORACLE_INVALID, 0, options), "argument.range");
  options = no_options();
  options.pool = reinterpret_cast<moracle_pool*>(checkpoint_.get());
  EXPECT_EQ(code(MORACLE_INVALID, 0, options), "handle.kind");
}

TEST_F(CExpertsCall, TheDecisionIsThatOfExplain) {
  const Json decision = document_of(
      [&](char** json, moracle_error** error) { return moracle_experts_decision_json(experts_.get(), json, error); });
  const Json all = document_of([&](char** json, moracle_error** error) {
    return moracle_explain(checkpoint_folder(kQwen).c_str(), nullptr, json, error);
  });
  const auto same = std::find_if(all["layers"].begin(), all["layers"].end(), [&](const Json& layer) {
    const Json& names = layer["names"];
    return std::find(names.begin(), names.end(), decision["names"][0]) != names.end();
  });
  ASSERT_NE(same, all["layers"].end()) << decision;
  EXPECT_EQ((*same)["backend"], decision["backend"]);
  EXPECT_EQ((*same)["trace"], decision["trace"]);
}

// Every module but the experts, once, with its values.
TEST(CDense, WalksAllOtherTensors) {
  for (const char* const name : {kMixtral, kQwen, kActOrder}) {
    const std::string folder = checkpoint_folder(name);
    const auto files = Checkpoint::open(folder);
    const auto plan = LoadPlan::make(*files, probe_machine(), {});
    ASSERT_TRUE(plan.ok());
    for (const std::int32_t dtype : {MORACLE_F32, MORACLE_BF16}) {
      const auto checkpoint = open_checkpoint(folder);
      moracle_dense_options options = dense_options();
      options.dtype = dtype;
      DensePtr walk = open_dense(checkpoint, options);
      std::size_t at = 0;
      const auto& modules = (*plan)->modules();
      moracle_tensor tensor = no_tensor();
      moracle_status status = MORACLE_OK;
      while ((status = moracle_dense_next(walk.get(), &tensor, nullptr)) == MORACLE_OK) {
        while (modules[at].kind == "experts") ++at;
        EXPECT_EQ(std::string(tensor.name), modules[at].name + ".weight");
        const auto* const stored = (*files)->find(tensor.name);
        if (stored != nullptr) {
          ASSERT_EQ(static_cast<std::size_t>(tensor.rank), stored->shape.size());
          for (std::size_t d = 0; d < stored->shape.size(); ++d) EXPECT_EQ(tensor.dims[d], stored->shape[d]);
        }
        if (modules[at].kind == "linear") {
          const auto linear = (*plan)->read_linear(at);
          const auto values = dequantize(*linear->weight);
          for (std::size_t i = 0; i < values->size(); ++i) {
            const float found = dtype == MORACLE_F32 ? static_cast<const float*>(tensor.data)[i]
                                                     : decode_bf16(static_cast<const std::uint16_t*>(tensor.data)[i]);
            const float wanted = dtype == MORACLE_F32 ? (*values)[i] : decode_bf16(encode_bf16((*values)[i]));
            ASSERT_EQ(found, wanted) << tensor.name << " " << i;
          }
        }
        ++at;
      }
      EXPECT_EQ(status, MORACLE_END);
      while (at < modules.size() && modules[at].kind == "experts") ++at;
      EXPECT_EQ(at, modules.size());
      EXPECT_EQ(moracle_dense_close(walk.release()), MORACLE_OK);
    }
    const auto checkpoint = open_checkpoint(folder);
    moracle_dense_options options = dense_options();
    options.dtype = MORACLE_F16;
    moracle_dense* walk = nullptr;
    EXPECT_EQ(
        code_of(MORACLE_INVALID, [&](auto** e) { return moracle_dense_open(checkpoint.get(), &options, &walk, e); }),
        "argument.dtype");
  }
}

// A published name that a walk has, or an expert's: nothing is left out, and no name is made up. Biases are as stored.
TEST(CDense, HasWhatExpertsLeaveOfPublishedFiles) {
  if (!shared_dir()) GTEST_SKIP() << "needs the published checkpoints";
  for (const char* const name : {"native-mxfp4-gpt_oss", "qwen35moe-ct-w4a16-g128", "quark-int8-ptpc-step3p5"}) {
    SCOPED_TRACE(name);
    const std::filesystem::path folder = *shared_dir() / "checkpoints" / name;
    const auto files = Checkpoint::open(folder);
    ASSERT_TRUE(files.ok());
    const auto checkpoint = open_checkpoint(folder.string());
    moracle_dense_options options = dense_options();
    options.dtype = MORACLE_F32;
    const DensePtr walk = open_dense(checkpoint, options);
    std::set<std::string> walked;
    int biases = 0;
    moracle_tensor tensor = no_tensor();
    while (moracle_dense_next(walk.get(), &tensor, nullptr) == MORACLE_OK) {
      EXPECT_TRUE(walked.insert(tensor.name).second) << tensor.name << " twice";
      if (!std::string_view(tensor.name).ends_with(".bias")) continue;
      ++biases;
      const auto* const stored = (*files)->find(tensor.name);
      ASSERT_NE(stored, nullptr) << tensor.name;
      const auto values = read_floats(*stored);
      ASSERT_TRUE(values.ok());
      ASSERT_EQ(tensor.bytes, values->size() * sizeof(float));
      EXPECT_EQ(std::memcmp(tensor.data, values->data(), tensor.bytes), 0) << tensor.name;
    }
    if (std::string_view(name).ends_with("gpt_oss")) {
      EXPECT_GT(biases, 0);
    }
    for (const auto& [full, stored] : (*files)->tensors()) {
      const bool others = full.find(".experts.") != std::string::npos || full.find("visual") != std::string::npos ||
                          full.find("mtp") != std::string::npos;
      const std::string module = full.substr(0, full.rfind('.'));
      if (!others && !walked.contains(full) && !walked.contains(module + ".weight")) ADD_FAILURE() << full;
    }
  }
}

// A host's threads decode, and none of ours.
TEST(CDense, DecodesOnTheCallersPool) {
  int tasks = 0;
  const PoolPtr pool = open_pool(
      [](void* context, std::int64_t count, moracle_task task, void* work) {
        *static_cast<int*>(context) += static_cast<int>(count);
        for (std::int64_t i = 0; i < count; ++i) task(work, i);
      },
      &tasks);
  const auto checkpoint = open_checkpoint(checkpoint_folder(kQwen));
  moracle_dense_options options = dense_options();
  options.pool = pool.get();
  const DensePtr walk = open_dense(checkpoint, options);
  moracle_tensor tensor = no_tensor();
  while (moracle_dense_next(walk.get(), &tensor, nullptr) == MORACLE_OK) EXPECT_EQ(tensor.dtype, MORACLE_BF16);
  EXPECT_GT(tasks, 0);
}

}  // namespace
}  // namespace moracle::test
