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

int main() {
  std::vector<moracle::ReferenceQuestion> questions;
  for (std::string line; std::getline(std::cin, line);) {
    auto question = moracle::read_reference_question(line);
    if (question.ok()) questions.push_back(std::move(question).value());
  }
  if (questions.empty()) return 1;
  for (const bool explain : {false, true}) {
    std::size_t candidates = 0;
    std::size_t most = 0;
    double slowest = 0;
    double total = 0;
    for (moracle::ReferenceQuestion& question : questions) {
      question.policy.explain = explain;
      const auto begin = std::chrono::steady_clock::now();
      const std::size_t walked = moracle::decide_reference(question).trace.size();
      const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
      total += us;
      candidates += walked;
      if (walked < most) continue;
      slowest = walked > most ? us : std::min(slowest, us);
      most = walked;
    }
    const auto count = static_cast<double>(questions.size());
    std::printf("%-13s %6.2f us a decision, %.1f candidates; a full table of %zu: %.2f us at best\n",
                explain ? "with texts" : "without texts", total / count, static_cast<double>(candidates) / count, most,
                slowest);
  }
  return 0;
}
