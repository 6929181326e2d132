#include "bench/load/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cmath>
#include <deque>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "base/guarded.h"
#include "bench/load/call.h"
#include "bench/load/prompts.h"
#include "bench/load/streamed_reply.h"

namespace moracle::load {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using Clock = std::chrono::steady_clock;

constexpr std::int64_t kProbeWords = 256;
constexpr std::int64_t kRequestsOfAClient = 4;
constexpr std::int64_t kRequestsOfARate = 32;
constexpr std::chrono::milliseconds kPoll{50};

class Bench {
 public:
  explicit Bench(const BenchServeOptions& options) : options_(options) {}

  Result<BenchServeResult> run() {
    MORACLE_ASSIGN(server_, parse_server_address(options_.url));
    MORACLE_TRY(resolve());
    BenchServeResult result;
    MORACLE_ASSIGN(model_, find_model());
    result.model = model_;
    MORACLE_ASSIGN(result.tokens_a_word, tokens_a_word());
    const bool by_rate = !options_.rates.empty();
    const std::size_t rows = by_rate ? options_.rates.size() : options_.clients.size();
    for (std::size_t i = 0; i < rows; ++i) {
      BenchServeRow row;
      if (by_rate) {
        row.rate = options_.rates[i];
        row.load = fmt::format("{:g} requests/s", row.rate);
        row.requests = options_.requests > 0 ? options_.requests : kRequestsOfARate;
      } else {
        row.clients = options_.clients[i];
        row.load = fmt::format("{} client{}", row.clients, row.clients == 1 ? "" : "s");
        row.requests = options_.requests > 0 ? options_.requests : kRequestsOfAClient * row.clients;
      }
      MORACLE_TRY(measure(row, i, result.tokens_a_word));
      result.rows.push_back(std::move(row));
    }
    return result;
  }

 private:
  Result<> resolve() {
    tcp::resolver resolver(context_);
    boost::system::error_code error;
    endpoints_ = resolver.resolve(server_.host, server_.port, error);
    if (!error) return Ok{};
    return Error{
        .code = "bench.connect", .where = server_.text, .wanted = "a host that is known", .found = error.message()};
  }

  // Runs what was started until nothing is left of it, or somebody interrupts.
  Result<> drive() {
    asio::steady_timer timer(context_);
    std::function<void()> watch = [&] {
      timer.expires_after(kPoll);
      timer.async_wait([&](boost::system::error_code cancelled) {
        if (cancelled || (open_.empty() && pending_.empty())) return;
        if (options_.interrupted && options_.interrupted()) {
          fail(Error{.code = "interrupted", .found = "benchmark stopped"});
        } else {
          watch();
        }
      });
    };
    watch_ = &timer;
    watch();
    context_.restart();
    context_.run();
    watch_ = nullptr;
    if (failure_) return *std::exchange(failure_, std::nullopt);
    return Ok{};
  }

  // The first failure ends all.
  void fail(Error error) {
    if (failure_) return;
    failure_ = std::move(error);
    pending_.clear();
    for (const auto& call : std::exchange(open_, {})) call->drop();
    context_.stop();
  }

  void start(const Call::Asked& asked, std::function<Result<>(std::string_view)> on_piece,
             std::function<Result<>()> on_done) {
    const auto at = open_.insert(open_.end(), nullptr);
    *at = std::make_shared<Call>(context_, server_, options_.timeout_s,
                                 Call::Listener{.on_piece = std::move(on_piece),
                                                .on_end = [this, at, on_done = std::move(on_done)](Result<> outcome) {
                                                  const std::shared_ptr<Call> kept = std::move(*at);
                                                  open_.erase(at);
                                                  if (outcome.ok()) outcome = on_done();
                                                  if (!outcome.ok()) {
                                                    Error error = std::move(outcome).error();
                                                    if (error.where.empty()) error.where = server_.text;
                                                    fail(std::move(error));
                                                  }
                                                  if (open_.empty() && pending_.empty() && watch_ != nullptr)
                                                    watch_->cancel();
                                                }});
    (*at)->start(endpoints_, {.path = asked.path, .body = asked.body, .key = options_.key});
  }

