// The edge of the C interface: arguments are checked, results and exceptions become statuses and errors.
#pragma once

#include <moracle/moracle.h>

#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/edge/handles.h"
#include "base/guarded.h"
#include "base/json.h"
#include "base/result.h"
#include "kernels/kv_type.h"
#include "oracle/decide.h"

namespace moracle::api {

// The status of an error, which is written to `error` where that is not null. Never throws: where there is no memory
// for the error, it is a constant.
moracle_status fail(moracle_error** error, const Error& what) noexcept;
moracle_status fail_without_memory(moracle_error** error) noexcept;

// body() returns a Result<> or a Result<moracle_status>; `doing` as for guarded().
template <class Body>
moracle_status call(moracle_error** error, std::string_view doing, Body&& body) noexcept {
  if (error != nullptr) *error = nullptr;
  try {
    const auto result = guarded(doing, std::forward<Body>(body));
    if (!result.ok()) return fail(error, result.error());
    if constexpr (std::is_same_v<std::remove_cvref_t<decltype(*result)>, moracle_status>) {
      return *result;
    } else {
      return MORACLE_OK;
    }
  } catch (...) {
    return fail_without_memory(error);
  }
}

// Closes a handle of this kind.
moracle_status close(Kind kind, const void* handle) noexcept;

// Error: "argument.null".
[[nodiscard]] Error null_argument(std::string_view name);
// An error of status MORACLE_INVALID.
[[nodiscard]] Error wrong_argument(std::string rule, std::string_view name, std::string wanted, std::string found);
template <class T>
Result<> check_not_null(T* pointer, std::string_view name) {
  if (pointer == nullptr) return null_argument(name);
  return Ok{};
}

// A copy of a caller's struct, which may be of an earlier or later version: what is missing is zero, and what is not
// known must be. Null: all zero. Errors: "argument.size", "argument.newer".
Result<> read_struct(const void* from, std::string_view name, std::size_t known, void* to);
template <class T>
Result<T> read_struct(const T* from, std::string_view name) {
  T copy{};
  MORACLE_TRY(read_struct(from, name, sizeof(T), &copy));
  return copy;
}
// Writes as much of `from` as the caller's struct holds; its size stays. Errors: "argument.null", "argument.size".
Result<> write_struct(const void* from, std::size_t known, void* to, std::string_view name);

// Errors: "argument.null", "text.utf8" for text that is no UTF-8.
Result<std::string> read_text(const char* text, std::string_view name);
Result<Policy> read_policy(const moracle_policy* policy);
// "cpu" for null. Errors: "text.utf8".
Result<std::string> read_device(const char* device);
// Empty for null. Errors: "argument.name".
Result<std::optional<KvType>> read_kv(const char* kv);

// Memory that moracle_free frees. Throws std::bad_alloc.
[[nodiscard]] char* copy_text(std::string_view text);
[[nodiscard]] std::int32_t* copy_ids(std::span<const std::int32_t> ids);
// The document as the command line prints it.
[[nodiscard]] char* copy_json(const Json& document);

}  // namespace moracle::api
