// A folder of a quantized model of some hundred kilobytes, with a tokenizer and a chat template.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "support/model_folder.h"
#include "support/small_tokenizer.h"
#include "support/test_data.h"

namespace moracle::test {

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
