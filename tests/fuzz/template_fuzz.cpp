// A chat template and its context are hostile: any bytes give a text or an error, soon. The input is the template; from
// a byte 0 on it is the context as JSON.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "fuzz_input.h"
#include "text/template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using moracle::Json;
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const std::size_t split = input.find('\0');
  Json context = {{"messages",
                   {{{"role", "user"}, {"content", "Zürich 🌦"}},
                    {{"role", "assistant"}, {"content", Json::array({1, 2.5, nullptr})}}}},
                  {"tools", Json::array({{{"name", "f"}, {"parameters", {{"x", true}}}}})},
                  {"add_generation_prompt", true},
                  {"n", -7},
                  {"s", "Hello, \"W\" \n"}};
  if (split != std::string_view::npos) {
    auto parsed = moracle::parse_json(input.substr(split + 1), "fuzz");
    if (parsed.ok()) context = std::move(*parsed);
  }
  const moracle::TemplateLimits limits{.steps = 20'000, .depth = 60, .output_bytes = 1U << 16U};
  const auto made = moracle::ChatTemplate::parse(std::string(input.substr(0, split)), "fuzz", limits);
  if (!made.ok()) {
    moracle::fuzz::check_error(made.error());
    return 0;
  }
  const auto text = made->render(context);
  if (!text.ok()) moracle::fuzz::check_error(text.error());
  return 0;
}
