// Two places of a config that say the same thing: one counts, and a warning names both where they differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "support/model_fixture.h"
#include "support/mutable_checkpoint.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

struct Pair {
  const char* folder;  // below tests/data
  Json both;           // merged into config.json
  Json one;            // the same, said once
  std::vector<std::string> warned;
  std::vector<std::string> erased{};  // pointers of `one` and `both` that go first
};

struct Opened {
  Error error{};
  std::vector<std::string> warnings{};
  std::vector<float> logits{};
};

Opened open(const Pair& pair, const Json& change) {
  const auto original = data_dir() / pair.folder;
  const TemporaryFolder folder;
  std::filesystem::create_symlink(original / "model.safetensors", folder.path() / "model.safetensors");
  auto config = read_json(original / "config.json");
  EXPECT_TRUE(config.ok());
  for (const std::string& pointer : pair.erased) {
    const Json::json_pointer at(pointer);
    (*config)[at.parent_pointer()].erase(at.back());
  }
  config->merge_patch(change);
  std::ofstream(folder.path() / "config.json") << config->dump();
  auto checkpoint = Checkpoint::open(folder.path());
  if (!checkpoint.ok()) return {.error = checkpoint.error()};
  auto plan = LoadPlan::make(*checkpoint, probe_machine(), pinned("ref"));
  if (!plan.ok()) return {.error = plan.error()};
  ThreadPool pool(1);
  Opened opened{.warnings = (*plan)->warnings()};
  auto model = load_model(**plan, pool);
  if (!model.ok()) return {.error = model.error()};
  const auto state = new_state(**model);
  opened.logits = run(**model, *state, {72, 101, 108, 44, 3, 32});
  return opened;
}

const Json kYarn{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 512}};
const Json kDefault{{"rope_type", "default"}, {"rope_theta", 10000.0}};

