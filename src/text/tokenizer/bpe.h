// The BPE model of a tokenizer.json.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/budget.h"
#include "base/generic/flat_map.h"
#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/vocabulary.h"

namespace moracle {

// Working memory of Bpe::encode; one per thread, reused from piece to piece.
class BpeScratch {
 private:
  friend class Bpe;
  struct Symbol {
    std::int32_t id;
    std::int32_t previous, next;  // indices, -1: none
    bool live;
  };
  struct Merge {
    std::uint32_t rank;
    std::uint32_t position;
    std::int32_t id;
    friend bool operator<(const Merge& a, const Merge& b) {  // the heap's top is the least rank, then the leftmost
      return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
    }
  };
  std::vector<Symbol> symbols_;
  std::vector<Merge> heap_;
  std::string buffer_;
};

// Byte pair encoding: a piece starts as characters (or bytes, or unknown tokens) and the pair of the least rank is
// merged until none is left, leftmost first: O(n log n).
class Bpe {
 public:
  // Reads the model object at `pointer`. Errors: "tokenizer.id", "tokenizer.merge", "tokenizer.unsupported" (dropout, a
  // type other than BPE) and those of JsonReader.
  static Result<Bpe> from_json(const Json& json, const std::string& file, const std::string& pointer);

  // Tokens by their bytes, and their ranks, which are their ids. Two tokens merge where their bytes together are one;
  // a piece that is a token is that token. Pieces are in the byte-level alphabet. Errors: "tokenizer.id" (a rank or a
  // token that occurs twice), "tokenizer.tiktoken" (a byte that is no token).
  using Ranks = std::vector<std::pair<std::string, std::int32_t>>;
  static Result<Bpe> from_ranks(const Ranks& ranks, const std::string& file);

  // Appends the ids of one piece. Errors: "tokenizer.unknown_token", "tokenizer.limit", "text.size" (a piece of 256 MiB
  // or more).
  Result<> encode(std::string_view piece, Budget& budget, BpeScratch& scratch, std::vector<std::int32_t>& ids) const;

  [[nodiscard]] const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Target {
    std::uint32_t rank;
    std::int32_t id;
  };

  Result<> read_vocabulary(const Json& json, const std::string& file, const std::string& pointer);
  Result<> read_merges(const Json& json, const std::string& file, const std::string& pointer);
  Result<> add_merge(std::string_view left, std::string_view right, std::uint32_t rank, const std::string& file,
                     const std::string& where);
  void index_characters();
  [[nodiscard]] bool take(std::string_view piece, Budget& budget) const;
  [[nodiscard]] std::optional<std::int32_t> character_id(std::string_view character, bool first, bool last,
                                                         std::string& spelled) const;
  [[nodiscard]] const Target* target(std::int32_t left, std::int32_t right) const;
  Result<> place_symbols(std::string_view piece, BpeScratch& scratch) const;
  void merge_symbols(BpeScratch& scratch) const;

  Vocabulary vocabulary_;
  FlatMap<Target> merges_;                   // left id << 32 | right id
  std::vector<std::int32_t> character_ids_;  // by code point below U+3000, -1: none
  std::vector<std::int32_t> byte_ids_;       // <0x00> .. <0xFF>, -1: none
  std::string prefix_, suffix_;
  std::optional<std::string> unknown_text_;
  std::optional<std::int32_t> unknown_id_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
};

}  // namespace moracle
