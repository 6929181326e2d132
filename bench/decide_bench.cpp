// How long a decision takes: every line of a file of requests, with the texts of its reasons and without.
//   cmake --build build/release --target decide_bench
//   zcat tests/data/decisions/decisions-train.jsonl.gz | build/release/bench/decide_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "kernels/foreign/reference_request.h"

namespace {

using moracle::ReferenceQuestion;

double microseconds(const ReferenceQuestion& question, std::size_t& walked) {
  const auto begin = std::chrono::steady_clock::now();
  walked = moracle::decide_reference(question).trace.size();  // made and let go of
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Best of several, so that what else the machine does is not counted.
double best_of(const ReferenceQuestion& question) {
  std::size_t walked = 0;
  double best = microseconds(question, walked);
  for (int i = 0; i < 30; ++i) best = std::min(best, microseconds(question, walked));
  return best;
}

void measure(std::vector<ReferenceQuestion>& questions, bool explain) {
  std::size_t candidates = 0;
  double total = 0;
  std::vector<const ReferenceQuestion*> full;  // those that walk the most candidates
  std::size_t most = 0;
  for (ReferenceQuestion& question : questions) {
    question.policy.explain = explain;
    std::size_t walked = 0;
    total += microseconds(question, walked);
    candidates += walked;
    if (walked > most) full.clear();
    most = std::max(most, walked);
    if (walked == most) full.push_back(&question);
  }
  std::vector<double> times;
  for (std::size_t i = 0; i < full.size(); i += 1 + full.size() / 200) times.push_back(best_of(*full[i]));
  std::sort(times.begin(), times.end());
  const auto count = static_cast<double>(questions.size());
  std::printf("%-13s %6.2f us a decision, %.1f candidates; a full table of %zu: %.2f us, median; %.2f us, slowest\n",
              explain ? "with texts" : "without texts", total / count, static_cast<double>(candidates) / count, most,
              times[times.size() / 2], times.back());
}

}  // namespace

int main() {
  std::vector<ReferenceQuestion> questions;
  for (std::string line; std::getline(std::cin, line);) {
    auto question = moracle::read_reference_question(line);
    if (question.ok()) questions.push_back(std::move(question).value());
  }
  if (questions.empty()) return 1;
  for (const bool explain : {false, true}) measure(questions, explain);
  return 0;
}
