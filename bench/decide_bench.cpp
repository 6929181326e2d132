// How long a decision by vLLM's tables takes: every line of a file of requests, with the texts of its reasons and
// without.
//   cmake --build build/release --target decide_bench
//   zcat tests/data/decisions/decisions-train.jsonl.gz | build/release/bench/decide_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>
#include <vector>

#include "compat/vllm/request.h"

namespace {

using moracle::vllm::Request;

double microseconds(const Request& request, std::size_t& walked) {
  const auto begin = std::chrono::steady_clock::now();
  walked = moracle::vllm::decide(request).trace.size();  // made and let go of
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count();
}

// Best of several, so that what else the machine does is not counted.
double best_of(const Request& request) {
  std::size_t walked = 0;
  double best = microseconds(request, walked);
  for (int i = 0; i < 30; ++i) best = std::min(best, microseconds(request, walked));
  return best;
}

void measure(std::vector<Request>& requests, bool explain) {
  std::size_t candidates = 0;
  double total = 0;
  std::vector<const Request*> full;  // those that walk the most candidates
  std::size_t most = 0;
  for (Request& request : requests) {
    request.policy.explain = explain;
    std::size_t walked = 0;
    total += microseconds(request, walked);
    candidates += walked;
    if (walked > most) full.clear();
    most = std::max(most, walked);
    if (walked == most) full.push_back(&request);
  }
  std::vector<double> times;
  for (std::size_t i = 0; i < full.size(); i += 1 + full.size() / 200) times.push_back(best_of(*full[i]));
  std::sort(times.begin(), times.end());
  const auto count = static_cast<double>(requests.size());
  std::printf("%-13s %6.2f us a decision, %.1f candidates; a full table of %zu: %.2f us, median; %.2f us, slowest\n",
              explain ? "with texts" : "without texts", total / count, static_cast<double>(candidates) / count, most,
              times[times.size() / 2], times.back());
}

}  // namespace

int main() {
  std::vector<Request> requests;
  for (std::string line; std::getline(std::cin, line);) {
    auto request = moracle::vllm::read_request(line);
    if (request.ok()) requests.push_back(std::move(request).value());
  }
  if (requests.empty()) return 1;
  for (const bool explain : {false, true}) measure(requests, explain);
  return 0;
}
