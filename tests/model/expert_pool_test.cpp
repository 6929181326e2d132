// Models whose experts do not all fit: the same bits as of a load that fits, and errors of the disk.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "model/load/expert_room.h"
#include "support/faulty_disk.h"
#include "support/model_fixture.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace moracle::test {
namespace {

constexpr int kThreads = 2;
using Logits = std::vector<float>;

std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> all;
  for (const char* kind : {"checkpoints", "families"}) {
    for (const auto& entry : std::filesystem::directory_iterator(data_dir() / kind)) {
      if (entry.is_directory()) all.push_back(entry.path());
    }
  }
  if (const auto shared = shared_dir()) {
    for (const auto& entry : std::filesystem::directory_iterator(*shared / "checkpoints")) {
      if (entry.is_directory()) all.push_back(entry.path());
    }
  }
  std::sort(all.begin(), all.end());
  return all;
}

Result<ExpertRoom> room_of(const LoadPlan& plan, std::uint64_t memory) {
  return expert_room(plan, {.memory = memory},
                     {.context = std::min(kUsualContext, plan.info().max_context),
                      .batch_tokens = plan.prefill_chunk(),
                      .threads = kThreads});
}

std::shared_ptr<const Checkpoint> open(const std::filesystem::path& folder) {
  auto opened = Checkpoint::open(folder);
  EXPECT_TRUE(opened.ok());
  return opened.ok() ? *opened : nullptr;
}

Loaded load_slots(const std::shared_ptr<const Checkpoint>& checkpoint, std::size_t slots) {
  Loaded loaded;
  auto plan = LoadPlan::make(checkpoint, probe_machine(), {});
  if (!plan.ok()) {
    ADD_FAILURE() << plan.error().message();
    return loaded;
  }
  loaded.pool = std::make_unique<ThreadPool>(kThreads);
  auto model = load_model(**plan, *loaded.pool, {.expert_slots = slots});
  if (!model.ok()) {
    ADD_FAILURE() << model.error().message();
    return loaded;
  }
  loaded.model = std::move(*model);
  return loaded;
}

std::vector<std::int32_t> prompt(const Model& model, std::size_t length, std::int32_t seed) {
  std::vector<std::int32_t> ids(length);
  for (std::size_t i = 0; i < length; ++i) {
    const auto mixed = static_cast<std::int64_t>(i * i * 31 + i * 7) + seed;
    ids[i] = static_cast<std::int32_t>(mixed % model.info().vocab_size);
  }
  return ids;
}

// A prompt, steps of two sequences, and a prompt behind them.
std::vector<Logits> talk(Model& model) {
  const auto first = new_state(model);
  const auto second = new_state(model);
  std::vector<Logits> all;
  all.push_back(run(model, *first, prompt(model, 40, 1)));
  all.push_back(run(model, *second, prompt(model, 3, 9)));
  for (std::int32_t step = 0; step < 4; ++step) {
    Ragged batch;
    batch.add(*first, prompt(model, 1, step));
    batch.add(*second, prompt(model, 1, 3 * step));
    const Result<> done = batch.forward(model, LogitRows::all, all.emplace_back());
    EXPECT_TRUE(done.ok()) << done.error().message();
  }
  all.push_back(run(model, *second, prompt(model, 17, 5)));
  return all;
}

bool same_bits(const Logits& a, const Logits& b) {
  return !a.empty() && a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class ExpertPoolTest : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(ExpertPoolTest, OneSlotGivesTheSameBits) {
  const Loaded whole = load(GetParam(), {}, kThreads);
  const Loaded least = load_slots(open(GetParam()), 1);
  ASSERT_NE(whole.model, nullptr);
  ASSERT_NE(least.model, nullptr);
  EXPECT_FALSE(whole.model->expert_slots());
  const std::vector<Logits> wanted = talk(*whole.model);
  const std::vector<Logits> found = talk(*least.model);
  ASSERT_EQ(wanted.size(), found.size());
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same_bits(wanted[i], found[i])) << i;
  const auto slots = least.model->expert_slots();
  EXPECT_EQ(slots.has_value(), whole.model->info().experts > 0);
  if (!slots) return;
  EXPECT_EQ(slots->reads, slots->uses - slots->hits);
  EXPECT_GT(slots->reads, 0U);
  EXPECT_EQ(slots->failures, 0U);
}

INSTANTIATE_TEST_SUITE_P(Checkpoints, ExpertPoolTest, testing::ValuesIn(folders()), [](const auto& info) {
  std::string name = info.param.parent_path().parent_path().filename().string() + "_" + info.param.filename().string();
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
});

const std::filesystem::path& small_folder() {
  static const std::filesystem::path folder = data_dir() / "checkpoints" / "qwen3moe-gptq-w4g128-sym";
  return folder;
}