  Result<std::string> find_model() {
    if (!options_.model.empty()) return options_.model;
    std::string body;
    start(
        {.path = "/v1/models"},
        [&](std::string_view piece) -> Result<> {
          body += piece;
          return Ok{};
        },
        []() -> Result<> { return Ok{}; });
    MORACLE_TRY(drive());
    const Error wrong{.code = "bench.stream",
                      .where = server_.text + "/v1/models",
                      .wanted = "a list of models",
                      .found = "another document",
                      .advice = "--served-name NAME says which"};
    const auto json = parse_json(body, server_.text + "/v1/models");
    if (!json.ok() || !json->is_object()) return wrong;
    const auto data = json->find("data");
    if (data == json->end() || !data->is_array() || data->empty()) return wrong;
    const Json& first = data->front();
    if (!first.is_object() || !first.contains("id") || !first["id"].is_string()) return wrong;
    return first["id"].get<std::string>();
  }

  [[nodiscard]] Call::Asked completion(const std::string& prompt, std::int64_t tokens, std::uint64_t seed) const {
    const Json body = {{"model", model_},
                       {"prompt", prompt},
                       {"max_tokens", tokens},
                       {"temperature", options_.temperature},
                       {"seed", seed & 0x7FFFFFFFU},
                       {"ignore_eos", true},
                       {"stream", true},
                       {"stream_options", {{"include_usage", true}}}};
    return {.path = "/v1/completions", .body = body.dump()};
  }

  // A first request, whose answer also shows that the server can be timed.
  Result<double> tokens_a_word() {
    const std::string prompt = make_prompts({.words = kProbeWords}, 1, ~options_.seed).front();
    StreamedReply reply(Clock::now());
    start(
        completion(prompt, 2, options_.seed), [&](std::string_view piece) { return reply.take(piece, Clock::now()); },
        [&] { return reply.finish(); });
    MORACLE_TRY(drive());
    if (reply.prompt_tokens() < 1) {
      return Error{.code = "bench.stream",
                   .where = server_.text,
                   .wanted = "prompt_tokens above 0",
                   .found = std::to_string(reply.prompt_tokens())};
    }
    return static_cast<double>(reply.prompt_tokens()) / static_cast<double>(kProbeWords);
  }

