// `moracle bench serve` without a command line: times any server of OpenAI's API.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/result.h"

namespace moracle::load {

struct BenchServeOptions {
  std::string url;                              // "http://127.0.0.1:8080", with or without "/v1"
  std::string model{};                          // empty: the first that the server names
  std::string key{};                            // empty: none
  std::vector<std::int64_t> clients{1, 8, 32};  // a row each: so many requests are always under way
  std::vector<double> rates{};                  // instead: requests a second, which arrive as a Poisson process
  std::int64_t requests = 0;                    // of a row; 0: four of each client, 32 of each rate
  std::int64_t prompt = 512;                    // tokens
  double spread = 0;                            // prompts are shorter or longer by up to this share
  double shared = 0;                            // this share of each prompt begins all prompts of a row
  std::int64_t generate = 128;                  // tokens
  double temperature = 0;
  std::uint64_t seed = 1;                                                    // of prompts, arrivals and draws
  double timeout_s = 600;                                                    // without a byte
  std::function<bool()> interrupted{};                                       // may be empty
  std::function<void(const std::string& what, double share)> on_progress{};  // may be empty
};

// Of one quantity over the requests of a row, in seconds.
struct Spread {
  double mean = 0, p50 = 0, p90 = 0, p99 = 0;
};
// Values in any order; all zero where there is none. A percentile is the smallest value that so many are not above.
[[nodiscard]] Spread spread_of(std::vector<double> values);

struct BenchServeRow {
  std::string load;          // "8 clients", "2.5 requests/s"
  std::int64_t clients = 0;  // 0: by rate
  double rate = 0;
  std::int64_t requests = 0;
  std::int64_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;  // as the server counted them
  double seconds = 0;                                                    // from the first request to the last token
  Spread first_token;                                                    // from the request to the first text
  Spread inter_token;                                                    // between pieces of text
  Spread token;  // of each reply, behind its first token: seconds over tokens
  Spread whole;

  [[nodiscard]] double output_rate() const { return seconds > 0 ? static_cast<double>(output_tokens) / seconds : 0; }
  [[nodiscard]] double request_rate() const { return seconds > 0 ? static_cast<double>(requests) / seconds : 0; }
};

struct BenchServeResult {
  std::string model;
  double tokens_a_word = 0;  // of the prompts' words, measured by a first request
  std::vector<BenchServeRow> rows{};
};

// Errors: "bench.url" (no address of a server), "bench.connect" (nobody listens), "bench.refused" (a status that is not
// 200, with the server's words), "bench.stream" (an answer that is no stream of OpenAI's events), "bench.gone" (it ends
// early), "bench.timeout", "interrupted". The first one ends the run.
Result<BenchServeResult> bench_serve(const BenchServeOptions& options);

[[nodiscard]] Json bench_serve_json(const BenchServeOptions& options, const BenchServeResult& result);
// The rows as an SVG picture: output tokens a second, time to the first token, time between tokens.
[[nodiscard]] std::string bench_serve_picture(const BenchServeResult& result);

}  // namespace moracle::load