TEST(ExpertPool, IsRefusedBelowItsFloorAndNotMadeWhereAllFit) {
  auto plan = LoadPlan::make(open(small_folder()), probe_machine(), {});
  ASSERT_TRUE(plan.ok());
  const auto most = room_of(**plan, std::uint64_t{1} << 40U);
  ASSERT_TRUE(most.ok()) << most.error().message();
  EXPECT_EQ(most->pool.slots, 0U);
  EXPECT_GT(most->state, std::uint64_t{1} << 39U);
  const std::uint64_t too_few = most->weights + most->workspace + most->experts;
  const auto below = room_of(**plan, too_few);
  ASSERT_FALSE(below.ok());
  EXPECT_EQ(below.error().code, "memory.floor");
  EXPECT_EQ(below.error().details.size(), 3U);
  ThreadPool pool(1);
  EXPECT_FALSE(load_model(**plan, pool, {.memory = too_few}).ok());
  const auto fits = load_model(**plan, pool, {.memory = std::uint64_t{1} << 40U});
  ASSERT_TRUE(fits.ok());
  EXPECT_FALSE((*fits)->expert_slots());
}

// Qwen3-30B-A3B in BF16: shapes without a byte.
class HollowCheckpoint final : public Checkpoint {
 public:
  HollowCheckpoint() : config_(tiny_qwen3_moe()) {
    config_.update({{"hidden_size", kHidden},
                    {"num_hidden_layers", kLayers},
                    {"num_attention_heads", 32},
                    {"num_key_value_heads", 4},
                    {"head_dim", 128},
                    {"vocab_size", 151936},
                    {"max_position_embeddings", 40960},
                    {"num_experts", 128},
                    {"num_experts_per_tok", 8},
                    {"moe_intermediate_size", 768},
                    {"torch_dtype", "bfloat16"}});
    void* const space = mmap(nullptr, kSpace, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(space, MAP_FAILED);
    space_ = {static_cast<std::byte*>(space), kSpace};
    add("lm_head.weight", {151936, kHidden});
    add("model.embed_tokens.weight", {151936, kHidden});
    add("model.norm.weight", {kHidden});
    for (int l = 0; l < kLayers; ++l) add_layer("model.layers." + std::to_string(l) + ".");
  }
  HollowCheckpoint(const HollowCheckpoint&) = delete;
  HollowCheckpoint& operator=(const HollowCheckpoint&) = delete;
  ~HollowCheckpoint() override { munmap(space_.data(), space_.size()); }

  const std::filesystem::path& folder() const override { return folder_; }
  const Json& config() const override { return config_; }
  const std::map<std::string, TensorView, std::less<>>& tensors() const override { return tensors_; }
  std::uint64_t total_bytes() const override { return used_; }
  Result<> verify_unchanged() const override { return Ok{}; }
  void release(std::span<const std::byte> /*bytes*/) const override {}

 private:
  static constexpr int kLayers = 48;
  static constexpr std::int64_t kHidden = 2048;
  static constexpr std::size_t kSpace = std::size_t{80} << 30U;

  void add(const std::string& name, const std::vector<std::int64_t>& shape) {
    std::size_t bytes = 2;
    for (const std::int64_t size : shape) bytes *= static_cast<std::size_t>(size);
    tensors_[name] = {.name = name,
                      .dtype = Dtype::bf16,
                      .shape = shape,
                      .bytes = space_.subspan(used_, bytes),
                      .file = "model.safetensors"};
    used_ += bytes;
  }
  void add_layer(const std::string& layer) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) add(layer + norm + ".weight", {kHidden});
    for (const char* norm : {"q_norm", "k_norm"}) add(layer + "self_attn." + norm + ".weight", {128});
    add(layer + "self_attn.q_proj.weight", {4096, kHidden});
    for (const char* half : {"k_proj", "v_proj"}) add(layer + "self_attn." + half + ".weight", {512, kHidden});
    add(layer + "self_attn.o_proj.weight", {kHidden, 4096});
    add(layer + "mlp.gate.weight", {128, kHidden});
    for (int e = 0; e < 128; ++e) {
      const std::string expert = layer + "mlp.experts." + std::to_string(e) + ".";
      add(expert + "gate_proj.weight", {768, kHidden});
      add(expert + "up_proj.weight", {768, kHidden});
      add(expert + "down_proj.weight", {kHidden, 768});
    }
  }

  Json config_;
  std::filesystem::path folder_ = "/nowhere";
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::span<std::byte> space_;
  std::size_t used_ = 0;
};

