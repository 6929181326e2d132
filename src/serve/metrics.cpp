#include "serve/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>

namespace moracle::serve {

namespace {

// vLLM's buckets, so that its dashboards' quantiles mean the same.
constexpr std::array kFirstTokenBounds = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1,  0.25,  0.5,   0.75,
                                          1.0,   2.5,   5.0,  7.5,  10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0};
constexpr std::array kTokenBounds = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,  0.3,  0.4, 0.5,
                                     0.75, 1.0,   2.5,  5.0,   7.5, 10.0, 20.0, 40.0, 80.0};
constexpr std::array kRequestBounds = {0.3,  0.5,  0.8,  1.0,  1.5,   2.0,   2.5,   5.0,   10.0,   15.0,  20.0,
                                       30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0};
constexpr std::array kLengthBounds = {1.0,    2.0,    5.0,    10.0,    20.0,    50.0,    100.0,    200.0,   500.0,
                                      1000.0, 2000.0, 5000.0, 10000.0, 20000.0, 50000.0, 100000.0, 200000.0};
constexpr std::array kIterationBounds = {1.0,   8.0,    16.0,   32.0,   64.0,   128.0,  256.0,
                                         512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0};
constexpr std::array kChoiceBounds = {1.0, 2.0, 5.0, 10.0, 20.0};
constexpr std::array kStepBounds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 10.0, 60.0};

// As Python writes it, and boards ask for it: 1 is "1.0".
std::string bound_text(double bound) {
  std::string text = fmt::format("{}", bound);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::string escaped(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '\\' || c == '"') out += '\\';
      out += c;
    }
  }
  return out;
}

class Page {
 public:
  explicit Page(const std::string& model) : labels_(fmt::format("model_name=\"{}\",engine=\"0\"", escaped(model))) {}

  void head(std::string_view name, std::string_view type, std::string_view help) {
    out_ += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  }
  void line(std::string_view name, double value, const std::string& more = "") {
    out_ += fmt::format("{}{{{}{}{}}} {}\n", name, labels_, more.empty() ? "" : ",", more, value);
  }
  void single(std::string_view name, std::string_view type, std::string_view help, double value) {
    head(name, type, help);
    line(name, value);
  }
  void counted(std::string_view name, std::string_view help, std::string_view label,
               const std::map<std::string, std::uint64_t>& counters, std::initializer_list<const char*> always) {
    head(name, "counter", help);
    std::map<std::string, std::uint64_t> all = counters;
    for (const char* const value : always) all.try_emplace(value, 0);
    for (const auto& [value, count] : all)
      line(name, static_cast<double>(count), fmt::format("{}=\"{}\"", label, escaped(value)));
  }
  void histogram(std::string_view name, std::string_view help, const Histogram& figures) {
    head(name, "histogram", help);
    buckets(name, figures, "");
  }
  // Samples of a histogram whose head is written; `more`: a label of its own.
  void buckets(std::string_view name, const Histogram& figures, const std::string& more) {
    std::uint64_t below = 0;
    const std::string bucket = std::string(name) + "_bucket";
    for (std::size_t i = 0; i < figures.counts().size(); ++i) {
      below += figures.counts()[i];
      const std::string bound = i < figures.bounds().size() ? bound_text(figures.bounds()[i]) : "+Inf";
      line(bucket, static_cast<double>(below), more + (more.empty() ? "" : ",") + "le=\"" + bound + "\"");
    }
    line(std::string(name) + "_sum", figures.sum(), more);
    line(std::string(name) + "_count", static_cast<double>(below), more);
  }
  void raw(std::string_view text) { out_ += text; }
  [[nodiscard]] const std::string& text() const { return out_; }

 private:
  std::string labels_;
  std::string out_;
};

// Of a model whose experts share slots.
void slots(Page& page, const ExpertSlots& experts) {
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  page.single("moracle:expert_slots", "gauge", "Experts that memory has room for.", number(experts.slots));
  page.single("moracle:expert_uses_total", "counter", "Experts that layers asked for, once a step.",
              number(experts.uses));
  page.single("moracle:expert_hits_total", "counter", "Of these, in memory.", number(experts.hits));
  page.single("moracle:expert_reads_total", "counter", "Experts read from files.", number(experts.reads));
  page.single("moracle:expert_read_bytes_total", "counter", "Bytes of these.", number(experts.read_bytes));
  page.single("moracle:expert_failures_total", "counter", "Experts that could not be read.", number(experts.failures));
}

}  // namespace

