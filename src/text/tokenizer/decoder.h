// The "decoder" of a tokenizer.json: turns token texts back into text, token by token.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/budget.h"
#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/component.h"
#include "text/tokenizer/search/regex.h"

namespace moracle {

// What the stages of a chain share: the budget, and the first error, after which nothing more is made.
struct DecodeWork {
  explicit DecodeWork(const BudgetLimits& limits) : budget(limits), searcher(budget) {}
  Budget budget;
  Searcher searcher;
  std::optional<Error> error{};
};

// One step of a decoder chain. Text arrives in fragments of whole characters; end_token() closes one token (which may
// have no fragment), finish() the sequence. Whatever a later fragment could still change is held back.
class DecodeStage {
 public:
  DecodeStage(DecodeStage* next, DecodeWork& work) : next_(next), work_(work) {}
  DecodeStage(const DecodeStage&) = delete;
  DecodeStage& operator=(const DecodeStage&) = delete;
  virtual ~DecodeStage() = default;

  virtual void fragment(std::string_view text) = 0;
  virtual void end_token() = 0;
  virtual void finish() = 0;  // also resets the stage for the next sequence

 protected:
  [[nodiscard]] DecodeStage& next() const { return *next_; }
  [[nodiscard]] DecodeWork& work() const { return work_; }
  // Before text of so many bytes is made; false where the budget is spent.
  [[nodiscard]] bool takes(std::size_t bytes) const { return work_.searcher.pass(bytes, bytes) || over_budget(); }

 private:
  [[nodiscard]] bool over_budget() const;

  DecodeStage* next_;
  DecodeWork& work_;
};

// A chain of stages that ends in a buffer, under one budget: kDecoding, and kDecodingPerId for each token.
class DecodeChain {
 public:
  // Before so many tokens are pushed.
  void expect(std::size_t tokens);
  void push(std::string_view token) {
    front().fragment(token);
    front().end_token();
  }
  // Also makes ready for the next sequence.
  void finish() { front().finish(); }
  // What has become certain since the last call. Errors: "tokenizer.limit", "tokenizer.regex_limit".
  Result<std::string> take();
  // Time between the two does not count.
  void pause() { work_->budget.pause(); }
  void resume() { work_->budget.resume(); }

 private:
  friend class Decoder;
  DecodeChain();
  [[nodiscard]] DecodeStage& front() const { return *stages_.back(); }

  std::unique_ptr<DecodeWork> work_;
  std::unique_ptr<std::string> output_ = std::make_unique<std::string>();
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // last stage first
};

class Decoder {
 public:
  // Reads the value at `pointer`; null joins the tokens with spaces. Types: ByteLevel, ByteFallback, Fuse, Strip,
  // Replace, Metaspace, Sequence; any other is "tokenizer.unsupported". Too many are "tokenizer.limit".
  static Result<Decoder> from_json(const Json& json, const std::string& file, const std::string& pointer,
                                   Budget& budget);

  [[nodiscard]] DecodeChain chain() const;
  // The bytes that a token stands for, be they a part of a character. Empty: the chain does not write tokens as bytes,
  // or not this one.
  [[nodiscard]] std::optional<std::string> bytes_of(std::string_view token) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Fuse {};
  struct Strip {
    std::string content;
    std::size_t start, stop;
  };
  struct Replace {
    TextPattern pattern;
    std::string content;
  };
  struct Metaspace {
    std::string replacement;
    bool prepended;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace>;
  friend struct StageMaker;

  Result<> append(const Json& json, const std::string& type, const std::string& file, const std::string& pointer);

  std::vector<Step> steps_;
  bool spaced_ = false;  // no decoder at all
};

}  // namespace moracle
