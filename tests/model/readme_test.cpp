// What the README says opens: each row of its table of formats, each family, and each format with each family.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>

#include "model/spec/config.h"
#include "support/model_fixture.h"
#include "support/mutable_checkpoint.h"
#include "support/published_formats.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

using Names = std::vector<std::string>;

// A model with its experts, and the type that its config is given.
struct FamilyFixture {
  const char* folder;
  const char* type = nullptr;
};
const std::map<std::string, FamilyFixture>& families_held() {
  static const std::map<std::string, FamilyFixture> kAll{
      {"afmoe", {"afmoe"}},
      {"axk1", {"axk1"}},
      {"bailing_hybrid", {"bailing_hybrid"}},
      {"cohere2_moe", {"cohere2_moe"}},
      {"deepseek_v2", {"deepseek_v2-groups"}},
      {"deepseek_v3", {"deepseek_v3-direct"}},
      {"kimi_k2", {"deepseek_v3-direct", "kimi_k2"}},
      {"glm4_moe", {"glm4_moe-grouped"}},
      {"glm4_moe_lite", {"glm4_moe_lite"}},
      {"gpt_oss", {"gpt_oss-apart"}},
      {"hy_v3", {"hy_v3-listed"}},
      {"minimax_m2", {"minimax_m2-stacked"}},
      {"mixtral", {"mixtral-stacked"}},
      {"olmoe", {"olmoe"}},
      {"qwen2_moe", {"qwen2_moe"}},
      {"qwen3_moe", {"qwen3_moe-stacked"}},
      {"qwen3_next", {"qwen3_next"}},
      {"qwen3_5_moe", {"qwen3_5_moe"}},
      {"qwen3_vl_moe", {"qwen3_vl_moe-text"}},
      {"step3p5", {"step3p5-parameters"}},
      {"step3p7", {"step3p5-parameters", "step3p7"}},
      {"deepseek_v32", {"deepseek_v32"}},
      {"dots1", {"dots1"}},
      {"ernie4_5_moe", {"ernie4_5_moe"}},
      {"exaone_moe", {"exaone_moe"}},
      {"flex_olmo", {"flex_olmo"}},
      {"gemma4", {"gemma4", "gemma4"}},
      {"glm_moe_dsa", {"glm_moe_dsa"}},
      {"hunyuan_v1_moe", {"hunyuan_v1_moe"}},
      {"laguna", {"laguna-elements"}},
      {"glm4v_moe", {"glm4v_moe"}},
      {"granitemoe_swa", {"granitemoe_swa"}},
      {"jamba", {"jamba"}},
      {"kimi_linear", {"kimi_linear"}},
      {"longcat_flash", {"longcat_flash"}},
      {"mellum", {"mellum"}},
      {"mimo_v2_flash", {"mimo_v2_flash"}},
      {"mistral4", {"mistral4"}},
      {"sarvam_mla", {"sarvam_mla"}},
      {"solar_open", {"solar_open"}},
  };
  return kAll;
}

// By the words of a row, the formats that hold them true.
const std::map<std::string, std::map<std::string, Names>>& rows_held() {
  static const std::map<std::string, std::map<std::string, Names>> kAll{
      {"GPTQ",
       {{"4", {"gptq-4"}},
        {"8 bits", {"gptq-8"}},
        {"symmetric", {"gptq-4", "gptq-8"}},
        {"with zero points", {"gptq-4-zeros", "gptq-8-zeros-v2"}},
        {"act-order", {"gptq-4-order"}}}},
      {"AWQ", {{"4 bits", {"awq"}}}},
      {"AutoRound",
       {{"as GPTQ", {"auto-round-gptq"}},
        {"AWQ", {"auto-round-awq"}},
        {"FP8", {"auto-round-fp8", "auto-round-fp8-static"}},
        {"MXFP4", {"auto-round-mxfp4"}},
        {"NVFP4", {"auto-round-nvfp4"}}}},
      {"compressed-tensors",
       {{"int4", {"ct-int4"}},
        {"int8", {"ct-int8"}},
        {"FP8", {"ct-fp8"}},
        {"NVFP4", {"ct-nvfp4"}},
        {"MXFP4", {"ct-mxfp4"}},
        {"MXFP8", {"ct-mxfp8"}},
        {"W4A8", {"ct-w4a8"}}}},
      {"AMD Quark",
       {{"int8", {"quark-int8"}},
        {"FP8", {"quark-fp8"}},
        {"int4", {"quark-int4"}},
        {"MXFP4", {"quark-mxfp4"}},
        {"MXFP6", {"quark-mxfp6"}},
        {"NVFP4", {"quark-nvfp4"}}}},
      {"NVIDIA ModelOpt",
       {{"FP8", {"modelopt-fp8", "modelopt-fp8-blocks"}},
        {"NVFP4", {"modelopt-nvfp4"}},
        {"MXFP8", {"modelopt-mxfp8"}}}},
      {"gpt-oss, DeepSeek", {{"MXFP4", {"mxfp4"}}, {"FP8 blocks", {"fp8-blocks"}}}},
      {"unquantized", {{"bf16", {"bf16"}}, {"fp16", {"fp16"}}, {"fp32", {"fp32"}}}},
  };
  return kAll;
}

