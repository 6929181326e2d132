#include "serve/api/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <utility>

#include "generate/request.h"
#include "generate/sampling_fields.h"
#include "serve/api/anthropic.h"
#include "serve/api/field_makers.h"
#include "serve/api/output/output_field.h"
#include "serve/api/responses.h"
#include "text/reply/tool_list.h"

namespace moracle::serve {

namespace {

using enum FieldUse;
using enum FieldType;

constexpr std::uint8_t kChat = 1;
constexpr std::uint8_t kCompletions = 2;
constexpr std::uint8_t kBoth = kChatsAndCompletions;
constexpr std::uint8_t kEach = 15;
constexpr std::uint8_t kChats = 13;  // what makes conversations
constexpr std::uint8_t kOpenAi = 11;

constexpr double kInt63 = 0x1p63;  // above every whole number of 64 bits; whole_bound() names the last one
constexpr double kHuge = 1e30;

Json list_schema(std::size_t most, Json items) {
  return {{"type", "array"}, {"maxItems", most}, {"items", std::move(items)}};
}

// Lists of as many as the body holds.
Json some_of(Json items) {
  return {{"type", "array"}, {"minItems", 1}, {"items", std::move(items)}};
}

Json one_of(std::initializer_list<Json> schemas) {
  return {{"oneOf", Json::array_t(schemas)}};
}

Json type_schema(const char* type) {
  return {{"type", type}};
}

Json or_null(const char* type) {
  return {{"type", Json::array({type, "null"})}};
}

Json words_schema(std::span<const char* const> words) {
  return {{"type", "string"}, {"enum", std::vector<std::string>(words.begin(), words.end())}};
}

Json id_schema() {
  return {{"type", "integer"}, {"minimum", 0}, {"maximum", kMostTokenId}};
}

Json stop_schema() {
  const Json text = {{"type", "string"}, {"maxLength", kStopBytes}};
  return one_of({text, list_schema(kMostStops, text)});
}

Json ids_schema() {
  return list_schema(kMostStopIds, id_schema());
}

Json bias_schema() {
  return {{"type", "object"},
          {"maxProperties", kMostBiases},
          {"additionalProperties", {{"type", "number"}, {"minimum", -kMostBias}, {"maximum", kMostBias}}}};
}

Json messages_schema() {
  const Json part = {{"type", "object"},
                     {"required", Json::array({"type", "text"})},
                     {"properties", {{"type", {{"const", "text"}}}, {"text", type_schema("string")}}}};
  const Json parts = {{"type", "array"}, {"items", part}};
  Json messages = some_of({{"type", "object"},
                           {"required", Json::array({"role"})},
                           {"properties",
                            {{"role", words_schema(kMessageRoles)},
                             {"content", one_of({type_schema("string"), type_schema("null"), parts})},
                             {"name", type_schema("string")},
                             {"tool_call_id", type_schema("string")},
                             {"tool_calls", type_schema("array")},
                             {"reasoning", or_null("string")},
                             {"reasoning_content", or_null("string")}}}});
  messages["maxItems"] = kMostMessages;
  return messages;
}

Json prompt_schema() {
  const auto prompts = [](Json items) {
    Json list = some_of(std::move(items));
    list["maxItems"] = kMostPrompts;
    return list;
  };
  return one_of(
      {type_schema("string"), prompts(type_schema("string")), some_of(id_schema()), prompts(some_of(id_schema()))});
}

Json stream_options_schema() {
  return {{"type", "object"},
          {"properties", {{"include_usage", or_null("boolean")}, {"continuous_usage_stats", or_null("boolean")}}}};
}

Json scalars_schema() {
  return {{"type", "object"},
          {"maxProperties", kMostTemplateArguments},
          {"additionalProperties", {{"type", Json::array({"string", "number", "boolean", "null"})}}}};
}

Json tools_schema() {
  const Json name = {{"type", "string"}, {"pattern", fmt::format("^[a-zA-Z0-9_-]{{1,{}}}$", kToolNameBytes)}};
  const Json function = {{"type", "object"},
                         {"required", Json::array({"name"})},
                         {"properties",
                          {{"name", name},
                           {"description", or_null("string")},
                           {"parameters", or_null("object")},
                           {"strict", or_null("boolean")}}}};
  return list_schema(kMostTools, {{"type", "object"},
                                  {"required", Json::array({"type", "function"})},
                                  {"properties", {{"type", {{"const", "function"}}}, {"function", function}}}});
}

constexpr std::array kToolChoices = {"none", "auto", "required"};

Json tool_choice_schema() {
  const Json named = {{"type", "object"},
                      {"required", Json::array({"type", "function"})},
                      {"properties",
                       {{"type", {{"const", "function"}}},
                        {"function",
                         {{"type", "object"},
                          {"required", Json::array({"name"})},
                          {"properties", {{"name", {{"type", "string"}}}}}}}}}};
  return {{"oneOf", Json::array({words_schema(kToolChoices), named})}};
}

Json reasoning_schema() {
  return {{"type", "object"}, {"properties", {{"effort", or_null("string")}}}};
}

constexpr RequestField sampling_field(int place, RequestField field) {
  field.sampling = place;
  return field;
}

// The whole number of 64 bits that is next to a bound.
std::int64_t whole_bound(double bound) {
  if (bound >= kInt63) return std::numeric_limits<std::int64_t>::max();
  return bound <= -kInt63 ? std::numeric_limits<std::int64_t>::min() : static_cast<std::int64_t>(bound);
}

constexpr std::string_view kThinking = "use chat_template_kwargs, where the chat template has a variable for it";

constexpr int kLastSampling = static_cast<int>(kSamplingFields.size()) + 2;

constexpr std::array kBeforeSampling = {
    word("model", kEach, "A served name; absent: the model that is served"),
    shaped("messages", kChat, messages_schema, "The conversation"),
    shaped("prompt", kCompletions, prompt_schema, "A text, a list of texts, token ids, or a list of lists of them"),
    sampling_field(kLastSampling - 1, whole("max_tokens", kBoth, 0, kInt32,
                                            "Most tokens of a reply; chat at least 1; completions: 16, and 0 with "
                                            "echo")),
    whole("max_completion_tokens", kBoth, 1, kInt32, "The same as max_tokens"),
};

// Fields of generate/sampling_fields.h.
constexpr auto kSampling = [] {
  std::array<RequestField, kSamplingFields.size()> fields{};
  std::transform(kSamplingFields.begin(), kSamplingFields.end(), fields.begin(), [](const SamplingField& field) {
    const double high = std::min(field.high, field.is_whole() ? kInt32 : kHuge);
    return RequestField{.name = field.name,
                        .use = honoured,
                        .endpoints = kEach,
                        .type = field.is_whole() ? integer : number,
                        .text = field.request_text,
                        .low = field.request_low.value_or(field.low),
                        .high = field.request_high.value_or(high),
                        .above_low = field.above_low};
  });
  int place = 0;
  for (RequestField& field : fields) field.sampling = ++place;
  return fields;
}();

constexpr std::array kAfterSampling = {
    sampling_field(kLastSampling, whole("seed", kEach, -kInt63, kInt63,
                                        "With system_fingerprint it reproduces a reply; absent: drawn, and returned")),
    whole("n", kBoth, 1, kMostChoices, "Replies to each prompt"),
    whole("best_of", kBoth, 1, kInt32, "At most n: all replies that are made are returned"),
    shaped("stop", kBoth, stop_schema, "Texts that end a reply in front of them"),
    shaped("stop_token_ids", kBoth, ids_schema, "Tokens that end a reply"),
    flag("include_stop_str_in_output", kBoth, "Leave the stop text in the reply"),
    flag("ignore_eos", kEach, "End tokens end nothing"),
    whole("min_tokens", kBoth, 0, kInt32, "No token ends the reply before so many"),
    flag("skip_special_tokens", kBoth, "Leave special tokens out of the text (default: true)"),
    shaped("logit_bias", kBoth, bias_schema, "Added to logits, by token id"),
    flag("logprobs", kChat, "Log-probabilities of the reply's tokens, of raw logits"),
    whole("top_logprobs", kChat, 0, kMostTopLogprobs, "And of so many likeliest tokens beside each"),
    whole("logprobs", kCompletions, 0, kMostTopLogprobs, "Log-probabilities, of the token and of so many likeliest"),
    flag("echo", kCompletions, "The text begins with the prompt"),
    flag("add_special_tokens", kBoth, "Encode with the tokenizer's special tokens (default: true; chat: false)"),
    flag("stream", kEach, "Server-sent events, one for each piece"),
    shaped("stream_options", kBoth, stream_options_schema, "include_usage, continuous_usage_stats"),
    shaped("tools", kChat, tools_schema, "Functions that the model may call; names differ"),
    shaped("tool_choice", kChat, tool_choice_schema,
           "none: the model is told of no tools; auto; required: the reply is a call; a function by its name"),
    flag("parallel_tool_calls", kChat, "false ends a reply behind its first call"),
    shaped("response_format", kBoth, response_format_schema,
           "Holds the answer to JSON or to a JSON schema; reasoning before it is free"),
    shaped("structured_outputs", kBoth, structured_outputs_schema, "The same by json, json_object, regex or choice"),
    shaped("guided_json", kBoth, nullptr, "The same as structured_outputs.json"),
    shaped("guided_regex", kBoth, regex_schema, "The same as structured_outputs.regex"),
    shaped("guided_choice", kBoth, choices_schema, "The same as structured_outputs.choice"),
    word("reasoning_effort", kChat, "A variable of the chat template"),
    shaped("reasoning", kChat, reasoning_schema, "effort: the same as reasoning_effort"),
    flag("include_reasoning", kChat, "false leaves reasoning out of the reply; usage counts it all the same"),
    shaped("chat_template_kwargs", kChats, scalars_schema, "Variables of the chat template"),
    flag("add_generation_prompt", kChat, "Open the assistant's turn (default: true)"),
    flag("continue_final_message", kChat, "Go on with the last message, which is the assistant's"),
    flag("return_token_ids", kBoth, "prompt_token_ids and token_ids in the reply"),
    word("cache_salt", kEach, "Prompts share cached prefixes only with those of the same salt"),
    whole("priority", kEach, -kInt32, kInt32, "Lower is served first"),
    word("request_id", kEach, "Part of the reply's id, as the header x-request-id is"),

    ignored_field("user", "No account is kept", kOpenAi),
    ignored_field("metadata", "Nothing is stored", kEach),
    ignored_field("service_tier", "There is one", kEach),
    ignored_field("safety_identifier", "No account is kept", kOpenAi),
    ignored_field("prompt_cache_key", "Prefixes are found by their tokens", kOpenAi),
    ignored_field("prompt_cache_retention", "Prefixes are kept while there is room", kOpenAi),
    ignored_field("verbosity", "A hint for models that are not served here"),
    ignored_field("prediction", "A hint for speed"),

    refuse("store", "nothing is stored: leave it out", "false"),
    refuse("watermarking", "replies carry no watermark: leave it out", "false"),
    refuse("guided_grammar", "grammars are not served"),
    refuse("guided_decoding_backend", "there is one"),
    refuse("guided_whitespace_pattern", "white space is one space, or a line break with an indent"),
    refuse("grammar", "grammars are not served"),
    refuse("json_schema", "it is spelled response_format or structured_outputs"),
    refuse("structural_tag", "structural tags are not served"),
    refuse("regex", "it is spelled structured_outputs"),
    refuse("ebnf", "grammars are not served"),
    refuse("format", "it is spelled response_format"),
    refuse("functions", "it is spelled tools"),
    refuse("function_call", "it is spelled tool_choice", "\"none\""),
    refuse("modalities", "replies are text", R"(["text"])"),
    refuse("audio", "replies are text"),
    refuse("image_url", "prompts are text"),
    refuse("input_audio", "prompts are text"),
    refuse("images", "prompts are text"),
    refuse("web_search_options", "nothing is fetched"),
    refuse("suffix", "text is only continued at its end"),
    refuse("use_beam_search", "beams are not searched"),
    refuse("length_penalty", "beams are not searched", "1.0"),
    refuse("early_stopping", "beams are not searched"),
    refuse("num_beams", "beams are not searched", "1"),
    refuse("prompt_logprobs", "ask /v1/completions with echo and logprobs"),
    refuse("prompt_embeds", "prompts are text or token ids"),
    refuse("chat_template", "the publisher's template is used"),
    refuse("documents", "put documents into messages"),
    refuse("bad_words", "use logit_bias", "[]"),
    refuse("bad_words_ids", "use logit_bias", "[]"),
    refuse("allowed_token_ids", "use logit_bias"),
    refuse("truncate_prompt_tokens", "shorten the prompt"),
    refuse("logits_processors", "no code of a request is run"),
    refuse("custom_logit_processor", "no code of a request is run"),
    refuse("vllm_xargs", "arguments of plug-ins are not served"),
    refuse("kv_transfer_params", "states are not transferred"),
    refuse("ec_transfer_params", "states are not transferred"),
    refuse("mm_processor_kwargs", "prompts are text"),
    refuse("media_io_kwargs", "prompts are text"),
    refuse("logprobs_mode", "log-probabilities are of raw logits", "\"raw_logprobs\""),
    refuse("logprob_token_ids", "ask for the likeliest tokens"),
    refuse("thinking", kThinking),
    refuse("thinking_budget", kThinking),
    refuse("thinking_token_budget", kThinking),
    refuse("enable_thinking", kThinking),
    refuse("do_sample", "use temperature 0 for greedy decoding", "true"),
    refuse("repetition_detection", "use max_tokens or stop"),
    refuse("return_tokens_as_token_ids", "ask for return_token_ids"),
    refuse("repeat_penalty", "it is spelled repetition_penalty", "1.0"),
    refuse("typical_p", "use top_p or min_p", "1.0"),
    refuse("tfs_z", "use top_p or min_p", "1.0"),
    refuse("top_a", "use min_p", "0"),
    refuse("top_n_sigma", "use top_p or min_p", "-1"),
    refuse("epsilon_cutoff", "use min_p", "0"),
    refuse("eta_cutoff", "use min_p", "0"),
    refuse("dynatemp_range", "use temperature", "0"),
    refuse("dynatemp_exponent", "use temperature"),
    refuse("samplers", "the order is temperature, top_k, top_p, min_p"),
    refuse("mirostat", "use temperature, top_p or min_p", "0"),
    refuse("mirostat_mode", "use temperature, top_p or min_p", "0"),
    refuse("mirostat_tau", "use temperature, top_p or min_p"),
    refuse("mirostat_eta", "use temperature, top_p or min_p"),
    refuse("repeat_last_n", "repetition_penalty counts the prompt and the reply"),
    refuse("no_repeat_ngram_size", "use repetition_penalty or frequency_penalty", "0"),
    refuse("dry_multiplier", "use repetition_penalty or frequency_penalty", "0"),
    refuse("dry_base", "use repetition_penalty or frequency_penalty"),
    refuse("dry_allowed_length", "use repetition_penalty or frequency_penalty"),
    refuse("dry_penalty_last_n", "use repetition_penalty or frequency_penalty"),
    refuse("dry_sequence_breakers", "use repetition_penalty or frequency_penalty"),
    refuse("xtc_probability", "use temperature or min_p", "0"),
    refuse("xtc_threshold", "use temperature or min_p"),
    refuse("n_probs", "ask for logprobs", "0"),
    refuse("n_predict", "it is spelled max_tokens"),
    refuse("num_predict", "it is spelled max_tokens"),
    refuse("max_new_tokens", "it is spelled max_tokens"),
    refuse("max_output_tokens", "it is spelled max_tokens"),
    refuse("stop_sequences", "it is spelled stop"),
    refuse("stop_regex", "use stop"),
    refuse("system", "it is a message of the role system"),
    refuse("options", "its members are fields of the request"),
    refuse("extra_body", "its members are fields of the request"),
    refuse("lora", "the published weights are served, unchanged"),
    refuse("lora_path", "the published weights are served, unchanged"),
    refuse("lora_request", "the published weights are served, unchanged"),
};

const std::vector<RequestField>& all_fields() {
  static const std::vector<RequestField> kFields = [] {
    std::vector<RequestField> fields(kBeforeSampling.begin(), kBeforeSampling.end());
    for (const std::span<const RequestField> more :
         {std::span<const RequestField>(kSampling), std::span<const RequestField>(kAfterSampling), anthropic_fields(),
          responses_fields()})
      fields.insert(fields.end(), more.begin(), more.end());
    return fields;
  }();
  return kFields;
}

bool asks_for_nothing(const RequestField& field, const Json& value) {
  return says_nothing(value) || value == Json::parse(field.off, nullptr, false);
}

std::string_view type_words(FieldType type) {
  switch (type) {
    case boolean:
      return "true or false";
    case integer:
      return "a whole number";
    case number:
      return "a number";
    case text:
      return "a text";
    case structure:
      return "what the documents say";
  }
  return "";
}

std::string range_words(const RequestField& field) {
  const bool open = field.high >= kHuge;
  const auto shown = [&](double value) {
    return field.type == integer ? std::to_string(whole_bound(value)) : fmt::format("{}", value);
  };
  if (open)
    return fmt::format("{} {} {}", type_words(field.type), field.above_low ? "above" : "of at least", shown(field.low));
  return fmt::format("{} {} {} {} {}", type_words(field.type), field.above_low ? "above" : "from", shown(field.low),
                     field.above_low ? "and at most" : "to", shown(field.high));
}

std::string shown_value(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 77) + "...";
  return text;
}

bool fits_64_bits(const Json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= INT64_MAX;
  return value.is_number_integer() || (value.get<double>() >= -kInt63 && value.get<double>() < kInt63);
}

Result<> check_scalar(const RequestField& field, const Json& value) {
  const bool fits = field.type == boolean ? value.is_boolean()
                    : field.type == integer
                        ? value.is_number_integer() || (value.is_number_float() && std::isfinite(value.get<double>()) &&
                                                        value.get<double>() == std::floor(value.get<double>()))
                    : field.type == number ? value.is_number()
                                           : value.is_string();
  if (!fits) {
    return Error{.code = "request.type",
                 .where = std::string(field.name),
                 .wanted = std::string(type_words(field.type)),
                 .found = shown_value(value)};
  }
  if (field.type == text && value.get_ref<const std::string&>().size() > kNameBytes) {
    return Error{.code = "request.limit",
                 .where = std::string(field.name),
                 .wanted = fmt::format("at most {} bytes", kNameBytes),
                 .found = fmt::format("{} bytes", value.get_ref<const std::string&>().size())};
  }
  if (field.type != integer && field.type != number) return Ok{};
  const double wanted = value.get<double>();
  const bool inside = (field.type == number || fits_64_bits(value)) &&
                      (field.above_low ? wanted > field.low : wanted >= field.low) && wanted <= field.high;
  if (inside) return Ok{};
  return Error{.code = "request.value",
               .where = std::string(field.name),
               .wanted = range_words(field),
               .found = shown_value(value)};
}

constexpr std::array kApis = {std::pair{GenerationApi::chat, std::string_view("/v1/chat/completions")},
                              std::pair{GenerationApi::completions, std::string_view("/v1/completions")},
                              std::pair{GenerationApi::anthropic, std::string_view("/v1/messages")},
                              std::pair{GenerationApi::responses, std::string_view("/v1/responses")}};

// Whether /v1/chat/completions or /v1/completions knows a name that this endpoint does not. What it asks for would not
// be done. Names of the other two are unknown ones there.
Result<bool> check_elsewhere(const std::string& name, const Json& value, GenerationApi endpoint) {
  const auto* const end = kApis.begin() + 2;
  const auto* const other = std::find_if(kApis.begin(), end, [&](const auto& api) {
    return api.first != endpoint && find_field(name, api.first) != nullptr;
  });
  if (other == end) return false;
  if (says_nothing(value) || value == 0) return true;
  return Error{.code = "request.unsupported",
               .where = name,
               .wanted = "a request without it",
               .found = shown_value(value),
               .advice = "it is a field of " + std::string(other->second)};
}

std::string markdown_cell(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '|' ? std::string("\\|") : std::string(1, c);
  return out;
}

}  // namespace

