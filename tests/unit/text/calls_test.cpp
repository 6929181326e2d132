// Calls of tools: each syntax read back from what a template renders, however it is cut, and what models get wrong.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/json/document.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"
#include "text/reply/json_cursor.h"
#include "text/reply/learn_reply.h"
#include "text/reply/reply_reader.h"
#include "text/unicode.h"

namespace moracle {
namespace {

struct Call {
  std::string id, name, arguments;
  bool operator==(const Call&) const = default;
};
struct Reply {
  std::string reasoning, answer;
  std::vector<Call> calls{};
  bool in_call = false;
  bool operator==(const Reply&) const = default;
};
std::ostream& operator<<(std::ostream& out, const Reply& reply) {
  out << "reasoning '" << reply.reasoning << "', answer '" << reply.answer << "'";
  for (const Call& call : reply.calls) out << ", call " << call.id << " " << call.name << " " << call.arguments;
  return out << (reply.in_call ? ", in a call" : "");
}

void add(const ReplyEvent& event, Reply& reply) {
  std::visit(EventVisitor{[&](const TextEvent& one) { reply.answer += one.text; },
                          [&](const ReasoningEvent& one) { reply.reasoning += one.text; },
                          [&](const CallStartEvent& one) {
                            EXPECT_EQ(one.index, std::ssize(reply.calls));
                            reply.calls.push_back({one.id, one.name, ""});
                          },
                          [&](const CallArgumentsEvent& one) {
                            ASSERT_EQ(one.index + 1, std::ssize(reply.calls));
                            EXPECT_FALSE(one.text.empty());
                            reply.calls.back().arguments += one.text;
                          },
                          [](const EndEvent&) { ADD_FAILURE() << "a reader ends no reply"; }},
             event);
}

const Json kTools = Json::parse(R"([
  {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {
    "city": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"}, "parts": {"type": "array"},
    "ratio": {"type": "number"}, "empty": {"type": "string"}, "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "far": {"$ref": "#/$defs/loop"}}, "$defs": {"loop": {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "integer"}]}}}}},
  {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}])");

struct Reading {
  ReplyFormat format{};
  std::string prompt{};
  std::int64_t max_calls = 0;
  bool cut = false;
};

ReplyFormat format_of(std::string_view syntax) {
  ReplyFormat format;
  format.read_calls(*find_call_syntax(syntax));
  return format;
}

// Pieces, and marks that come as tokens.
using Pieces = std::vector<std::pair<std::string, bool>>;

Reply read(const Reading& setup, const Pieces& pieces) {
  static const ToolSchemas tools(kTools);
  ReplyReader reader(setup.format, setup.prompt, {.tools = tools, .id_seed = 1, .max_calls = setup.max_calls});
  Reply reply;
  const ReplyReader::Emit emit = [&](ReplyEvent&& event) { add(event, reply); };
  for (const auto& [piece, is_mark] : pieces) {
    if (is_mark) {
      reader.mark(piece, emit);
    } else {
      reader.text(piece, emit);
    }
  }
  reader.finish(emit, setup.cut);
  reply.in_call = reader.in_call();
  return reply;
}

std::vector<std::string> characters_of(const std::string& text) {
  std::vector<std::string> characters;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0U) != 0x80U) characters.emplace_back();
    characters.back() += text[i];
  }
  return characters;
}

// The reply whole, character by character, and cut at every place: all must give the same.
Reply read_cut(const Reading& setup, const std::string& text) {
  const Reply whole = read(setup, {{text, false}});
  Pieces letters;
  for (const std::string& character : characters_of(text)) letters.emplace_back(character, false);
  EXPECT_EQ(read(setup, letters), whole) << "by characters: " << text;
  std::string head;
  for (const std::string& character : characters_of(text)) {
    head += character;
    EXPECT_EQ(read(setup, {{head, false}, {text.substr(head.size()), false}}), whole) << "cut behind: " << head;
  }
  return whole;
}

Reply read_cut(std::string_view syntax, const std::string& text) {
  return read_cut({.format = format_of(syntax)}, text);
}

// --- JSON ---

