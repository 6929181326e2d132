// Calls of tools under masks: whatever tokens are chosen among those that may come, the reader finds calls of the
// request's tools, whose arguments meet their schemas.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json/document.h"
#include "text/constrain/calls/call_grammar.h"
#include "text/constrain/model_outputs.h"
#include "text/constrain/schema/schema_reader.h"
#include "text/constrain/token_mask.h"
#include "text/reply/harmony.h"
#include "text/reply/reply_reader.h"

namespace moracle {
namespace {

constexpr std::string_view kEndMark = "<|ends|>";

// All bytes, tokens of several characters, and, with `marks`, marks as tokens of their own.
Tokenizer tokenizer_with(const std::vector<std::string>& marks) {
  Json vocabulary = Json::object();
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 8> name{};
    std::snprintf(name.data(), name.size(), "<0x%02X>", byte);
    vocabulary[name.data()] = byte;
  }
  int next = 256;
  for (const char* const text :
       {">",          ">\n",   "\">",        "\">\n",   "</",        "tool", "_call",     "_calls", "calls>", "call>\n",
        "{\"",        "\": ",  "\"}",        "}\n",     "\", \"",    "name", "arguments", "param",  "eter>",  "eter>\n",
        "true",       "false", "functions.", " [",      "[{",        "}]",   "\n\n",      "天",     "json",   "to=",
        "commentary", "<tool", "l>x",        "_call>x", "nothing <", "0",    "12"}) {
    if (!vocabulary.contains(text)) vocabulary[text] = next++;
  }
  Json added = Json::array();
  for (const std::string& mark : marks) {
    added.push_back({{"id", next++},
                     {"content", mark},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", mark == kEndMark}});
  }
  auto tokenizer = Tokenizer::from_json(
      {{"version", "1.0"},
       {"added_tokens", added},
       {"decoder", {{"type", "Sequence"}, {"decoders", Json::array({{{"type", "ByteFallback"}}, {{"type", "Fuse"}}})}}},
       {"model", {{"type", "BPE"}, {"byte_fallback", true}, {"vocab", vocabulary}, {"merges", Json::array()}}}},
      "tokenizer.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  return *std::move(tokenizer);
}

OrderedJson look_up_schema() {
  return OrderedJson::parse(R"({"type": "object", "properties": {
    "city": {"type": "string"}, "unit": {"enum": ["metric", "<b>"]}, "days": {"type": "integer", "minimum": -3},
    "big": {"type": "integer"}, "exact": {"type": "boolean"}, "ratio": {"type": "number"},
    "maybe": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "either": {"type": ["string", "integer"]}, "low": {"anyOf": [{"type": "string"}, {"type": "integer", "maximum": 4}]},
    "code": {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, "short": {"type": "string", "minLength": 2, "maxLength": 4},
    "long": {"type": "string", "minLength": 3},
    "parts": {"type": "array", "items": {"$ref": "#/$defs/part"}, "maxItems": 2},
    "any": {}}, "required": ["city", "days", "maybe"], "additionalProperties": false,
    "$defs": {"part": {"type": "object", "properties": {"</b>": {"type": "string"}}, "required": ["</b>"],
                       "additionalProperties": false}}})");
}

CallRules rules_of() {
  CallRules rules;
  rules.tools.push_back({.name = "look_up", .parameters = look_up_schema()});
  rules.tools.push_back({.name = "look", .parameters = nullptr});
  return rules;
}

Json tools_of(const CallRules& rules) {
  Json tools = Json::array();
  for (const ToolForm& tool : rules.tools)
    tools.push_back({{"function", {{"name", tool.name}, {"parameters", Json(tool.parameters)}}}});
  return tools;
}

struct Variant {
  const CallSyntax* syntax = nullptr;
  bool tokens = false;  // marks are tokens
};

// A model's tokenizer, its format and masks.
struct Model {
  explicit Model(const Variant& variant) : tokenizer(tokenizer_with(marks_of(variant))) {
    format.read_reasoning({"<think>", "</think>"}, &tokenizer);
    format.read_calls(*variant.syntax, &tokenizer);
    outputs.emplace(tokenizer, ReplyFormat(), format, tokenizer.vocab_size());
    end = *tokenizer.token_to_id(kEndMark);
  }

  static std::vector<std::string> marks_of(const Variant& variant) {
    std::vector<std::string> marks = {std::string(kEndMark)};
    const CallSyntax& row = *variant.syntax;
    if (row.style == ArgumentStyle::channels) {
      marks.insert(marks.end(), harmony::kMarks.begin(), harmony::kMarks.end());
    } else if (variant.tokens) {
      for (const std::string_view mark : row.marks()) {
        if ((mark.front() == '<' || mark.front() == '[') && (mark.back() == '>' || mark.back() == ']') &&
            mark.find_first_of("=\" ") == std::string_view::npos && row.parts.front().empty())
          marks.emplace_back(mark);
      }
      for (const std::string_view part : row.parts) {
        if (!part.empty()) marks.emplace_back(part);
      }
      marks.emplace_back("<think>");
      marks.emplace_back("</think>");
    }
    return marks;
  }

  [[nodiscard]] std::vector<std::int32_t> ids_of(std::string_view text) const {
    return *tokenizer.encode(text, {.add_special_tokens = false});
  }

  Tokenizer tokenizer;
  ReplyFormat format;
  std::optional<ModelOutputs> outputs;
  std::int32_t end = 0;
};

std::vector<Variant> all_setups() {
  std::vector<Variant> setups;
  for (const CallSyntax& syntax : call_syntaxes()) {
    if (syntax.style != ArgumentStyle::channels) setups.push_back({&syntax, false});
    setups.push_back({&syntax, true});
  }
  return setups;
}

struct Reply {
  std::string text, shown;
  std::vector<std::pair<std::string, std::string>> calls;
  bool ended = false;    // by the end token
  bool in_call = false;  // the last call is cut
};

// One reply while tokens are chosen.
class Walk {
 public:
  Walk(const Model& model, const ConstraintSource& source, unsigned seed)
      : model_(model), constraint_(source.start({&model.end, 1})), random_(seed), words_(model.tokenizer.vocab_size()) {
    for (std::int32_t id = 0; id < model.tokenizer.vocab_size(); ++id) {
      const std::string text = text_of(id);
      const bool closes = text.find_first_of("\"}]<>\n,:") != std::string::npos;
      if (closes || !model.format.mark_of(id).empty() || id == model.end) closing_.push_back(id);
    }
  }

  [[nodiscard]] std::vector<std::int32_t> allowed() const {
    std::vector<std::uint32_t> mask(static_cast<std::size_t>(words_) / 32 + 1, ~std::uint32_t{0});
    if (!constraint_->allows_all()) constraint_->narrow(mask);
    std::vector<std::int32_t> ids;
    for (std::int32_t id = 0; id < words_; ++id) {
      if (in_mask(mask, id)) ids.push_back(id);
    }
    return ids;
  }

  void take(std::int32_t id) {
    const std::vector<std::int32_t> may = allowed();
    ASSERT_TRUE(std::find(may.begin(), may.end(), id) != may.end())
        << "not allowed: " << text_of(id) << " in " << shown_;
    force(id);
  }

  void force(std::int32_t id) {
    constraint_->advance(id);
    const std::string_view mark = model_.format.mark_of(id);
    shown_ += mark.empty() ? text_of(id) : std::string(mark);
    if (id == model_.end) {
      ended_ = true;
    } else if (mark.empty()) {
      pieces_.back().first += text_of(id);
    } else {
      pieces_.emplace_back(mark, true);
      pieces_.emplace_back("", false);
    }
  }

  // Chooses tokens until the reply ends, or `most` of them.
  void go_on(int most) {
    for (int i = 0; i < most && !ended_; ++i) {
      std::vector<std::int32_t> may = allowed();
      ASSERT_FALSE(may.empty()) << shown_;
      // Some marks are long: now and then one is begun, and spelled as far as it may be.
      if (wish_.empty() && random_() % 24 == 0) wish_ = closing_mark();
      if (!wish_.empty()) {
        const std::int32_t id = wish_.front();
        wish_.erase(wish_.begin());
        if (std::binary_search(may.begin(), may.end(), id)) {
          force(id);
          continue;
        }
        wish_.clear();
      }
      if (random_() % 3 == 0) {
        std::vector<std::int32_t> few;
        std::set_intersection(may.begin(), may.end(), closing_.begin(), closing_.end(), std::back_inserter(few));
        if (!few.empty()) may = std::move(few);
      }
      force(may[random_() % may.size()]);
    }
  }

  [[nodiscard]] Reply read(const CallRules& rules, std::string_view prompt) const {
    ReplyReader reader(model_.format, prompt, {.tools = ToolSchemas(tools_of(rules))});
    Reply reply{.text = "", .shown = shown_, .calls = {}, .ended = ended_};
    const ReplyReader::Emit emit = [&](ReplyEvent&& event) {
      if (auto* const start = std::get_if<CallStartEvent>(&event)) reply.calls.emplace_back(start->name, "");
      if (auto* const piece = std::get_if<CallArgumentsEvent>(&event)) reply.calls.back().second += piece->text;
      if (auto* const text = std::get_if<TextEvent>(&event)) reply.text += text->text;
    };
    for (const auto& [piece, is_mark] : pieces_) {
      if (is_mark) {
        reader.mark(piece, emit);
      } else {
        reader.text(piece, emit);
      }
    }
    reader.finish(emit, !ended_);
    reply.in_call = reader.in_call();
    return reply;
  }

  [[nodiscard]] const Constraint& constraint() const { return *constraint_; }

 private:
  [[nodiscard]] std::string text_of(std::int32_t id) const {
    if (const auto bytes = model_.tokenizer.bytes_of(id)) return *bytes;
    return std::string(model_.tokenizer.id_to_token(id).value_or(""));
  }

  [[nodiscard]] std::vector<std::int32_t> closing_mark() const {
    return model_.ids_of(model_.format.calls()->value_close);
  }

  const Model& model_;
  std::unique_ptr<Constraint> constraint_;
  std::mt19937 random_;
  std::int32_t words_;
  std::vector<std::int32_t> closing_;
  std::vector<std::int32_t> wish_;  // tokens to come, where they may
  std::vector<std::pair<std::string, bool>> pieces_ = {{"", false}};
  std::string shown_;
  bool ended_ = false;
};

void check_calls(const Reply& reply, const CallRules& rules) {
  const std::size_t whole = reply.calls.size() - (reply.in_call && !reply.calls.empty() ? 1 : 0);
  for (std::size_t i = 0; i < whole; ++i) {
    const auto& [name, text] = reply.calls[i];
    const auto tool = std::find_if(rules.tools.begin(), rules.tools.end(),
                                   [&wanted = name](const ToolForm& one) { return one.name == wanted; });
    ASSERT_NE(tool, rules.tools.end()) << name << " in " << reply.shown;
    const auto arguments = OrderedJson::parse(text, nullptr, false);
    ASSERT_TRUE(arguments.is_object()) << text << " in " << reply.shown;
    const OrderedJson schema = tool->parameters.is_null()
                                   ? OrderedJson{{"type", "object"}, {"additionalProperties", false}}
                                   : tool->parameters;
    auto reader = SchemaReader::open(schema);
    EXPECT_TRUE(*reader->holds({reader->root()}, arguments)) << text << " in " << reply.shown;
  }
}

class HeldCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!can_constrain()) GTEST_SKIP() << "built without xgrammar";
  }
  static constexpr unsigned kWalks = 12;
  static constexpr int kMostTokens = 3000;
};