std::span<const RequestField> request_fields() {
  return all_fields();
}

const RequestField* find_field(std::string_view name, GenerationApi endpoint) {
  const std::vector<RequestField>& fields = all_fields();
  const auto found = std::find_if(fields.begin(), fields.end(), [&](const RequestField& field) {
    return field.name == name && field.serves(endpoint);
  });
  return found == fields.end() ? nullptr : &*found;
}

bool has_field(const Json& body, const char* name) {
  const auto found = body.find(name);
  return found != body.end() && !found->is_null();
}

Result<> check_fields(const Json& body, GenerationApi endpoint, std::vector<std::string>& ignored) {
  for (const auto& [name, value] : body.items()) {
    const RequestField* const field = find_field(name, endpoint);
    if (value.is_null()) continue;
    if (field == nullptr) {
      MORACLE_ASSIGN(const bool known, check_elsewhere(name, value, endpoint));
      if (!known) ignored.push_back(name);
      continue;
    }
    if (field->use == inert) continue;
    if (field->use == refused) {
      if (asks_for_nothing(*field, value)) continue;
      return Error{.code = "request.unsupported",
                   .where = name,
                   .wanted = "a request without it",
                   .found = shown_value(value),
                   .advice = std::string(field->text)};
    }
    if (field->type != structure) MORACLE_TRY(check_scalar(*field, value));
  }
  return Ok{};
}