  Result<> measure(BenchServeRow& row, std::size_t index, double tokens_a_word) {
    const auto count = static_cast<std::size_t>(row.requests);
    const auto words = std::max<std::int64_t>(1, std::llround(static_cast<double>(options_.prompt) / tokens_a_word));
    const std::uint64_t seed = options_.seed * 1000003U + index;
    const auto prompts =
        make_prompts({.words = words, .spread = options_.spread, .shared = options_.shared}, count, seed);
    replies_.clear();
    pending_.clear();
    total_ = count;
    for (std::size_t i = 0; i < count; ++i) pending_.push_back(completion(prompts[i], options_.generate, seed + i));
    label_ = row.load;
    const Clock::time_point begun = Clock::now();
    std::optional<asio::steady_timer> arrival;
    std::vector<double> arrivals;
    std::function<void()> arrive;
    if (row.clients > 0) {
      for (std::int64_t i = 0; i < row.clients && !pending_.empty(); ++i) ask(true);
    } else {
      arrivals = poisson_arrivals(row.rate, count, seed);
      arrival.emplace(context_);
      arrive = [&] {
        if (pending_.empty()) return;
        const double due = arrivals[count - pending_.size()];
        arrival->expires_at(begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due)));
        arrival->async_wait([&](boost::system::error_code cancelled) {
          if (cancelled || failure_) return;
          ask(false);
          arrive();
        });
      };
      ask(false);
      arrive();
    }
    MORACLE_TRY(drive());
    summarize(row, begun);
    return Ok{};
  }

  // The next request. `follow`: and another one when it is done.
  void ask(bool follow) {
    const Call::Asked asked = std::move(pending_.front());
    pending_.pop_front();
    const auto reply = std::make_shared<StreamedReply>(Clock::now());
    start(
        asked, [reply](std::string_view piece) { return reply->take(piece, Clock::now()); },
        [this, reply, follow]() -> Result<> {
          MORACLE_TRY(reply->finish());
          replies_.push_back(*reply);
          ended_ = Clock::now();
          if (options_.on_progress) {
            options_.on_progress(label_, static_cast<double>(replies_.size()) / static_cast<double>(total_));
          }
          if (follow && !pending_.empty()) ask(true);
          return Ok{};
        });
  }

  void summarize(BenchServeRow& row, Clock::time_point begun) const {
    std::vector<double> first, gaps, token, whole;
    for (const StreamedReply& reply : replies_) {
      row.prompt_tokens += reply.prompt_tokens();
      row.cached_tokens += reply.cached_tokens();
      row.output_tokens += reply.completion_tokens();
      first.push_back(reply.first_s());
      whole.push_back(reply.whole_s());
      gaps.insert(gaps.end(), reply.gaps().begin(), reply.gaps().end());
      if (reply.completion_tokens() > 1) token.push_back(reply.token_s());
    }
    row.seconds = std::chrono::duration<double>(ended_ - begun).count();
    row.first_token = spread_of(std::move(first));
    row.inter_token = spread_of(std::move(gaps));
    row.token = spread_of(std::move(token));
    row.whole = spread_of(std::move(whole));
  }

  const BenchServeOptions& options_;
  asio::io_context context_{1};
  ServerAddress server_;
  Call::Endpoints endpoints_;
  std::string model_;
  std::list<std::shared_ptr<Call>> open_;
  std::deque<Call::Asked> pending_;
  std::vector<StreamedReply> replies_;  // of the row
  std::size_t total_ = 0;               // requests of the row
  std::string label_;
  Clock::time_point ended_{};
  std::optional<Error> failure_;
  asio::steady_timer* watch_ = nullptr;
};

Json spread_json(const Spread& spread) {
  return {{"mean", spread.mean * 1e3}, {"p50", spread.p50 * 1e3}, {"p90", spread.p90 * 1e3}, {"p99", spread.p99 * 1e3}};
}

}  // namespace

Spread spread_of(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double share) {
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::max<std::size_t>(rank, 1) - 1];
  };
  double sum = 0;
  for (const double value : values) sum += value;
  return {.mean = sum / static_cast<double>(values.size()), .p50 = at(0.5), .p90 = at(0.9), .p99 = at(0.99)};
}

Result<BenchServeResult> bench_serve(const BenchServeOptions& options) {
  return guarded("time the server", [&] { return Bench(options).run(); });
}

Json bench_serve_json(const BenchServeOptions& options, const BenchServeResult& result) {
  Json rows = Json::array();
  for (const BenchServeRow& row : result.rows) {
    rows.push_back({{"load", row.load},
                    {"clients", row.clients > 0 ? Json(row.clients) : Json(nullptr)},
                    {"requests_per_s_asked", row.clients > 0 ? Json(nullptr) : Json(row.rate)},
                    {"requests", row.requests},
                    {"seconds", row.seconds},
                    {"prompt_tokens", row.prompt_tokens},
                    {"cached_tokens", row.cached_tokens},
                    {"output_tokens", row.output_tokens},
                    {"output_tok_s", row.output_rate()},
                    {"requests_per_s", row.request_rate()},
                    {"first_token_ms", spread_json(row.first_token)},
                    {"inter_token_ms", spread_json(row.inter_token)},
                    {"per_token_ms", spread_json(row.token)},
                    {"request_ms", spread_json(row.whole)}});
  }
  return {{"url", options.url},
          {"model", result.model},
          {"prompt", options.prompt},
          {"spread", options.spread},
          {"shared", options.shared},
          {"generate", options.generate},
          {"temperature", options.temperature},
          {"seed", options.seed},
          {"tokens_per_word", result.tokens_a_word},
          {"rows", std::move(rows)}};
}

}  // namespace moracle::load
