#include <xgrammar/xgrammar.h>

#include <algorithm>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/generic/count.h"
#include "text/constrain/grammar/grammar_compiler.h"

// xgrammar prints nothing: what it would log as fatal is thrown, the rest is dropped.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string& file, int line, const std::string& message);
void LogMessageImpl(const std::string& file, int line, int level, const std::string& message);

void LogFatalImpl(const std::string& /*file*/, int /*line*/, const std::string& message) {
  throw std::runtime_error(message);
}
void LogMessageImpl(const std::string& /*file*/, int /*line*/, int /*level*/, const std::string& /*message*/) {}

}  // namespace xgrammar

namespace moracle {

namespace {

constexpr std::size_t kWordBits = 32;

class GrammarConstraint final : public Constraint {
 public:
  GrammarConstraint(const xgrammar::CompiledGrammar& grammar, std::string_view begun,
                    std::span<const std::int32_t> ends)
      : matcher_(grammar, std::vector<int>(ends.begin(), ends.end())),
        ends_(count(xgrammar::GetBitmaskSize(grammar.GetTokenizerInfo().GetVocabSize()))),
        allowed_(ends_.size()) {
    for (const std::int32_t id : ends) {
      const auto bit = static_cast<std::size_t>(id);
      if (id >= 0 && bit / kWordBits < ends_.size()) ends_[bit / kWordBits] |= std::uint32_t{1} << (bit % kWordBits);
    }
    try {
      over_ = !begun.empty() && !matcher_.AcceptString(std::string(begun));
    } catch (const std::exception&) {
      over_ = true;
    }
    fill();
  }

  [[nodiscard]] bool allows_all() const override { return false; }
  [[nodiscard]] bool must_end() const override { return must_end_; }

  void narrow(std::span<std::uint32_t> mask) const override {
    for (std::size_t i = 0; i < mask.size(); ++i) mask[i] &= i < allowed_.size() ? allowed_[i] : 0U;
  }

  void advance(std::int32_t id) override {
    try {
      over_ = over_ || !matcher_.AcceptToken(id) || matcher_.IsTerminated();
    } catch (const std::exception&) {
      over_ = true;
    }
    fill();
  }

 private:
  // The mask of the next token. A text that cannot go on ends.
  void fill() {
    try {
      if (over_ || !fill_from_matcher()) allowed_ = ends_;
    } catch (const std::exception&) {
      allowed_ = ends_;
    }
    must_end_ = true;
    for (std::size_t i = 0; i < allowed_.size(); ++i) must_end_ = must_end_ && (allowed_[i] & ~ends_[i]) == 0;
  }

  // False where no token may come next.
  bool fill_from_matcher() {
    auto words = static_cast<std::int64_t>(allowed_.size());
    DLTensor tensor{.data = allowed_.data(),
                    .device = {.device_type = kDLCPU, .device_id = 0},
                    .ndim = 1,
                    .dtype = xgrammar::GetBitmaskDLType(),
                    .shape = &words,
                    .strides = nullptr,
                    .byte_offset = 0};
    if (!matcher_.FillNextTokenBitmask(&tensor)) std::fill(allowed_.begin(), allowed_.end(), ~std::uint32_t{0});
    return std::any_of(allowed_.begin(), allowed_.end(), [](std::uint32_t word) { return word != 0; });
  }

  xgrammar::GrammarMatcher matcher_;
  std::vector<std::uint32_t> ends_;     // a mask
  std::vector<std::uint32_t> allowed_;  // the next token's mask
  bool over_ = false;                   // an end came, or a token that no mask allowed
  bool must_end_ = false;
};

class XgrammarGrammar final : public Grammar {
 public:
  explicit XgrammarGrammar(xgrammar::CompiledGrammar grammar)
      : grammar_(std::move(grammar)), bytes_(grammar_.MemorySizeBytes()) {}

  [[nodiscard]] std::unique_ptr<Constraint> start(std::span<const std::int32_t> ends) const override {
    return start_behind({}, ends);
  }
  [[nodiscard]] std::unique_ptr<Constraint> start_behind(std::string_view text,
                                                         std::span<const std::int32_t> ends) const override {
    return std::make_unique<GrammarConstraint>(grammar_, text, ends);
  }
  [[nodiscard]] std::size_t bytes() const override { return bytes_; }

 private:
  xgrammar::CompiledGrammar grammar_;
  std::size_t bytes_;
};

class XgrammarCompiler final : public GrammarCompiler {
 public:
  XgrammarCompiler(const std::vector<std::string>& texts, std::int32_t vocabulary)
      : compiler_(xgrammar::TokenizerInfo(texts, xgrammar::VocabType::RAW, vocabulary, std::vector<std::int32_t>{}), 1,
                  false) {}

  Result<std::shared_ptr<const Grammar>> compile(const std::string& ebnf) override {
    const std::scoped_lock lock(mutex_);
    if (const auto known = by_text_.find(ebnf); known != by_text_.end()) {
      kept_.splice(kept_.begin(), kept_, known->second);
      return known->second->grammar;
    }
    try {
      auto grammar = std::make_shared<const XgrammarGrammar>(compiler_.CompileGrammar(ebnf));
      if (grammar->bytes() > kMostGrammarMemory) {
        return Error{.code = "constrain.complex",
                     .wanted = "a grammar of at most 64 MiB",
                     .found = std::to_string(grammar->bytes() >> 20U) + " MiB",
                     .advice = "make it smaller"};
      }
      keep(ebnf, grammar);
      return std::shared_ptr<const Grammar>(std::move(grammar));
    } catch (const std::exception& fault) {
      return Error{.code = "constrain.grammar", .wanted = "a grammar that can be compiled", .found = fault.what()};
    }
  }

 private:
  struct Kept {
    std::string text;
    std::shared_ptr<const Grammar> grammar;
  };

  void keep(const std::string& ebnf, const std::shared_ptr<const Grammar>& grammar) {
    kept_.push_front({ebnf, grammar});
    by_text_.emplace(ebnf, kept_.begin());
    bytes_ += size_of(kept_.front());
    while (bytes_ > kGrammarCacheBytes && kept_.size() > 1) {
      bytes_ -= size_of(kept_.back());
      by_text_.erase(kept_.back().text);
      kept_.pop_back();
    }
  }
  static std::size_t size_of(const Kept& kept) { return 2 * kept.text.size() + kept.grammar->bytes(); }

  std::mutex mutex_;
  xgrammar::GrammarCompiler compiler_;
  std::list<Kept> kept_;  // the last one asked for first
  std::unordered_map<std::string, std::list<Kept>::iterator> by_text_;
  std::size_t bytes_ = 0;
};

}  // namespace

bool can_constrain() {
  return true;
}

Result<std::shared_ptr<GrammarCompiler>> GrammarCompiler::open(const std::vector<std::string>& texts,
                                                               std::int32_t vocabulary) {
  try {
    return std::shared_ptr<GrammarCompiler>(std::make_shared<XgrammarCompiler>(texts, vocabulary));
  } catch (const std::exception& fault) {
    return Error{
        .code = "constrain.grammar", .wanted = "a vocabulary that masks can be made for", .found = fault.what()};
  }
}

}  // namespace moracle