// What a real model takes of a bound: slots, states and longer calls.
TEST(ExpertPool, ABoundIsDividedAmongExpertsStatesAndCalls) {
  auto plan = LoadPlan::make(std::make_shared<HollowCheckpoint>(), probe_machine(), {});
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
  const auto most = room_of(**plan, 80 * kGiB);
  ASSERT_TRUE(most.ok()) << most.error().message();
  EXPECT_EQ(most->pool.slots, 0U);
  EXPECT_EQ(most->prefill_chunk, 0);
  EXPECT_EQ(most->chosen, 48U * 8U);
  EXPECT_EQ(most->stored, 3U * 768U * 2048U * 2U);
  EXPECT_EQ(most->read_bytes(90), most->chosen * most->stored / 10);
  std::size_t slots = 0;
  for (const std::uint64_t memory : {most->floor, 8 * kGiB, 16 * kGiB, 32 * kGiB}) {
    const auto room = room_of(**plan, memory);
    ASSERT_TRUE(room.ok()) << room.error().message();
    EXPECT_EQ(room->pool.experts, 48U * 128U);
    EXPECT_GT(room->pool.slots, slots);
    EXPECT_LE(room->rest() + room->pool.bytes(), memory);
    EXPECT_GT(room->rest() + room->pool.bytes() + room->pool.slot_bytes, memory);
    EXPECT_GE(room->prefill_chunk, memory >= 16 * kGiB ? 2048 : 0);
    EXPECT_LE(room->workspace, std::max(most->workspace, memory / 16));
    slots = room->pool.slots;
  }
  EXPECT_FALSE(room_of(**plan, most->floor - 1).ok());
}

// Without a bound: slots where nine tenths of what is free are too little, and nothing of them where they are enough.
TEST(ExpertPool, WhatIsFreeIsTheUsualBound) {
  const auto hollow = std::make_shared<HollowCheckpoint>();
  constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;
  const auto usual = [&](std::uint64_t free, const Policy& policy) {
    auto plan = LoadPlan::make(hollow, probe_machine(), policy);
    EXPECT_TRUE(plan.ok());
    const MemoryPlanOptions call{
        .context = kUsualContext, .batch_tokens = (*plan)->prefill_chunk(), .threads = kThreads};
    return usual_room(**plan, free, {}, call);
  };
  for (const std::uint64_t free : {std::uint64_t{0}, 100 * kGiB, 400 * kGiB}) {
    const auto fits = usual(free, {});
    ASSERT_TRUE(fits.ok());
    EXPECT_EQ(fits->pool.slots, 0U) << free;
    EXPECT_EQ(fits->bound, 0U) << free;
  }
  const auto some = usual(20 * kGiB, {});
  ASSERT_TRUE(some.ok()) << some.error().message();
  EXPECT_EQ(some->bound, 18 * kGiB);
  EXPECT_GT(some->pool.slots, 0U);
  EXPECT_LE(some->rest() + some->pool.bytes(), some->bound);
  const auto none = usual(kGiB, {});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, "memory.floor");
  EXPECT_EQ(none.error().where, "free memory");
}

TEST(ExpertPool, TheRateOfReadsIsMeasuredWhereThereIsADisk) {
  auto small = LoadPlan::make(open(small_folder()), probe_machine(), {});
  ASSERT_TRUE(small.ok());
  EXPECT_GT(measure_expert_reads(**small).value_or(0), 0);
  auto hollow = LoadPlan::make(std::make_shared<HollowCheckpoint>(), probe_machine(), {});
  ASSERT_TRUE(hollow.ok());
  EXPECT_FALSE(measure_expert_reads(**hollow));
  const auto cut = std::make_shared<FaultyDisk>(open(small_folder()));
  cut->fail_every(5);
  auto failing = LoadPlan::make(cut, probe_machine(), {});
  ASSERT_TRUE(failing.ok());
  EXPECT_FALSE(measure_expert_reads(**failing));
}

TEST(ExpertPool, MoreSlotsAreFewerReads) {
  std::uint64_t reads = UINT64_MAX;
  for (const std::size_t slots : {1U, 8U, 24U, 1000U}) {
    const Loaded loaded = load_slots(open(small_folder()), slots);
    ASSERT_NE(loaded.model, nullptr);
    talk(*loaded.model);
    const auto counts = loaded.model->expert_slots();
    EXPECT_EQ(counts->slots, std::min<std::uint64_t>(slots, counts->experts));
    EXPECT_LT(counts->reads, reads) << slots;
    reads = counts->reads;
  }
}