std::string readme() {
  std::ifstream file(source_dir() / "README.md");
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string trimmed(std::string text) {
  text.erase(0, text.find_first_not_of(" \n"));
  text.erase(text.find_last_not_of(" \n") + 1);
  return text;
}

// "4 and 8 bits, act-order" -> {"4", "8 bits", "act-order"}.
Names items_of(std::string text) {
  for (const char* word : {", and ", " and ", " or "})
    for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word))
      text.replace(at, std::string_view(word).size(), ", ");
  Names items;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    items.push_back(trimmed(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return items;
}

// The lines of the table below "| published as | weights |".
std::vector<std::pair<std::string, std::string>> table() {
  const std::string text = readme();
  std::vector<std::pair<std::string, std::string>> rows;
  std::size_t at = text.find("| published as | weights |\n");
  if (at == std::string::npos) return rows;
  for (int line = 0; text[at] == '|'; ++line) {
    const std::size_t end = text.find('\n', at);
    const std::string row = text.substr(at, end - at);
    const std::size_t bar = row.find('|', 1);
    if (line > 1)
      rows.emplace_back(trimmed(row.substr(1, bar - 1)), trimmed(row.substr(bar + 1, row.size() - bar - 2)));
    at = end + 1;
  }
  return rows;
}

// The names in back-quotes between "Architectures:" and the end of the sentence.
Names families_named() {
  const std::string text = readme();
  const std::size_t begin = text.find("Architectures: ");
  Names names;
  if (begin == std::string::npos) return names;
  const std::size_t end = text.find("`.", begin);
  for (std::size_t at = text.find('`', begin); at != std::string::npos && at < end; at = text.find('`', at + 1)) {
    const std::size_t close = text.find('`', at + 1);
    names.push_back(text.substr(at + 1, close - at - 1));
    at = close;
  }
  return names;
}

MutableCheckpoint family_of(const FamilyFixture& fixture) {
  MutableCheckpoint family = MutableCheckpoint::read(data_dir() / "families" / fixture.folder);
  if (fixture.type != nullptr) family.config["model_type"] = fixture.type;
  return family;
}

struct Opened {
  std::vector<float> logits{};
  std::string format{};
};

Opened open(const MutableCheckpoint& checkpoint) {
  const TemporaryFolder folder;
  checkpoint.write(folder.path());
  const Loaded loaded = load(folder.path(), pinned("ref"), 1);
  if (loaded.model == nullptr) return {};
  const auto state = new_state(*loaded.model);
  return {run(*loaded.model, *state, {5, 17, 2, 31, 8, 8}), loaded.model->info().format};
}

double relative_error(const std::vector<float>& found, const std::vector<float>& wanted) {
  if (found.empty() || found.size() != wanted.size()) return INFINITY;
  double difference = 0.0;
  double norm = 0.0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    difference += std::pow(static_cast<double>(found[i]) - static_cast<double>(wanted[i]), 2);
    norm += std::pow(static_cast<double>(wanted[i]), 2);
  }
  return std::sqrt(difference / norm);
}

TEST(Readme, EveryRowAndEveryWordOfItHasAFixture) {
  const auto rows = table();
  ASSERT_FALSE(rows.empty()) << "the README has no table of formats";
  for (const auto& [label, words] : rows) {
    const auto held = rows_held().find(label);
    if (held == rows_held().end()) {
      ADD_FAILURE() << "no fixture for the row \"" << label << "\"";
      continue;
    }
    for (const std::string& item : items_of(words)) {
      const auto names = held->second.find(item);
      if (names == held->second.end()) {
        ADD_FAILURE() << "no fixture for \"" << item << "\" of the row \"" << label << "\"";
        continue;
      }
      for (const std::string& name : names->second) EXPECT_EQ(published_format(name).name, name);
    }
  }
}

TEST(Readme, EveryFamilyHasAFixture) {
  Names named = families_named();
  Names held;
  for (const auto& [name, fixture] : families_held()) held.push_back(name);
  std::sort(named.begin(), named.end());
  EXPECT_EQ(named, held);
}

// Inputs of 8 bits move logits, of some of these models by a quarter; those of unrelated weights are 1.4 apart.
constexpr double kRoundedInputs = 0.5;

class ReadmeFormats : public testing::TestWithParam<std::string> {};

TEST_P(ReadmeFormats, OpensWithEveryFamily) {
  const PublishedFormat& format = published_format(GetParam());
  for (const auto& [name, fixture] : families_held()) {
    SCOPED_TRACE(name);
    const PublishedPair pair = publish(family_of(fixture), format);
    const Opened stored = open(pair.stored);
    const Opened plain = open(pair.plain);
    const double error = relative_error(stored.logits, plain.logits);
    EXPECT_LE(error, format.quantizes_inputs ? kRoundedInputs : 1e-5);
    if (format.quantizes_inputs) {
      EXPECT_GT(error, 0.0);
    }
    EXPECT_EQ(plain.format, "none");
    EXPECT_EQ(stored.format == plain.format, format.section({}).is_null());
  }
}

Names format_names() {
  Names names;
  for (const PublishedFormat& format : published_formats()) names.push_back(format.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(All, ReadmeFormats, testing::ValuesIn(format_names()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

}  // namespace
}  // namespace moracle::test
