#include "compat/vllm/request.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/json.h"
#include "compat/vllm/names.h"
#include "compat/vllm/tables/tables.h"

namespace moracle::vllm {
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

Result<> read_platform(const JsonReader& root, Request& request) {
  MORACLE_ASSIGN(const JsonReader platform, member(root, "platform"));
  MORACLE_ASSIGN(const std::string kind, platform.string_or("kind", ""));
  MORACLE_ASSIGN(const std::string arch, platform.string_or("arch", ""));
  MORACLE_ASSIGN(const std::string libs, platform.string_or("libs", "none"));
  MORACLE_ASSIGN(const std::int64_t capability, platform.integer_or("capability", 0, 0, 9999));
  auto machine = machine_of(kind, arch, libs, static_cast<int>(capability));
  if (!machine) return unknown(root, "platform", kind + " " + arch + " " + libs, "a platform of vLLM");
  request.machine = *std::move(machine);
  return Ok{};
}

Result<> read_quantization(const JsonReader& json, Request& request) {
  MORACLE_ASSIGN(const JsonReader quant, member(json, "quant"));
  Question& question = request.question;
  Problem& layer = question.layer;
  const auto key_of = [](std::string_view name) { return key_named(name); };
  constexpr const char* kWanted = "a quantization key of vLLM";
  if (quant.has("weight_key")) {
    MORACLE_ASSIGN(const NamedKey key, named(quant, "weight_key", "", kWanted, key_of));
    layer.scheme.weight = key.key;
    question.code_bits = key.code_bits;
  }
  std::optional<QuantKey> wanted;
  if (quant.has("activation_key")) {
    MORACLE_ASSIGN(const NamedKey key, named(quant, "activation_key", "", kWanted, key_of));
    layer.scheme.activation = key.key;
  }
  if (quant.has("user_activation_override")) {
    MORACLE_ASSIGN(const NamedKey key, named(quant, "user_activation_override", "", kWanted, key_of));
    wanted = key.key;
  }
  auto& facts = request.policy.facts;
  if (wanted && layer.scheme.activation && layer.scheme.activation != wanted)
    facts.emplace_back("caller.activation_conflict", "1");
  if (!layer.scheme.activation) layer.scheme.activation = wanted;

  for (const char* flag : {"may_have_bias", "allow_tile_padding", "allow_vllm_cutlass"}) {
    MORACLE_ASSIGN(const bool on, quant.boolean_or(flag, false));
    if (on) facts.emplace_back("caller." + std::string(flag), "1");
  }
  MORACLE_ASSIGN(const std::string model, quant.string_or("model_type", ""));
  if (!model.empty()) facts.emplace_back("caller.model_type", model);
  MORACLE_ASSIGN(layer.zero_points, quant.boolean_or("may_have_zp", false));
  MORACLE_ASSIGN(question.source_layout, quant.string_or("kind", ""));
  MORACLE_ASSIGN(const std::int64_t group, quant.integer_or("group_size", 0, -1, kLargest));
  question.source_group = static_cast<std::int32_t>(group);
  // Reordering inside groups ("weight") is undone when a checkpoint is loaded.
  MORACLE_ASSIGN(const std::string order, quant.string_or("act_order", ""));
  layer.act_order = order == "group";
  return Ok{};
}

// Expert parallelism takes over every rank; without it they slice the experts.
Result<> read_layout(const JsonReader& request, Question& question) {
  Problem& layer = question.layer;
  MORACLE_ASSIGN(const JsonReader parallel, member(request, "parallel"));
  MORACLE_ASSIGN(const JsonReader shape, member(request, "shape"));
  constexpr std::int64_t kMaxRanks = 1 << 10;
  MORACLE_ASSIGN(const std::int64_t tp, parallel.integer_or("tp", 1, 1, kMaxRanks));
  MORACLE_ASSIGN(const std::int64_t dp, parallel.integer_or("dp", 1, 1, kMaxRanks));
  MORACLE_ASSIGN(const std::int64_t pcp, parallel.integer_or("pcp", 1, 1, kMaxRanks));
  MORACLE_ASSIGN(const std::int64_t sp, parallel.integer_or("sp", 1, 1, kMaxRanks));
  MORACLE_ASSIGN(const bool wants_ep, parallel.boolean_or("enable_ep", false));
  MORACLE_ASSIGN(const std::string all2all, parallel.string_or("all2all", ""));
  MORACLE_ASSIGN(question.load_balancing, parallel.boolean_or("eplb", false));
  const std::int64_t ranks = tp * dp * pcp;
  const bool ep = wants_ep && ranks > 1;
  const std::int64_t slices = ep ? 1 : ranks;
  question.ep = ep ? static_cast<int>(ranks) : 1;
  question.dp = static_cast<int>(dp);
  question.sp = static_cast<int>(sp);
  if (ep && (dp > 1 || pcp > 1 || sp > 1)) question.all2all = all2all;
  if (question.all2all == "deepep_low_latency" || question.all2all == "nixl_ep")
    question.activation_format = ActivationFormat::batched;

  MORACLE_ASSIGN(layer.hidden, shape.integer("hidden", 1, kLargest));
  MORACLE_ASSIGN(const std::int64_t intermediate, shape.integer("intermediate", 1, kLargest));
  layer.intermediate = intermediate / slices;
  MORACLE_ASSIGN(layer.experts, shape.integer("num_experts", 1, kLargest));
  MORACLE_ASSIGN(layer.top_k, shape.integer("topk", 1, kLargest));
  return Ok{};
}

Result<> read_layer(const JsonReader& request, Question& question) {
  Problem& layer = question.layer;
  MORACLE_ASSIGN(layer.activation.fn, named(request, "activation", "silu", "an activation of vLLM", activation_named));
  MORACLE_ASSIGN(question.routing, named(request, "routing", "Unspecified", "a routing method of vLLM", routing_named));
  MORACLE_ASSIGN(question.dtype, named(request, "dtype", "bf16", "bf16, fp16 or fp32", dtype_named));
  if (request.has("router_logits_dtype")) {
    MORACLE_ASSIGN(question.router_logits_dtype,
                   named(request, "router_logits_dtype", "", "bf16, fp16 or fp32", dtype_named));
  }
  MORACLE_ASSIGN(layer.bias, request.boolean_or("has_bias", false));
  MORACLE_ASSIGN(question.lora, request.boolean_or("lora", false));
  MORACLE_ASSIGN(question.hash_routing, request.boolean_or("hash_routing", false));
  MORACLE_ASSIGN(question.decomposed_required, request.boolean_or("require_decomposed", false));
  MORACLE_ASSIGN(question.stated_activation.limit, stated(request, "swiglu_limit"));
  MORACLE_ASSIGN(question.stated_activation.alpha, stated(request, "swiglu_alpha"));
  MORACLE_ASSIGN(question.stated_activation.beta, stated(request, "swiglu_beta"));
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

// vLLM's spelling of a reason. A missing library is a device that lacks something.
std::string reason_kind(const LabelledReason& reason) {
  if (!reason.label.empty()) return "incompatible:" + std::string(reason.label);
  return std::string((reason.rule == rules::library ? Rule::device : reason.rule).name);
}

// "vllm.CPUExpertsInt4.dynamic" -> "CPUExpertsInt4"
std::string class_name(const ExpertsClass& experts) {
  const std::string_view id = experts.id;
  const std::size_t begin = id.find('.') + 1;
  return std::string(id.substr(begin, id.find('.', begin) - begin));
}

Json trace_of(const Decision& decision) {
  Json trace = Json::array();
  if (decision.pin_unknown || decision.pin_without_variant) return trace;
  for (const Candidate& candidate : decision.trace) {
    if (!candidate.asked) continue;
    Json entry{{"backend", candidate.row->backend}, {"supported", candidate.can()}};
    entry["experts_class"] = candidate.by_row ? Json() : Json(class_name(*candidate.row->experts));
    entry["activation_key"] =
        candidate.by_row || !candidate.activation ? Json() : Json(name_of_key(*candidate.activation));
    entry["reason_kind"] = candidate.can() ? Json() : Json(reason_kind(candidate.reasons.front()));
    trace.push_back(std::move(entry));
  }
  return trace;
}

// Of the last candidate asked, or of the first one of a backend.
std::string refusal_of(const Decision& decision, std::string_view backend = {}) {
  std::string kind = "unknown";
  for (const Candidate& candidate : decision.trace) {
    if (!candidate.asked || candidate.can()) continue;
    if (!backend.empty() && candidate.row->backend == backend) return reason_kind(candidate.reasons.front());
    if (backend.empty()) kind = reason_kind(candidate.reasons.front());
  }
  return kind;
}

std::string error_of(const Decision& decision, const Policy& policy) {
  if (!decision.verdict.empty()) return std::string(decision.verdict);
  if (decision.pin_unknown) return "override_unknown_for_oracle";
  if (decision.pin_without_variant) return "override_no_variant_for_activation";
  const Exhausted* exhausted = decision.exhausted;
  if (exhausted != nullptr && !exhausted->pinned.empty()) return std::string(exhausted->code);
  if (policy.pinned) return "override_unsupported:" + refusal_of(decision);
  if (decision.forced != nullptr && !decision.forced->fallback)
    return "forced_backend_unsupported:" + refusal_of(decision);
  if (exhausted == nullptr) return "no_backend";
  std::string code(exhausted->code);
  if (!exhausted->backend.empty()) code += ":" + refusal_of(decision, exhausted->backend);
  return code;
}

Json notes_of(const Decision& decision, const Question& question) {
  Json notes = Json::array();
  const bool dropped =
      decision.chosen && question.layer.scheme.activation && !decision.trace[*decision.chosen].activation;
  // Only this oracle of vLLM says so.
  if (dropped && decision.table == "mxfp4") notes.push_back("activation_request_dropped_to_bf16");
  if (decision.forced != nullptr && decision.forced->fallback && decision.backend() != decision.forced->backend)
    notes.push_back("aiter_requested_but_unsupported_fallback");
  return notes;
}

Json result_of(const Decision& decision, const Request& request) {
  Json result;
  if (decision.chosen) {
    result = {{"backend", decision.backend()},
              {"experts_class", class_name(*decision.trace[*decision.chosen].row->experts)}};
  } else if (decision.unchecked != nullptr) {
    result = {{"backend", decision.forced->otherwise_backend}, {"experts_class", class_name(*decision.unchecked)}};
  } else if (std::string error = error_of(decision, request.policy); error == "NONE") {
    result = {{"backend", "NONE"}, {"experts_class", nullptr}};
  } else {
    result = {{"error", std::move(error)}};
  }
  if (Json notes = notes_of(decision, request.question); !notes.empty()) result["notes"] = std::move(notes);
  return result;
}

}  // namespace

Result<Request> read_request(std::string_view line) {
  MORACLE_ASSIGN(const Json json, parse_json(line, std::string(kFile), {.bytes = std::size_t{1} << 20, .depth = 8}));
  const JsonReader root(json, std::string(kFile));
  MORACLE_ASSIGN(const JsonReader body, member(root, "request"));
  Request request;
  MORACLE_ASSIGN(request.id, root.string_or("id", ""));
  MORACLE_ASSIGN(const std::string oracle, root.string_or("oracle", ""));
  request.table = table_named(oracle);
  if (request.table == nullptr) return unknown(root, "oracle", oracle, "an oracle of vLLM");
  MORACLE_TRY(read_platform(root, request));
  MORACLE_TRY(read_quantization(body, request));
  MORACLE_TRY(read_layout(body, request.question));
  MORACLE_TRY(read_layer(body, request.question));
  MORACLE_TRY(read_policy(body, request.policy));
  return request;
}

Decision decide(const Request& request) {
  return decide(request.question, request.machine, request.policy, *request.table);
}

Result<std::string> answer_request(std::string_view line) {
  MORACLE_ASSIGN(const Request request, read_request(line));
  const Decision decision = decide(request);
  const Json answer{{"id", request.id}, {"result", result_of(decision, request)}, {"trace", trace_of(decision)}};
  return answer.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace moracle::vllm