TEST(JsonCursor, WhatItGaveOutCanBecomeAWholeValueAtEachByte) {
  for (const std::string& text :
       {std::string(R"( {"a" : [1, -2.5e+3, true, null, "x\n\"y\\"], "b":{"c":{}}, "d":"\ud83d\ude00"} )"),
        std::string("[[], {}, [0, 0.5, 1E5], \"\xE5\xA4\xA9\", false]")}) {
    JsonCursor cursor;
    std::string given;
    for (const char c : text) {
      if (cursor.complete()) break;
      ASSERT_TRUE(cursor.push(c, given)) << given;
      JsonCursor other = cursor;
      std::string closed = given;
      other.close(closed);
      if (closed.find_first_not_of(' ') == std::string::npos) continue;
      const bool half = unicode::find_invalid_utf8(closed).has_value();
      EXPECT_TRUE(half || Json::accept(closed)) << closed;
    }
    EXPECT_TRUE(cursor.complete());
    EXPECT_EQ(Json::parse(given), Json::parse(text));
  }
}

TEST(JsonCursor, RefusesWhatIsNoJson) {
  const auto refused = [](std::string_view text) {
    JsonCursor cursor;
    std::string given;
    for (const char c : text) {
      if (!cursor.push(c, given)) return true;
    }
    return false;
  };
  for (const char* const text :
       {"1",    "\"a\"", "x",    "{a",    "{\"a\" 1", "{\"a\":1,}", "{\"a\":1]", "[1}",          "[1,]",  "[01",
        "[1.]", "[-a",   "[1e]", "[tru ", "[True",    "{,",         "[,",        "[\"a\" \"b\"", "[1] 2", "{\"a\"}"})
    EXPECT_TRUE(refused(text)) << text;
  EXPECT_TRUE(refused(std::string(65, '['))) << "deeper than parsers go";
  EXPECT_FALSE(refused(std::string(64, '[')));
}

TEST(JsonCursor, StringsThatModelsGetWrongAreMended) {
  const auto given = [](std::string_view text) {
    JsonCursor cursor;
    std::string out;
    for (const char c : text) EXPECT_TRUE(cursor.push(c, out)) << out;
    return out;
  };
  EXPECT_EQ(given("[\"a\nb\t\x01\"]"), R"(["a\nb\t\u0001"])");
  EXPECT_EQ(given(R"(["\d+\."])"), R"(["\\d+\\."])");
  EXPECT_EQ(given(R"(["\ud83d!\udc00\ud83d\n"])"), R"(["\ufffd!\ufffd\ufffd\n"])");
  EXPECT_EQ(given(R"(["\u12"])"), R"(["\\u12"])");
}

// --- every syntax, by its template ---

ChatTemplates template_of(const std::filesystem::path& file) {
  const test::TemporaryFolder folder;
  std::filesystem::copy_file(file, folder.path() / "chat_template.jinja");
  return ChatTemplates::load(folder.path(), {});
}

const OrderedJson kArguments = OrderedJson::parse(
    R"({"city": "a \"q\" <x> {y}\n'z' \\ 天 [1] </b>", "days": 3, "exact": true, "parts": ["a", {"b": null}], "ratio": -0.5,
        "empty": ""})");
const std::string kThought = "First think.\nThen <b>act</b>.";
const std::string kAnswer = "Let me look, at 天.";

struct Rendered {
  std::string prompt, reply;
  std::vector<Call> calls;
};

