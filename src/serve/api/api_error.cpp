#include "serve/api/api_error.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

#include "serve/api/json_text.h"

namespace moracle::serve {

namespace {

struct ErrorRow {
  std::string_view prefix;  // of an error's code
  int status;
  std::string_view type;
  std::string_view code;     // empty: the rest of the error's code
  std::string_view param{};  // of errors that name a place in the field's value, or none
};

constexpr std::string_view kInvalid = "invalid_request_error";

// The first row that fits.
constexpr std::array kRows = {
    ErrorRow{"request.model", 404, kInvalid, "model_not_found"},
    ErrorRow{"request.path", 404, kInvalid, "not_found"},
    ErrorRow{"request.query", 400, kInvalid, "invalid_query"},
    ErrorRow{"request.method", 405, kInvalid, "method_not_allowed"},
    ErrorRow{"request.timeout", 408, kInvalid, "request_timeout"},
    ErrorRow{"request.too_large", 413, kInvalid, "request_too_large"},
    ErrorRow{"request.media_type", 415, kInvalid, "unsupported_media_type"},
    ErrorRow{"request.header_size", 431, kInvalid, "header_too_large"},
    ErrorRow{"request.expectation", 417, kInvalid, "expectation_failed"},
    ErrorRow{"request.forbidden", 403, kInvalid, "forbidden"},
    ErrorRow{"request.key", 401, kInvalid, "invalid_api_key"},
    ErrorRow{"request.context", 400, kInvalid, "context_length_exceeded"},
    ErrorRow{"request.", 400, kInvalid, ""},
    ErrorRow{"scheduler.kv", 400, kInvalid, "context_length_exceeded"},
    ErrorRow{"scheduler.queue", 429, "rate_limit_exceeded", "rate_limit_exceeded"},
    ErrorRow{"routing.full", 429, "rate_limit_exceeded", "rate_limit_exceeded"},
    ErrorRow{"connections.full", 429, "rate_limit_exceeded", "rate_limit_exceeded"},
    ErrorRow{"server.", 503, "service_unavailable", ""},
    ErrorRow{"memory.", 503, "service_unavailable", "out_of_memory"},
    ErrorRow{"threads.", 503, "service_unavailable", "out_of_threads"},
    ErrorRow{"model.context", 400, kInvalid, "context_length_exceeded"},
    ErrorRow{"model.token", 400, kInvalid, "invalid_token", "prompt"},
    ErrorRow{"json.", 400, kInvalid, "invalid_json"},
    ErrorRow{"text.utf8", 400, kInvalid, "invalid_utf8"},
    ErrorRow{"text.noncharacter", 400, kInvalid, "invalid_value", "messages"},
    ErrorRow{"prompt.", 400, kInvalid, "invalid_prompt", "prompt"},
    ErrorRow{"template.", 400, kInvalid, "template_error", "messages"},
    ErrorRow{"tokenizer.", 400, kInvalid, "tokenizer_error"},
    ErrorRow{"sampling.", 400, kInvalid, "invalid_value"},
    ErrorRow{"config.", 400, kInvalid, "invalid_value"},
    ErrorRow{"numeric.", 500, "server_error", "numeric_error"},
    ErrorRow{"", 500, "server_error", "internal_error"},
};

}  // namespace

ApiError api_error(const Error& error) {
  const ErrorRow* row = kRows.data();
  while (!error.code.starts_with(row->prefix)) ++row;
  ApiError result{.status = row->status,
                  .type = std::string(row->type),
                  .code = {},
                  .param = std::string(row->param),
                  .message = {}};
  result.code = row->code.empty() ? error.code.substr(row->prefix.size()) : std::string(row->code);
  const bool of_field = row->prefix.starts_with("request.") || row->prefix == "sampling.";
  if (of_field && row->status == 400) result.param = error.where;
  if (row->status == 404 && row->code == "model_not_found") result.param = "model";
  if (row->prefix == "request.context") {
    result.message = error.advice;
    return result;
  }
  Error shown = error;
  shown.file.clear();
  result.message = shown.message();
  return result;
}

Error wrong(const char* code, std::string where, std::string wanted, std::string found) {
  return Error{.code = code, .where = std::move(where), .wanted = std::move(wanted), .found = std::move(found)};
}

Error unsupported(std::string where, std::string wanted, const OrderedJson& found, std::string advice) {
  Error error = wrong("request.unsupported", std::move(where), std::move(wanted),
                      found.is_string() ? "'" + found.get<std::string>().substr(0, 40) + "'" : found.type_name());
  error.advice = std::move(advice);
  return error;
}

Error context_error(std::int64_t context, std::int64_t prompt, std::int64_t answer, const std::string& param) {
  return Error{.code = "request.context",
               .where = param,
               .wanted = fmt::format("at most {} tokens", context),
               .found = fmt::format("{} tokens", prompt + answer),
               .advice = fmt::format(
                   "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the "
                   "prompt, {} in the completion). Please reduce the length of the prompt or the completion.",
                   context, prompt + answer, prompt, answer)};
}

Json error_json(const ApiError& error) {
  const auto or_null = [](const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); };
  return {{"error",
           {{"message", error.message},
            {"type", error.type},
            {"param", or_null(error.param)},
            {"code", or_null(error.code)}}}};
}

std::string error_body(const ApiError& error) {
  return dump(error_json(error));
}

}  // namespace moracle::serve
