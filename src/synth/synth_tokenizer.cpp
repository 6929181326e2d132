#include "base/json.h"
#include "base/unicode/utf8.h"
#include "synth/synth_model.h"

namespace moracle {

namespace {

// The byte-level alphabet of GPT-2: printable bytes stand for themselves, the others for the code points from 256 on.
std::string byte_symbol(unsigned byte, unsigned& next) {
  const bool printable = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
  const unsigned code = printable ? byte : 256 + next++;
  std::string utf8;
  unicode::append_utf8(utf8, code);
  return utf8;
}

}  // namespace

std::string synth_tokenizer(std::int64_t vocabulary, std::int64_t bos, std::int64_t eos) {
  const auto special = [](std::int64_t id, const char* content) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", true}};
  };
  const Json byte_level = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  Json vocab = Json::object();
  unsigned byte = 0;
  unsigned shifted = 0;
  for (std::int64_t id = 0; id < vocabulary; ++id) {
    if (id == bos) {
      vocab["<|bos|>"] = id;
    } else if (id == eos) {
      vocab["<|eos|>"] = id;
    } else if (byte < 256) {
      vocab[byte_symbol(byte++, shifted)] = id;
    } else {
      vocab["<filler_" + std::to_string(id) + ">"] = id;
    }
  }
  const Json tokenizer = {{"version", "1.0"},
                          {"truncation", nullptr},
                          {"padding", nullptr},
                          {"added_tokens", {special(bos, "<|bos|>"), special(eos, "<|eos|>")}},
                          {"normalizer", nullptr},
                          {"pre_tokenizer", byte_level},
                          {"post_processor", nullptr},
                          {"decoder", byte_level},
                          {"model",
                           {{"type", "BPE"},
                            {"dropout", nullptr},
                            {"unk_token", nullptr},
                            {"continuing_subword_prefix", nullptr},
                            {"end_of_word_suffix", nullptr},
                            {"fuse_unk", false},
                            {"byte_fallback", false},
                            {"vocab", std::move(vocab)},
                            {"merges", Json::array()}}}};
  return tokenizer.dump() + "\n";
}

}  // namespace moracle