Rendered render(const ChatTemplates& templates, const LearnedReply& learned) {
  Rendered rendered;
  OrderedJson calls = OrderedJson::array();
  for (const auto& [name, arguments] :
       {std::pair<std::string, OrderedJson>("look_up", kArguments), {"now", OrderedJson::object()}}) {
    const std::string number = std::to_string(calls.size());
    const std::string id =
        learned.calls->ids == CallIds::given ? "functions." + name + ":" + number : "abcdefgh" + number;
    rendered.calls.push_back({id, name, arguments.dump()});
    const OrderedJson shown = learned.text_arguments ? OrderedJson(arguments.dump()) : arguments;
    calls.push_back({{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", shown}}}});
  }
  ChatRequest request{.messages = OrderedJson::array({{{"role", "user"}, {"content", "hi"}}}),
                      .tools = OrderedJson::array({OrderedJson::object()})};
  rendered.prompt = *templates.render(request);
  request.messages.push_back(
      {{"role", "assistant"}, {"content", kAnswer}, {"reasoning_content", kThought}, {"tool_calls", calls}});
  request.add_generation_prompt = false;
  const auto text = templates.render(request);
  EXPECT_TRUE(text.ok() && text->starts_with(rendered.prompt));
  rendered.reply = text->substr(rendered.prompt.size());
  for (const std::string_view end : {"<|end|>", "<|call|>"}) {
    if (rendered.reply.ends_with(end)) rendered.reply.resize(rendered.reply.size() - end.size());
  }
  return rendered;
}

// Marks of one token, as vocabularies have them, told from the text around them.
Pieces with_tokens(const std::string& text, const std::vector<std::string_view>& marks) {
  Pieces pieces;
  std::string plain;
  const auto flush = [&] {
    if (!plain.empty()) pieces.emplace_back(std::exchange(plain, {}), false);
  };
  for (std::size_t at = 0; at < text.size();) {
    std::string_view found;
    for (const std::string_view mark : marks) {
      const bool is_token = (mark.front() == '<' && mark.back() == '>') || mark.front() == '[';
      if (is_token && text.compare(at, mark.size(), mark) == 0) found = mark;
    }
    if (found.empty()) {
      plain += text[at++];
      continue;
    }
    flush();
    pieces.emplace_back(found, true);
    at += found.size();
  }
  flush();
  return pieces;
}

TEST(ReplyCalls, EverySyntaxIsReadBackFromItsTemplate) {
  for (const CallSyntax& syntax : call_syntaxes()) {
    SCOPED_TRACE(syntax.name);
    const ChatTemplates templates =
        template_of(test::source_dir() / "tests/data/reply" / (std::string(syntax.name) + ".jinja"));
    const LearnedReply learned = learn_reply(templates);
    ASSERT_NE(learned.calls, nullptr);
    EXPECT_EQ(learned.calls->name, syntax.name);
    ReplyFormat format;
    format.read_calls(*learned.calls);
    if (learned.reasoning) format.read_reasoning(*learned.reasoning);
    const Rendered rendered = render(templates, learned);
    const Reading setup{.format = format, .prompt = rendered.prompt};
    const Reply reply = read_cut(setup, rendered.reply);
    EXPECT_EQ(reply.reasoning, kThought);
    EXPECT_EQ(reply.answer, kAnswer);
    EXPECT_FALSE(reply.in_call);
    ASSERT_EQ(reply.calls.size(), rendered.calls.size()) << rendered.reply;
    for (std::size_t i = 0; i < reply.calls.size(); ++i) {
      EXPECT_EQ(reply.calls[i].name, rendered.calls[i].name);
      EXPECT_EQ(Json::parse(reply.calls[i].arguments), Json::parse(rendered.calls[i].arguments));
      if (syntax.ids == CallIds::given) {
        EXPECT_EQ(reply.calls[i].id, rendered.calls[i].id);
      } else {
        EXPECT_EQ(reply.calls[i].id.size(), syntax.ids == CallIds::nine ? 9U : 29U);
      }
    }
    std::vector<std::string_view> marks = learned.calls->marks();
    if (learned.reasoning) marks.insert(marks.end(), {learned.reasoning->open, learned.reasoning->close});
    const Reply by_tokens = read(setup, with_tokens(rendered.reply, marks));
    EXPECT_EQ(by_tokens, reply);
  }
}

TEST(ReplyCalls, ACutReplySaysThatItIsInACall) {
  for (const CallSyntax& syntax : call_syntaxes()) {
    SCOPED_TRACE(syntax.name);
    const ChatTemplates templates =
        template_of(test::source_dir() / "tests/data/reply" / (std::string(syntax.name) + ".jinja"));
    const LearnedReply learned = learn_reply(templates);
    Reading setup{.format = format_of(syntax.name), .cut = true};
    if (learned.reasoning) setup.format.read_reasoning(*learned.reasoning);
    const Rendered rendered = render(templates, learned);
    setup.prompt = rendered.prompt;
    const std::size_t name = rendered.reply.find("look_up");
    const std::size_t second = rendered.reply.find("now", name);
    std::string head = rendered.reply.substr(0, name);
    for (const std::string& character : characters_of(rendered.reply.substr(name, second - name))) {
      head += character;
      const Reply cut = read(setup, {{head, false}});
      ASSERT_LE(cut.calls.size(), 1U) << head;
      EXPECT_EQ(cut.answer, kAnswer) << head;
      const bool whole = !cut.calls.empty() && Json::accept(cut.calls[0].arguments);
      // Behind the first call's end the second may have begun, too.
      if (!whole) {
        EXPECT_TRUE(cut.in_call) << head;
      }
      // The same, ended by the model: what began is closed.
      const Reply closed = read({.format = setup.format, .prompt = setup.prompt}, {{head, false}});
      EXPECT_FALSE(closed.in_call);
      for (const Call& call : closed.calls) EXPECT_TRUE(Json::accept(call.arguments)) << call.arguments;
    }
  }
}

// --- what models and users write beside ---

TEST(ReplyCalls, QuotedMarksInProseStayProse) {
  for (const char* const text :
       {"The tag <tool_call> begins a call.", "<tool_call>", "<tool_call> {", "a <tool_call>\nfoo</tool_call> b",
        "<tool_call>[1]</tool_call>", "<tool_call></tool_call>", "<tool_call>{\"a\": 1}</tool_call>", "</tool_call>"}) {
    const Reply reply = read_cut("hermes", text);
    EXPECT_EQ(reply, (Reply{.reasoning = "", .answer = text})) << text;
  }
  for (const char* const text : {"<tool_call>x", "write <function=f and", "<tool_call>\n<parameter=a>", "if a <b> c"})
    EXPECT_EQ(read_cut("qwen-xml", text).answer, text);
  for (const char* const text : {"<tool_call> is a tag", "<tool_call>", "use <tool_call>f(x)</tool_call>"})
    EXPECT_EQ(read_cut("glm", text).answer, text);
  // A mark that is a token counts as the token alone.
  const Json added = {{"id", 1},         {"content", "<tool_call>"}, {"single_word", false}, {"lstrip", false},
                      {"rstrip", false}, {"normalized", false},      {"special", false}};
  const auto tokenizer =
      Tokenizer::from_json({{"version", "1.0"},
                            {"added_tokens", Json::array({added})},
                            {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}}}, {"merges", Json::array()}}}},
                           "tokenizer.json");
  ASSERT_TRUE(tokenizer.ok());
  Reading setup;
  setup.format.read_calls(*find_call_syntax("hermes"), &*tokenizer);
  EXPECT_EQ(setup.format.mark_of(1), "<tool_call>");
  const std::string call = R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)";
  EXPECT_EQ(read_cut(setup, call).answer, call);
  const Reply told = read(setup, {{"so: ", false}, {"<tool_call>", true}, {call.substr(11), false}});
  EXPECT_EQ(told.answer, "so:");
  EXPECT_EQ(told.calls.size(), 1U);
}

