// Handles of the C interface: numbers dressed as pointers, looked up and never followed, so that one that is closed or
// foreign is an error. A number is used once.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/result.h"

namespace moracle::api {

enum class Kind : std::uint8_t { pool = 1, checkpoint, experts, dense, engine, scheduler, server };
[[nodiscard]] std::string_view to_string(Kind kind);

// The handle of an object. Throws std::bad_alloc.
[[nodiscard]] void* add_handle(Kind kind, std::shared_ptr<void> object);
// Errors: "handle.null", "handle.closed" (or never opened), "handle.kind", "handle.forked" (opened before a fork).
[[nodiscard]] Result<std::shared_ptr<void>> find_handle(Kind kind, const void* handle);
// The same, and forgets it. What a fork has copied is forgotten but not destroyed: its threads are not here.
[[nodiscard]] Result<std::shared_ptr<void>> close_handle(Kind kind, const void* handle);

// A type that has handles names its kind: static constexpr Kind kKind.
template <class T>
[[nodiscard]] Result<std::shared_ptr<T>> find(const void* handle) {
  MORACLE_ASSIGN(std::shared_ptr<void> object, find_handle(T::kKind, handle));
  return std::static_pointer_cast<T>(std::move(object));
}

}  // namespace moracle::api
