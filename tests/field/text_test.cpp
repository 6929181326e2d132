// What lies beside the weights: tokens, templates, settings of generation, prompts.
#include <algorithm>

#include "field/field_fixture.h"

namespace moracle::test {
namespace {

using Ids = std::vector<std::int32_t>;
using Strings = std::vector<std::string>;
using testing::HasSubstr;
using testing::Not;

class FieldText : public FieldTest {
 protected:
  // Replaces a file of a case's folder, or removes it.
  static void write(const std::filesystem::path& folder, const std::string& name, const std::string& text) {
    std::filesystem::remove(folder / name);
    std::ofstream(folder / name, std::ios::binary) << text;
  }
  static void write_json(const std::filesystem::path& folder, const std::string& name, const Json& json) {
    write(folder, name, json.dump());
  }
  static void remove(const std::filesystem::path& folder, const std::string& name) {
    std::filesystem::remove(folder / name);
  }

  RunOutcome run(const std::filesystem::path& folder, const Strings& more, const RunOptions& options = {}) {
    Strings arguments = {"run", folder.string(), "--backend", "ref", "--threads", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return moracle(arguments, options);
  }
  // The JSON document; what standard error said goes to `err`.
  Json answer(const std::filesystem::path& folder, Strings more, const RunOptions& options = {}) {
    more.emplace_back("--json");
    const RunOutcome outcome = run(folder, more, options);
    err = outcome.err;
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const Json json = Json::parse(outcome.out, nullptr, false);
    return json.is_object() ? json : Json{{"prompt_ids", Ids{}}, {"ids", Ids{}}, {"text", ""}, {"finish_reason", ""}};
  }
  Ids prompt(const std::filesystem::path& folder, Strings more) {
    more.insert(more.end(), {"-n", "1"});
    return answer(folder, more).at("prompt_ids").get<Ids>();
  }
  Ids chat(const std::filesystem::path& folder, Strings more = {}) {
    more.insert(more.end(), {"--chat", "-p", "hi"});
    return prompt(folder, more);
  }

  // Logits after the ids, all of the last one.
  std::vector<float> last_logits(const std::filesystem::path& folder, const Ids& ids) {
    std::string list;
    for (const std::int32_t id : ids) list += (list.empty() ? "" : ",") + std::to_string(id);
    const auto out = folder / "out.safetensors";
    const RunOutcome outcome = moracle(
        {"logits", folder.string(), "--ids", list, "--backend", "ref", "--threads", "1", "--out", out.string()});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::vector<float> logits;
    if (const auto file = SafetensorsFile::open(out); file.ok()) {
      const TensorView& tensor = *file->find("logits");
      const std::size_t row = tensor.bytes.size() / ids.size();
      logits.resize(row / sizeof(float));
      std::memcpy(logits.data(), tensor.bytes.data() + tensor.bytes.size() - row, row);
    }
    remove(folder, "out.safetensors");
    return logits;
  }

  // Ids of "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n" in the base's vocabulary.
  const Ids kHi = {257, 117, 115, 101, 114, 10, 104, 105, 258, 10, 257, 97, 115, 115, 105, 115, 116, 97, 110, 116, 10};
  std::string err;
};

TEST_F(FieldText, AddedTokenOnlyInTheConfig) {
  const auto folder = model("03-added-token-only-in-config");
  EXPECT_EQ(prompt(folder, {"-p", "a<|im_end|>b"}), (Ids{97, 258, 98}));
  EXPECT_EQ(chat(folder), kHi);
}

TEST_F(FieldText, AddedTokenInAnyOtherPublishedPlace) {
  const auto folder = model("03-added-token-only-in-config");
  const Json token = {{"content", "<|im_end|>"}};
  const std::initializer_list<std::pair<const char*, Json>> places = {
      {"tokenizer_config.json", {{"additional_special_tokens", {"<|im_end|>"}}}},
      {"tokenizer_config.json", {{"extra_special_tokens", {"<|im_end|>"}}}},
      {"tokenizer_config.json", {{"extra_special_tokens", {{"end", "<|im_end|>"}}}}},
      {"tokenizer_config.json", {{"model_specific_special_tokens", {{"end", "<|im_end|>"}}}}},
      {"tokenizer_config.json", {{"eos_token", "<|im_end|>"}}},
      {"tokenizer_config.json", {{"eos_token", token}}},
      {"tokenizer_config.json", {{"turn_token", "<|im_end|>"}}},
      {"special_tokens_map.json", {{"eos_token", token}}},
      {"special_tokens_map.json", {{"additional_special_tokens", {"<|im_end|>"}}}},
      {"added_tokens.json", {{"<|im_end|>", 258}}}};
  for (const auto& [name, content] : places) {
    write_json(folder, "tokenizer_config.json", Json::object());
    write_json(folder, name, content);
    EXPECT_EQ(prompt(folder, {"-p", "a<|im_end|>b"}), (Ids{97, 258, 98})) << name << " " << content.dump();
    EXPECT_THAT(err, Not(HasSubstr("warning"))) << name << " " << content.dump();
    remove(folder, name);
  }
}

TEST_F(FieldText, StripFlagsOfDeclaredTokens) {
  const auto folder = model("03-added-token-only-in-config");
  const auto with = [&](const char* flag) {
    Json token = {{"content", "<|im_end|>"}, {"special", true}};
    token[flag] = true;
    write_json(folder, "tokenizer_config.json", Json{{"added_tokens_decoder", {{"258", token}}}});
    return prompt(folder, {"-p", "a  <|im_end|>  b<|im_end|>"});
  };
  EXPECT_EQ(with("lstrip"), (Ids{97, 258, 32, 32, 98, 258}));
  EXPECT_EQ(with("rstrip"), (Ids{97, 32, 32, 258, 98, 258}));
  EXPECT_EQ(with("single_word").size(), 17U) << "the second is within a word";
  write_json(folder, "tokenizer_config.json", Json{{"eos_token", "<|im_end|>"}, {"split_special_tokens", true}});
  EXPECT_EQ(prompt(folder, {"-p", "<|im_end|>"}).size(), 10U);
}

TEST_F(FieldText, TemplateGuardsBlocksByNone) {
  EXPECT_EQ(chat(model("04-template-tools-none")), kHi);
}

// Every step by the definition: repetition over prompt and answer, the others over the answer.
TEST_F(FieldText, PenaltiesOfFileAndOptions) {
  const auto folder = model("05-repetition-penalty");
  struct Penalties {
    float repetition, presence, frequency;
  };
  const auto by_hand = [&](const Penalties& of, const Ids& before) {
    Ids ids = before;
    for (int step = 0; step < 6; ++step) {
      std::vector<float> logits = last_logits(folder, ids);
      for (std::size_t id = 0; id < logits.size(); ++id) {
        const auto answered = std::count(ids.begin() + std::ssize(before), ids.end(), static_cast<std::int32_t>(id));
        const bool seen = std::count(ids.begin(), ids.end(), static_cast<std::int32_t>(id)) > 0;
        if (seen) logits[id] = logits[id] > 0 ? logits[id] / of.repetition : logits[id] * of.repetition;
        logits[id] -= static_cast<float>(answered) * of.frequency + (answered > 0 ? of.presence : 0.0F);
      }
      ids.push_back(static_cast<std::int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    }
    ids.erase(ids.begin(), ids.begin() + std::ssize(before));
    return ids;
  };
  const auto generated = [&](Strings more) {
    more.insert(more.end(), {"-p", "hi", "-n", "6", "--temperature", "0", "--ignore-eos"});
    return answer(folder, more).at("ids").get<Ids>();
  };
  const Ids plain = by_hand({1, 0, 0}, {104, 105});
  EXPECT_EQ(generated({"--repetition-penalty", "1"}), plain);
  EXPECT_EQ(generated({}), by_hand({5, 0, 0}, {104, 105}));
  for (const char* file : {"0.2", "0.05"}) {
    write(folder, "generation_config.json", std::string(R"({"repetition_penalty": )") + file + "}");
    EXPECT_EQ(generated({}), by_hand({std::stof(file), 0, 0}, {104, 105}));
    EXPECT_NE(generated({}), plain) << "a penalty that rewards what was seen changes the answer";
  }
  EXPECT_EQ(generated({"--repeat-penalty", "1"}), plain) << "the option wins over the file";
  EXPECT_EQ(generated({"--repetition-penalty", "1", "--presence-penalty", "-2", "--frequency-penalty", "-0.5"}),
            by_hand({1, -2, -0.5F}, {104, 105}));
  EXPECT_EQ(generated({"--repetition-penalty", "0.6", "--presence-penalty", "0.3"}),
            by_hand({0.6F, 0.3F, 0}, {104, 105}));
}

TEST_F(FieldText, SamplingKeysThatAreNotAppliedAreNamed) {
  const auto folder = model("05-repetition-penalty");
  write(folder, "generation_config.json",
        R"({"do_sample": true, "temperature": 0.7, "typical_p": 0.9, "num_beams": 3, "no_repeat_ngram_size": 2})");
  prompt(folder, {"-p", "hi"});
  for (const char* key : {"typical_p 0.9", "num_beams 3", "no_repeat_ngram_size 2"}) EXPECT_THAT(err, HasSubstr(key));
  EXPECT_EQ(err.find("not applied"), err.rfind("not applied")) << "one warning: " << err;
  prompt(folder, {"-p", "hi", "--temperature", "0"});
  EXPECT_THAT(err, Not(HasSubstr("typical_p")));
  EXPECT_THAT(err, HasSubstr("num_beams 3"));
}

TEST_F(FieldText, KimisTiktokenVocabulary) {
  const auto folder = model("15-kimi-tiktoken-only");
  EXPECT_EQ(prompt(folder, {"-p", "ab"}), (Ids{97, 98}));
  EXPECT_EQ(chat(folder),
            (Ids{259, 117, 115, 101, 114, 273, 104, 105, 258, 260, 97, 115, 115, 105, 115, 116, 97, 110, 116, 273}));
  EXPECT_EQ(prompt(folder, {"-p", "<|reserved_token_261|>[EOT]"}), (Ids{261, 265}));
  EXPECT_EQ(last_logits(folder, {1, 2}).size(), 512U);
  remove(folder, "tiktoken.model");
  EXPECT_EQ(last_logits(folder, {1, 2}).size(), 512U) << "logits needs no tokenizer";
  EXPECT_THAT(run(folder, {"-p", "ab"}).err, HasSubstr("tokenizer.json or tiktoken.model"));
}

TEST_F(FieldText, TemplateInChatTemplateJson) {
  const auto folder = model("18-chat-template-json");
  remove(folder, "chat_template.jinja");  // the base's
  EXPECT_EQ(chat(folder), kHi);
  write(folder, "tokenizer_config.json", R"({"chat_template": "config"})");
  EXPECT_EQ(chat(folder), (Ids{99, 111, 110, 102, 105, 103}));
  write(folder, "chat_template.jinja", "file");
  EXPECT_EQ(chat(folder), (Ids{102, 105, 108, 101}));
}

TEST_F(FieldText, SettingsThatMeanOffAndIdsThatCannotBeMade) {
  const auto folder = model("19-generation-config-top-k-minus-1");
  for (const Strings& more :
       {Strings{}, Strings{"--top-k", "5", "--temperature", "0.5"}, Strings{"--temperature", "0", "--top-k", "5"}}) {
    Strings arguments = {"-p", "hi"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(prompt(folder, arguments), (Ids{104, 105}));
    EXPECT_THAT(err, Not(HasSubstr("warning")));
  }
  EXPECT_FALSE(last_logits(folder, {1, 2}).empty());
}

TEST_F(FieldText, AWrongSettingConcernsWhoNeedsIt) {
  const auto folder = model("19-generation-config-top-k-minus-1");
  write(folder, "generation_config.json",
        R"({"do_sample": true, "temperature": 0.7, "top_p": "much", "eos_token_id": 256})");
  const RunOutcome needed = run(folder, {"-p", "hi", "-n", "1"});
  EXPECT_EQ(needed.code, 1);
  EXPECT_THAT(needed.err, HasSubstr("/top_p"));
  for (const Strings& more : {Strings{"--top-p", "0.5"}, Strings{"--temperature", "0"}}) {
    Strings arguments = {"-p", "hi", "-n", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const RunOutcome outcome = run(folder, arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("warning"));
    EXPECT_THAT(outcome.err, HasSubstr("/top_p"));
  }
  for (const char* text : {R"({"top_k": {}})", "[]", "{", R"({"eos_token_id": "x"})"}) {
    write(folder, "generation_config.json", text);
    EXPECT_FALSE(last_logits(folder, {1, 2}).empty()) << text;
    write(folder, "text", "some text");
    const RunOutcome scored =
        moracle({"eval", folder.string(), "--text", (folder / "text").string(), "--threads", "1"});
    EXPECT_EQ(scored.code, 0) << text;
    EXPECT_THAT(scored.err, Not(HasSubstr("--temperature"))) << "eval has no such option";
  }
  for (const char* text : {"[]", "{", "not JSON", ""}) {
    write(folder, "generation_config.json", text);
    const RunOutcome refused = run(folder, {"-p", "hi", "-n", "1"});
    EXPECT_EQ(refused.code, 1) << text;
    EXPECT_THAT(refused.err, HasSubstr("generation_config.json")) << text;
    EXPECT_THAT(refused.err, HasSubstr("go without it: --temperature 0")) << text;
    EXPECT_EQ(run(folder, {"-p", "hi", "-n", "1", "--temperature", "0"}).code, 0) << text;
  }
}

TEST_F(FieldText, PromptThroughAPipe) {
  const auto folder = model("00-base");
  const RunOptions piped{.input = "hi\n"};
  for (const Strings& more : {Strings{}, Strings{"-p", "-"}, Strings{"-f", "-"}}) {
    Strings arguments = {"-n", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    EXPECT_EQ(answer(folder, arguments, piped).at("prompt_ids"), (Ids{104, 105}));
  }
  EXPECT_EQ(answer(folder, {"-n", "1", "--chat"}, piped).at("prompt_ids"), kHi);
  const RunOutcome nothing = run(folder, {"-n", "1"});
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("standard input"));
}

TEST_F(FieldText, SystemPromptAndTemplateVariables) {
  const auto folder = model("24-template-variables");
  const RunOutcome help = moracle({"run", "--help"});
  EXPECT_THAT(help.out, HasSubstr("--system"));
  EXPECT_THAT(help.out, HasSubstr("--template-arg"));
  Ids off = kHi;
  for (const char c : std::string("<off>")) off.push_back(c);
  EXPECT_EQ(chat(folder, {"--template-arg", "enable_thinking=false"}), off);
  EXPECT_EQ(chat(folder, {"--template-arg", "enable_thinking=true"}), kHi);
  Ids with_system = {257};
  for (const char c : std::string("system\nS")) with_system.push_back(c);
  with_system.insert(with_system.end(), {258, 10});
  with_system.insert(with_system.end(), kHi.begin(), kHi.end());
  EXPECT_EQ(chat(folder, {"--system", "S"}), with_system);
  EXPECT_EQ(prompt(folder, {"--system", "S", "-p", "hi"}), with_system) << "it asks for the template";
  EXPECT_THAT(err, Not(HasSubstr("warning")));
  prompt(folder, {"--template-arg", "enable_thinkin=false", "-p", "hi"});
  EXPECT_THAT(err, HasSubstr("does not use the variable enable_thinkin"));
  const auto deaf = model("24-template-variables");
  write(deaf, "chat_template.jinja", std::string("{{ messages[-1].content }}"));
  prompt(deaf, {"--system", "S", "-p", "hi"});
  EXPECT_THAT(err, HasSubstr("does not show the system prompt"));
  for (const char* wrong : {"enable_thinking", "=1", "effort=high", "x={"}) {
    const RunOutcome outcome = run(folder, {"--template-arg", wrong, "-p", "hi"});
    EXPECT_EQ(outcome.code, 2) << wrong;
    EXPECT_THAT(outcome.err, HasSubstr("NAME=JSON")) << wrong;
  }
}

TEST_F(FieldText, Tools) {
  const auto folder = model("24-template-variables");
  write(folder, "chat_template.jinja", std::string("{{ tools | tojson }}{{ x }}"));
  write(folder, "tools", std::string(R"([{"type": "function", "function": {"name": "f", "parameters": {"b": 1}}}])"));
  const Json json = answer(folder, {"--tools", (folder / "tools").string(), "--tool-format", "hermes", "--template-arg",
                                    "x={\"b\": 1, \"a\": [2]}", "-p", "hi", "-n", "1"});
  std::string text;
  for (const std::int32_t id : json.at("prompt_ids").get<Ids>()) text.push_back(static_cast<char>(id));
  EXPECT_EQ(text, R"([{"type": "function", "function": {"name": "f", "parameters": {"b": 1}}}]{'b': 1, 'a': [2]})")
      << "keys keep their order";
  write(folder, "tools", "{}");
  const RunOutcome outcome = run(folder, {"--tools", (folder / "tools").string(), "-p", "hi"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("a list of tools"));
}

// Without a template; also where the weights are damaged, what small files and the command line show comes first.
TEST_F(FieldText, LateChecks) {
  const auto folder = model("27-late-checks");
  remove(folder, "chat_template.jinja");  // the base's
  const auto expect_checks = [&](const char* state) {
    SCOPED_TRACE(state);
    const std::initializer_list<std::pair<Strings, const char*>> mistakes = {
        {{"--chat", "-p", "x"}, "template.missing"},
        {{"--system", "s", "-p", "x"}, "template.missing"},
        {{"-p", "a\xff"}, "text.utf8"},
        {{"-p", std::string(3000, 'x')}, "model.context"},
        {{"-p", "abc", "--context", "2"}, "model.context"},
        {{"-p", "abc", "--context", "4096"}, "2048"},
        {{"-p", "abc", "--tools", "/nowhere"}, "/nowhere"},
        {{"-f", "/nowhere"}, "/nowhere"},
        {{"-p", ""}, "prompt.empty"}};
    for (const auto& [arguments, part] : mistakes) {
      const RunOutcome outcome = run(folder, arguments);
      EXPECT_NE(outcome.code, 0) << part;
      EXPECT_THAT(outcome.err, HasSubstr(part));
    }
    EXPECT_THAT(moracle({"logits", folder.string(), "--ids", "1,272", "--out", "x"}).err, HasSubstr("model.token"));
    write(folder, "text", "a\xff");
    EXPECT_THAT(moracle({"eval", folder.string(), "--text", (folder / "text").string()}).err, HasSubstr("text.utf8"));
    EXPECT_THAT(moracle({"eval", folder.string(), "--text", (folder / "chat_template.jinja").string()}).err,
                HasSubstr("chat_template.jinja"));
  };
  expect_checks("whole");
  std::filesystem::remove(folder / "model.safetensors");
  write(folder, "model.safetensors", "cut");
  expect_checks("cut");
  std::filesystem::remove(folder / "model.safetensors");
  expect_checks("missing");
}

TEST_F(FieldText, TokensThatTheModelLacksAreRefusedFirst) {
  const auto folder = model("27-late-checks");
  Json tokens = Json::array();  // the vocabulary of 272 has 259 in tokenizer.json
  for (int i = 1; i <= 14; ++i) tokens.push_back("<" + std::to_string(i) + ">");
  write(folder, "tokenizer_config.json", Json{{"additional_special_tokens", tokens}}.dump());
  remove(folder, "model.safetensors");
  const RunOutcome outcome = run(folder, {"-p", "x<14>"});
  EXPECT_EQ(outcome.code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("<14>"));
  EXPECT_THAT(outcome.err, HasSubstr("model.token"));
}

TEST_F(FieldText, EndTokenThatOnlyTheTokenizerNames) {
  const auto folder = model("00-base");
  Json config = Json::parse(std::ifstream(folder / "config.json"));
  config.erase("eos_token_id");
  write_json(folder, "config.json", config);
  write_json(folder, "generation_config.json", Json::object());
  write_json(folder, "tokenizer_config.json", Json::object());
  const Json endless = answer(folder, {"-p", "hi", "-n", "4"});
  EXPECT_THAT(err, HasSubstr("end token"));
  ASSERT_EQ(endless.at("ids").size(), 4U);
  EXPECT_EQ(endless.at("finish_reason"), "length");
  // The third token of the answer, as the vocabulary spells it.
  const auto third = endless.at("ids")[2].get<std::int32_t>();
  const Json vocabulary = Json::parse(std::ifstream(folder / "tokenizer.json")).at("model").at("vocab");
  for (const auto& [text, id] : vocabulary.items()) {
    if (id == third) write_json(folder, "tokenizer_config.json", Json{{"eos_token", text}});
  }
  const Json ended = answer(folder, {"-p", "hi", "-n", "4"});
  EXPECT_THAT(err, Not(HasSubstr("end token")));
  EXPECT_EQ(ended.at("ids").size(), 3U);
  EXPECT_EQ(ended.at("finish_reason"), "stop");
  EXPECT_EQ(answer(folder, {"-p", "hi", "-n", "4", "--ignore-eos"}).at("ids"), endless.at("ids"));
}

TEST_F(FieldText, StopTextsAndTheContextEndAnAnswer) {
  const auto folder = model("00-base");
  const Strings arguments = {"-p", "hi", "-n", "60", "--temperature", "0", "--ignore-eos"};
  const auto text = answer(folder, arguments).at("text").get<std::string>();
  const auto place = static_cast<std::size_t>(
      std::find_if(text.begin() + 1, text.end(), [](char c) { return c > ' ' && c < 127; }) - text.begin());
  ASSERT_LT(place, text.size()) << text;
  Strings with_stop = arguments;
  with_stop.insert(with_stop.end(), {"--stop", "nowhere in it", "--stop", text.substr(place, 1)});
  const Json stopped = answer(folder, with_stop);
  EXPECT_EQ(stopped.at("text"), text.substr(0, place));
  EXPECT_EQ(stopped.at("finish_reason"), "stop");
  EXPECT_LT(stopped.at("ids").size(), 60U);
  const Json full = answer(folder, {"-p", "hi", "-n", "60", "--ignore-eos", "--context", "5"});
  EXPECT_EQ(full.at("ids").size(), 3U) << "beside two tokens of prompt";
  EXPECT_EQ(full.at("finish_reason"), "length");
}

TEST_F(FieldText, TheFileBoundsAnAnswer) {
  const auto folder = model("00-base");
  write(folder, "generation_config.json", R"({"eos_token_id": 256, "max_new_tokens": 3})");
  EXPECT_EQ(answer(folder, {"-p", "hi"}).at("ids").size(), 3U);
  EXPECT_EQ(answer(folder, {"-p", "hi", "-n", "5"}).at("ids").size(), 5U);
  write(folder, "generation_config.json", R"({"eos_token_id": 256, "max_length": 6})");
  EXPECT_EQ(answer(folder, {"-p", "hi"}).at("ids").size(), 4U);
}

}  // namespace
}  // namespace moracle::test