void Histogram::observe(double value) {
  const auto bound = std::lower_bound(bounds_.begin(), bounds_.end(), value);
  ++counts_[static_cast<std::size_t>(bound - bounds_.begin())];
  sum_ += value;
}

Metrics::Metrics()
    : first_token_(kFirstTokenBounds),
      token_gap_(kTokenBounds),
      per_token_(kTokenBounds),
      whole_(kRequestBounds),
      queue_(kRequestBounds),
      prefill_(kRequestBounds),
      decode_(kRequestBounds),
      inference_(kRequestBounds),
      prompt_(kLengthBounds),
      completion_(kLengthBounds),
      iteration_(kIterationBounds),
      params_n_(kChoiceBounds),
      params_max_(kLengthBounds),
      prefill_step_(kStepBounds),
      decode_step_(kStepBounds),
      mixed_step_(kStepBounds) {}

void Metrics::count_http(std::string_view handler, std::string_view method, int status) {
  constexpr std::array<std::string_view, 8> kMethods = {"DELETE", "GET",  "HEAD", "OPTIONS",
                                                        "PATCH",  "POST", "PUT",  "TRACE"};
  // A client may invent methods, each of which would be a series for ever.
  const bool known = std::find(kMethods.begin(), kMethods.end(), method) != kMethods.end();
  ++http_[fmt::format("handler=\"{}\",method=\"{}\",status=\"{}xx\"", escaped(handler), known ? method : "none",
                      status / 100)];
}

void Metrics::observe_params(std::int64_t n, std::int64_t max_tokens) {
  params_n_.observe(static_cast<double>(n));
  params_max_.observe(static_cast<double>(max_tokens));
}

void Metrics::observe_request(const RequestFigures& figures) {
  queue_.observe(figures.queue_s);
  prefill_.observe(figures.prefill_s);
  decode_.observe(figures.decode_s);
  inference_.observe(figures.prefill_s + figures.decode_s);
  whole_.observe(figures.whole_s);
  prompt_.observe(static_cast<double>(figures.prompt));
  completion_.observe(static_cast<double>(figures.completion));
  if (figures.completion > 1) per_token_.observe(figures.decode_s / static_cast<double>(figures.completion - 1));
}

void Metrics::count_tokens(std::int64_t prompt, std::int64_t cached, std::int64_t completion) {
  prompt_tokens_ += static_cast<std::uint64_t>(prompt);
  cached_tokens_ += static_cast<std::uint64_t>(cached);
  generated_tokens_ += static_cast<std::uint64_t>(completion);
}

void Metrics::observe_steps(std::span<const StepFigures> steps) {
  for (const StepFigures& step : steps) {
    iteration_.observe(static_cast<double>(step.prompt_tokens + step.decodes));
    Histogram& times = step.prompt_tokens == 0 ? decode_step_ : step.decodes == 0 ? prefill_step_ : mixed_step_;
    times.observe(step.seconds);
  }
}

