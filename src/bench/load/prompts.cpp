#include "bench/load/prompts.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace moracle::load {

namespace {

// Words that vocabularies have whole.
constexpr std::array<std::string_view, 64> kWords = {
    "time",    "year",   "people",   "way",      "day",     "man",     "thing", "woman", "life",    "child",  "world",
    "school",  "state",  "family",   "group",    "country", "problem", "hand",  "part",  "place",   "case",   "week",
    "company", "system", "program",  "question", "work",    "number",  "night", "point", "home",    "water",  "room",
    "mother",  "area",   "money",    "story",    "fact",    "month",   "lot",   "right", "study",   "book",   "eye",
    "job",     "word",   "business", "issue",    "side",    "kind",    "head",  "house", "service", "friend", "father",
    "power",   "hour",   "game",     "line",     "end",     "member",  "law",   "car",   "city"};

// Uniform numbers by their definition, which standard distributions leave to the library.
double uniform(std::mt19937_64& random) {
  return static_cast<double>(random() >> 11U) * 0x1p-53;
}

std::string words(std::mt19937_64& random, std::int64_t count) {
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    text += ' ';
    text += kWords[random() % kWords.size()];
  }
  return text;
}

}  // namespace

std::vector<std::string> make_prompts(const PromptPlan& plan, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto shared = static_cast<std::int64_t>(std::llround(static_cast<double>(plan.words) * plan.shared));
  const std::string beginning = words(random, shared);
  std::vector<std::string> prompts;
  prompts.reserve(count);
  for (std::size_t i = 0; i < count; ++i) {
    const double factor = 1 + plan.spread * (2 * uniform(random) - 1);
    const auto length = static_cast<std::int64_t>(std::llround(static_cast<double>(plan.words) * factor));
    // At least one word of its own, so that no prompt is another's.
    prompts.push_back(beginning + words(random, std::max<std::int64_t>(1, length - shared)));
  }
  return prompts;
}

std::vector<double> poisson_arrivals(double rate, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<double> times(count, 0.0);
  for (std::size_t i = 1; i < count; ++i) times[i] = times[i - 1] - std::log1p(-uniform(random)) / rate;
  return times;
}

}  // namespace moracle::load
