// A model that says what a test wants: each token is followed by one other, whatever came before.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "support/tiny_model.h"

namespace moracle::test {

struct Script {
  // Texts that are one token each, and the reply as these texts in their order; none occurs twice. An end token
  // follows.
  std::vector<std::string> reply;
  std::vector<std::string> special;  // of them, those that are special tokens
  std::string chat_template =
      "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
      "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";
  char last_byte = '\n';  // of every prompt: it starts the reply
  std::int64_t context = 2048;
};

// Bytes as byte-level tokenizers spell them.
inline std::string byte_token(int byte) {
  const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || (byte >= 174 && byte <= 255);
  int code = byte;
  if (!printable) {
    code = 256;
    for (int other = 0; other < byte; ++other) {
      const bool kept =
          (other >= 33 && other <= 126) || (other >= 161 && other <= 172) || (other >= 174 && other <= 255);
      code += kept ? 0 : 1;
    }
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xC0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3F))};
}

inline void write_scripted_model(const std::filesystem::path& folder, const Script& script) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> added = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  added.insert(added.end(), script.reply.begin(), script.reply.end());
  const auto vocabulary = static_cast<std::int64_t>(256 + added.size());
  Json config = tiny_qwen3_moe();
  config["num_hidden_layers"] = 1;
  config["vocab_size"] = vocabulary;
  config["hidden_size"] = vocabulary;  // a direction for each token
  config["max_position_embeddings"] = script.context;
  config["eos_token_id"] = 256;
  TinyModel model = TinyBuilder(config, {}).build();
  const auto fill = [&](const std::string& name, float value) {
    for (float& each : model.tensors.at(name).values) each = value;
  };
  // Nothing but the token itself reaches the head.
  fill("model.layers.0.self_attn.o_proj.weight", 0);
  for (int expert = 0; expert < 6; ++expert)
    fill("model.layers.0.mlp.experts." + std::to_string(expert) + ".down_proj.weight", 0);
  fill("model.norm.weight", 1);
  fill("model.embed_tokens.weight", 0);
  fill("lm_head.weight", 0);
  const auto cell = [&](const char* name, std::size_t row, std::size_t column) -> float& {
    return model.tensors.at(name).values[row * static_cast<std::size_t>(vocabulary) + column];
  };
  for (std::size_t id = 0; id < static_cast<std::size_t>(vocabulary); ++id)
    cell("model.embed_tokens.weight", id, id) = 1;
  auto from = static_cast<std::size_t>(static_cast<unsigned char>(script.last_byte));
  for (std::size_t i = 0; i <= script.reply.size(); ++i) {
    const std::size_t to = i < script.reply.size() ? 259 + i : 256;
    cell("lm_head.weight", to, from) = 1;
    from = to;
  }
  model.write(folder);

  Json vocab = Json::object();
  for (int byte = 0; byte < 256; ++byte) vocab[byte_token(byte)] = byte;
  Json tokens = Json::array();
  for (std::size_t i = 0; i < added.size(); ++i) {
    const bool special = i < 3 || std::count(script.special.begin(), script.special.end(), added[i]) > 0;
    tokens.push_back({{"id", 256 + i},
                      {"content", added[i]},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", special}});
  }
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  const Json tokenizer = {{"version", "1.0"},
                          {"added_tokens", tokens},
                          {"pre_tokenizer", byte_level},
                          {"decoder", byte_level},
                          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}}}};
  std::ofstream(folder / "tokenizer.json") << tokenizer.dump();
  std::ofstream(folder / "chat_template.jinja") << script.chat_template;
  std::ofstream(folder / "tokenizer_config.json") << R"({"eos_token": "<|endoftext|>"})";
  std::ofstream(folder / "generation_config.json") << R"({"eos_token_id": 256, "do_sample": false})";
}

}  // namespace moracle::test
