// Experts and text models under every name of the table (src/format/rules/spelling.h), in tensors and in patterns: the
// same bits come out.
#include <gtest/gtest.h>

#include <map>

#include "format/rules/spelling.h"
#include "support/model_fixture.h"
#include "support/mutable_checkpoint.h"
#include "support/published_formats.h"
#include "support/respell.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

using Tensor = MutableCheckpoint::Tensor;
using Bytes = std::vector<std::uint8_t>;

const std::string kExperts = "model.layers.0.mlp.experts";

std::string path_of(const Spelling& s, std::string_view projection, std::size_t expert) {
  return spelled(kExperts, s, projection, expert);
}

std::int64_t dim(const Tensor& tensor, std::size_t axis) {
  return tensor.shape[axis].get<std::int64_t>();
}

std::vector<float> logits_of(const MutableCheckpoint& copy) {
  const TemporaryFolder folder;
  copy.write(folder.path());
  const Loaded loaded = load(folder.path(), pinned("ref"), 1);
  if (loaded.model == nullptr) return {};
  const auto state = new_state(*loaded.model);
  return run(*loaded.model, *state, {72, 101, 108, 44, 3});
}

MutableCheckpoint field_case(const std::string& name) {
  return MutableCheckpoint::read(data_dir() / "field" / name);
}

// Experts that are stacked and fused, FP8 under blocks of 128, as those of other cases lie.
MutableCheckpoint numbered_fp8() {
  MutableCheckpoint copy = field_case("08-fp8-stacked-scale-inv");
  for (const auto& [stored, part] : {std::pair{"", "weight"}, {"_scale_inv", "weight_scale_inv"}})
    for (const char* projection : {"gate_up_proj", "down_proj"}) {
      const std::string name = kExperts + "." + projection + stored;
      const Tensor stack = copy.at(name);
      copy.drop(name);
      const auto experts = static_cast<std::size_t>(dim(stack, 0));
      const bool pair = std::string(projection) == "gate_up_proj";
      const std::size_t pieces = experts * (pair ? 2 : 1);
      const std::size_t size = stack.bytes.size() / pieces;
      for (std::size_t i = 0; i < pieces; ++i) {
        const char* one = !pair ? "down_proj" : i % 2 == 0 ? "gate_proj" : "up_proj";
        const auto begin = stack.bytes.begin() + static_cast<std::ptrdiff_t>(i * size);
        copy.add(kExperts + "." + std::to_string(i / (pair ? 2 : 1)) + "." + one + "." + part, stack.dtype,
                 {dim(stack, 1) / (pair ? 2 : 1), dim(stack, 2)},
                 Bytes(begin, begin + static_cast<std::ptrdiff_t>(size)));
      }
    }
  return copy;
}

std::map<std::string, MutableCheckpoint> originals() {
  return {{"plain", field_case("00-base")},
          {"compressed-tensors", field_case("07b-reference")},
          {"fp8", numbered_fp8()},
          {"gptq", field_case("10-autoround-packing-auto_round")},
          {"quark", field_case("11-quark-excluded-keeps-fp8-blocks")}};
}

TEST(Spellings, ExpertsUnderEveryName) {
  for (const auto& [format, original] : originals()) {
    const std::vector<float> want = logits_of(original);
    ASSERT_FALSE(want.empty()) << format;
    for (const Spelling& spelling : all_spellings()) {
      SCOPED_TRACE(format + " " + spelling.text());
      MutableCheckpoint copy = original;
      respell(copy, kExperts, spelling);
      EXPECT_EQ(logits_of(copy), want);
    }
  }
}

// Experts in every published format, in every spelling.
class FormatSpellings : public testing::TestWithParam<std::string> {};

TEST_P(FormatSpellings, SameNumbers) {
  const PublishedFormat& format = published_format(GetParam());
  const MutableCheckpoint original = publish(field_case("00-base"), format).stored;
  const std::vector<float> want = logits_of(original);
  ASSERT_FALSE(want.empty());
  for (const Spelling& spelling : all_spellings()) {
    // Two matrices under one scale of the tensor, in one block or in one order of columns are not one matrix.
    const bool apart =
        format.name.ends_with("-fp8") || format.name.ends_with("-blocks") || format.name.ends_with("order");
    if (spelling.fused && apart && format.name != "ct-fp8" && format.name != "auto-round-fp8") continue;
    SCOPED_TRACE(spelling.text());
    MutableCheckpoint copy = original;
    respell(copy, kExperts, spelling, format.name == "quark-int4");
    EXPECT_EQ(logits_of(copy), want);
  }
}