std::string Metrics::text(const std::string& model, const EngineStatus& engine,
                          std::span<const std::pair<std::string, std::string>> decisions) const {
  Page page(model);
  const auto number = [](auto value) { return static_cast<double>(value); };
  page.single("vllm:num_requests_running", "gauge", "Requests that generate.", number(engine.running));
  page.single("vllm:num_requests_waiting", "gauge", "Requests that wait.", number(engine.waiting));
  page.head("vllm:num_requests_waiting_by_reason", "gauge", "Requests that wait, by reason.");
  page.line("vllm:num_requests_waiting_by_reason", number(engine.waiting - engine.deferred), "reason=\"capacity\"");
  page.line("vllm:num_requests_waiting_by_reason", number(engine.deferred), "reason=\"deferred\"");
  page.single("vllm:kv_cache_usage_perc", "gauge", "Share of the budget of keys and values that is taken; 1 is all.",
              engine.kv_budget > 0 ? number(engine.kv_bytes) / number(engine.kv_budget) : 0.0);
  page.single("vllm:prefix_cache_queries_total", "counter", "Prompt tokens that were looked up.",
              number(engine.prefix_queries));
  page.single("vllm:prefix_cache_hits_total", "counter", "Prompt tokens that were found.", number(engine.prefix_hits));
  page.single("vllm:prompt_tokens_total", "counter", "Prompt tokens of requests.", number(prompt_tokens_));
  page.single("vllm:prompt_tokens_cached_total", "counter", "Of these, found.", number(cached_tokens_));
  page.single("vllm:generation_tokens_total", "counter", "Tokens of replies.", number(generated_tokens_));
  page.single("vllm:num_preemptions_total", "counter", "Requests that gave way and are computed again.",
              number(engine.preemptions));
  page.counted("vllm:request_success_total", "Choices that ended, by reason.", "finished_reason", successes_,
               {"stop", "length", "abort"});
  page.counted("vllm:admission_rejections_total", "Requests that were turned away.", "reason", rejections_,
               {"queue", "connections", "draining"});
  page.histogram("vllm:time_to_first_token_seconds", "From request to first token.", first_token_);
  page.histogram("vllm:inter_token_latency_seconds", "Between two tokens of a choice.", token_gap_);
  page.histogram("vllm:request_time_per_output_token_seconds", "A choice's mean time between tokens.", per_token_);
  page.histogram("vllm:e2e_request_latency_seconds", "From request to its end.", whole_);
  page.histogram("vllm:request_queue_time_seconds", "Waiting.", queue_);
  page.histogram("vllm:request_prefill_time_seconds", "From the queue to the first token.", prefill_);
  page.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", decode_);
  page.histogram("vllm:request_inference_time_seconds", "From the queue to the end.", inference_);
  page.histogram("vllm:request_prompt_tokens", "Tokens of a prompt.", prompt_);
  page.histogram("vllm:request_generation_tokens", "Tokens of a choice.", completion_);
  page.histogram("vllm:iteration_tokens_total", "Tokens of a step.", iteration_);
  page.histogram("vllm:request_params_n", "The field n.", params_n_);
  page.histogram("vllm:request_params_max_tokens", "The field max_tokens.", params_max_);
  page.head("http_requests_total", "counter", "Answers, by handler, method and class of status.");
  for (const auto& [labels, count] : http_) page.raw(fmt::format("http_requests_total{{{}}} {}\n", labels, count));
  page.head("moracle:decision_info", "gauge", "The kernel that serves a kind of layers.");
  for (const auto& [kind, backend] : decisions) {
    page.line("moracle:decision_info", 1,
              fmt::format("layer_kind=\"{}\",backend=\"{}\"", escaped(kind), escaped(backend)));
  }
  page.head("moracle:step_seconds", "histogram", "Time of a step: of prompts, of replies, or of both.");
  page.buckets("moracle:step_seconds", prefill_step_, "phase=\"prefill\"");
  page.buckets("moracle:step_seconds", decode_step_, "phase=\"decode\"");
  page.buckets("moracle:step_seconds", mixed_step_, "phase=\"mixed\"");
  page.counted("moracle:cancelled_total", "Requests that were ended early.", "cause", cancels_,
               {"disconnect", "stalled", "shutdown"});
  if (engine.experts) slots(page, *engine.experts);
  page.single("moracle:ignored_fields_total", "counter", "Unknown fields of requests.", number(ignored_));
  page.single("moracle:rss_bytes", "gauge", "Memory that the process holds.", number(resident_bytes()));
  return page.text();
}

std::string expert_metrics(const std::string& model, const RoutingSnapshot& routing, std::int64_t experts) {
  constexpr std::string_view kName = "moracle:expert_tokens_total";
  Page page(model);
  page.head(kName, "counter", "Tokens that an expert took.");
  const auto row = static_cast<std::size_t>(experts);
  for (std::size_t at = 0; row > 0 && at + row <= routing.all.size(); at += row) {
    const std::span layer = std::span(routing.all).subspan(at, row);
    if (std::all_of(layer.begin(), layer.end(), [](std::uint64_t count) { return count == 0; })) continue;
    for (std::size_t expert = 0; expert < row; ++expert) {
      page.line(kName, static_cast<double>(layer[expert]), fmt::format("layer=\"{}\",expert=\"{}\"", at / row, expert));
    }
  }
  return page.text();
}

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t whole = 0;
  std::uint64_t resident = 0;
  file >> whole >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace moracle::serve
