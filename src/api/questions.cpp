// The C interface of inspect, explain, plan and verify, and of vLLM's choices.
#include <algorithm>

#include "api/documents.h"
#include "api/edge/call.h"
#include "compat/vllm/request.h"
#include "device/place.h"
#include "model/load/device_room.h"
#include "model/load/explain_plan.h"
#include "verify/verify.h"

namespace moracle::api {

namespace {

constexpr std::int64_t kMaxTokens = 65536;
constexpr int kMaxThreads = 1024;
constexpr int kMaxRanks = 1024;

// What every question begins with. `json` is null until it is answered.
template <class Answer>
moracle_status ask(std::string_view doing, const char* model, char** json, moracle_error** error, Answer&& answer) {
  return call(error, doing, [&]() -> Result<> {
    MORACLE_TRY(check_not_null(json, "json"));
    *json = nullptr;
    MORACLE_ASSIGN(const std::string folder, read_text(model, "model"));
    MORACLE_ASSIGN(const Json document, answer(folder));
    *json = copy_json(document);
    return Ok{};
  });
}

Result<std::int64_t> in_range(std::int64_t value, std::int64_t low, std::int64_t high, std::string_view name) {
  if (value >= low && value <= high) return value;
  return wrong_argument("range", name, std::to_string(low) + " to " + std::to_string(high), std::to_string(value));
}

Result<Json> inspect(const std::string& folder) {
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, probe_machine(), {}));
  return inspect_json(*plan, *checkpoint);
}

Result<Json> explain(const std::string& folder, const moracle_explain_options* given) {
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  MORACLE_ASSIGN(const std::string device, read_device(options.device));
  MORACLE_ASSIGN(const Policy policy, read_policy(options.policy));
  MORACLE_ASSIGN(const Place place, resolve_place(device, "options.device"));
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  MORACLE_ASSIGN(const auto plan, plan_for_room(checkpoint, place, policy, {}, {.threads = place.host.cores}));
  return explain_plan_json(*plan, place.machine());
}

Result<Json> plan(const std::string& folder, const moracle_plan_options* given) {
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  MemoryQuestion question;
  MORACLE_ASSIGN(const std::string device, read_device(options.device));
  MORACLE_ASSIGN(const Place place, resolve_place(device, "options.device"));
  question.host = place.host;
  question.device = place.device;
  MORACLE_ASSIGN(question.policy, read_policy(options.policy));
  MORACLE_ASSIGN(const auto tp, in_range(options.tp, 0, kMaxRanks, "options.tp"));
  MORACLE_ASSIGN(const auto ep, in_range(options.ep, 0, kMaxRanks, "options.ep"));
  MORACLE_ASSIGN(question.kv, read_kv(options.kv));
  MORACLE_ASSIGN(question.context, in_range(options.context, 0, INT32_MAX, "options.context"));
  question.tp = std::max(static_cast<int>(tp), 1);
  question.ep = std::max(static_cast<int>(ep), 1);
  MORACLE_ASSIGN(const MemoryAnswer answer, plan_memory(folder, question));
  return plan_json(answer);
}

Result<Json> verify(const std::string& folder, const moracle_verify_options* given) {
  MORACLE_ASSIGN(const auto options, read_struct(given, "options"));
  MORACLE_ASSIGN(const Policy policy, read_policy(options.policy));
  MORACLE_ASSIGN(const auto threads, in_range(options.threads, 0, kMaxThreads, "options.threads"));
  VerifyOptions verification;
  MORACLE_ASSIGN(const auto tokens, in_range(options.tokens, 0, kMaxTokens, "options.tokens"));
  if (tokens > 0) verification.tokens = tokens;
  if (options.layout != nullptr) {
    MORACLE_ASSIGN(verification.layout, read_text(options.layout, "options.layout"));
  }
  bool stopped = false;
  if (options.on_progress != nullptr) {
    verification.on_progress = [&](std::int64_t done, std::int64_t total) {
      const auto count = [](std::int64_t n) { return static_cast<std::uint64_t>(n); };
      stopped = options.on_progress(options.context, count(done), count(total)) != 0 || stopped;
    };
    verification.interrupted = [&] { return stopped; };
  }
  MORACLE_ASSIGN(const std::string device, read_device(options.device));
  MORACLE_ASSIGN(const Place place, place_of_work(device, "options.device"));
  verification.device = place.device;
  verification.batch_invariant = policy.batch_invariant;
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, {place.host, place.device}, policy));
  ThreadPool pool(threads > 0 ? static_cast<int>(threads) : place.host.cores);
  MORACLE_ASSIGN(const Verification result, moracle::verify(*plan, pool, verification));
  if (result.interrupted)
    return Error{.code = "call.interrupted", .where = "verify", .found = "on_progress asked to stop"};
  return verify_json(result);
}

}  // namespace

}  // namespace moracle::api

using namespace moracle;  // NOLINT(google-build-using-namespace): the C interface has no namespace of its own

extern "C" {

moracle_status moracle_inspect(const char* model, char** json, moracle_error** error) {
  return api::ask("inspect the model", model, json, error, api::inspect);
}

moracle_status moracle_explain(const char* model, const moracle_explain_options* options, char** json,
                               moracle_error** error) {
  return api::ask("explain the model", model, json, error,
                  [&](const std::string& folder) { return api::explain(folder, options); });
}

moracle_status moracle_explain_vllm(const char* request, char** json, moracle_error** error) {
  return api::call(error, "answer as vLLM", [&]() -> Result<> {
    MORACLE_TRY(api::check_not_null(json, "json"));
    *json = nullptr;
    MORACLE_ASSIGN(const std::string line, api::read_text(request, "request"));
    MORACLE_ASSIGN(const std::string answer, vllm::answer_request(line));
    *json = api::copy_text(answer);
    return Ok{};
  });
}

moracle_status moracle_plan(const char* model, const moracle_plan_options* options, char** json,
                            moracle_error** error) {
  return api::ask("plan the model's memory", model, json, error,
                  [&](const std::string& folder) { return api::plan(folder, options); });
}

moracle_status moracle_verify(const char* model, const moracle_verify_options* options, char** json,
                              moracle_error** error) {
  return api::ask("verify the model", model, json, error,
                  [&](const std::string& folder) { return api::verify(folder, options); });
}

}  // extern "C"