std::vector<Pair> pairs() {
  const char* base = "field/00-base";
  Json yarn_theta = kYarn;
  yarn_theta["rope_theta"] = 5000.0;
  Json named_twice = kYarn;
  named_twice["type"] = "linear";
  Json other_length = kYarn;
  other_length["original_max_position_embeddings"] = 256;
  Json attn_factor = kYarn;
  attn_factor["attn_factor"] = 1.5;
  return {
      {base, {{"rope_scaling", kYarn}}, {{"rope_parameters", kYarn}}, {"/rope_scaling", "/rope_parameters"}},
      {base, {{"rope_scaling", yarn_theta}}, {{"rope_parameters", yarn_theta}}, {"/rope_scaling", "/rope_parameters"}},
      {base,
       {{"rope_scaling", kYarn}, {"rope_parameters", {{"rope_theta", 1e6}}}},
       {{"rope_parameters", kYarn}},
       {"rope_theta is 10000.0, and not /rope_parameters/rope_theta = 1000000.0"}},
      {base,
       {{"rope_scaling", kYarn}, {"rope_theta", 5000.0}},
       {{"rope_parameters", yarn_theta}},
       {"/rope_scaling", "/rope_parameters"}},
      {base, {{"rope_scaling", Json::object()}}, Json::object(), {}},
      {base, {{"rope_scaling", {{"type", "default"}}}}, Json::object(), {}},
      {base,
       {{"rope_theta", 77.0}},
       Json::object(),
       {"/rope_parameters/rope_theta = 10000.0 is used", "/rope_theta = 77"}},
      {base, {{"rope_theta", 10000}}, Json::object(), {}},
      {base,
       {{"partial_rotary_factor", 0.5}, {"rope_parameters", {{"partial_rotary_factor", 1.0}}}},
       Json::object(),
       {"/rope_parameters/partial_rotary_factor = 1.0 is used", "/partial_rotary_factor = 0.5"}},
      {base,
       {{"rope_parameters", named_twice}},
       {{"rope_parameters", kYarn}},
       {"/rope_parameters/rope_type = \"yarn\" is used", "/rope_parameters/type = \"linear\""}},
      {base,
       {{"rope_parameters", kYarn}, {"original_max_position_embeddings", 256}},
       {{"rope_parameters", other_length}},
       {"/original_max_position_embeddings = 256 is used", "/rope_parameters/original_max_position_embeddings = 512"}},
      {base,
       {{"rope_scaling", {{"factor", 4.0}}}},
       Json::object(),
       {"/rope_scaling/factor = 4.0 is not read: a rope of type default has no such key"}},
      {base,
       {{"rope_scaling", attn_factor}},
       {{"rope_parameters", kYarn}},
       {"/rope_scaling/attn_factor = 1.5 is not read: a rope of type yarn has no such key"}},
      {base, {{"rope_scaling", {{"type", "mrope"}, {"mrope_section", {8, 4, 4}}}}}, Json::object(), {}},
      {base, {{"rope_scaling", {{"type", nullptr}, {"rope_type", nullptr}}}}, Json::object(), {}},
      {base, {{"quantization_config", Json::object()}}, Json::object(), {}},
      {base,
       {{"num_experts", 9}, {"num_local_experts", 4}},
       Json::object(),
       {"/num_local_experts = 4", "/num_experts = 9"}},
      {base, {{"num_local_experts", 4}}, Json::object(), {}},
      {base,
       {{"torch_dtype", "float16"}},
       Json::object(),
       {"/dtype = \"bfloat16\" is used", "/torch_dtype = \"float16\""}},
      {base, {{"torch_dtype", "torch.bfloat16"}}, Json::object(), {}},
      {base,
       {{"tie_word_embeddings", true}},
       Json::object(),
       {"tie_word_embeddings = true", "lm_head.weight is stored"}},
      {base,
       {{"use_sliding_window", true}, {"sliding_window", 2}, {"max_window_layers", 1}},
       {{"use_sliding_window", true}, {"sliding_window", 2}},
       {"/max_window_layers = 1 is not read"}},
      {base,
       {{"layer_types", {"sliding_attention"}}, {"sliding_window", 2}},
       Json::object(),
       {"/layer_types = [\"sliding_attention\"] is not read"}},
      {base, {{"layer_types", {"full_attention"}}}, Json::object(), {}},
      {base, {{"mlp_layer_types", {"dense"}}}, Json::object(), {"/mlp_layer_types = [\"dense\"] is not read"}},
      {base, {{"mlp_layer_types", {"sparse"}}}, Json::object(), {}},
      {"families/gpt_oss-stacked",
       {{"experts_per_token", 1}},
       Json::object(),
       {"/num_experts_per_tok", "/experts_per_token = 1"}},
      {"families/qwen3_next-mixed",
       {{"full_attention_interval", 3}},
       Json::object(),
       {"/full_attention_interval = 3 is not read"}},
      {"families/olmoe", {{"sliding_window", 3}}, Json::object(), {"/sliding_window = 3 is not read"}},
      {"families/step3p5-parameters",
       {{"text_config", {{"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}}}},
       Json::object(),
       {"/text_config/rope_scaling", "rope_parameters is there, and differs"}},
      // The whole model's part and the text model's.
      {"families/step3p5-parameters",
       {{"vocab_size", 7}, {"rope_scaling", kYarn}, {"hidden_size", nullptr}},
       Json::object(),
       {"/vocab_size = 7", "/rope_scaling = {"}},
      {"families/step3p5-parameters",
       {{"tie_word_embeddings", false}, {"text_config", {{"tie_word_embeddings", true}}}},
       Json::object(),
       {"/tie_word_embeddings = false is used, and not /text_config/tie_word_embeddings = true"}},
  };
}

TEST(ConfigPairs, OneCountsAndAWarningNamesBoth) {
  for (const Pair& pair : pairs()) {
    SCOPED_TRACE(std::string(pair.folder) + " " + pair.both.dump());
    const Opened both = open(pair, pair.both);
    const Opened one = open(pair, pair.one);
    EXPECT_EQ(both.error.code, "") << both.error.message();
    EXPECT_EQ(one.error.code, "") << one.error.message();
    EXPECT_FALSE(both.logits.empty());
    EXPECT_EQ(both.logits, one.logits);
    std::string warned;
    for (const std::string& warning : both.warnings) {
      const bool known = std::find(one.warnings.begin(), one.warnings.end(), warning) != one.warnings.end();
      if (!known) warned += warning + "\n";
    }
    if (pair.warned.empty()) {
      EXPECT_EQ(warned, "");
    }
    for (const std::string& text : pair.warned) EXPECT_THAT(warned, testing::HasSubstr(text));
  }
}

TEST(ConfigPairs, AnErrorNamesWhatTheConfigSaysTwice) {
  const Pair pair{.folder = "field/00-base", .both = {{"num_local_experts", 9}}, .one = {}, .warned = {}};
  const Error error = open(pair, pair.both).error;
  EXPECT_EQ(error.code, "tensor.shape");
  EXPECT_THAT(error.advice, testing::HasSubstr("/num_local_experts = 9 is used, and not /num_experts = 4"));
}

// A head that no file holds is the embedding where any part of the config ties it, and missing where none does.
TEST(ConfigPairs, AHeadThatIsNotStored) {
  const auto original = data_dir() / "families" / "step3p5-parameters";
  for (const auto& [outer, inner, ties] : {std::tuple{Json(true), Json(false), true},
                                           {Json(false), Json(true), true},
                                           {Json(nullptr), Json(true), true},
                                           {Json(false), Json(false), false},
                                           {Json(nullptr), Json(nullptr), false}}) {
    SCOPED_TRACE(outer.dump() + " " + inner.dump());
    MutableCheckpoint copy = MutableCheckpoint::read(original);
    copy.drop("lm_head.weight");
    copy.config.merge_patch({{"tie_word_embeddings", outer}, {"text_config", {{"tie_word_embeddings", inner}}}});
    const TemporaryFolder folder;
    copy.write(folder.path());
    auto checkpoint = Checkpoint::open(folder.path());
    ASSERT_TRUE(checkpoint.ok());
    const auto plan = LoadPlan::make(*checkpoint, probe_machine(), pinned("ref"));
    EXPECT_EQ(plan.ok(), ties) << (plan.ok() ? "" : plan.error().message());
    if (!plan.ok()) {
      EXPECT_EQ(plan.error().where, "lm_head.weight");
    }
  }
}

}  // namespace
}  // namespace moracle::test
