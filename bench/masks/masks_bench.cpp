// What it costs to hold replies to schemas and expressions, with the vocabulary of a published model: grammars are
// compiled, then replies are walked, of the examples and at random, and each step's mask is timed.
//   cmake --build build/release --target masks_bench
//   build/release/bench/masks_bench [--bombs] VOCABULARY CORPUS [NAME...]
// VOCABULARY: a line of base64 for each token, by id. CORPUS: a JSON list of objects with a name, a schema or a regex,
// and examples. Times are of CPU. Exit code 1 where the percentiles of all rows are over their targets, with --bombs
// where a row that is not refused takes more than 2 s or 64 MiB.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/constrain/grammar/grammar_compiler.h"
#include "text/constrain/output_format.h"
#include "text/constrain/token_mask.h"

namespace {

using moracle::OrderedJson;

constexpr int kRandomReplies = 4;
constexpr int kMostSteps = 400;
constexpr double kCompileMs = 150, kMaskMedianUs = 50, kMaskTailUs = 1000;
constexpr double kMostCompileMs = 2000;

double cpu_ms() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

double percentile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(part * static_cast<double>(values.size())))];
}

std::string base64_decoded(std::string_view text) {
  constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  unsigned bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) break;
    bits = bits << 6U | static_cast<unsigned>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    out.push_back(static_cast<char>(bits >> static_cast<unsigned>(count) & 0xFFU));
  }
  return out;
}

struct Vocabulary {
  std::vector<std::string> texts;
  std::unordered_map<std::string_view, std::int32_t> ids;
  std::size_t longest = 0;
  std::int32_t end = 0;

  explicit Vocabulary(const char* file) {
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) texts.push_back(base64_decoded(line));
    end = static_cast<std::int32_t>(texts.size());
    texts.emplace_back();
    for (std::size_t i = 0; i < texts.size(); ++i) {
      if (!texts[i].empty()) ids.emplace(texts[i], static_cast<std::int32_t>(i));
      longest = std::max(longest, texts[i].size());
    }
  }

  // The longest token that the text begins with and the mask allows; -1: none.
  [[nodiscard]] std::int32_t next(std::string_view text, std::span<const std::uint32_t> mask) const {
    for (std::size_t size = std::min(longest, text.size()); size > 0; --size) {
      const auto found = ids.find(text.substr(0, size));
      if (found != ids.end() && moracle::in_mask(mask, found->second)) return found->second;
    }
    return -1;
  }
};

class Walk {
 public:
  Walk(const Vocabulary& vocabulary, const moracle::Grammar& grammar, std::vector<double>& steps)
      : vocabulary_(vocabulary), steps_(steps), mask_((vocabulary.texts.size() + 31) / 32) {
    timed([&] { constraint_ = grammar.start({&vocabulary.end, 1}); });
  }

  // Whether the masks allow all of the text, and its end.
  bool along(std::string_view text) {
    while (!text.empty()) {
      const std::int32_t id = vocabulary_.next(text, mask_);
      if (id < 0) return false;
      text.remove_prefix(vocabulary_.texts[static_cast<std::size_t>(id)].size());
      timed([&] { constraint_->advance(id); });
    }
    return moracle::in_mask(mask_, vocabulary_.end);
  }

  void at_random(unsigned seed) {
    std::mt19937 random(seed);
    for (int step = 0; step < kMostSteps && !constraint_->must_end(); ++step) {
      std::vector<std::int32_t> allowed;
      for (std::int32_t id = 0; id < vocabulary_.end; ++id) {
        if (moracle::in_mask(mask_, id)) allowed.push_back(id);
      }
      if (allowed.empty()) return;
      const std::int32_t id = allowed[random() % allowed.size()];
      timed([&] { constraint_->advance(id); });
    }
  }

 private:
  template <typename Work>
  void timed(const Work& work) {
    const double begin = cpu_ms();
    work();
    std::fill(mask_.begin(), mask_.end(), ~std::uint32_t{0});
    constraint_->narrow(mask_);
    steps_.push_back((cpu_ms() - begin) * 1e3);
  }

  const Vocabulary& vocabulary_;
  std::vector<double>& steps_;
  std::vector<std::uint32_t> mask_;
  std::unique_ptr<moracle::Constraint> constraint_;
};

struct Totals {
  bool bombs = false;
  std::vector<double> compiles{}, steps{};
  int failures = 0, refused = 0;
};

