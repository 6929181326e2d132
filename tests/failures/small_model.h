// A folder of a quantized model of some hundred kilobytes, with a tokenizer and a chat template.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/model_folder.h"
#include "support/test_data.h"

namespace moracle::test {

// Letters, a space, and one merge.
inline Json small_tokenizer() {
  Json vocabulary{{"<unk>", 0}};
  for (int letter = 0; letter < 26; ++letter) vocabulary[std::string(1, static_cast<char>('a' + letter))] = letter + 1;
  vocabulary[" "] = 27;
  vocabulary["ab"] = 28;
  return {{"version", "1.0"},
          {"added_tokens", Json::array()},
          {"normalizer", {{"type", "NFC"}}},
          {"pre_tokenizer",
           {{"type", "Split"}, {"pattern", {{"Regex", "\\w+|\\s"}}}, {"behavior", "Isolated"}, {"invert", false}}},
          {"post_processor", nullptr},
          {"decoder", {{"type", "Fuse"}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", false},
            {"byte_fallback", false},
            {"vocab", vocabulary},
            {"merges", Json::array({"a b"})}}}};
}

// `description` is the name of a seed of fuzz_config, for example "mixtral-awq-w4g32".
inline void write_small_model(const std::string& description, const std::filesystem::path& folder) {
  std::ifstream file(source_dir() / "tests" / "fuzz" / "seeds" / "config" / description, std::ios::binary);
  const Json json = Json::parse(std::string{std::istreambuf_iterator<char>(file), {}}, nullptr, false);
  const auto made = make_folder(json, std::size_t{8} << 20);
  ASSERT_TRUE(made.has_value()) << description;
  write_folder(*made, folder);
  std::ofstream(folder / "tokenizer.json") << small_tokenizer().dump();
  std::ofstream(folder / "chat_template.jinja")
      << "{% for message in messages %}{{ message.content | trim }} {% endfor %}";
  std::ofstream(folder / "generation_config.json") << R"({"do_sample": false, "eos_token_id": 63})";
}

}  // namespace moracle::test
