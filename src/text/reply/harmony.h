// The marks of the harmony format, which gpt-oss writes.
#pragma once

#include <array>
#include <string_view>

namespace moracle::harmony {

inline constexpr std::string_view kStart = "<|start|>";          // a message begins with its role
inline constexpr std::string_view kChannel = "<|channel|>";      // then its channel: analysis, commentary, final
inline constexpr std::string_view kConstrain = "<|constrain|>";  // then the form of its body
inline constexpr std::string_view kMessage = "<|message|>";      // then its body
inline constexpr std::string_view kEnd = "<|end|>";
inline constexpr std::string_view kReturn = "<|return|>";  // ends the reply
inline constexpr std::string_view kCall = "<|call|>";      // ends the reply with a call of a tool
inline constexpr std::array kMarks = {kStart, kChannel, kConstrain, kMessage, kEnd, kReturn, kCall};

inline constexpr std::string_view kAnswerChannel = "final";

}  // namespace moracle::harmony