Json field_schema(const RequestField& field) {
  Json schema;
  switch (field.type) {
    case boolean:
      schema = {{"type", "boolean"}};
      break;
    case integer:
    case number:
      schema = {{"type", field.type == integer ? "integer" : "number"}};
      if (field.type == integer) {
        schema["minimum"] = whole_bound(field.low);
        schema["maximum"] = whole_bound(field.high);
      } else {
        schema[field.above_low ? "exclusiveMinimum" : "minimum"] = field.low;
        if (field.high < kHuge) schema["maximum"] = field.high;
      }
      break;
    case text:
      schema = {{"type", "string"}, {"maxLength", kNameBytes}};
      break;
    case structure:
      schema = field.schema != nullptr ? field.schema() : Json::object();
      break;
  }
  Json out = {{"description", field.text}, {"anyOf", Json::array({std::move(schema), {{"type", "null"}}})}};
  if (field.sampling != 0) out["x-sampling"] = field.sampling;
  return out;
}

Json body_schema(GenerationApi api, std::string_view required) {
  Json properties = Json::object();
  for (const RequestField& field : all_fields()) {
    if (field.serves(api) && field.use != refused) properties[std::string(field.name)] = field_schema(field);
  }
  return {{"type", "object"}, {"required", Json::array({required})}, {"properties", std::move(properties)}};
}

std::string fields_markdown() {
  std::string out;
  const auto endpoints = [](const RequestField& field) -> std::string {
    if (field.endpoints == kEach) return "all";
    if (field.endpoints == kBoth) return "both";
    std::string names;
    for (const auto& [api, path] : kApis) {
      if (!field.serves(api)) continue;
      if (!names.empty()) names += ", ";
      names += api == GenerationApi::chat ? "chat" : path.substr(path.rfind('/') + 1);
    }
    return names;
  };
  const auto table = [&](FieldUse use, std::string_view title, std::string_view last) {
    out += fmt::format("### {}\n\n| field | endpoint | {} |\n| --- | --- | --- |\n", title, last);
    for (const RequestField& field : all_fields()) {
      if (field.use != use) continue;
      const bool ranged = use == honoured && (field.type == integer || field.type == number);
      out += fmt::format("| `{}` | {} | {}{} |\n", field.name, endpoints(field), markdown_cell(field.text),
                         ranged ? "; " + range_words(field) : "");
    }
    out += "\n";
  };
  table(honoured, "Honoured", "meaning");
  table(inert, "Inert", "why it changes nothing");
  table(refused, "Refused", "instead");
  return out;
}

}  // namespace moracle::serve
