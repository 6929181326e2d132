// The files that lie beside a tokenizer, and vocabularies in tiktoken form: held against what transformers and tiktoken
// made of them (tests/tools/tokenizer_config_cases.py, tiktoken_cases.py).
#include <gtest/gtest.h>

#include <fstream>

#include "support/temporary_folder.h"
#include "support/test_data.h"
#include "text/tokenizer/tiktoken.h"
#include "text/tokenizer/tokenizer.h"

namespace moracle {
namespace {

using Ids = std::vector<std::int32_t>;

std::vector<Json> lines_of(const std::filesystem::path& path) {
  std::vector<Json> lines;
  std::ifstream stream(path);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line));
  return lines;
}

void expect_agreement(const Tokenizer& tokenizer, const Json& check) {
  const auto text = check.at("text").get<std::string>();
  const auto ids = check.at("ids").get<Ids>();
  const auto got = tokenizer.encode(text);
  ASSERT_TRUE(got.ok()) << got.error().message();
  EXPECT_EQ(*got, ids) << text;
  EXPECT_EQ(*tokenizer.decode(ids, false), check.at("whole").get<std::string>()) << text;
  if (check.contains("shown")) {
    EXPECT_EQ(*tokenizer.decode(ids), check.at("shown").get<std::string>()) << text;
  }
}