std::string prompt_of(const Model& model) {
  return model.format.kind() == ReplyFormat::Kind::channels ? "<|start|>assistant" : "hi";
}

TEST_F(HeldCalls, ARequiredCallIsValidWhateverTokensAreChosen) {
  for (const Variant& variant : all_setups()) {
    Model model(variant);
    for (const bool single : {true, false}) {
      SCOPED_TRACE(std::string(variant.syntax->name) + (variant.tokens ? " by tokens" : " by text"));
      CallRules rules = rules_of();
      rules.must = true;
      rules.single = single;
      const std::string prompt = prompt_of(model);
      const auto held = model.outputs->hold_calls(rules, prompt);
      ASSERT_TRUE(held.ok()) << held.error().message();
      std::size_t ended = 0;
      for (unsigned seed = 0; seed < kWalks; ++seed) {
        Walk walk(model, **held, seed);
        walk.go_on(kMostTokens);
        const Reply reply = walk.read(rules, prompt);
        check_calls(reply, rules);
        if (!reply.ended) continue;
        ++ended;
        EXPECT_FALSE(reply.in_call) << reply.shown;
        EXPECT_EQ(reply.text, "") << reply.shown;
        EXPECT_GE(reply.calls.size(), 1U) << reply.shown;
        if (single) {
          EXPECT_EQ(reply.calls.size(), 1U) << reply.shown;
        }
        if (HasFailure()) return;
      }
      EXPECT_GE(ended, kWalks / 2) << "replies that came to their end";
    }
  }
}

