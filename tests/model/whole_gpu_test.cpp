// A model of which a GPU has every module, over the fake: its kernels of linears and experts, operations of the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "model/forward/transformer.h"
#include "model/load/device_room.h"
#include "model/load/memory_plan.h"
#include "model/load/plan.h"
#include "support/fake_device.h"
#include "support/model_fixture.h"

namespace moracle::test {
namespace {

// Before anything asks which object there is: cards of a device lack none.
const int kNamed = ::setenv("MORACLE_CUDA_LIBRARY", MORACLE_HOST_OBJECT, 1);
constexpr double kBound = 1e-2;  // several times the error of 16-bit activations on the host (docs/model.md)
constexpr std::size_t kStateBytes = std::size_t{16} << 20U;

// What a load captures takes most of its time here: tests that ask for no graph go without.
class Graphs {
 public:
  explicit Graphs(bool on) { ::setenv("MORACLE_CUDA_GRAPHS", on ? "1" : "0", 1); }
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs() { ::unsetenv("MORACLE_CUDA_GRAPHS"); }
};

using Ids = std::vector<std::int32_t>;
const std::array<Ids, 3> kPrompts = {Ids{1, 5, 9, 2, 7, 3, 11}, Ids{2, 8, 10, 9, 7, 3, 12},
                                     Ids{6, 20, 14, 37, 7, 3, 16}};

// Opens, loads, and runs each prompt and one token behind it: the logits of the last tokens.
Result<std::vector<std::vector<float>>> run(const std::filesystem::path& folder, const Place& place,
                                            std::int64_t expert_layers = kAllLayers) {
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, place, {}, GpuModules::all, expert_layers));
  ThreadPool pool(2);
  MORACLE_ASSIGN(const auto model, load_model(*plan, pool, {.kv_memory = kStateBytes}));
  std::vector<std::vector<float>> all;
  for (const Ids& prompt : kPrompts) {
    MORACLE_ASSIGN(const auto state, model->new_sequence());
    std::vector<float>& both = all.emplace_back();
    for (const Ids& ids : {prompt, Ids{4}}) {
      Ragged batch;
      batch.add(*state, ids);
      std::vector<float> logits;
      MORACLE_TRY(batch.forward(*model, LogitRows::last_of_each, logits));
      both.insert(both.end(), logits.begin(), logits.end());
    }
  }
  return all;
}

double relative_error(const std::vector<float>& found, const std::vector<float>& wanted) {
  double difference = 0.0;
  double size = 0.0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
    size += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return std::sqrt(difference / size);
}

// The median of the prompts' errors is compared: routing may differ in one, where two experts are nearly equal.
double median_error(const std::vector<std::vector<float>>& found, const std::vector<std::vector<float>>& wanted) {
  std::vector<double> errors;
  for (std::size_t i = 0; i < wanted.size(); ++i) errors.push_back(relative_error(found.at(i), wanted[i]));
  std::ranges::sort(errors);
  return errors[errors.size() / 2];
}

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> all;
  for (const char* const kind : {"checkpoints", "families"}) {
    for (const auto& entry : std::filesystem::directory_iterator(data_dir() / kind)) {
      if (entry.is_directory() && !entry.path().filename().string().ends_with("-cut")) all.push_back(entry.path());
    }
  }
  std::ranges::sort(all);
  return all;
}

// Every architecture, as far as the device has kernels for its sizes, beside the reference kernels, which choose the
// same experts on every machine: where two are nearly equal, one of a machine's own may choose the other. Work runs
// when it is waited for, and memory of the device is out of the host's reach.
TEST(WholeGpu, ComputesWhatTheHostDoes) {
  ASSERT_EQ(kNamed, 0);
  int served = 0;
  for (const std::filesystem::path& folder : folders()) {
    SCOPED_TRACE(folder.filename().string());
    const Graphs graphs(folder.filename() == "qwen2_moe");
    const auto wanted = run(folder, {.host = probe_machine()});
    ASSERT_TRUE(wanted.ok()) << wanted.error().message();
    FakeDevice fake;
    fake.late_work = true;
    fake.guarded = true;
    {
      const auto device = GpuDevice::open(fake.api(), 0);
      ASSERT_TRUE(device.ok());
      const auto found = run(folder, {.host = probe_machine(), .device = *device});
      if (found.ok()) {
        EXPECT_LT(median_error(*found, *wanted), kBound);
        ++served;
      } else {
        const std::string& code = found.error().code;
        EXPECT_TRUE(code == "device.operation" || code == "device.kernel") << found.error().message();
        EXPECT_EQ(fake.calls("allocate") + fake.calls("allocate_pinned"), 0) << "before anything is loaded";
      }
    }
    EXPECT_EQ(fake.live_objects(), 0U);
  }
  EXPECT_GT(served, 10);
}

