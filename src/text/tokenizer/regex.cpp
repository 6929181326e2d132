#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>

#include "text/tokenizer/regex_syntax.h"
#include "text/unicode.h"

namespace moracle {
namespace {

// From one start a match may backtrack this often, plus a few times per byte of text (a greedy run gives back byte by
// byte). The limit does not bound a search over many starts, so one search covers kStartsPerSearch bytes of starts and
// the clock is read between searches.
constexpr std::uint64_t kMatchLimit = 1'000'000;
constexpr std::uint64_t kMatchLimitPerByte = 32;
constexpr std::size_t kStartsPerSearch = 256;
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;
constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackMost = 64 * 1024 * 1024;
constexpr auto kTimeLimit = std::chrono::seconds(20);

template <auto Free>
struct Deleter {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Code = std::unique_ptr<pcre2_code, Deleter<pcre2_code_free>>;
using MatchData = std::unique_ptr<pcre2_match_data, Deleter<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Deleter<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Deleter<pcre2_compile_context_free>>;
using JitStack = std::unique_ptr<pcre2_jit_stack, Deleter<pcre2_jit_stack_free>>;

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

struct TextPattern::Program {
  Code code;
};

Result<TextPattern> TextPattern::regex(std::string_view pattern) {
  MORACLE_ASSIGN(const std::string text, to_pcre2(pattern));
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return Error{.code = "memory", .found = "no memory for a regular expression"};
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int status = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                          &status, &offset, context.get()));
  if (code == nullptr) {
    return Error{.code = "tokenizer.unsupported",
                 .wanted = "a regular expression that PCRE2 can express",
                 .found = message_of(status)};
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without JIT the interpreter runs the same program
  TextPattern result;
  result.program_ = std::make_shared<const Program>(Program{std::move(code)});
  return result;
}

Result<TextPattern> TextPattern::literal(std::string text) {
  if (text.empty()) return regex("");
  TextPattern result;
  result.literal_ = std::move(text);
  return result;
}

Result<TextPattern> TextPattern::from_json(const Json& json, const std::string& file, const std::string& pointer) {
  const auto text_of = [&](const char* kind) -> const Json* {
    if (!json.is_object() || json.size() != 1) return nullptr;
    const auto found = json.find(kind);
    return found != json.end() && found->is_string() ? &*found : nullptr;
  };
  const Json* literal_json = text_of("String");
  const Json* regex_json = text_of("Regex");
  if (literal_json == nullptr && regex_json == nullptr) {
    return Error{.code = "tokenizer.unsupported",
                 .file = file,
                 .where = pointer,
                 .wanted = R"({"String": text} or {"Regex": text})",
                 .found = json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80)};
  }
  auto result = literal_json != nullptr ? literal(literal_json->get<std::string>())
                                        : regex(regex_json->get_ref<const std::string&>());
  if (!result.ok()) {
    Error error = std::move(result).error();
    error.file = file;
    error.where = pointer + (literal_json != nullptr ? "/String" : "/Regex");
    return error;
  }
  return result;
}

Result<> TextPattern::find_all(std::string_view text, std::vector<MatchSpan>& matches) const {
  matches.clear();
  if (!literal_.empty()) {
    for (std::size_t at = text.find(literal_); at != std::string_view::npos; at = text.find(literal_, at)) {
      matches.push_back({at, at + literal_.size()});
      at += literal_.size();
    }
    return Ok{};
  }
  const MatchContext context(pcre2_match_context_create(nullptr));
  const MatchData data(pcre2_match_data_create(1, nullptr));
  const JitStack stack(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
  if (context == nullptr || data == nullptr) {
    return Error{.code = "memory", .found = "no memory for a match"};
  }
  if (stack != nullptr) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  const std::uint64_t limit = std::min<std::uint64_t>(kMatchLimit + kMatchLimitPerByte * text.size(),
                                                      std::numeric_limits<std::uint32_t>::max());
  pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(limit));
  pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  const auto deadline = std::chrono::steady_clock::now() + kTimeLimit;

  std::size_t searches = 0;
  for (std::size_t at = 0; at <= text.size();) {
    pcre2_set_offset_limit(context.get(), at + kStartsPerSearch);
    const int status = pcre2_match(program_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), at,
                                   PCRE2_NO_UTF_CHECK, data.get(), context.get());
    const bool late = (++searches & 0xFF) == 0 && std::chrono::steady_clock::now() > deadline;
    if ((status < 0 && status != PCRE2_ERROR_NOMATCH) || late) {
      return Error{.code = "tokenizer.regex_limit",
                   .where = fmt::format("byte {} of {}", at, text.size()),
                   .wanted = "a pattern that matches this text within the limits",
                   .found = late ? "20 seconds of matching" : message_of(status)};
    }
    if (status == PCRE2_ERROR_NOMATCH) {
      if (text.size() - at <= kStartsPerSearch) break;
      at += kStartsPerSearch;
      while ((static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U) --at;  // the start of the character there
      continue;
    }
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
    const MatchSpan match{found[0], found[1]};
    if (match.end > match.begin) {
      matches.push_back(match);
      at = match.end;
      continue;
    }
    if (matches.empty() || matches.back().end != match.begin) matches.push_back(match);
    at = match.begin < text.size() ? match.begin + unicode::decode_at(text, match.begin).size : text.size() + 1;
  }
  return Ok{};
}

}  // namespace moracle
