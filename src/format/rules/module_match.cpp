#define PCRE2_CODE_UNIT_WIDTH 8
#include "format/rules/module_match.h"

#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>

#include "format/faults.h"
#include "format/rules/spelling.h"

namespace moracle {
namespace {

constexpr std::size_t kMaxPatternBytes = 4096;
constexpr std::size_t kMaxRegexes = 1024;
constexpr std::size_t kMaxSearched = 8192;  // patterns but exact names; published lists have some hundred
constexpr std::size_t kMaxUnmatched = 16;   // that are told
// Of all searches of a list, and beside it for each module that is searched for.
constexpr BudgetLimits kSearching{.time = std::chrono::milliseconds(1000)};
constexpr BudgetLimits kSearchingModule{.steps = 0, .bytes = 0, .matches = 0, .time = std::chrono::microseconds(200)};
// Module names have some hundred bytes: a pattern that takes more steps is broken or hostile.
constexpr std::uint32_t kMatchSteps = 100'000;

Error pattern_error(const std::string& text, std::string found) {
  return Error{.code = "config.pattern",
               .where = fmt::format("\"{:.200}\"", text),
               .wanted = "a regular expression for module names",
               .found = std::move(found)};
}

// Walks text and pattern once, going back to the last star on a mismatch.
bool wildcard_match(std::string_view pattern, std::string_view text) {
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

bool component_match(std::string_view part, std::string_view name) {
  if (part.empty()) return false;
  for (std::size_t at = name.find(part); at != std::string_view::npos; at = name.find(part, at + 1)) {
    const std::size_t end = at + part.size();
    const bool left = at == 0 || name[at - 1] == '.' || part.front() == '.';
    const bool right = end == name.size() || name[end] == '.' || part.back() == '.';
    if (left && right) return true;
  }
  return false;
}

}  // namespace

struct Pattern::Regex {
  pcre2_code* code = nullptr;
  pcre2_match_context* context = nullptr;
  Regex() = default;
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  ~Regex() {
    pcre2_match_context_free(context);
    pcre2_code_free(code);
  }
};

Result<Pattern> Pattern::compile(Kind kind, std::string text) {
  Pattern pattern;
  pattern.kind_ = kind;
  pattern.text_ = std::move(text);
  if (pattern.text_.size() > kMaxPatternBytes)
    return pattern_error(pattern.text_, std::to_string(pattern.text_.size()) + " bytes");
  if (kind != Kind::regex) {
    pattern.usual_ = usual_name(pattern.text_);
    return pattern;
  }
  pattern.other_spelling_ = moracle::has_other_spelling(pattern.text_);
  auto regex = std::make_shared<Regex>();
  int code = 0;
  PCRE2_SIZE offset = 0;
  regex->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.text_.data()), pattern.text_.size(),
                              PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C, &code, &offset, nullptr);
  if (regex->code == nullptr) {
    PCRE2_UCHAR message[256] = {};
    pcre2_get_error_message(code, message, sizeof message);
    return pattern_error(pattern.text_,
                         std::string(reinterpret_cast<const char*>(message)) + " at byte " + std::to_string(offset));
  }
  regex->context = pcre2_match_context_create(nullptr);
  if (regex->context == nullptr) return pattern_error(pattern.text_, "no memory to compile it");
  pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);  // where it fails, the interpreter matches
  pcre2_set_match_limit(regex->context, kMatchSteps);
  pcre2_set_depth_limit(regex->context, kMatchSteps);
  pattern.regex_ = std::move(regex);
  return pattern;
}

Result<bool> Pattern::matches(std::string_view name) const {
  switch (kind_) {
    case Kind::exact:
      return name == text_;
    case Kind::component:
      return component_match(text_, name) || component_match(usual_, name);
    case Kind::wildcard:
      return wildcard_match(text_, name) || (usual_ != text_ && wildcard_match(usual_, name));
    case Kind::regex:
      break;
  }
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  if (data == nullptr) return pattern_error(text_, "no memory to match it");
  const auto match = [&](std::uint32_t options) {
    return pcre2_match(regex_->code, reinterpret_cast<PCRE2_SPTR>(name.data()), name.size(), 0, options, data,
                       regex_->context);
  };
  int rc = match(0);
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = match(PCRE2_NO_JIT);
  pcre2_match_data_free(data);
  if (rc >= 0) return true;
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  return pattern_error(text_, "more than " + std::to_string(kMatchSteps) + " steps to match \"" +
                                  std::string(name.substr(0, 200)) + "\"");
}

std::vector<std::string> names_of(const ModuleRef& module) {
  std::vector<std::string> names{module.path};
  if (!fault(Fault::exclude_misses_fused)) names.insert(names.end(), module.fused.begin(), module.fused.end());
  std::set<std::string> known(names.begin(), names.end());
  const std::size_t count = names.size();
  for (std::size_t i = 0; i < count; ++i) {
    const std::string usual = usual_name(names[i]);
    for (std::string name : {std::string(kRoots.front()) + usual, usual})
      if (known.insert(name).second) names.push_back(std::move(name));
  }
  return names;
}

PatternList::PatternList() : budget_(kSearching) {
  budget_.pause();
}