// The marks from which a model may begin, in tokens.
std::vector<std::int32_t> opening_of(const Model& model, const Variant& variant) {
  const CallSyntax& row = *variant.syntax;
  return model.ids_of(row.section_open.empty() ? row.open : row.section_open);
}

TEST_F(HeldCalls, UnderAutoACallIsHeldFromItsMarkOn) {
  for (const Variant& variant : all_setups()) {
    if (variant.syntax->style == ArgumentStyle::channels) continue;
    Model model(variant);
    SCOPED_TRACE(std::string(variant.syntax->name) + (variant.tokens ? " by tokens" : " by text"));
    CallRules rules = rules_of();
    rules.single = true;
    const auto held = model.outputs->hold_calls(rules, "hi");
    ASSERT_TRUE(held.ok()) << held.error().message();
    for (unsigned seed = 0; seed < kWalks; ++seed) {
      Walk walk(model, **held, seed);
      for (const std::int32_t id : model.ids_of("So < I look")) walk.take(id);
      EXPECT_TRUE(walk.constraint().allows_all());
      for (const std::int32_t id : opening_of(model, variant)) walk.take(id);
      EXPECT_FALSE(walk.constraint().allows_all());
      walk.go_on(kMostTokens);
      const Reply reply = walk.read(rules, "hi");
      check_calls(reply, rules);
      if (!reply.ended) continue;
      EXPECT_FALSE(reply.in_call) << reply.shown;
      EXPECT_EQ(reply.calls.size(), 1U) << reply.shown;
      EXPECT_EQ(reply.text, "So < I look") << reply.shown;
      if (HasFailure()) return;
    }
  }
}

