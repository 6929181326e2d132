// The "decoder" of a tokenizer.json: turns token texts back into text, token by token.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/regex.h"

namespace moracle {

// One step of a decoder chain. Text arrives in fragments of whole characters; end_token() closes one token (which may
// have no fragment), finish() the sequence. Whatever a later fragment could still change is held back.
class DecodeStage {
 public:
  explicit DecodeStage(DecodeStage* next) : next_(next) {}
  DecodeStage(const DecodeStage&) = delete;
  DecodeStage& operator=(const DecodeStage&) = delete;
  virtual ~DecodeStage() = default;

  virtual void fragment(std::string_view text) = 0;
  virtual void end_token() = 0;
  virtual void finish() = 0;  // also resets the stage for the next sequence

 protected:
  [[nodiscard]] DecodeStage& next() const { return *next_; }

 private:
  DecodeStage* next_;
};

// A chain of stages that ends in a buffer.
class DecodeChain {
 public:
  void push(std::string_view token) {
    front().fragment(token);
    front().end_token();
  }
  void finish() { front().finish(); }
  // What has become certain since the last call.
  std::string take() { return std::exchange(*output_, {}); }

 private:
  friend class Decoder;
  [[nodiscard]] DecodeStage& front() const { return *stages_.back(); }

  std::unique_ptr<std::string> output_ = std::make_unique<std::string>();
  std::vector<std::unique_ptr<DecodeStage>> stages_;  // last stage first
};

class Decoder {
 public:
  // Reads the value at `pointer`; null joins the tokens with spaces. Types: ByteLevel, ByteFallback, Fuse, Strip,
  // Replace, Metaspace, Sequence; any other is "tokenizer.unsupported".
  static Result<Decoder> from_json(const Json& json, const std::string& file, const std::string& pointer);

  [[nodiscard]] DecodeChain chain() const;

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

  Result<> append(const Json& json, const std::string& file, const std::string& pointer, int depth);

  std::vector<Step> steps_;
  bool spaced_ = false;  // no decoder at all
};

}  // namespace moracle