// The host computes routed experts of the last layers, or of all: shared experts stay with the router.
TEST(BothSides, ComputeWhatTheHostDoes) {
  const Graphs off(false);
  for (const char* const name : {"checkpoints/qwen3moe-gptq-w4g128-sym", "families/gpt_oss-stacked",
                                 "families/glm4_moe-grouped", "families/qwen2_moe", "families/qwen3_5_moe"}) {
    const auto wanted = run(data_dir() / name, {.host = probe_machine()});
    ASSERT_TRUE(wanted.ok()) << wanted.error().message();
    for (const std::int64_t expert_layers : {0, 1}) {
      SCOPED_TRACE(std::string(name) + " " + std::to_string(expert_layers));
      FakeDevice fake;
      fake.late_work = true;
      fake.guarded = true;
      {
        const auto device = GpuDevice::open(fake.api(), 0);
        ASSERT_TRUE(device.ok());
        const Place place{.host = probe_machine(), .device = *device};
        const auto found = run(data_dir() / name, place, expert_layers);
        ASSERT_TRUE(found.ok()) << found.error().message();
        EXPECT_LT(median_error(*found, *wanted), kBound);
        EXPECT_EQ(*found, *run(data_dir() / name, place, expert_layers)) << "twice the same bits";
      }
      EXPECT_EQ(fake.live_objects(), 0U);
    }
  }
}