// Whoever needs an expert that cannot be read has the disk's error, the others what they would have alone.
TEST(ExpertPool, AFailedReadFailsThoseWhoNeedIt) {
  const Loaded whole = load(small_folder(), {}, kThreads);
  const auto disk = std::make_shared<FaultyDisk>(open(small_folder()));
  const Loaded least = load_slots(disk, 3);
  ASSERT_NE(least.model, nullptr);
  int failed = 0;
  int served = 0;
  for (const std::int64_t every : {1, 2, 3, 5, 7, 11, 29, 64, 0}) {
    disk->fail_every(every);
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<SequenceState*> pointers;
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> positions;
    std::vector<Batch::Span> spans;
    for (std::int32_t s = 0; s < 6; ++s) {
      states.push_back(new_state(*least.model));
      pointers.push_back(states.back().get());
      ids.push_back(prompt(*least.model, 1, 11 * s).front());
      positions.push_back(0);
      spans.push_back({.begin = s, .count = 1});
    }
    BatchResult result;
    ASSERT_TRUE(least.model->run({ids, positions, spans}, pointers, result).ok());
    const auto width = static_cast<std::ptrdiff_t>(least.model->info().vocab_size);
    for (std::size_t s = 0; s < spans.size(); ++s) {
      const BatchResult::Span& span = result.spans[s];
      if (span.error) {
        ++failed;
        EXPECT_EQ(span.error->code, "file.read");
        EXPECT_EQ(span.error->file, "shard");
        EXPECT_EQ(span.error->where, "byte 4096");
        EXPECT_EQ(pointers[s]->length(), 0);
        EXPECT_GT(every, 0);
        continue;
      }
      ++served;
      const auto state = new_state(*whole.model);
      const Logits alone = run(*whole.model, *state, {ids[s]});
      const auto first = result.logits.begin() + static_cast<std::ptrdiff_t>(span.logits);
      EXPECT_TRUE(same_bits(alone, Logits(first, first + width))) << every << " " << s;
      EXPECT_NE(every, 1);
    }
  }
  EXPECT_GT(failed, 6);
  EXPECT_GT(served, 6);
  EXPECT_GT(least.model->expert_slots()->failures, 0U);
}

// What is read ahead of its call counts as read by it, and whatever else was begun costs bytes alone.
TEST(ExpertPool, WhatIsForeseenIsReadOnce) {
  const Loaded loaded = load_slots(open(small_folder()), 3);
  ASSERT_NE(loaded.model, nullptr);
  talk(*loaded.model);
  const auto counts = loaded.model->expert_slots();
  EXPECT_EQ(counts->reads, counts->uses - counts->hits);
  EXPECT_GT(counts->ahead, 0U);
  EXPECT_GT(counts->foreseen, 0U);
  EXPECT_LE(counts->foreseen, counts->ahead);
  EXPECT_LE(counts->foreseen, counts->reads);
}

TEST(ExpertPool, ASlowDiskIsWaitedFor) {
  const Loaded whole = load(small_folder(), {}, kThreads);
  const auto disk = std::make_shared<FaultyDisk>(open(small_folder()));
  disk->wait_for_each(std::chrono::microseconds(300));
  const Loaded least = load_slots(disk, 3);
  ASSERT_NE(least.model, nullptr);
  const std::vector<Logits> wanted = talk(*whole.model);
  const std::vector<Logits> found = talk(*least.model);
  for (std::size_t i = 0; i < wanted.size(); ++i) EXPECT_TRUE(same_bits(wanted[i], found[i])) << i;
}

// The first error of a call of one token.
std::optional<Error> error_of(Model& model) {
  const auto state = new_state(model);
  Ragged batch;
  batch.add(*state, prompt(model, 24, 3));
  Logits logits;
  Result<> done = batch.forward(model, LogitRows::all, logits);
  if (done.ok()) return std::nullopt;
  return std::move(done).error();
}

TEST(ExpertPool, AFileThatIsCutReplacedOrWrittenIsAnError) {
  for (const char* what : {"cut", "replaced", "written"}) {
    SCOPED_TRACE(what);
    const TemporaryFolder folder;
    std::filesystem::copy(small_folder(), folder.path(), std::filesystem::copy_options::recursive);
    const Loaded least = load_slots(open(folder.path()), 3);
    ASSERT_NE(least.model, nullptr);
    EXPECT_FALSE(error_of(*least.model));
    std::string code = "file.changed";
    for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
      if (entry.path().extension() != ".safetensors") continue;
      const std::string path = entry.path().string();
      if (*what == 'c') {
        code = "file.truncated";
        ASSERT_EQ(truncate(path.c_str(), 4096), 0);
      } else if (*what == 'r') {
        std::filesystem::copy_file(path, path + ".new");
        std::filesystem::rename(path + ".new", path);
      } else {
        std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(9000).write("moracle", 7);
      }
    }
    const std::optional<Error> error = error_of(*least.model);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code, code) << error->message();
    EXPECT_NE(error->file.find(".safetensors"), std::string::npos);
  }
}

}  // namespace
}  // namespace moracle::test