TEST(ReplyCalls, NothingFollowsTheLastCallThatMayBe) {
  const Reply reply = read_cut({.format = format_of("gemma"), .max_calls = 1}, "<|tool_call>call:now{}<|\"|>x");
  EXPECT_EQ(reply.answer, "") << "a mark that was found before the call ended";
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(reply.calls[0].arguments, "{}");
}

TEST(ReplyCalls, MarksInStringsAreContent) {
  const std::string words = "</tool_call><tool_call></parameter></think>";
  const Reply reply =
      read_cut("hermes", R"(<tool_call>{"name": "now", "arguments": {"a": ")" + words + R"("}}</tool_call>)");
  ASSERT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(Json::parse(reply.calls[0].arguments)["a"], words);
  EXPECT_EQ(reply.answer, "");
  // As tokens, too.
  const Reply by_tokens = read({.format = format_of("hermes")}, {{"<tool_call>", true},
                                                                 {R"({"name": "now", "arguments": {"a": ")", false},
                                                                 {"</tool_call>", true},
                                                                 {"\"}}", false},
                                                                 {"</tool_call>", true}});
  ASSERT_EQ(by_tokens.calls.size(), 1U);
  EXPECT_EQ(by_tokens.calls[0].arguments, R"({"a": "</tool_call>"})");
}