// Tokens that may stand anywhere: what the reader takes for a call is one.
TEST_F(HeldCalls, UnderAutoNoChoiceOfTokensGivesABrokenCall) {
  for (const Variant& variant : all_setups()) {
    Model model(variant);
    SCOPED_TRACE(std::string(variant.syntax->name) + (variant.tokens ? " by tokens" : " by text"));
    const CallRules rules = rules_of();
    const std::string prompt = prompt_of(model);
    const auto held = model.outputs->hold_calls(rules, prompt);
    ASSERT_TRUE(held.ok()) << held.error().message();
    for (unsigned seed = 0; seed < kWalks; ++seed) {
      Walk walk(model, **held, seed);
      walk.go_on(400);
      check_calls(walk.read(rules, prompt), rules);
      if (HasFailure()) return;
    }
  }
}

TEST_F(HeldCalls, AMarkAcrossTokensIsCaughtWhereATokenWouldRunOver) {
  Model model({find_call_syntax("hermes"), false});
  const auto held = model.outputs->hold_calls(rules_of(), "hi");
  ASSERT_TRUE(held.ok());
  Walk walk(model, **held, 1);
  const auto id = [&](std::string_view text) { return *model.tokenizer.token_to_id(text); };
  walk.take(id("nothing <"));
  EXPECT_TRUE(walk.constraint().allows_all()) << "no token completes the mark";
  walk.take(id("tool"));
  const auto may = walk.allowed();
  const auto has = [&](std::string_view text) { return std::find(may.begin(), may.end(), id(text)) != may.end(); };
  EXPECT_TRUE(has("_call"));
  EXPECT_TRUE(has("_calls"));
  EXPECT_TRUE(has("true"));
  EXPECT_FALSE(has("_call>x"));
  walk.take(id("_call"));
  walk.take(id(">\n"));
  EXPECT_EQ(walk.allowed().size(), 2U) << "a brace, alone or with a quote";
}

