// Limits of what clients send, held before anything of its size is allocated. Parser, openapi.json and documents read
// them here.
#pragma once

#include <cstddef>
#include <cstdint>

namespace moracle::serve {

inline constexpr std::size_t kBodyBytes = std::size_t{8} << 20;
inline constexpr int kBodyDepth = 64;
inline constexpr std::size_t kBodyValues = std::size_t{1} << 20;
inline constexpr std::size_t kMostMessages = 4096;
inline constexpr std::size_t kMostPrompts = 256;
inline constexpr std::int64_t kMostChoices = 16;
inline constexpr std::size_t kMostSequences = 256;  // prompts times choices
inline constexpr std::size_t kMostStops = 16;
inline constexpr std::size_t kStopBytes = 256;
inline constexpr std::size_t kMostStopIds = 1024;
inline constexpr std::size_t kMostBiases = 1024;
inline constexpr std::size_t kMostTemplateArguments = 32;
inline constexpr std::size_t kNameBytes = 256;  // of model, request_id, cache_salt and template arguments
inline constexpr std::int32_t kMostTokenId = INT32_MAX;
inline constexpr std::size_t kRequestIdBytes = 64;  // of a reply's id, what the client chooses
inline constexpr std::size_t kShownNameBytes = 80;  // of a client's text in an error
inline constexpr std::size_t kIgnoredBytes = 1024;  // of the header x-moracle-ignored
inline constexpr int kMostRetrySeconds = 60;        // of the header Retry-After

}  // namespace moracle::serve
