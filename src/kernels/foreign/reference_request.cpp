#include "kernels/foreign/reference_request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "kernels/foreign/reference_names.h"
#include "kernels/tables/reference_tables.h"

namespace moracle {
namespace {

constexpr std::string_view kFile = "request";
constexpr std::int64_t kLargest = 1 << 30;

Error unknown(const JsonReader& reader, std::string_view key, std::string_view found, const std::string& wanted) {
  return Error{.code = "request.unknown",
               .file = reader.file(),
               .where = reader.pointer(key),
               .wanted = wanted,
               .found = "\"" + std::string(found) + "\""};
}

// A member that is an object of its own.
Result<JsonReader> member(const JsonReader& reader, std::string_view key) {
  const auto it = reader.json().is_object() ? reader.json().find(key) : reader.json().end();
  if (it == reader.json().end() || !it->is_object()) {
    return Error{.code = "config.missing",
                 .file = reader.file(),
                 .where = reader.pointer(key),
                 .wanted = "an object",
                 .found = "none"};
  }
  return JsonReader(*it, reader.file(), reader.pointer(key));
}

// A name that `find` knows.
template <class Find>
auto named(const JsonReader& reader, std::string_view key, const std::string& fallback, const std::string& wanted,
           Find find) -> Result<typename decltype(find(std::string_view()))::value_type> {
  MORACLE_ASSIGN(const std::string text, reader.string_or(key, fallback));
  const auto value = find(std::string_view(text));
  if (!value) return unknown(reader, key, text, wanted);
  return *value;
}

Result<std::optional<float>> stated(const JsonReader& reader, std::string_view key) {
  if (!reader.has(key)) return std::optional<float>();
  MORACLE_ASSIGN(const double value, reader.number_or(key, 0.0));
  return std::optional<float>(static_cast<float>(value));
}

Result<> read_platform(const JsonReader& root, ReferenceQuestion& question) {
  MORACLE_ASSIGN(const JsonReader platform, member(root, "platform"));
  MORACLE_ASSIGN(const std::string kind, platform.string_or("kind", ""));
  MORACLE_ASSIGN(const std::string arch, platform.string_or("arch", ""));
  MORACLE_ASSIGN(const std::string libs, platform.string_or("libs", "none"));
  MORACLE_ASSIGN(const std::int64_t capability, platform.integer_or("capability", 0, 0, 9999));
  auto machine = reference::machine_of(kind, arch, libs, static_cast<int>(capability));
  if (!machine) return unknown(root, "platform", kind + " " + arch + " " + libs, "a platform of the reference");
  question.machine = *std::move(machine);
  return Ok{};
}

Result<> read_quantization(const JsonReader& request, ReferenceQuestion& question) {
  MORACLE_ASSIGN(const JsonReader quant, member(request, "quant"));
  Problem& problem = question.problem;
  const auto key_of = [](std::string_view name) { return reference::key_named(name); };
  constexpr const char* kWanted = "a quantization key of the reference";
  if (quant.has("weight_key")) {
    MORACLE_ASSIGN(const reference::NamedKey key, named(quant, "weight_key", "", kWanted, key_of));
    problem.scheme.weight = key.key;
    problem.code_bits = key.code_bits;
  }
  std::optional<QuantKey> wanted;
  if (quant.has("activation_key")) {
    MORACLE_ASSIGN(const reference::NamedKey key, named(quant, "activation_key", "", kWanted, key_of));
    problem.scheme.activation = key.key;
  }
  if (quant.has("user_activation_override")) {
    MORACLE_ASSIGN(const reference::NamedKey key, named(quant, "user_activation_override", "", kWanted, key_of));
    wanted = key.key;
  }
  auto& facts = question.policy.facts;
  if (wanted && problem.scheme.activation && problem.scheme.activation != wanted)
    facts.emplace_back("caller.activation_conflict", "1");
  if (!problem.scheme.activation) problem.scheme.activation = wanted;

  for (const char* flag : {"may_have_bias", "allow_tile_padding", "allow_vllm_cutlass"}) {
    MORACLE_ASSIGN(const bool on, quant.boolean_or(flag, false));
    if (on) facts.emplace_back("caller." + std::string(flag), "1");
  }
  MORACLE_ASSIGN(const std::string model, quant.string_or("model_type", ""));
  if (!model.empty()) facts.emplace_back("caller.model_type", model);
  MORACLE_ASSIGN(problem.zero_points, quant.boolean_or("may_have_zp", false));
  MORACLE_ASSIGN(problem.source_layout, quant.string_or("kind", ""));
  MORACLE_ASSIGN(const std::int64_t group, quant.integer_or("group_size", 0, -1, kLargest));
  problem.source_group = static_cast<std::int32_t>(group);
  // Reordering inside groups ("weight") is undone when a checkpoint is loaded.
  MORACLE_ASSIGN(const std::string order, quant.string_or("act_order", ""));
  problem.act_order = order == "group";
  return Ok{};
}

// Expert parallelism takes over every rank; without it they slice the experts.
Result<> read_layout(const JsonReader& request, Problem& problem) {
  MORACLE_ASSIGN(const JsonReader parallel, member(request, "parallel"));
  MORACLE_ASSIGN(const JsonReader shape, member(request, "shape"));
  constexpr std::int64_t kMostRanks = 1 << 10;
  MORACLE_ASSIGN(const std::int64_t tp, parallel.integer_or("tp", 1, 1, kMostRanks));
  MORACLE_ASSIGN(const std::int64_t dp, parallel.integer_or("dp", 1, 1, kMostRanks));
  MORACLE_ASSIGN(const std::int64_t pcp, parallel.integer_or("pcp", 1, 1, kMostRanks));
  MORACLE_ASSIGN(const std::int64_t sp, parallel.integer_or("sp", 1, 1, kMostRanks));
  MORACLE_ASSIGN(const bool wants_ep, parallel.boolean_or("enable_ep", false));
  MORACLE_ASSIGN(const std::string all2all, parallel.string_or("all2all", ""));
  MORACLE_ASSIGN(problem.load_balancing, parallel.boolean_or("eplb", false));
  const std::int64_t ranks = tp * dp * pcp;
  const bool ep = wants_ep && ranks > 1;
  const std::int64_t slices = ep ? 1 : ranks;
  problem.parallel.ep = ep ? static_cast<int>(ranks) : 1;
  problem.parallel.tp = static_cast<int>(slices);
  problem.parallel.dp = static_cast<int>(dp);
  problem.parallel.sp = static_cast<int>(sp);
  if (ep && (dp > 1 || pcp > 1 || sp > 1)) problem.all2all = all2all;
  if (problem.all2all == "deepep_low_latency" || problem.all2all == "nixl_ep")
    problem.activation_format = ActivationFormat::batched;

  MORACLE_ASSIGN(problem.hidden, shape.integer("hidden", 1, kLargest));
  MORACLE_ASSIGN(const std::int64_t intermediate, shape.integer("intermediate", 1, kLargest));
  problem.intermediate = intermediate / slices;
  MORACLE_ASSIGN(problem.experts, shape.integer("num_experts", 1, kLargest));
  MORACLE_ASSIGN(problem.top_k, shape.integer("topk", 1, kLargest));
  return Ok{};
}

Result<> read_layer(const JsonReader& request, Problem& problem) {
  MORACLE_ASSIGN(problem.activation.fn,
                 named(request, "activation", "silu", "an activation of the reference", reference::activation_named));
  MORACLE_ASSIGN(problem.routing, named(request, "routing", "Unspecified", "a routing method of the reference",
                                        reference::routing_named));
  MORACLE_ASSIGN(problem.dtype, named(request, "dtype", "bf16", "bf16, fp16 or fp32", reference::dtype_named));
  if (request.has("router_logits_dtype")) {
    MORACLE_ASSIGN(problem.router_logits_dtype,
                   named(request, "router_logits_dtype", "", "bf16, fp16 or fp32", reference::dtype_named));
  }
  MORACLE_ASSIGN(problem.bias, request.boolean_or("has_bias", false));
  MORACLE_ASSIGN(problem.lora, request.boolean_or("lora", false));
  MORACLE_ASSIGN(problem.hash_routing, request.boolean_or("hash_routing", false));
  MORACLE_ASSIGN(problem.decomposed_required, request.boolean_or("require_decomposed", false));
  MORACLE_ASSIGN(problem.stated_activation.limit, stated(request, "swiglu_limit"));
  MORACLE_ASSIGN(problem.stated_activation.alpha, stated(request, "swiglu_alpha"));
  MORACLE_ASSIGN(problem.stated_activation.beta, stated(request, "swiglu_beta"));
  return Ok{};
}

Result<> read_policy(const JsonReader& request, Policy& policy) {
  MORACLE_ASSIGN(const std::string backend, request.string_or("moe_backend", "auto"));
  if (backend != "auto") policy.pinned = backend;
  policy.explain = false;
  if (!request.has("env")) return Ok{};
  MORACLE_ASSIGN(const JsonReader environment, member(request, "env"));
  for (const auto& item : environment.json().items()) {
    MORACLE_ASSIGN(const std::string value, environment.string_or(item.key(), ""));
    policy.facts.emplace_back(item.key(), value);
    if (item.key() == "VLLM_BATCH_INVARIANT") policy.batch_invariant = value == "1";
  }
  return Ok{};
}

// The reference's spelling of a reason. A missing library is a device that lacks something.
std::string reason_kind(const Reason& reason) {
  if (!reason.label.empty()) return "incompatible:" + std::string(reason.label);
  return std::string(to_string(reason.rule == Rule::library ? Rule::device : reason.rule));
}

// "reference.CPUExpertsInt4.dynamic" -> "CPUExpertsInt4"
std::string class_of(const KernelCard& card) {
  const std::string_view id = card.id;
  const std::size_t begin = id.find('.') + 1;
  return std::string(id.substr(begin, id.find('.', begin) - begin));
}

bool asked_for(const Candidate& candidate) {
  return std::none_of(candidate.reasons.begin(), candidate.reasons.end(),
                      [](const Reason& reason) { return reason.rule == Rule::override_; });
}

// Null when the card would serve, were it built here.
const Reason* first_reason(const Candidate& candidate) {
  const auto counts = [](const Reason& reason) { return reason.rule != Rule::not_built; };
  const auto it = std::find_if(candidate.reasons.begin(), candidate.reasons.end(), counts);
  return it == candidate.reasons.end() ? nullptr : &*it;
}

Json trace_of(const Decision& decision) {
  Json trace = Json::array();
  for (const Candidate& candidate : decision.trace) {
    if (!asked_for(candidate)) continue;
    const Reason* reason = first_reason(candidate);
    const bool by_row = reason != nullptr && reason->by_row;
    Json entry{{"backend", candidate.backend}, {"supported", reason == nullptr}};
    entry["experts_class"] = by_row ? Json() : Json(class_of(*candidate.card));
    entry["activation_key"] =
        by_row || !candidate.activation ? Json() : Json(reference::name_of_key(*candidate.activation));
    entry["reason_kind"] = reason == nullptr ? Json() : Json(reason_kind(*reason));
    trace.push_back(std::move(entry));
  }
  return trace;
}

// Of the last candidate asked, or of the first one of a backend.
std::string refusal_of(const Decision& decision, std::string_view backend = {}) {
  std::string kind = "unknown";
  for (const Candidate& candidate : decision.trace) {
    const Reason* reason = first_reason(candidate);
    if (reason == nullptr || !asked_for(candidate)) continue;
    if (!backend.empty() && candidate.backend == backend) return reason_kind(*reason);
    if (backend.empty()) kind = reason_kind(*reason);
  }
  return kind;
}

std::string error_of(const Decision& decision) {
  if (!decision.verdict.empty()) return std::string(decision.verdict);
  if (decision.pin_unknown) return "override_unknown_for_oracle";
  if (decision.pin_without_variant) return "override_no_variant_for_activation";
  const Exhausted* exhausted = decision.exhausted;
  if (exhausted != nullptr && !exhausted->pinned.empty()) return std::string(exhausted->code);
  if (decision.pinned) return "override_unsupported:" + refusal_of(decision);
  if (decision.forced != nullptr && !decision.forced->fallback)
    return "forced_backend_unsupported:" + refusal_of(decision);
  if (exhausted == nullptr) return "no_backend";
  std::string code(exhausted->code);
  if (!exhausted->backend.empty()) code += ":" + refusal_of(decision, exhausted->backend);
  return code;
}

Json notes_of(const Decision& decision, const Problem& problem) {
  Json notes = Json::array();
  const Candidate* best = decision.best_candidate ? &decision.trace[*decision.best_candidate] : nullptr;
  // Only this oracle of the reference says so.
  if (best != nullptr && decision.table == "mxfp4" && problem.scheme.activation && !best->activation)
    notes.push_back("activation_request_dropped_to_bf16");
  if (decision.forced != nullptr && decision.forced->fallback &&
      (best == nullptr || best->backend != decision.forced->backend))
    notes.push_back("aiter_requested_but_unsupported_fallback");
  return notes;
}

Json result_of(const Decision& decision, const Problem& problem) {
  Json result;
  if (decision.best_candidate) {
    const Candidate& best = decision.trace[*decision.best_candidate];
    result = {{"backend", best.backend}, {"experts_class", class_of(*best.card)}};
  } else if (decision.unchecked) {
    result = {{"backend", decision.forced->otherwise_backend}, {"experts_class", class_of(*decision.best_if_built)}};
  } else if (std::string error = error_of(decision); error == "NONE") {
    result = {{"backend", "NONE"}, {"experts_class", nullptr}};
  } else {
    result = {{"error", std::move(error)}};
  }
  if (Json notes = notes_of(decision, problem); !notes.empty()) result["notes"] = std::move(notes);
  return result;
}

}  // namespace

Result<ReferenceQuestion> read_reference_question(std::string_view line) {
  MORACLE_ASSIGN(const Json json, parse_json(line, std::string(kFile), {.bytes = std::size_t{1} << 20, .depth = 8}));
  const JsonReader root(json, std::string(kFile));
  MORACLE_ASSIGN(const JsonReader request, member(root, "request"));
  ReferenceQuestion question;
  MORACLE_ASSIGN(question.id, root.string_or("id", ""));
  MORACLE_ASSIGN(const std::string oracle, root.string_or("oracle", ""));
  question.table = reference_table(oracle);
  if (question.table == nullptr) return unknown(root, "oracle", oracle, "an oracle of the reference");
  MORACLE_TRY(read_platform(root, question));
  MORACLE_TRY(read_quantization(request, question));
  MORACLE_TRY(read_layout(request, question.problem));
  MORACLE_TRY(read_layer(request, question.problem));
  MORACLE_TRY(read_policy(request, question.policy));
  return question;
}

Decision decide_reference(const ReferenceQuestion& question) {
  return decide(question.problem, question.machine, question.policy, *question.table);
}

Result<std::string> answer_reference_request(std::string_view json_line) {
  MORACLE_ASSIGN(const ReferenceQuestion question, read_reference_question(json_line));
  const Decision decision = decide_reference(question);
  const bool nothing_walked = !decision.verdict.empty() || decision.pin_unknown || decision.pin_without_variant;
  const Json answer{{"id", question.id},
                    {"result", result_of(decision, question.problem)},
                    {"trace", nothing_walked ? Json::array() : trace_of(decision)}};
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moracle