TEST(TokenizerConfig, MergesTheFilesAsTransformersDoes) {
  const auto lines = lines_of(test::data_dir() / "tokenizer" / "configs.jsonl");
  ASSERT_GT(lines.size(), 100U);
  for (std::size_t i = 1; i < lines.size(); ++i) {
    SCOPED_TRACE(lines[i].at("files").dump());
    const test::TemporaryFolder folder;
    Json tokenizer_json = lines.front();
    tokenizer_json.update(lines[i].at("change"));
    folder.write("tokenizer.json", tokenizer_json.dump());
    for (const auto& [name, content] : lines[i].at("files").items()) folder.write(name, content.dump());
    const auto tokenizer = Tokenizer::load(folder.path());
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
    Json named = Json::object();
    for (const auto& [name, token] : tokenizer->config().named) named[name] = token;
    EXPECT_EQ(named, lines[i].at("named"));
    for (const Json& check : lines[i].at("checks")) expect_agreement(*tokenizer, check);
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Tiktoken, GivesTheIdsOfTiktoken) {
  for (const char* name : {"kimi", "other"}) {
    const auto folder = test::data_dir() / "tokenizer" / "tiktoken" / name;
    const auto tokenizer = Tokenizer::load(folder);
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
    const auto lines = lines_of(folder / "cases.jsonl");
    ASSERT_GT(lines.size(), 100U);
    for (const Json& check : lines) expect_agreement(*tokenizer, check);
  }
}

TEST(Tiktoken, CutsLongTextsAsKimiDoes) {
  std::vector<std::size_t> ends;
  kimi_parts("", ends);
  EXPECT_EQ(ends, std::vector<std::size_t>{0});
  kimi_parts(std::string(60'000, 'x'), ends);
  EXPECT_EQ(ends, (std::vector<std::size_t>{25'000, 50'000, 60'000}));
  std::string words;
  for (int i = 0; i < 250'000; ++i) words += "é ";
  kimi_parts(words, ends);
  EXPECT_EQ(ends, (std::vector<std::size_t>{600'000, 750'000})) << "after 400,000 characters";
}

std::string refusal(const std::string& text) {
  const auto read = read_tiktoken(text, "tiktoken.model");
  return read.ok() ? "none" : read.error().code + " at " + read.error().where;
}

TEST(Tiktoken, RefusesWhatIsNoVocabulary) {
  EXPECT_EQ(refusal("QQ== 0\nQQ=\n"), "tokenizer.tiktoken at line 2");
  EXPECT_EQ(refusal("QQ== -1\n"), "tokenizer.tiktoken at line 1");
  EXPECT_EQ(refusal("QQ== 2147483647\n"), "tokenizer.tiktoken at line 1");
  EXPECT_EQ(refusal("QQ== 1 2\n"), "tokenizer.tiktoken at line 1");
  EXPECT_EQ(refusal("Q*== 1\n"), "tokenizer.tiktoken at line 1");
  EXPECT_EQ(read_tiktoken("version https://git-lfs.github.com/spec/v1\nsize 9\n", "f").error().advice,
            "run git lfs pull");
  EXPECT_EQ(refusal("=== 1\n"), "tokenizer.tiktoken at line 1");
  EXPECT_EQ(refusal("QQ== 0\nQg== 0\n"), "tokenizer.id at ");
  EXPECT_EQ(refusal("QQ== 0\nQQ== 1\n"), "tokenizer.id at ");
  EXPECT_EQ(refusal("QQ== 0\n"), "tokenizer.tiktoken at ") << "bytes are missing";
  EXPECT_EQ(refusal(""), "tokenizer.tiktoken at ");
  EXPECT_EQ(refusal(std::string(1U << 16U, 'A') + " 0\n").substr(0, 18), "tokenizer.tiktoken");
}

class FolderTest : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { folder_.write(name, text); }
  void write_tokenizer(const Json& change = Json::object()) const {
    Json json = lines_of(test::data_dir() / "tokenizer" / "configs.jsonl").front();
    json.update(change);
    write("tokenizer.json", json.dump());
  }
  [[nodiscard]] std::string refused() const {
    const auto loaded = Tokenizer::load(folder_.path());
    return loaded.ok() ? "none" : loaded.error().code + " at " + loaded.error().where;
  }
  [[nodiscard]] std::string warnings() const {
    std::string all;
    const auto loaded = Tokenizer::load(folder_.path());
    if (!loaded.ok()) return loaded.error().message();
    for (const std::string& warning : loaded->config().warnings) all += warning + "\n";
    return all;
  }

  test::TemporaryFolder folder_;
};

TEST_F(FolderTest, WithoutATokenizerSaysWhatThereIs) {
  auto loaded = Tokenizer::load(folder_.path());
  EXPECT_EQ(loaded.error().code, "tokenizer.missing");
  EXPECT_EQ(loaded.error().found, "neither");
  write("tokenizer.model", "x");
  loaded = Tokenizer::load(folder_.path());
  EXPECT_EQ(loaded.error().found, "only tokenizer.model");
  EXPECT_NE(loaded.error().advice.find("save_pretrained"), std::string::npos);
}

TEST_F(FolderTest, RefusesMembersOfAWrongType) {
  write_tokenizer();
  for (const auto& [text, where] : std::initializer_list<std::pair<const char*, const char*>>{
           {R"({"eos_token": 5})", "config.type at /eos_token"},
           {R"({"eos_token": {"content": 5}})", "config.type at /eos_token/content"},
           {R"({"eos_token": {}})", "config.missing at /eos_token/content"},
           {R"({"added_tokens_decoder": []})", "config.type at /added_tokens_decoder"},
           {R"({"added_tokens_decoder": {"x": {"content": "a"}}})", "tokenizer.id at /added_tokens_decoder/x"},
           {R"({"added_tokens_decoder": {"5": {"content": "a", "lstrip": 1}}})",
            "config.type at /added_tokens_decoder/5/lstrip"},
           {R"({"additional_special_tokens": "a"})", "config.type at /additional_special_tokens"},
           {R"({"additional_special_tokens": [1]})", "config.type at /additional_special_tokens/0"},
           {R"({"split_special_tokens": "yes"})", "config.type at /split_special_tokens"},
           {R"([])", "config.type at "}}) {
    write("tokenizer_config.json", text);
    EXPECT_EQ(refused(), where) << text;
  }
  write("tokenizer_config.json", R"({"eos_token": ")" + std::string(5000, 'x') + R"("})");
  EXPECT_EQ(refused(), "tokenizer.unsupported at ");
}

TEST_F(FolderTest, WhatDoesNotHoldIsSaid) {
  write_tokenizer();
  write("tokenizer_config.json",
        R"({"eos_token": "<a>", "added_tokens_decoder": {"300": {"content": "<a>"}}, "add_bos_token": true,
                                     "add_prefix_space": true})");
  write("special_tokens_map.json", R"({"eos_token": "<b>", "bos_token": "<c>", "additional_special_tokens": ["<d>"]})");
  write("added_tokens.json", R"({"<e>": 262})");
  const std::string all = warnings();
  for (const char* part : {"eos_token <b> is not used", "which has <a>, holds", "bos_token <c> is not used",
                           "which has none", "has <a> as 300, but its id is 262", "add_bos_token true is not applied",
                           "add_prefix_space true is not applied", "2 special tokens, as <"}) {
    EXPECT_NE(all.find(part), std::string::npos) << part << " in\n" << all;
  }
}

TEST_F(FolderTest, FilesThatAreNotUsedStopNothing) {
  write_tokenizer();
  write("special_tokens_map.json", "{");
  write("added_tokens.json", "[]");
  write("tokenizer_config.json", "{}");
  EXPECT_EQ(refused().substr(0, 11), "json.syntax");
  write("tokenizer_config.json", R"({"added_tokens_decoder": {}})");
  EXPECT_EQ(refused(), "none");
  EXPECT_NE(warnings().find("special_tokens_map.json"), std::string::npos);
  EXPECT_NE(warnings().find("added_tokens.json"), std::string::npos);
}

TEST_F(FolderTest, TheMapHoldsWithoutADecoderAndThatIsSaid) {
  write_tokenizer();
  write("tokenizer_config.json", R"({"eos_token": "<a>"})");
  write("special_tokens_map.json", R"({"eos_token": "<b>"})");
  EXPECT_NE(warnings().find("eos_token <b> holds, as in transformers, over <a>"), std::string::npos) << warnings();
  EXPECT_EQ(Tokenizer::load(folder_.path())->config().token("eos_token"), "<b>");
}

TEST_F(FolderTest, FilesThatAgreeSayNothing) {
  write_tokenizer({{"added_tokens",
                    {{{"id", 262},
                      {"content", "<a>"},
                      {"special", true},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false}}}}});
  write("tokenizer_config.json",
        R"({"eos_token": "<a>", "bos_token": null, "added_tokens_decoder": {"262": {"content": "<a>", "special": true}},
      "add_bos_token": false, "add_prefix_space": false, "clean_up_tokenization_spaces": true, "legacy": true,
      "additional_special_tokens": ["<a>"], "model_max_length": 1e30, "tokenizer_class": "PreTrainedTokenizerFast"})");
  write("special_tokens_map.json", R"({"eos_token": {"content": "<a>"}, "additional_special_tokens": ["<a>"]})");
  write("added_tokens.json", R"({"<a>": 262})");
  EXPECT_EQ(warnings(), "");
}

TEST_F(FolderTest, IdsFarBehindATiktokenVocabularyAreRefused) {
  const auto kimi = test::data_dir() / "tokenizer" / "tiktoken" / "kimi";
  std::filesystem::copy(kimi / "tiktoken.model", folder_.path() / "tiktoken.model");
  write("tokenizer_config.json",
        R"({"tokenizer_class": "TikTokenTokenizer", "added_tokens_decoder": {"2000000000": {"content": "x"}}})");
  EXPECT_EQ(refused(), "tokenizer.id at /added_tokens_decoder");
}

}  // namespace
}  // namespace moracle
