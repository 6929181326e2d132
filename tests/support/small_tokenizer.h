// A tokenizer of a few hundred bytes: letters, a space, and one merge.
#pragma once

#include <string>

#include "base/json.h"

namespace moracle::test {

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

}  // namespace moracle::test
