// Errors as OpenAI's clients read them.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/json/document.h"
#include "base/result.h"

namespace moracle::serve {

struct ApiError {
  int status = 500;
  std::string type;                    // "invalid_request_error", ...
  std::string code;                    // "context_length_exceeded", ...; may be empty
  std::string param;                   // the field; may be empty
  std::string message;                 // for people
  std::optional<int> retry_after_s{};  // of 429 and 503
};

// By the error's code; its own sentence is the message, without the file.
[[nodiscard]] ApiError api_error(const Error& error);
// {"error": {"message", "type", "param", "code"}}
[[nodiscard]] Json error_json(const ApiError& error);
[[nodiscard]] std::string error_body(const ApiError& error);

// An error of a request: which field, what it has to hold, and what it holds.
[[nodiscard]] Error wrong(const char* code, std::string where, std::string wanted, std::string found);
// "request.unsupported": a value that nothing here serves, shown by the beginning of its text or by its type.
[[nodiscard]] Error unsupported(std::string where, std::string wanted, const OrderedJson& found, std::string advice);

// A prompt and an answer that the context does not hold. litellm, hence aider, knows the words of its message.
[[nodiscard]] Error context_error(std::int64_t context, std::int64_t prompt, std::int64_t answer,
                                  const std::string& param);

}  // namespace moracle::serve
