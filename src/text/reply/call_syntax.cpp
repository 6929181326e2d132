#include "text/reply/call_syntax.h"

#include <algorithm>
#include <array>

namespace moracle {
namespace {

using enum ArgumentStyle;

constexpr TypeWords kTrueOrFalse = {.text = "true", .others = {"false"}};

// As published.
constexpr std::array kSyntaxes = {
    // Qwen 2.5 and 3, Qwen3-Next, Granite 4, MiMo, Bielik, Hermes.
    CallSyntax{.name = "hermes", .style = calls, .open = "<tool_call>", .close = "</tool_call>"},
    // Qwen3-Coder, Qwen3.5, Step-3.5, Nemotron 3.
    CallSyntax{.name = "qwen-xml",
               .style = elements,
               .open = "<tool_call>",
               .close = "</tool_call>",
               .name_open = "<function=",
               .name_end = ">",
               .key_open = "<parameter=",
               .key_close = ">",
               .value_close = "</parameter>",
               .body_close = "</function>",
               .padded = true,
               .opens_by_name = true},
    // Seed-OSS.
    CallSyntax{.name = "seed",
               .style = elements,
               .open = "<seed:tool_call>",
               .close = "</seed:tool_call>",
               .name_open = "<function=",
               .name_end = ">",
               .key_open = "<parameter=",
               .key_close = ">",
               .value_close = "</parameter>",
               .body_close = "</function>"},
    // GLM-4.5 to 4.7, Ling 3, Laguna.
    CallSyntax{.name = "glm",
               .style = elements,
               .open = "<tool_call>",
               .close = "</tool_call>",
               .key_open = "<arg_key>",
               .key_close = "</arg_key>",
               .value_open = "<arg_value>",
               .value_close = "</arg_value>"},
    // Hunyuan 3.
    CallSyntax{.name = "hunyuan",
               .style = elements,
               .section_open = "<tool_calls:opensource>",
               .section_close = "</tool_calls:opensource>",
               .open = "<tool_call:opensource>",
               .close = "</tool_call:opensource>",
               .name_end = "<tool_sep:opensource>",
               .key_open = "<arg_key:opensource>",
               .key_close = "</arg_key:opensource>",
               .value_open = "<arg_value:opensource>",
               .value_close = "</arg_value:opensource>"},
    // MiniMax M2.
    CallSyntax{.name = "minimax",
               .style = elements,
               .section_open = "<minimax:tool_call>",
               .section_close = "</minimax:tool_call>",
               .open = "<invoke name=\"",
               .close = "</invoke>",
               .name_end = "\">",
               .key_open = "<parameter name=\"",
               .key_close = "\">",
               .value_close = "</parameter>"},
    // Solar Open 2.
    CallSyntax{.name = "solar",
               .style = elements,
               .open = "<|tool_call:start|>",
               .close = "<|tool_call:end|>",
               .key_open = "<|tool_arg:start|>",
               .key_close = "<|tool_arg:value|>",
               .value_close = "<|tool_arg:end|>"},
    // Kimi K3, which counts the calls of a reply.
    CallSyntax{.name = "kimi-k3",
               .style = elements,
               .section_open = "<|open|>tools<|sep|>",
               .section_close = "<|close|>tools<|sep|>",
               .open = "<|open|>call tool=\"",
               .close = "<|close|>call<|sep|>",
               .name_end = "\"<|sep|>",
               .id_open = "\" index=\"",
               .key_open = "<|open|>argument key=\"",
               .key_close = "\" type=\"",
               .value_open = "\"<|sep|>",
               .value_close = "<|close|>argument<|sep|>",
               .parts = {"<|open|>", "<|sep|>", "<|close|>"},
               .type_words = {.text = "string", .others = {"number", "boolean", "object", "array", "null"}}},
    // DeepSeek V3.2, and V4, whose section has another name.
    CallSyntax{.name = "deepseek-v3.2",
               .style = elements,
               .section_open = "<｜DSML｜function_calls>",
               .section_close = "</｜DSML｜function_calls>",
               .open = "<｜DSML｜invoke name=\"",
               .close = "</｜DSML｜invoke>",
               .name_end = "\">",
               .key_open = "<｜DSML｜parameter name=\"",
               .key_close = "\" string=\"",
               .value_open = "\">",
               .value_close = "</｜DSML｜parameter>",
               .parts = {"｜DSML｜"},
               .type_words = kTrueOrFalse},
    CallSyntax{.name = "deepseek-v4",
               .style = elements,
               .section_open = "<｜DSML｜tool_calls>",
               .section_close = "</｜DSML｜tool_calls>",
               .open = "<｜DSML｜invoke name=\"",
               .close = "</｜DSML｜invoke>",
               .name_end = "\">",
               .key_open = "<｜DSML｜parameter name=\"",
               .key_close = "\" string=\"",
               .value_open = "\">",
               .value_close = "</｜DSML｜parameter>",
               .parts = {"｜DSML｜"},
               .type_words = kTrueOrFalse},
    // DeepSeek V3.1.
    CallSyntax{.name = "deepseek-v3.1",
               .style = object,
               .section_open = "<｜tool▁calls▁begin｜>",
               .section_close = "<｜tool▁calls▁end｜>",
               .open = "<｜tool▁call▁begin｜>",
               .close = "<｜tool▁call▁end｜>",
               .name_end = "<｜tool▁sep｜>"},
    // DeepSeek V3 and R1: the word "function" stands before the name, the arguments in a fence.
    CallSyntax{.name = "deepseek-v3",
               .style = object,
               .section_open = "<｜tool▁calls▁begin｜>",
               .section_close = "<｜tool▁calls▁end｜>",
               .open = "<｜tool▁call▁begin｜>",
               .close = "<｜tool▁call▁end｜>",
               .name_open = "<｜tool▁sep｜>",
               .name_end = "\n```json\n",
               .lead = "function",
               .tail = "\n```"},
    // Kimi K2.
    CallSyntax{.name = "kimi",
               .style = object,
               .section_open = "<|tool_calls_section_begin|>",
               .section_close = "<|tool_calls_section_end|>",
               .open = "<|tool_call_begin|>",
               .close = "<|tool_call_end|>",
               .name_end = "<|tool_call_argument_begin|>",
               .ids = CallIds::given},
    // Mistral and Mixtral with the tokenizers v3 and v7.
    CallSyntax{
        .name = "mistral", .style = calls, .open = "[TOOL_CALLS]", .objects = CallObjects::list, .ids = CallIds::nine},
    // Those with v11 and v13.
    CallSyntax{.name = "mistral-v11",
               .style = object,
               .open = "[TOOL_CALLS]",
               .name_end = "[ARGS]",
               .id_open = "[CALL_ID]",
               .ids = CallIds::nine},
    // Nemotron Nano 2.
    CallSyntax{
        .name = "nemotron", .style = calls, .open = "<TOOLCALL>", .close = "</TOOLCALL>", .objects = CallObjects::list},
    // Hunyuan A13B.
    CallSyntax{.name = "hunyuan-a13b",
               .style = calls,
               .open = "<tool_calls>",
               .close = "</tool_calls>",
               .objects = CallObjects::list},
    // MiniMax M1, Apriel.
    CallSyntax{.name = "tool-calls",
               .style = calls,
               .open = "<tool_calls>",
               .close = "</tool_calls>",
               .objects = CallObjects::lines},
    // Command A and R7B.
    CallSyntax{.name = "cohere",
               .style = calls,
               .open = "<|START_ACTION|>",
               .close = "<|END_ACTION|>",
               .objects = CallObjects::list,
               .members = {.name = "tool_name", .arguments = "parameters", .number = "tool_call_id"}},
    // Phi-4-mini.
    CallSyntax{.name = "phi",
               .style = calls,
               .open = "<|tool_call|>",
               .close = "<|/tool_call|>",
               .objects = CallObjects::list},
    // Granite 3.
    CallSyntax{.name = "granite", .style = calls, .open = "<|tool_call|>", .objects = CallObjects::list},
    // LFM 2 and 2.5.
    CallSyntax{.name = "lfm",
               .style = keywords,
               .open = "<|tool_call_start|>",
               .close = "<|tool_call_end|>",
               .name_end = "(",
               .objects = CallObjects::list},
    // OLMo 3.
    CallSyntax{.name = "olmo",
               .style = keywords,
               .open = "<function_calls>",
               .close = "</function_calls>",
               .name_end = "(",
               .objects = CallObjects::lines},
    // Gemma 4.
    CallSyntax{.name = "gemma",
               .style = keywords,
               .open = "<|tool_call>",
               .close = "<tool_call|>",
               .name_open = "call:",
               .name_end = "{",
               .value_open = "<|\"|>",
               .value_close = "<|\"|>"},
    // GigaChat 3.1, and 3.0, where a call is a message of a role.
    CallSyntax{.name = "gigachat", .style = calls, .open = "<|function_call|>"},
    CallSyntax{.name = "gigachat-v3", .style = calls, .open = "function call<|role_sep|>\n", .parts = {"<|role_sep|>"}},
    // Functionary 3.1.
    CallSyntax{.name = "functionary", .style = object, .open = "<function=", .close = "</function>", .name_end = ">"},
    // Llama 3.1 to 3.3: an object without marks.
    CallSyntax{
        .name = "llama", .style = object, .open = "{\"name\": \"", .name_end = "\", \"parameters\": ", .tail = "}"},
    // gpt-oss.
    CallSyntax{.name = "harmony", .style = channels},
};

}  // namespace

std::vector<std::string_view> CallSyntax::marks() const {
  std::vector<std::string_view> found;
  for (const std::string_view mark : {section_open, section_close, open, close, name_open, name_end, id_open, key_open,
                                      key_close, value_open, value_close, body_close}) {
    if (!mark.empty() && std::find(found.begin(), found.end(), mark) == found.end()) found.push_back(mark);
  }
  return found;
}

std::span<const CallSyntax> call_syntaxes() {
  return kSyntaxes;
}

const CallSyntax* find_call_syntax(std::string_view name) {
  const auto found =
      std::find_if(kSyntaxes.begin(), kSyntaxes.end(), [name](const CallSyntax& row) { return row.name == name; });
  return found == kSyntaxes.end() ? nullptr : &*found;
}

std::string call_syntax_names() {
  std::string names;
  for (const CallSyntax& row : kSyntaxes) {
    if (!names.empty()) names += ", ";
    names += row.name;
  }
  return names;
}

}  // namespace moracle