TEST_F(HeldCalls, ACallEndsTheReplyWhereItIsTheOnlyOne) {
  Model model({find_call_syntax("hermes"), true});
  CallRules rules = rules_of();
  rules.single = true;
  const auto held = model.outputs->hold_calls(rules, "hi");
  ASSERT_TRUE(held.ok());
  Walk walk(model, **held, 1);
  for (const std::int32_t id : model.ids_of("<tool_call>\n{\"name\": \"look\", \"arguments\": {}}\n</tool_call>"))
    walk.take(id);
  EXPECT_TRUE(walk.constraint().must_end());
  EXPECT_EQ(walk.allowed(), std::vector<std::int32_t>{model.end});
}

TEST_F(HeldCalls, ARequiredCallLeavesReasoningFree) {
  Model model({find_call_syntax("hermes"), true});
  CallRules rules = rules_of();
  rules.must = true;
  const auto held = model.outputs->hold_calls(rules, "hi");
  ASSERT_TRUE(held.ok());
  Walk walk(model, **held, 1);
  for (const std::int32_t id : model.ids_of("<think>I {could} call")) {
    walk.take(id);
    if (HasFatalFailure()) return;
  }
  const auto may = walk.allowed();
  EXPECT_FALSE(std::binary_search(may.begin(), may.end(), model.end)) << "no call was made";
  EXPECT_FALSE(std::binary_search(may.begin(), may.end(), *model.tokenizer.token_to_id("<tool_call>")));
  for (const std::int32_t id : model.ids_of("</think>\n\n<tool_call>")) walk.take(id);
}

TEST_F(HeldCalls, BesideAFormatTheReplyIsACallOrTheAnswer) {
  for (const char* const name : {"hermes", "qwen-xml", "deepseek-v3.2", "harmony"}) {
    SCOPED_TRACE(name);
    Model model({find_call_syntax(name), true});
    CallRules rules = rules_of();
    rules.answer = OutputFormat{.kind = OutputFormat::Kind::json_schema,
                                .schema = OrderedJson::parse(R"({"type": "array", "items": {"const": 7}})")};
    const std::string prompt = prompt_of(model);
    const auto held = model.outputs->hold_calls(rules, prompt);
    ASSERT_TRUE(held.ok()) << held.error().message();
    bool answered = false;
    bool called = false;
    for (unsigned seed = 0; seed < 30; ++seed) {
      Walk walk(model, **held, seed);
      walk.go_on(kMostTokens);
      const Reply reply = walk.read(rules, prompt);
      check_calls(reply, rules);
      if (!reply.ended) continue;
      called = called || !reply.calls.empty();
      if (!reply.calls.empty()) continue;
      answered = true;
      EXPECT_TRUE(Json::parse(reply.text, nullptr, false).is_array()) << reply.shown;
    }
    EXPECT_TRUE(answered);
    EXPECT_TRUE(called);
  }
}

TEST_F(HeldCalls, WhatCannotBeHeldIsLeftOutUnlessTheToolIsStrict) {
  const OrderedJson schema = OrderedJson::parse(
      R"({"type": "object", "properties": {"x": {"type": "integer", "not": {"const": 3}}}, "required": ["x"],
          "dependentRequired": {"x": ["y"]}, "additionalProperties": false})");
  for (const char* const name : {"hermes", "qwen-xml", "kimi"}) {
    SCOPED_TRACE(name);
    Model model({find_call_syntax(name), true});
    CallRules rules{.tools = {{.name = "f", .parameters = schema, .place = "tools[0].function.parameters"}},
                    .must = true};
    const auto held = model.outputs->hold_calls(rules, "hi");
    ASSERT_TRUE(held.ok()) << held.error().message();
    for (unsigned seed = 0; seed < kWalks; ++seed) {
      Walk walk(model, **held, seed);
      walk.go_on(kMostTokens);
      const Reply reply = walk.read(rules, "hi");
      for (const auto& [tool, arguments] : reply.calls) {
        if (!reply.in_call) {
          EXPECT_TRUE(Json::parse(arguments)["x"].is_number()) << reply.shown;
        }
      }
    }
    rules.tools[0].strict = true;
    const auto refused = model.outputs->hold_calls(rules, "hi");
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, "schema.unsupported");
    EXPECT_TRUE(refused.error().where.starts_with("tools[0].function.parameters/")) << refused.error().where;
  }
}

}  // namespace
}  // namespace moracle