TEST(ReplyCalls, ObjectsOfOtherShapesAreTaken) {
  const auto calls = [](const std::string& object) {
    return read_cut("hermes", "<tool_call>\n" + object + "\n</tool_call>");
  };
  const auto arguments = [&](const std::string& object) {
    const Reply reply = calls(object);
    EXPECT_EQ(reply.calls.size(), 1U) << object;
    EXPECT_EQ(reply.answer, "") << object;
    return reply.calls.empty() ? "" : reply.calls[0].arguments;
  };
  EXPECT_EQ(arguments(R"({"arguments": {"a": 1}, "name": "now"})"), R"({"a": 1})");
  EXPECT_EQ(arguments(R"({"name": "now"})"), "{}");
  EXPECT_EQ(arguments(R"({"name": "now", "arguments": null})"), "{}");
  EXPECT_EQ(arguments(R"({"name": "now", "parameters": {"a": {"name": "b"}}})"), R"({"a": {"name": "b"}})");
  EXPECT_EQ(arguments(R"({"name": "now", "arguments": "{\"a\": 1}"})"), R"({"a":1})");
  EXPECT_EQ(arguments(R"({"id": 5, "name": "now", "arguments": {"a": 1}, "arguments": {"b": 1}, "n": 1})"),
            R"({"a": 1})");
  EXPECT_EQ(arguments(R"({"name": "now", "arguments": {"a": 1}}})"), R"({"a": 1})") << "a bracket too many";
  EXPECT_EQ(arguments(R"({"name": "now", "arguments": {"a": 1})"), R"({"a": 1})") << "one too few";
  const Reply broken = calls(R"({"name": "now", "arguments": {"a": x}})");
  ASSERT_EQ(broken.calls.size(), 1U);
  EXPECT_EQ(broken.calls[0].arguments, R"({"a": null})");
  EXPECT_EQ(broken.answer, "x}}\n</tool_call>");
  EXPECT_EQ(calls(R"([{"name": "now"}, {"name": "look_up", "arguments": {}}])").calls.size(), 2U);
}

TEST(ReplyCalls, ElementsAreTypedByTheSchema) {
  const auto value = [](const std::string& key, const std::string& text) {
    const Reply reply = read_cut("qwen-xml", "<tool_call>\n<function=look_up>\n<parameter=" + key + ">\n" + text +
                                                 "\n</parameter>\n</function>\n</tool_call>");
    EXPECT_EQ(reply.calls.size(), 1U);
    return reply.calls.empty() ? Json() : Json::parse(reply.calls[0].arguments)[key];
  };
  EXPECT_EQ(value("city", "5"), "5");
  EXPECT_EQ(value("city", "\n a \n"), "\n a \n");
  EXPECT_EQ(value("days", "5"), 5);
  EXPECT_EQ(value("days", "five"), "five");
  EXPECT_EQ(value("days", "5.5"), "5.5");
  EXPECT_EQ(value("ratio", "5.5"), 5.5);
  EXPECT_EQ(value("ratio", "NaN"), "NaN");
  EXPECT_EQ(value("exact", "True"), true);
  EXPECT_EQ(value("parts", "[1, {\"a\": \"\n\"}]"), "[1, {\"a\": \"\n\"}]") << "a raw line break is no JSON";
  EXPECT_EQ(value("parts", "[1, {\"a\": 2}]"), Json::parse("[1, {\"a\": 2}]"));
  EXPECT_EQ(value("maybe", "null"), nullptr);
  EXPECT_EQ(value("maybe", "nullify"), "nullify");
  EXPECT_EQ(value("far", "7"), 7) << "references that go round end";
  EXPECT_EQ(value("unknown", "7"), "7");
}

TEST(ReplyCalls, ElementsThatModelsGetWrong) {
  const auto calls = [](const std::string& text) { return read_cut("qwen-xml", text); };
  const Reply bare = calls("Now.\n<function=now>\n</function>");
  EXPECT_EQ(bare.answer, "Now.");
  ASSERT_EQ(bare.calls.size(), 1U);
  EXPECT_EQ(bare.calls[0].arguments, "{}");
  const Reply twice = calls(
      "<tool_call><function=look_up><parameter=city>a</parameter><parameter=city>b</parameter></function></tool_call>");
  ASSERT_EQ(twice.calls.size(), 1U);
  EXPECT_EQ(twice.calls[0].arguments, R"({"city": "a"})");
  const Reply prose = calls("<tool_call>\n<function=now>\noh, no</function></tool_call>");
  ASSERT_EQ(prose.calls.size(), 1U);
  EXPECT_EQ(prose.calls[0].arguments, "{}");
  const Reply open =
      read({.format = format_of("qwen-xml")},
           {{"<tool_call>", true}, {"<function=look_up><parameter=city>a", false}, {"</tool_call>", true}});
  ASSERT_EQ(open.calls.size(), 1U);
  EXPECT_EQ(open.calls[0].arguments, R"({"city": "a"})");
}

TEST(ReplyCalls, TextAroundCallsIsKept) {
  const Reply reply = read_cut("hermes",
                               "<think>why</think>\n\nFirst.\n<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n"
                               "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n\nLast.\n");
  EXPECT_EQ(reply.reasoning, "why");
  EXPECT_EQ(reply.answer, "First.\n\nLast.\n");
  ASSERT_EQ(reply.calls.size(), 2U);
  EXPECT_NE(reply.calls[0].id, reply.calls[1].id);
  EXPECT_TRUE(reply.calls[0].id.starts_with("call_"));
}

TEST(ReplyCalls, AMarkThatIsATokenEndsReasoning) {
  const Reading setup{.format = format_of("hermes"), .prompt = "<think>"};
  const Reply reply = read(
      setup, {{"so I call", false}, {"<tool_call>", true}, {"{\"name\": \"now\"}", false}, {"</tool_call>", true}});
  EXPECT_EQ(reply.reasoning, "so I call");
  EXPECT_EQ(reply.calls.size(), 1U);
  EXPECT_EQ(read_cut(setup, "I may write <tool_call>{\"name\": \"now\"}</tool_call></think>Done").answer, "Done");
}

TEST(ReplyCalls, NothingFollowsTheMostCalls) {
  const std::string one = "<tool_call>{\"name\": \"now\"}</tool_call>";
  const Reply reply = read_cut({.format = format_of("hermes"), .max_calls = 1}, "a" + one + one + "b");
  EXPECT_EQ(reply.answer, "a");
  EXPECT_EQ(reply.calls.size(), 1U);
}

TEST(ReplyCalls, HarmonyHeadersNeverEndAReply) {
  const std::string turn = "<|start|>user<|message|>hi<|end|><|start|>assistant";
  const auto reply = [&](const std::string& text) {
    return read_cut({.format = format_of("harmony"), .prompt = turn}, text);
  };
  for (const char* const header :
       {"<|channel|>commentary to=functions.now <|constrain|>json<|message|>",
        " to=functions.now<|channel|>commentary json<|message|>", "<|channel|>analysis to=functions.now<|message|>",
        "<|channel|>commentary to=now code<|message|>",
        "<|channel|>to=functions.now<|constrain|><|channel|>commentary<|message|>"}) {
    const Reply told = reply(std::string(header) + "{\"a\": 1}<|call|>");
    ASSERT_EQ(told.calls.size(), 1U) << header;
    EXPECT_EQ(told.calls[0].name, "now");
    EXPECT_EQ(told.calls[0].arguments, "{\"a\": 1}");
    EXPECT_EQ(told.answer, "") << header;
  }
  EXPECT_EQ(reply("<|channel|>commentary to=browser.search<|message|>{}<|call|>").answer, "to=browser.search {}");
  const Reply code = reply("<|channel|>commentary to=functions.now<|message|>print(1)<|call|>");
  EXPECT_EQ(code.answer, "print(1)");
  ASSERT_EQ(code.calls.size(), 1U);
  EXPECT_EQ(code.calls[0].arguments, "{}");
  const Reply both = reply(
      "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary to=functions.now"
      "<|message|>{}<|call|><|start|>assistant to=functions.now<|channel|>commentary<|message|>{}");
  EXPECT_EQ(both.reasoning, "hm");
  EXPECT_EQ(both.calls.size(), 2U);
}

TEST(LearnReply, TemplatesWithoutToolsTellNothing) {
  for (const char* const file : {"chatml", "alternating_like", "thinking_like", "visible_text_like"})
    EXPECT_EQ(
        learn_reply(template_of(test::source_dir() / "tests/data/template" / (std::string(file) + ".jinja"))).calls,
        nullptr)
        << file;
  EXPECT_EQ(learn_reply(ChatTemplates()).calls, nullptr);
}

// Objects without marks, as of Llama: JSON of another shape is an answer.
TEST(ReplyCalls, ObjectsWithoutMarksAreCallsByTheirMembers) {
  const LearnedReply learned =
      learn_reply(template_of(test::source_dir() / "tests/data/template" / "headers_like.jinja"));
  ASSERT_NE(learned.calls, nullptr);
  EXPECT_EQ(learned.calls->name, "llama");
  for (const char* const text :
       {R"({"name": "Ann", "age": 3})", R"({"name": "a b", "parameters": {}})", R"({"name")", R"([{"name": ""}])"})
    EXPECT_EQ(read_cut("llama", text), (Reply{.reasoning = "", .answer = text})) << text;
  const Reply two = read_cut("llama", R"({"name": "now", "parameters": {"a": [1]}}
{"name": "look_up", "parameters": {"city": "x"}})");
  ASSERT_EQ(two.calls.size(), 2U);
  EXPECT_EQ(two.calls[0].arguments, R"({"a": [1]})");
  EXPECT_EQ(two.calls[1].name, "look_up");
  EXPECT_EQ(two.answer, "");
}

TEST(ReplyFormat, WithoutCallsMarksAreText) {
  const std::string text = "<tool_call>\n{\"name\": \"now\"}\n</tool_call>";
  EXPECT_EQ(read_cut(Reading{}, text).answer, text);
}

}  // namespace
}  // namespace moracle
