#define PCRE2_CODE_UNIT_WIDTH 8
#include "text/tokenizer/search/regex.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <utility>

#include "text/budgets.h"
#include "text/tokenizer/search/regex_syntax.h"
#include "text/unicode.h"

namespace moracle {
namespace {

// A search cannot be stopped, so each is kept so small that the clock between two of them is enough. It sees no more of
// the text than a window, and from one start it may backtrack kMatchLimit times; each time every item of the pattern
// may read the window, or what the pattern looks at behind its place. So many starts share a search that all of this is
// at most kSearchReads characters. What a small search does not settle is searched in the whole text by a slower
// program, which looks at the clock before every item.
constexpr std::size_t kWindow = 1024;
constexpr std::uint32_t kMatchLimit = 128;  // tokenizers in use need up to 64, and nearly always less than 16
constexpr std::size_t kSearchReads = std::size_t{1} << 28U;
constexpr std::size_t kItemBytes = 9;  // compiled, an item takes about so much
constexpr std::size_t kMaxStarts = 256;
constexpr std::size_t kCharacterBytes = 4;  // the longest
// Patterns in use compile to less than 5000 bytes. Larger ones than this are always searched by the slower program.
constexpr std::size_t kLargeProgram = 16 * 1024;
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;
constexpr std::size_t kJitStackStart = 32 * 1024;
constexpr std::size_t kJitStackMost = 64 * 1024 * 1024;
constexpr std::uint32_t kOptions =
    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT;

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

// Machine code takes the address 0 of an empty text for "no match so far" and reads what is not there.
PCRE2_SPTR units(std::string_view text) {
  return reinterpret_cast<PCRE2_SPTR>(text.empty() ? "" : text.data());
}

std::string message_of(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// What compiled to machine code is run as that, past all that pcre2_match looks at first.
struct Compiled {
  Code code;
  decltype(&pcre2_match) run = &pcre2_match;
};

// `text` is PCRE2's spelling. Without JIT the interpreter runs the same program.
Result<Compiled> compile(std::string_view text, std::uint32_t options, std::uint32_t jit_options) {
  const CompileContext context(pcre2_compile_context_create(nullptr));
  if (context == nullptr) return Error{.code = "memory.allocate", .found = "no memory for a regular expression"};
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int status = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(units(text), text.size(), options, &status, &offset, context.get()));
  if (code == nullptr) {
    return Error{.code = "tokenizer.unsupported",
                 .wanted = "a regular expression that PCRE2 can express",
                 .found = message_of(status)};
  }
  const bool jit = pcre2_jit_compile(code.get(), jit_options) == 0;
  return Compiled{std::move(code), jit ? &pcre2_jit_match : &pcre2_match};
}

// The end of the character that `at` lies in.
std::size_t character_end(std::string_view text, std::size_t at) {
  while (at < text.size() && unicode::is_continuation(text[at])) ++at;
  return at;
}

// Before every item of a watched program.
int look_at_budget(pcre2_callout_block* /*block*/, void* budget) {
  auto& spent = *static_cast<Budget*>(budget);
  return spent.steps(1) && spent.in_time() ? 0 : PCRE2_ERROR_CALLOUT;
}

}  // namespace

struct TextPattern::Program {
  Compiled small;      // for small searches: of a whole text, or of a window
  std::string source;  // PCRE2's spelling
  std::size_t starts = 1;
  std::size_t window = kWindow;  // bytes behind the last start of a search
  bool settles = false;          // no match that is tried looks beyond the window
  bool large = false;
  // The same with a callout before every item; made when a search needs it.
  mutable std::once_flag watched_once;
  mutable Compiled watched;
};

struct Searcher::Memory {
  MatchContext small, watched;
  MatchData data;
  JitStack stack;
};

Searcher::Searcher(Budget& budget) : budget_(budget) {}
Searcher::~Searcher() = default;

Result<TextPattern> TextPattern::regex(std::string_view pattern) {
  auto program = std::make_shared<Program>();
  MORACLE_ASSIGN(PatternText spelled, to_pcre2(pattern));
  program->source = std::move(spelled.text);
  // One character more, so that no attempt meets the window's end.
  const std::size_t seen = (spelled.ahead + 1) * kCharacterBytes;
  program->settles = seen <= kWindow;
  program->window = std::min(seen, kWindow);
  // Machine code that tells where a text ends too early is slower.
  const std::uint32_t partial = program->settles ? 0 : PCRE2_JIT_PARTIAL_HARD;
  MORACLE_ASSIGN(program->small, compile(program->source, kOptions, PCRE2_JIT_COMPLETE | partial));
  std::size_t size = 0;
  pcre2_pattern_info(program->small.code.get(), PCRE2_INFO_SIZE, &size);
  program->large = size > kLargeProgram;
  const std::size_t read = std::max(program->window, spelled.behind);
  program->starts =
      std::clamp<std::size_t>(kSearchReads / (read * kMatchLimit) / (size / kItemBytes + 1), 1, kMaxStarts);
  TextPattern result;
  result.program_ = std::move(program);
  return result;
}

Result<TextPattern> TextPattern::literal(std::string text) {
  if (text.empty()) return regex("");
  if (text.size() > kTokenizerTextBytes) {
    return Error{.code = "tokenizer.unsupported",
                 .wanted = fmt::format("a text of at most {} bytes", kTokenizerTextBytes),
                 .found = fmt::format("{} bytes", text.size())};
  }
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

// One pass of a program over a text.
struct TextPattern::Search {
  const Program& program;
  std::string_view text;
  Searcher& searcher;
  std::size_t last = 0, end = 0;  // of the block: its last start, and the window's end

  // Working memory, made once for a searcher.
  bool prepare() const {
    if (searcher.memory_ != nullptr) return true;
    auto memory = std::make_unique<Searcher::Memory>();
    memory->data.reset(pcre2_match_data_create(1, nullptr));
    memory->small = make_context(kMatchLimit);
    if (memory->small == nullptr || memory->data == nullptr) return false;
    searcher.memory_ = std::move(memory);
    return true;
  }

  // The same for watched programs; their stack is large.
  bool prepare_watched() const {
    Searcher::Memory& memory = *searcher.memory_;
    if (memory.watched == nullptr) {
      memory.stack.reset(pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr));
      memory.watched = make_context(std::numeric_limits<std::uint32_t>::max());
      if (memory.watched == nullptr) return false;
      if (memory.stack != nullptr) pcre2_jit_stack_assign(memory.watched.get(), nullptr, memory.stack.get());
      pcre2_set_callout(memory.watched.get(), look_at_budget, &searcher.budget_);
    }
    std::call_once(program.watched_once, [&] {
      auto code = compile(program.source, kOptions | PCRE2_AUTO_CALLOUT, PCRE2_JIT_COMPLETE);
      if (code.ok()) program.watched = std::move(code).value();
    });
    return program.watched.code != nullptr;
  }

  static MatchContext make_context(std::uint32_t match_limit) {
    MatchContext context(pcre2_match_context_create(nullptr));
    if (context == nullptr) return context;
    pcre2_set_match_limit(context.get(), match_limit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    return context;
  }

  // Takes the starts from `at` on that share a search and its window; the last of them is `last`.
  void take_block(std::size_t at) {
    last = text.size() - at <= program.starts ? text.size() : at + program.starts;
    end = text.size() - last <= program.window ? text.size() : character_end(text, last + program.window);
    pcre2_set_offset_limit(searcher.memory_->small.get(), last);
  }

  // PCRE2's status of the first match that starts at `at` or behind it in the block.
  [[nodiscard]] int run(std::size_t at) const {
    if (!program.large) {
      const std::uint32_t partial = end < text.size() && !program.settles ? PCRE2_PARTIAL_HARD : 0;
      const int status = match(program.small, at, end, partial, *searcher.memory_->small);
      // An attempt that reaches the end of the window knows nothing of what is behind; the stack of a small search is
      // the thread's own.
      const bool settled =
          status != PCRE2_ERROR_PARTIAL && status != PCRE2_ERROR_MATCHLIMIT && status != PCRE2_ERROR_JIT_STACKLIMIT;
      if (settled) return status;
    }
    if (!prepare_watched()) return PCRE2_ERROR_NOMEMORY;
    pcre2_set_offset_limit(searcher.memory_->watched.get(), last);
    return match(program.watched, at, text.size(), 0, *searcher.memory_->watched);
  }

  [[nodiscard]] int match(const Compiled& compiled, std::size_t at, std::size_t stop, std::uint32_t options,
                          pcre2_match_context& context) const {
    return compiled.run(compiled.code.get(), units(text), stop, at, PCRE2_NO_UTF_CHECK | options,
                        searcher.memory_->data.get(), &context);
  }

  [[nodiscard]] MatchSpan found() const {
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(searcher.memory_->data.get());
    return {place[0], place[1]};
  }

  [[nodiscard]] Error error(std::size_t at, std::optional<int> status) const {
    Error error = searcher.budget_.error("tokenizer.regex_limit");
    if (status && !searcher.budget_.spent()) error.found = message_of(*status);
    error.where = fmt::format("byte {} of {}", at, text.size());
    return error;
  }
};

Result<> TextPattern::find_all(std::string_view text, Searcher& searcher, std::vector<MatchSpan>& matches) const {
  matches.clear();
  if (!searcher.pass(text.size(), 0)) return searcher.limit();
  if (!literal_.empty()) {
    for (std::size_t at = unicode::find_bytes(text, literal_); at != std::string_view::npos;
         at = unicode::find_bytes(text, literal_, at)) {
      if (!searcher.found(matches, {at, at + literal_.size()})) return searcher.limit();
      at += literal_.size();
    }
    return Ok{};
  }
  Search search{*program_, text, searcher};
  if (!search.prepare()) return Error{.code = "memory.allocate", .found = "no memory for a match"};
  for (std::size_t at = 0; at <= text.size();) {
    // The budget is asked once for a block.
    const std::size_t settled = matches.size();
    search.take_block(at);
    while (at <= search.last) {
      const int status = search.run(at);
      if (status == PCRE2_ERROR_NOMATCH) {
        at = search.last < text.size() ? character_end(text, search.last + 1) : text.size() + 1;
        break;
      }
      if (status < 0) return search.error(at, status);
      const MatchSpan match = search.found();
      const bool empty = match.end == match.begin;
      if (!empty || matches.empty() || matches.back().end != match.begin) matches.push_back(match);
      at = !empty                      ? match.end
           : match.begin < text.size() ? match.begin + unicode::decode_at(text, match.begin).size
                                       : text.size() + 1;
    }
    Budget& budget = searcher.budget();
    const std::size_t made = matches.size() - settled;
    if (!budget.in_time() || !budget.matches(made) || !budget.bytes(made * sizeof(MatchSpan))) {
      return search.error(std::min(at, text.size()), std::nullopt);
    }
  }
  return Ok{};
}

}  // namespace moracle
