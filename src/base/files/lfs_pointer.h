// The text that git-LFS leaves in place of a file that was not fetched.
#pragma once

#include <string_view>

namespace moracle {

inline constexpr std::string_view kLfsStart = "version https://git-lfs";
inline constexpr std::string_view kLfsFound = "a git-LFS pointer in place of the file";
inline constexpr std::string_view kLfsAdvice = "run git lfs pull";

}  // namespace moracle