// A bound that has room for some layers' experts: as many as fit are the GPU's, and the load keeps to the bound.
TEST(BothSides, TheHostHasWhatABoundLeavesNoRoomFor) {
  const Graphs off(false);
  const auto checkpoint = Checkpoint::open(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym");
  ASSERT_TRUE(checkpoint.ok());
  ThreadPool pool(2);
  constexpr MemoryPlanOptions kCall{.threads = 2};
  FakeDevice fake;
  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  const Place place{.host = probe_machine(), .device = *device};
  const auto layers_there = [](const LoadPlan& plan) {
    return std::ranges::count_if(plan.opened().placement().layers, [](const LayerPlacement& layer) {
      return !layer.experts.empty() && layer.experts.front() != DeviceId::host;
    });
  };
  const auto whole = plan_for_room(*checkpoint, place, {}, {}, kCall);
  ASSERT_TRUE(whole.ok()) << whole.error().message();
  MemoryPlanOptions call = kCall;
  call.context = std::min(kUsualContext, (*whole)->info().max_context);
  call.batch_tokens = (*whole)->prefill_chunk();
  const auto memory = memory_plan(**whole, call);
  ASSERT_TRUE(memory.ok());
  const std::uint64_t all = memory->on_device.total();
  const std::int64_t layers = layers_there(**whole);
  ASSERT_EQ(layers, std::ssize(memory->layers));
  const std::uint64_t state = memory->on_device.state;
  for (std::int64_t here = 1; here <= layers; ++here) {
    SCOPED_TRACE(here);
    const std::uint64_t experts = memory->layers.back().experts.bytes * static_cast<std::uint64_t>(here);
    const std::uint64_t bound = all - experts + state / 9 + 16;
    ASSERT_TRUE((*device)->limit_memory(bound).ok());
    const auto plan = plan_for_room(*checkpoint, place, {}, {}, kCall);
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    EXPECT_EQ(layers_there(**plan), layers - here);
    const auto split = memory_plan(**plan, call);
    ASSERT_TRUE(split.ok()) << split.error().message();
    EXPECT_EQ(split->on_device.weights, memory->on_device.weights - experts);
    EXPECT_LE(split->on_device.total(), all - experts) << "workspaces do not grow";
    EXPECT_EQ(split->total() - split->workspace - split->on_device.workspace, memory->weights() + memory->state)
        << "weights are on one side or the other";
    EXPECT_GT(split->workspace, 0U) << "of the host's calls";
    const auto model = load_model(**plan, pool, {.sequences = 1});
    ASSERT_TRUE(model.ok()) << model.error().message();
    EXPECT_LE(fake.live_bytes(), bound);
  }
  // Beside all weights a short call alone: prompts come in as many.
  const std::uint64_t short_calls = all - memory->on_device.workspace / 2;
  ASSERT_TRUE((*device)->limit_memory(short_calls).ok());
  {
    const auto chunked = load_model(**whole, pool, {.sequences = 1});
    ASSERT_TRUE(chunked.ok()) << chunked.error().message();
    EXPECT_GE((*chunked)->prefill_chunk(), 64);
    EXPECT_LT((*chunked)->prefill_chunk(), call.batch_tokens);
    EXPECT_GT((*chunked)->state_memory().positions, 64);
    EXPECT_LE(fake.live_bytes(), short_calls);
  }
  // Without experts, and beside the rest a short call.
  const std::uint64_t experts = memory->layers.back().experts.bytes * static_cast<std::uint64_t>(layers);
  ASSERT_TRUE((*device)->limit_memory(short_calls - experts).ok());
  const auto smallest = plan_for_room(*checkpoint, place, {}, {}, kCall);
  ASSERT_TRUE(smallest.ok()) << smallest.error().message();
  EXPECT_EQ(layers_there(**smallest), 0);
  {
    const auto small = load_model(**smallest, pool, {.sequences = 1});
    ASSERT_TRUE(small.ok()) << small.error().message();
    EXPECT_LT((*small)->prefill_chunk(), call.batch_tokens);
  }
  ASSERT_TRUE((*device)->limit_memory(state).ok());
  const auto none = plan_for_room(*checkpoint, place, {}, {}, kCall);
  ASSERT_TRUE(none.ok()) << none.error().message();
  EXPECT_EQ(layers_there(**none), layers) << "what does not fit at all is told of the whole model";
  const auto refused = load_model(**none, pool, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "device.memory");
}

// Pages that no kernel reads, and heads of a size that none has: one sentence before anything is taken.
TEST(WholeGpu, WhatOperationsLackIsRefusedBeforeTheLoad) {
  struct Refused {
    std::filesystem::path folder;
    std::optional<KvType> kv;
    std::string message;
  };
  const std::filesystem::path qwen = data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym";
  const std::string pages = " [device.operation]; use --kv bf16, or --device cpu";
  const std::string layer = "cuda:0, model.layers.0: wanted ";
  for (const Refused& one :
       {Refused{qwen, KvType::f32, layer + "keys and values in bf16, found f32" + pages},
        Refused{qwen, KvType::int8, layer + "keys and values in bf16, found int8" + pages},
        Refused{data_dir() / "families" / "mixtral-stacked", std::nullopt,
                layer + "a head size of up to 256 in multiples of 16, found 24 [device.operation]; use --device cpu"},
        Refused{qwen, KvType::bf16, ""}}) {
    const Graphs off(false);
    FakeDevice fake;
    const auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    const auto checkpoint = Checkpoint::open(one.folder);
    ASSERT_TRUE(checkpoint.ok());
    const auto plan = LoadPlan::make(*checkpoint, {.host = probe_machine(), .device = *device}, {}, GpuModules::all);
    ASSERT_TRUE(plan.ok());
    ThreadPool pool(2);
    const auto model = load_model(**plan, pool, {.kv = one.kv, .kv_memory = kStateBytes});
    EXPECT_EQ(model.ok() ? "" : model.error().message(), one.message);
    EXPECT_EQ(fake.calls("allocate") + fake.calls("allocate_pinned") == 0, !model.ok());
  }
}

// Calls of kernels in a decode step. Of a layer: norm with the residual sum; linears of one input; attention; its
// output; the router with norm, sum and choice; experts; shared experts with their gate and activation. Attention is
// two kernels, one that appends and one that attends. Beside the layers: rope tables, the embedding, the last sum, what
// is not finite (twice), the rows of the head, their norm, the head.
TEST(WholeGpu, LaunchesOfADecodeStep) {
  struct Launches {
    const char* folder;
    int layer;
    int others;
  };
  for (const Launches& one : {Launches{"checkpoints/qwen3moe-gptq-w4g128-sym", 6, 8},
                              Launches{"families/gpt_oss-stacked", 6, 8}, Launches{"families/qwen2_moe", 11, 8}}) {
    SCOPED_TRACE(one.folder);
    FakeDevice fake;
    const auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    const auto checkpoint = Checkpoint::open(data_dir() / one.folder);
    ASSERT_TRUE(checkpoint.ok());
    const auto plan = LoadPlan::make(*checkpoint, {.host = probe_machine(), .device = *device}, {}, GpuModules::all);
    ASSERT_TRUE(plan.ok());
    ThreadPool pool(2);
    const Graphs off(false);
    const auto model = load_model(**plan, pool, {.kv_memory = kStateBytes});
    ASSERT_TRUE(model.ok()) << model.error().message();
    EXPECT_EQ((*model)->decode_graphs().captured, 0);
    const auto state = (*model)->new_sequence();
    ASSERT_TRUE(state.ok());
    Ragged batch;
    batch.add(**state, {1});
    std::vector<float> logits;
    const int before = fake.calls("kernel");
    ASSERT_TRUE(batch.forward(**model, LogitRows::last_of_each, logits).ok());
    EXPECT_EQ(fake.calls("kernel") - before, (*model)->info().layers * one.layer + one.others)
        << (*model)->info().layers;
  }
}

// Beside it, arrays share allocations of a MiB, and a call's inputs and results are small.
TEST(WholeGpu, TakesWhatThePlanSays) {
  constexpr std::int64_t kTokens = 33;
  constexpr std::size_t kBeside = std::size_t{3} << 20U;
  const Graphs off(false);
  const auto checkpoint = Checkpoint::open(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym");
  ASSERT_TRUE(checkpoint.ok());
  FakeDevice fake;
  const auto device = GpuDevice::open(fake.api(), 0);
  ASSERT_TRUE(device.ok());
  const auto plan = LoadPlan::make(*checkpoint, {.host = probe_machine(), .device = *device}, {}, GpuModules::all);
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const auto memory = memory_plan(**plan, {.context = 64, .batch_tokens = kTokens, .threads = 2});
  ASSERT_TRUE(memory.ok()) << memory.error().message();
  const MemoryOnDevice& there = memory->on_device;
  EXPECT_TRUE(there.main);
  EXPECT_EQ(there.weights, memory->weights());
  EXPECT_EQ(there.state, memory->state);
  EXPECT_EQ(memory->on_host(), 0U);
  EXPECT_EQ(there.layers_held, std::ssize(memory->layers));
  ThreadPool pool(2);
  {
    const auto model = load_model(**plan, pool, {.kv_memory = memory->state});
    ASSERT_TRUE(model.ok()) << model.error().message();
    ASSERT_TRUE((*model)->reserve(kTokens).ok());
    // The fake's graphs take none of it.
    const std::size_t taken = fake.live_bytes() + kDecodeSizes.size() * memory->layers.size() * kGraphLayerBytes;
    EXPECT_GE(taken, there.total());
    EXPECT_LE(taken, there.total() + kBeside);
  }
  fake.most_bytes = there.weights;
  const int asked = fake.calls("allocate");
  const auto refused = load_model(**plan, pool, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "device.memory");
  EXPECT_NE(refused.error().wanted.find(" for the weights of "), std::string::npos) << refused.error().wanted;
  EXPECT_EQ(fake.calls("allocate"), asked) << "before anything is taken";
}

// A bound below the weights refuses the load before it reads; of one above, keys and values take their context alone.
TEST(WholeGpu, KeepsToABoundOnMemory) {
  constexpr std::int64_t kContext = 64;
  const Graphs off(false);
  const auto checkpoint = Checkpoint::open(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym");
  ASSERT_TRUE(checkpoint.ok());
  ThreadPool pool(2);
  const auto load = [&](std::uint64_t bound, FakeDevice& fake) -> Result<StateMemory> {
    MORACLE_ASSIGN(const auto device, GpuDevice::open(fake.api(), 0));
    MORACLE_TRY(device->limit_memory(bound));
    MORACLE_ASSIGN(const auto plan,
                   LoadPlan::make(*checkpoint, {.host = probe_machine(), .device = device}, {}, GpuModules::all));
    MORACLE_ASSIGN(const auto model, load_model(*plan, pool, {.sequences = 1, .context = kContext}));
    return model->state_memory();
  };
  FakeDevice roomy;
  const auto kept = load(0, roomy);
  ASSERT_TRUE(kept.ok()) << kept.error().message();
  EXPECT_GE(kept->positions, kContext);
  EXPECT_LT(kept->budget, roomy.peak_bytes() / 2) << "not what the bound would allow";
  FakeDevice bounded;
  const auto same = load(roomy.peak_bytes() * 2, bounded);
  ASSERT_TRUE(same.ok()) << same.error().message();
  EXPECT_EQ(bounded.peak_bytes(), roomy.peak_bytes());
  FakeDevice small;
  const auto refused = load(roomy.peak_bytes() / 8, small);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, "device.memory");
  EXPECT_EQ(small.peak_bytes(), 0U) << "before anything is taken";
}

// GPUs without kernels of their own take the portable ones, whose attention passes on what blocks sum.
TEST(WholeGpu, TakesPortableKernelsElsewhere) {
  ASSERT_EQ(kNamed, 0);
  const Graphs graphs(true);
  const std::filesystem::path folder = data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym";
  const auto wanted = run(folder, {.host = probe_machine()});
  ASSERT_TRUE(wanted.ok()) << wanted.error().message();
  for (const int capability : {80, 86, 120}) {
    SCOPED_TRACE(capability);
    FakeDevice fake;
    fake.capability = capability;
    const auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    const Place place{.host = probe_machine(), .device = *device};
    const auto plan = LoadPlan::make(*Checkpoint::open(folder), place, {}, GpuModules::all);
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    for (const ModuleReport& module : (*plan)->modules()) {
      if (module.kind != "experts") continue;
      EXPECT_EQ(module.decision->winner->backend, "portable");
    }
    const auto found = run(folder, place);
    ASSERT_TRUE(found.ok()) << found.error().message();
    EXPECT_LT(median_error(*found, *wanted), kBound);
  }
}

// Whichever call fails: one sentence, and nothing is left.
class WholeGpuFailures : public ::testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Sides, WholeGpuFailures, ::testing::Values(kAllLayers, 1),
                         [](const auto& info) { return info.param == kAllLayers ? "whole" : "both"; });

TEST_P(WholeGpuFailures, LeaveNothing) {
  struct Failing {
    const char* call;
    int error;
    const char* code;
    int step;
  };
  const std::filesystem::path folder = data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym";
  const std::int64_t expert_layers = GetParam();
  for (const Failing& one : {Failing{"allocate", kDeviceOutOfMemory, "device.memory", 7},
                             Failing{"allocate_pinned", kDeviceOutOfMemory, "device.pinned", 1},
                             Failing{"make_stream", 700, "device.call", 5}, Failing{"kernel", 700, "device.call", 31},
                             Failing{"copy", 700, "device.call", 37}, Failing{"wait", 700, "device.call", 41}}) {
    const Graphs off(false);
    for (int at = 1;; at += one.step) {
      SCOPED_TRACE(std::string(one.call) + " " + std::to_string(at));
      FakeDevice fake;
      fake.failure = {.call = one.call, .at = at, .error = one.error};
      std::optional<Error> failed;
      {
        const auto device = GpuDevice::open(fake.api(), 0);
        ASSERT_TRUE(device.ok());
        auto done = run(folder, {.host = probe_machine(), .device = *device}, expert_layers);
        if (!done.ok()) failed = std::move(done).error();
      }
      EXPECT_EQ(fake.live_objects(), 0U);
      EXPECT_EQ(fake.live_bytes(), 0U);
      if (fake.calls(one.call) < at) {
        EXPECT_FALSE(failed.has_value()) << failed->message();
        EXPECT_GT(at, 1) << "never called";
        break;
      }
      ASSERT_TRUE(failed.has_value());
      EXPECT_EQ(failed->code, one.code) << failed->message();
      EXPECT_EQ(failed->message().find('\n'), std::string::npos) << "one sentence";
    }
  }
}

// The first step of a load that is captured; tests of the forward step let every other call fail.
TEST(WholeGpuCapture, ThatFailsEndsTheLoad) {
  FakeDevice fake;
  fake.failure = {.call = "begin_capture", .at = 1, .error = 700};
  {
    const auto device = GpuDevice::open(fake.api(), 0);
    ASSERT_TRUE(device.ok());
    const auto done = run(data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym", {probe_machine(), *device});
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, "device.call");
  }
  EXPECT_EQ(fake.live_objects(), 0U);
  EXPECT_EQ(fake.live_bytes(), 0U);
}

}  // namespace
}  // namespace moracle::test