Result<> PatternList::add(Pattern::Kind kind, std::string text) {
  if (kind == Pattern::Kind::regex && ++regexes_ > kMaxRegexes)
    return Error{.code = "config.range",
                 .where = fmt::format("\"{:.200}\"", text),
                 .wanted = "at most " + std::to_string(kMaxRegexes) + " regular expressions",
                 .found = "more"};
  if (kind != Pattern::Kind::exact && searched_.size() == kMaxSearched)
    return Error{.code = "config.range",
                 .where = fmt::format("\"{:.200}\"", text),
                 .wanted = "at most " + std::to_string(kMaxSearched) + " patterns and parts of names",
                 .found = "more"};
  MORACLE_ASSIGN(Pattern pattern, Pattern::compile(kind, std::move(text)));
  const int index = static_cast<int>(patterns_.size());
  if (kind == Pattern::Kind::exact)
    exact_.insert({{pattern.text(), index}, {pattern.usual(), index}});
  else
    searched_.push_back(index);
  patterns_.push_back(std::move(pattern));
  hit_.push_back(0);
  return Ok{};
}

Result<bool> PatternList::matches(const Pattern& pattern, const std::string& name) const {
  constexpr std::size_t kBytesOfAStep = 64;
  const bool paid =
      budget_.steps(1 + name.size() / kBytesOfAStep) && (pattern.kind() != Pattern::Kind::regex || budget_.in_time());
  if (paid) return pattern.matches(name);
  return Error{.code = "config.pattern",
               .where = fmt::format("\"{:.200}\"", pattern.text()),
               .wanted = "patterns that are matched with all modules within " +
                         std::to_string(kSearching.time.count() / 1000) + " ms",
               .found = std::to_string(searched_.size()) + " patterns that take longer"};
}

Result<bool> PatternList::matches_any(const Pattern& pattern, const std::vector<std::string>& names,
                                      std::vector<std::string>& others) const {
  for (const std::string& name : names) {
    MORACLE_ASSIGN(const bool match, matches(pattern, name));
    if (match) return true;
  }
  if (!pattern.has_other_spelling()) return false;
  if (others.empty()) {
    std::set<std::string> all;
    for (const std::string& name : names)
      for (std::string& spelled : other_spellings(usual_name(name))) all.insert(std::move(spelled));
    others.assign(all.begin(), all.end());
  }
  for (const std::string& name : others) {
    MORACLE_ASSIGN(const bool match, matches(pattern, name));
    if (match) return true;
  }
  return false;
}

Result<int> PatternList::first_index(const std::vector<std::string>& names) const {
  budget_.resume();
  budget_.extend(kSearchingModule);
  Result<int> index = search(names);
  budget_.pause();
  return index;
}

Result<int> PatternList::search(const std::vector<std::string>& names) const {
  int best = -1;
  std::vector<std::string> others;
  for (const std::string& name : names) {
    const auto at = exact_.lower_bound({name, 0});
    if (at != exact_.end() && at->first == name && (best < 0 || at->second < best)) best = at->second;
  }
  for (const int index : searched_) {
    if (best >= 0 && index > best) break;
    MORACLE_ASSIGN(const bool match, matches_any(patterns_[static_cast<std::size_t>(index)], names, others));
    if (!match) continue;
    best = index;
    break;
  }
  if (best >= 0) hit_[static_cast<std::size_t>(best)] = 1;
  return best;
}

std::vector<std::string> PatternList::unmatched(const Checkpoint& checkpoint) const {
  std::vector<std::string> texts;
  for (const std::size_t index : unmatched_indices(checkpoint)) texts.push_back(patterns_[index].text());
  return texts;
}

std::vector<std::size_t> PatternList::unmatched_indices(const Checkpoint& checkpoint) const {
  std::vector<std::size_t> indices;
  std::set<std::string, std::less<>> stems;  // as stored and usual; made when the first search needs them
  Budget budget(kSearching);
  for (std::size_t i = 0; i < patterns_.size() && indices.size() < kMaxUnmatched; ++i) {
    if (hit_[i] != 0) continue;
    const Pattern& pattern = patterns_[i];
    if (stems.empty())
      for (const auto& [name, tensor] : checkpoint.tensors()) {
        const std::string stem = name.substr(0, name.rfind('.'));
        stems.insert(usual_name(stem));
        stems.insert(stem);
      }
    // A model may hold modules that no format was asked about: routers, vision towers, unused heads.
    bool found = false;
    if (pattern.kind() == Pattern::Kind::exact) {
      for (const std::string* text : {&pattern.text(), &pattern.usual()}) {
        const auto below = stems.lower_bound(*text + ".");
        found = found || stems.contains(*text) || (below != stems.end() && below->starts_with(*text + ".")) ||
                checkpoint.find(*text) != nullptr;
      }
    } else {
      for (const std::string& stem : stems) {
        if (!budget.in_time()) return indices;
        const auto match = pattern.matches(stem);
        found = match.ok() && match.value();
        if (found || !match.ok()) break;
      }
    }
    if (!found) indices.push_back(i);
  }
  return indices;
}

}  // namespace moracle