std::vector<std::string> numbered_formats() {
  std::vector<std::string> names;
  for (const PublishedFormat& format : published_formats())
    if (!format.stacked) names.push_back(format.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, FormatSpellings, testing::ValuesIn(numbered_formats()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Spellings, ExpertsOfMixtralInBothContainers) {
  const auto original = MutableCheckpoint::read(data_dir() / "families" / "mixtral-stacked");
  const std::vector<float> want = logits_of(original);
  ASSERT_FALSE(want.empty());
  MutableCheckpoint copy = original;
  for (const std::string& name : copy.names()) {
    const std::size_t at = name.find(".mlp.");
    if (at != std::string::npos) copy.rename(name, name.substr(0, at) + ".block_sparse_moe." + name.substr(at + 5));
  }
  EXPECT_EQ(logits_of(copy), want);
}

// Targets that name experts in one spelling, tensors that are stored in another.
TEST(Spellings, TargetsUnderEveryName) {
  const MutableCheckpoint original = field_case("07b-reference");
  const std::vector<float> want = logits_of(original);
  for (const Spelling& stored : all_spellings()) {
    if (stored.joined || stored.bare) continue;
    for (const Spelling& said : all_spellings()) {
      if (said.joined || said.bare) continue;
      SCOPED_TRACE("stored " + stored.text() + ", said " + said.text());
      MutableCheckpoint copy = original;
      respell(copy, kExperts, stored);
      Json targets = Json::array();
      for (std::size_t e = 0; e < 4; ++e)
        for (const std::string_view projection : {said.fused ? said.names.gate_up : said.names.gate,
                                                  said.fused ? said.names.gate_up : said.names.up, said.names.down})
          targets.push_back(path_of(said, projection, e));
      copy.config["quantization_config"]["config_groups"]["group_0"]["targets"] = targets;
      copy.config["quantization_config"]["ignore"] = Json::array();
      EXPECT_EQ(logits_of(copy), want);
    }
  }
}

TEST(Spellings, TargetsByRegularExpressions) {
  const MutableCheckpoint original = field_case("07b-reference");
  const std::vector<float> want = logits_of(original);
  const std::vector<Json> lists{
      {"re:.*mlp\\.experts\\.\\d+\\.(gate|up|down)_proj$"},
      {"re:.*experts.*"},
      {"re:.*\\.w1$", "re:.*\\.w2$", "re:.*\\.w3$"},
      {"re:.*w[123]"},
      {"re:.*experts\\.gate_up_proj", "re:.*experts\\.down_proj"},
      {"re:model\\.language_model\\.layers\\.0\\.mlp\\.experts.*"},
      {"re:language_model\\.model\\.layers\\.\\d+\\.block_sparse_moe\\.experts.*"},
      {"re:layers\\.0\\.mlp\\.experts\\..*"},
  };
  for (const Spelling& stored : all_spellings()) {
    if (stored.joined || stored.bare) continue;
    for (const Json& targets : lists) {
      SCOPED_TRACE("stored " + stored.text() + ", said " + targets.dump());
      MutableCheckpoint copy = original;
      respell(copy, kExperts, stored);
      copy.config["quantization_config"]["config_groups"]["group_0"]["targets"] = targets;
      EXPECT_EQ(logits_of(copy), want);
    }
  }
}

void move_root(MutableCheckpoint& copy, std::string_view root) {
  for (const std::string& name : copy.names())
    if (name.starts_with("model.")) copy.rename(name, std::string(root) + name.substr(6));
}

// Attention quantized, experts not, and a list that leaves the experts out in another spelling than that of the
// tensors.
TEST(Spellings, ExclusionsUnderEveryName) {
  const auto lists = [](const Spelling& said) {
    std::vector<Json> all;
    Json leaves = Json::array();
    for (std::size_t e = 0; e < 4; ++e)
      for (const std::string_view projection : {said.fused ? said.names.gate_up : said.names.gate,
                                                said.fused ? said.names.gate_up : said.names.up, said.names.down})
        leaves.push_back(path_of(said, projection, e));
    all.push_back(leaves);
    for (Json& leaf : leaves) leaf = "language_model." + leaf.get<std::string>();
    all.push_back(leaves);
    return all;
  };
  const std::vector<Json> others{{"model.layers.0.mlp.experts"},
                                 {"model.layers.0.block_sparse_moe.experts"},
                                 {"model.language_model.layers.0.mlp.experts"},
                                 {"layers.0.mlp.experts"}};
  const std::map<std::string, std::vector<Json>> patterns{
      {"ct-int8", {{"re:.*experts.*"}, {"re:.*mlp.*"}, {"re:.*block_sparse_moe.*"}, {"re:.*\\.(gate|up|down)_proj$"}}},
      {"quark-fp8", {{"re:.*experts.*"}, {"*experts*"}, {"*mlp*"}, {"re:.*block_sparse_moe\\.experts.*"}}},
      {"modelopt-fp8-blocks", {{"*experts*"}, {"*mlp*"}, {"model.layers.0.mlp*"}, {"*.block_sparse_moe.experts.*"}}}};
  for (const auto& [name, by_pattern] : patterns) {
    const PublishedFormat& format = published_format(name);
    MutableCheckpoint original = field_case("00-base");
    MutableCheckpoint plain = original;
    std::mt19937 random(1);
    for (const char* projection : {"q_proj", "k_proj", "v_proj", "o_proj"}) {
      const std::string module = "model.layers.0.self_attn." + std::string(projection);
      const std::int64_t out = dim(original.at(module + ".weight"), 0);
      const std::int64_t in = dim(original.at(module + ".weight"), 1);
      const PublishedMatrix matrix = format.write(random, out, in);
      Bytes values(matrix.values.size() * sizeof(float));
      std::memcpy(values.data(), matrix.values.data(), values.size());
      plain.add(module + ".weight", "F32", {out, in}, values);
      for (const auto& [part, tensor] : matrix.parts)
        original.add(module + "." + part, tensor.dtype, tensor.shape.get<std::vector<std::int64_t>>(), tensor.bytes);
    }
    const std::vector<float> want = logits_of(plain);
    const Json empty = format.section({});
    const char* key = empty.contains("exclude") ? "exclude" : "ignore";
    for (const Spelling& stored : all_spellings()) {
      if (stored.joined || stored.bare || stored.fused) continue;
      std::vector<Json> tried = others;
      tried.insert(tried.end(), by_pattern.begin(), by_pattern.end());
      for (const Spelling& said : all_spellings()) {
        if (said.joined || said.bare) continue;
        for (Json& list : lists(said)) tried.push_back(std::move(list));
      }
      MutableCheckpoint copy = original;
      respell(copy, kExperts, stored);
      for (Json& list : tried) {
        SCOPED_TRACE(name + ", stored " + stored.text() + ", said " + list.dump());
        list.push_back("lm_head");
        list.push_back("model.layers.0.mlp.gate");
        copy.config["quantization_config"] = empty;
        copy.config["quantization_config"][key] = list;
        const std::vector<float> found = logits_of(copy);
        ASSERT_EQ(found.size(), want.size());
        double most = 0.0;
        for (std::size_t i = 0; i < want.size(); ++i)
          most = std::max(most, std::abs(static_cast<double>(found[i]) - static_cast<double>(want[i])));
        EXPECT_LE(most, 1e-4);
      }
    }
  }
}

// Exclude lists written for one wrapper, tensors stored below another.
TEST(Spellings, WrappersInTensorsAndExcludes) {
  const std::vector<std::string> excluded{"layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj",
                                          "layers.0.self_attn.v_proj", "layers.0.self_attn.o_proj"};
  const MutableCheckpoint ct = field_case("07b-reference");
  const MutableCheckpoint quark = field_case("11-quark-excluded-keeps-fp8-blocks");
  const MutableCheckpoint fp8 = numbered_fp8();
  const std::vector<float> want_ct = logits_of(ct);
  const std::vector<float> want_quark = logits_of(quark);
  const std::vector<float> want_fp8 = logits_of(fp8);
  for (const std::string_view stored : kRoots)
    for (const std::string_view said : kRoots) {
      SCOPED_TRACE("stored \"" + std::string(stored) + "\", said \"" + std::string(said) + "\"");
      Json exact = Json::array({"lm_head"});
      Json patterns = Json::array({"lm_head"});
      for (const std::string& name : excluded) {
        exact.push_back(std::string(said) + name);
        std::string pattern = "re:";
        for (const char c : std::string(said) + name) pattern += c == '.' ? "\\." : std::string(1, c);
        patterns.push_back(pattern + "$");
      }
      for (const Json& list : {exact, patterns}) {
        MutableCheckpoint copy = ct;
        move_root(copy, stored);
        copy.config["quantization_config"]["ignore"] = list;
        EXPECT_EQ(logits_of(copy), want_ct) << list;
        copy = quark;
        move_root(copy, stored);
        copy.config["quantization_config"]["exclude"] = list;
        EXPECT_EQ(logits_of(copy), want_quark) << list;
      }
      MutableCheckpoint copy = fp8;
      move_root(copy, stored);
      copy.config["quantization_config"]["modules_to_not_convert"] = exact;
      EXPECT_EQ(logits_of(copy), want_fp8);
    }
}

}  // namespace
}  // namespace moracle::test