moracle::OutputFormat format_of(const OrderedJson& row) {
  using Kind = moracle::OutputFormat::Kind;
  if (row.contains("regex")) return {.kind = Kind::regex, .regex = row["regex"].get<std::string>()};
  return {.kind = Kind::json_schema, .schema = row["schema"]};
}

void measure(const OrderedJson& row, const Vocabulary& vocabulary, moracle::GrammarCompiler& compiler, Totals& totals) {
  const auto name = row["name"].get<std::string>();
  const double begin = cpu_ms();
  const auto text = moracle::grammar_of(format_of(row));
  const double read = cpu_ms();
  const auto grammar = text.ok() ? compiler.compile(*text) : text.error();
  const double end = cpu_ms();
  if (totals.bombs && end - begin > kMostCompileMs) ++totals.failures;
  if (!grammar.ok()) {
    ++totals.refused;
    std::printf("| %s | %.1f | %.1f | %s |\n", name.c_str(), read - begin, end - read, grammar.error().code.c_str());
    return;
  }
  std::vector<double> steps;
  for (const auto& example : row.value("examples", OrderedJson::array())) {
    const std::string reply =
        example.is_string() && row.contains("regex") ? example.get<std::string>() : example.dump();
    if (Walk(vocabulary, **grammar, steps).along(reply)) continue;
    std::printf("the masks of %s do not allow %s\n", name.c_str(), reply.c_str());
    ++totals.failures;
  }
  const std::size_t along = steps.size();
  const unsigned walks = totals.bombs ? 0 : kRandomReplies;
  for (unsigned seed = 0; seed < walks; ++seed) Walk(vocabulary, **grammar, steps).at_random(seed);
  std::printf("| %s | %.1f | %.1f | %.1f | %zu + %zu | %.1f | %.0f | %.0f |\n", name.c_str(), read - begin, end - read,
              static_cast<double>((*grammar)->bytes()) / (1U << 20U), along, steps.size() - along,
              percentile(steps, 0.5), percentile(steps, 0.99), percentile(steps, 1));
  std::fflush(stdout);
  totals.compiles.push_back(end - begin);
  totals.steps.insert(totals.steps.end(), steps.begin(), steps.end());
}

// The exit code.
int report(const Totals& totals) {
  const double compile = percentile(totals.compiles, 0.99);
  const double median = percentile(totals.steps, 0.5), tail = percentile(totals.steps, 0.99);
  std::printf("\n%zu compiled, %d refused, %d failed\n", totals.compiles.size(), totals.refused, totals.failures);
  std::printf(
      "compile p50 %.1f ms, p99 %.1f ms, most %.1f ms; mask p50 %.1f us, p99 %.0f us, most %.0f us, %zu steps\n",
      percentile(totals.compiles, 0.5), compile, percentile(totals.compiles, 1), median, tail,
      percentile(totals.steps, 1), totals.steps.size());
  if (totals.bombs) return totals.failures > 0 ? 1 : 0;
  return totals.failures > 0 || compile > kCompileMs || median > kMaskMedianUs || tail > kMaskTailUs ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> names(argv + 1, argv + argc);
  Totals totals{.bombs = !names.empty() && names.front() == "--bombs"};
  if (totals.bombs) names.erase(names.begin());
  if (names.size() < 2) return std::fputs("masks_bench [--bombs] VOCABULARY CORPUS [NAME...]\n", stderr), 2;
  const Vocabulary vocabulary(names[0].c_str());
  std::ifstream file(names[1]);
  names.erase(names.begin(), names.begin() + 2);
  const OrderedJson corpus = OrderedJson::parse(file, nullptr, false);
  if (vocabulary.end < 256 || !corpus.is_array()) return std::fputs("no vocabulary, or no corpus\n", stderr), 2;
  const double begin = cpu_ms();
  const auto compiler = moracle::GrammarCompiler::open(vocabulary.texts, vocabulary.end + 1);
  if (!compiler.ok()) return std::fprintf(stderr, "%s\n", compiler.error().message().c_str()), 2;
  std::printf("%d tokens, read in %.0f ms\n\n", vocabulary.end, cpu_ms() - begin);
  std::puts("| row | read, ms | compile, ms | MiB | steps | p50, us | p99 | most |");
  std::puts("| --- | --- | --- | --- | --- | --- | --- | --- |");
  for (const OrderedJson& row : corpus) {
    const bool asked = names.empty() || std::find(names.begin(), names.end(), row["name"]) != names.end();
    if (asked) measure(row, vocabulary, **compiler, totals);
  }
  return report(totals);
}
