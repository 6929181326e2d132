// A reply is what a model writes: any text gives events, soon, whose calls have JSON as arguments, and the same ones
// however the text is cut. The input is a byte that picks the syntax, one of flags, and the text; bytes 0 cut it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/json.h"
#include "fuzz_input.h"
#include "text/reply/reply_reader.h"
#include "text/unicode.h"

namespace {

using namespace moracle;  // NOLINT(google-build-using-namespace): a program of one file

struct Reply {
  std::string text, reasoning;
  std::vector<CallStartEvent> starts;
  std::vector<std::string> arguments;
  bool in_call = false;
  bool operator==(const Reply&) const = default;
};

Reply read(ReplyReader reader, const std::vector<std::string_view>& pieces, bool cut) {
  Reply reply;
  const ReplyReader::Emit emit = [&](ReplyEvent&& event) {
    if (auto* const text = std::get_if<TextEvent>(&event)) reply.text += text->text;
    if (auto* const reasoning = std::get_if<ReasoningEvent>(&event)) reply.reasoning += reasoning->text;
    if (auto* const start = std::get_if<CallStartEvent>(&event)) {
      fuzz::require(std::cmp_equal(start->index, reply.starts.size()) && !start->name.empty() && !start->id.empty());
      reply.starts.push_back(*start);
      reply.arguments.emplace_back();
    }
    if (auto* const piece = std::get_if<CallArgumentsEvent>(&event)) {
      fuzz::require(std::cmp_equal(piece->index + 1, reply.starts.size()) && !piece->text.empty());
      reply.arguments.back() += piece->text;
    }
  };
  for (const std::string_view piece : pieces) reader.text(piece, emit);
  reader.finish(emit, cut);
  reply.in_call = reader.in_call();
  const std::size_t whole = reply.arguments.size() - (reply.in_call && !reply.arguments.empty() ? 1 : 0);
  for (std::size_t i = 0; i < whole; ++i) fuzz::require(Json::accept(reply.arguments[i]));
  return reply;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 2) return 0;
  const auto rows = call_syntaxes();
  const CallSyntax& row = rows[data[0] % rows.size()];
  const std::uint8_t flags = data[1];
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  if (unicode::find_invalid_utf8(input)) return 0;  // tokens are decoded to characters before
  std::vector<std::string_view> pieces;
  std::string joined;
  for (std::size_t at = 0; at <= input.size();) {
    const std::size_t end = std::min(input.find('\0', at), input.size());
    pieces.push_back(input.substr(at, end - at));
    joined += pieces.back();
    at = end + 1;
  }
  const Json tools =
      Json::array({{{"function",
                     {{"name", "f"},
                      {"parameters",
                       {{"properties", {{"a", {{"type", "integer"}}}, {"b", {{"type", {"object", "string"}}}}}}}}}}}});
  ReplyFormat format;
  format.read_calls(row);
  const ReplyReader reader(format, (flags & 1U) != 0 ? "<think>" : "",
                           {.tools = ToolSchemas(tools), .max_calls = (flags & 2U) != 0 ? 1 : 0});
  const bool cut = (flags & 4U) != 0;
  fuzz::require(read(reader, pieces, cut) == read(reader, {joined}, cut));
  return 0;
}
