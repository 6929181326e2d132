#include "text/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "support/test_data.h"
#include "text/unicode.h"

namespace moracle {
namespace {

using Ids = std::vector<std::int32_t>;

// A tokenizer of a few characters; the members given replace the defaults.
Json small(const Json& members = Json::object(), const Json& model_members = Json::object()) {
  Json json = {{"version", "1.0"},
               {"model",
                {{"type", "BPE"},
                 {"vocab", {{"a", 0}, {"b", 1}, {"c", 2}, {"ab", 3}, {"abc", 4}, {" ", 5}}},
                 {"merges", {"a b", "ab c"}}}}};
  if (!members.is_null()) json.update(members);  // {} is null
  json["model"].update(model_members);
  return json;
}

Result<Tokenizer> read(const Json& json) {
  return Tokenizer::from_json(json, "tokenizer.json");
}

// The ids of a text, or {-1} when reading or encoding fails.
Ids encode(const Json& json, std::string_view text, EncodeOptions options = {}) {
  const auto tokenizer = read(json);
  if (!tokenizer.ok()) return {-1};
  auto ids = tokenizer->encode(text, options);
  return ids.ok() ? *std::move(ids) : Ids{-1};
}

// "code at place", or "" when it reads.
std::string refusal(const Json& json) {
  const auto tokenizer = read(json);
  return tokenizer.ok() ? "" : tokenizer.error().code + " at " + tokenizer.error().where;
}

Json split(const std::string& pattern) {
  return {{"pre_tokenizer",
           {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}}}};
}

Json added(const std::string& content, bool special = false) {
  return {{"id", 6},         {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

TEST(Tokenizer, MergesByRankThenFromTheLeft) {
  EXPECT_EQ(encode(small(), "abcabab"), (Ids{4, 3, 3}));
  EXPECT_EQ(encode(small(), "bca"), (Ids{1, 2, 0}));
  EXPECT_EQ(encode(small(), ""), Ids{});
}

TEST(Tokenizer, CharactersOutsideTheVocabulary) {
  EXPECT_EQ(encode(small(), "azb"), (Ids{3}));  // they vanish before the merges
  EXPECT_EQ(encode(small({}, {{"unk_token", "c"}}), "zzb"), (Ids{2, 2, 1}));
  EXPECT_EQ(encode(small({}, {{"unk_token", "c"}, {"fuse_unk", true}}), "zzb"), (Ids{2, 1}));
  const auto tokenizer = read(small({}, {{"unk_token", "missing"}}));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->encode("ab")->size(), 1U);
  EXPECT_EQ(tokenizer->encode("z").error().code, "tokenizer.unknown_token");
}

TEST(Tokenizer, LooksUpTokens) {
  const auto tokenizer = read(small({{"added_tokens", {added("<x>", true)}}}));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->token_to_id("<x>"), 6);
  EXPECT_EQ(tokenizer->token_to_id("abc"), 4);
  EXPECT_EQ(tokenizer->token_to_id("nope"), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(6), "<x>");
  EXPECT_EQ(tokenizer->id_to_token(-1), std::nullopt);
  EXPECT_EQ(tokenizer->id_to_token(7), std::nullopt);
}

TEST(Tokenizer, CopiesAndStreamsOutliveTheOriginal) {
  auto first = read(small());
  ASSERT_TRUE(first.ok());
  const Tokenizer copy = *first;
  DetokenizerStream stream(*first);
  first = Error{.code = "gone"};
  EXPECT_EQ(*copy.encode("abc"), Ids{4});
  EXPECT_EQ(*stream.push(4), "abc");
}

TEST(Tokenizer, NamesTheByteOfInvalidUtf8) {
  const auto tokenizer = read(small());
  ASSERT_TRUE(tokenizer.ok());
  using namespace std::string_literals;
  const std::pair<std::string, std::string> cases[] = {
      {"a\xFF"s, "byte 1"},         {"ab\xC3"s, "byte 2"},           {"\xC0\x80"s, "byte 0"},
      {"a\xED\xA0\x80"s, "byte 1"}, {"\xF4\x90\x80\x80"s, "byte 0"}, {"\xE2\x82z"s, "byte 0"},
      {"\x80"s, "byte 0"},          {"abc\xF0\x9F\x98"s, "byte 3"}};
  for (const auto& [text, where] : cases) {
    const auto ids = tokenizer->encode(text);
    ASSERT_FALSE(ids.ok()) << text;
    EXPECT_EQ(ids.error().code, "text.utf8");
    EXPECT_EQ(ids.error().where, where) << text;
  }
  EXPECT_TRUE(tokenizer->encode("a\0b"s).ok());
}

TEST(Tokenizer, RefusesKeysThatAreNone) {
  EXPECT_EQ(refusal(small({{"pre_tokenizers", nullptr}})), "tokenizer.unsupported at /pre_tokenizers");
}

TEST(Tokenizer, RefusesSwitchesOfAByteLevelThatAreNone) {
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}};
  for (const std::string part : {"pre_tokenizer", "post_processor", "decoder"}) {
    EXPECT_EQ(refusal(small({{part, byte_level}})), "");  // use_regex may be left out
    for (const std::string key : {"add_prefix_space", "trim_offsets", "use_regex"}) {
      Json changed = byte_level;
      for (const bool value : {false, true}) {
        changed[key] = value;
        EXPECT_EQ(refusal(small({{part, changed}})), "") << part << " " << key;
      }
      changed[key] = nullptr;
      EXPECT_EQ(refusal(small({{part, changed}})), "config.missing at /" + part + "/" + key);
      for (const Json& value : {Json(1), Json("true"), Json::array(), Json::object()}) {
        changed[key] = value;
        EXPECT_EQ(refusal(small({{part, changed}})), "config.type at /" + part + "/" + key) << value.dump();
      }
    }
  }
}

TEST(Tokenizer, RefusesSettingsOfAMetaspaceThatAreNone) {
  const Json metaspace = {{"type", "Metaspace"}, {"replacement", "_"}};
  const std::tuple<std::string, Json, std::string> cases[] = {
      {"prepend_scheme", "first", ""},
      {"prepend_scheme", "newer", "tokenizer.unsupported"},
      {"prepend_scheme", nullptr, "config.missing"},
      {"prepend_scheme", true, "config.type"},
      {"split", false, ""},
      {"split", nullptr, ""},
      {"split", 1, "config.type"},
      {"add_prefix_space", true, ""},
      {"add_prefix_space", nullptr, ""},
      {"add_prefix_space", false, "tokenizer.unsupported"},  // the scheme says otherwise
      {"add_prefix_space", "no", "config.type"},
  };
  for (const std::string part : {"pre_tokenizer", "decoder"}) {
    for (const auto& [key, value, code] : cases) {
      Json changed = metaspace;
      changed[key] = value;
      const std::string wanted = code.empty() ? "" : code + " at /" + part + "/" + key;
      EXPECT_EQ(refusal(small({{part, changed}})), wanted) << value.dump();
    }
    Json agreed = metaspace;
    agreed.update({{"prepend_scheme", "never"}, {"add_prefix_space", false}});
    EXPECT_EQ(refusal(small({{part, agreed}})), "");
  }
}

TEST(Tokenizer, RefusesAPunctuationWithoutABehavior) {
  Json punctuation = {{"type", "Punctuation"}};
  EXPECT_EQ(refusal(small({{"pre_tokenizer", punctuation}})), "");
  punctuation["behavior"] = nullptr;
  EXPECT_EQ(refusal(small({{"pre_tokenizer", punctuation}})), "config.missing at /pre_tokenizer/behavior");
}

TEST(Tokenizer, RefusesPartsOfATemplateThatAreNone) {
  const auto part = [](const char* kind, const char* id) { return Json{{kind, {{"id", id}, {"type_id", 0}}}}; };
  const Json all = {{"type", "TemplateProcessing"},
                    {"single", {part("SpecialToken", "a"), part("Sequence", "A")}},
                    {"pair", {part("Sequence", "A"), part("Sequence", "B"), part("SpecialToken", "unknown")}},
                    {"special_tokens", {{"a", {{"id", "a"}, {"ids", {0}}, {"tokens", {"a"}}}}}}};
  EXPECT_EQ(encode(small({{"post_processor", all}}), "b"), (Ids{0, 1}));
  const std::tuple<std::string, Json, std::string> cases[] = {
      {"/pair", nullptr, "tokenizer.unsupported at /pair"},
      {"/pair", "$A $B", "tokenizer.unsupported at /pair"},
      {"/pair/1", "$B", "tokenizer.unsupported at /pair/1"},
      {"/pair/1/Sequence/id", "C", "tokenizer.unsupported at /pair/1/Sequence/id"},
      {"/pair/1/Sequence/id", nullptr, "config.missing at /pair/1/Sequence/id"},
      {"/pair/1/Sequence/type_id", -1, "config.range at /pair/1/Sequence/type_id"},
      {"/pair/2/SpecialToken/id", 1, "config.type at /pair/2/SpecialToken/id"},
      {"/single", nullptr, "tokenizer.unsupported at /single"},
      {"/single/0/SpecialToken/id", "b", "tokenizer.unsupported at /single/0"},
      {"/single/0/SpecialToken/type_id", nullptr, "config.missing at /single/0/SpecialToken/type_id"},
      {"/single/1/Sequence/id", "B", "tokenizer.unsupported at /single/1"},
      {"/special_tokens", nullptr, "tokenizer.unsupported at /special_tokens"},
      {"/special_tokens", Json::array(), "tokenizer.unsupported at /special_tokens"},
      {"/special_tokens/unused", 3, "tokenizer.unsupported at /special_tokens/unused"},
      {"/special_tokens/a/id", nullptr, "config.missing at /special_tokens/a/id"},
      {"/special_tokens/a/ids/0", "a", "tokenizer.id at /special_tokens/a/ids"},
      {"/special_tokens/a/tokens", nullptr, "tokenizer.unsupported at /special_tokens/a/tokens"},
      {"/special_tokens/a/tokens/0", 1, "tokenizer.unsupported at /special_tokens/a/tokens"},
  };
  for (const auto& [place, value, wanted] : cases) {
    Json changed = all;
    changed[Json::json_pointer(place)] = value;
    std::string found = refusal(small({{"post_processor", changed}}));
    if (const auto at = found.find("/post_processor"); at != std::string::npos) found.erase(at, 15);
    EXPECT_EQ(found, wanted) << place;
  }
}

TEST(Tokenizer, RefusesFramesOfTokensWithoutNames) {
  for (const std::string type : {"BertProcessing", "RobertaProcessing"}) {
    Json frame = {{"type", type}, {"cls", {"a", 0}}, {"sep", {"b", 1}}};
    EXPECT_EQ(encode(small({{"post_processor", frame}}), "c"), (Ids{0, 2, 1}));
    frame["sep"][0] = nullptr;
    EXPECT_EQ(refusal(small({{"post_processor", frame}})), "tokenizer.unsupported at /post_processor/sep");
  }
}

TEST(Tokenizer, RefusesAddedTokensOfWhichTheNormalizerLeavesNothing) {
  const Json strip = {{"type", "Strip"}, {"strip_left", true}, {"strip_right", true}};
  Json token = added(" ");
  EXPECT_EQ(refusal(small({{"normalizer", strip}, {"added_tokens", {token}}})), "");  // found in the raw text
  token["normalized"] = true;
  EXPECT_EQ(refusal(small({{"added_tokens", {token}}})), "");
  EXPECT_EQ(refusal(small({{"normalizer", strip}, {"added_tokens", {token}}})),
            "tokenizer.unsupported at /added_tokens");
}

TEST(Tokenizer, RefusesBadIds) {
  for (const Json& id :
       {Json(-1), Json(std::int64_t{1} << 31), Json(std::int64_t{1} << 32), Json(1.5), Json("1"), Json(nullptr),
        Json(std::numeric_limits<std::uint64_t>::max()), Json(std::numeric_limits<std::int32_t>::max())}) {
    EXPECT_EQ(refusal(small({}, {{"vocab", {{"a", id}}}, {"merges", Json::array()}})), "tokenizer.id at /model/vocab/a")
        << id.dump();
    Json token = added("<x>");
    token["id"] = id;
    EXPECT_EQ(refusal(small({{"added_tokens", {token}}})), "tokenizer.id at /added_tokens/0/id") << id.dump();
  }
  Json without = added("<x>");
  without.erase("id");
  EXPECT_EQ(refusal(small({{"added_tokens", {without}}})), "tokenizer.id at /added_tokens/0/id");
  EXPECT_EQ(refusal(small({}, {{"vocab", {{"a", 0}, {"b", 0}}}, {"merges", Json::array()}})),
            "tokenizer.id at /model/vocab/b");
  EXPECT_EQ(refusal(small({}, {{"vocab", {{"a", 2147483646}}}, {"merges", Json::array()}})), "");
}

TEST(Tokenizer, RefusesBadMerges) {
  for (const Json& merge : {Json("a"), Json("a b c"), Json("a  b"), Json(3), Json("a z"), Json("b c"), Json("")}) {
    EXPECT_EQ(refusal(small({}, {{"merges", {"a b", merge}}})), "tokenizer.merge at /model/merges/1") << merge.dump();
  }
  for (const char* merge : {R"(["a"])", R"(["a", "b", "c"])", R"(["a", 1])", R"("a b")", R"(["z", "b"])", "null"}) {
    Json json = small();
    json["model"]["merges"] = Json::parse(std::string(R"([["a", "b"], )") + merge + "]");
    EXPECT_EQ(refusal(json), "tokenizer.merge at /model/merges/1") << merge;
  }
  EXPECT_EQ(refusal(small({}, {{"continuing_subword_prefix", "####"}})), "tokenizer.merge at /model/merges/0");
}

TEST(Tokenizer, MergesOfTheEmptyTokenEnd) {
  // "" + "a" = "a" again and again: a cycle of merges, which has nothing to merge as no symbol is empty.
  const Json model =
      Json::parse(R"({"vocab": {"": 0, "a": 1, "aa": 2}, "merges": [["", "a"], ["a", ""], ["a", "a"]]})");
  EXPECT_EQ(encode(small({}, model), "aaa"), (Ids{2, 1}));
}

TEST(Tokenizer, RefusesUnknownComponentsByTheirPlace) {
  const Json unknown = {{"type", "Precompiled"}, {"precompiled_charsmap", ""}};
  EXPECT_EQ(refusal(small({{"normalizer", unknown}})), "tokenizer.unsupported at /normalizer/type");
  EXPECT_EQ(refusal(small({{"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {unknown}}}}})),
            "tokenizer.unsupported at /pre_tokenizer/pretokenizers/0/type");
  EXPECT_EQ(refusal(small({{"post_processor", unknown}})), "tokenizer.unsupported at /post_processor/type");
  EXPECT_EQ(refusal(small({{"decoder", {{"type", "Sequence"}, {"decoders", {{{"type", "Fuse"}}, unknown}}}}})),
            "tokenizer.unsupported at /decoder/decoders/1/type");
  EXPECT_EQ(refusal(small({}, {{"type", "Unigram"}})), "tokenizer.unsupported at /model/type");
  EXPECT_EQ(refusal(small({}, {{"dropout", 0.1}})), "tokenizer.unsupported at /model/dropout");
  EXPECT_EQ(refusal(small({}, {{"dropout", nullptr}})), "");
  EXPECT_EQ(refusal(small({{"version", "2.0"}})), "tokenizer.version at /version");
  EXPECT_EQ(refusal(Json::array()), "config.type at ");
  EXPECT_EQ(refusal(small({{"normalizer", "NFC"}})), "tokenizer.unsupported at /normalizer");
  EXPECT_EQ(refusal(small({{"added_tokens", {added(std::string(5000, 'x'))}}})),
            "tokenizer.unsupported at /added_tokens/0/content");
}

TEST(Tokenizer, RefusesDeepSequences) {
  Json nested = {{"type", "Sequence"}, {"normalizers", Json::array()}};
  for (int i = 0; i < 1000; ++i) nested = {{"type", "Sequence"}, {"normalizers", {nested}}};
  EXPECT_EQ(refusal(small({{"normalizer", nested}})).substr(0, 21), "tokenizer.unsupported");
}

TEST(Tokenizer, RefusesPatternsItCannotExpress) {
  const std::string place = "tokenizer.unsupported at /pre_tokenizer/pattern/Regex";
  for (const char* pattern :
       {"(a)\\1",      "a\\K",    "\\G",      "\\X",         "(?(1)a)",      "(?~a)", "\\p{Nonsense}",
        "(",           ")",       "[a",       "*",           "(?i:\\p{Lu})", "\\xE9", "[z-a]",
        "[[:alpha:]]", "[\\d-z]", "a{99999}", "\\x{110000}", "\\x{d800}",    "\\",    "(?<n>",
        "\\p{L",       "(?s)a",   "(?<=a+)b", "\\g<1>",      "\\C"}) {
    EXPECT_EQ(refusal(small(split(pattern))), place) << pattern;
  }
  EXPECT_EQ(refusal(small(split(std::string(5000, '(') + std::string(5000, ')')))), place);
  EXPECT_EQ(refusal(small(split(std::string(5000, '[') + "a" + std::string(5000, ']')))), place);
  EXPECT_EQ(refusal(small(split(std::string(100000, 'a')))), place);
  std::string doubling = "a";
  for (int i = 0; i < 50; ++i) doubling = "(?:" + doubling + "){100}";
  EXPECT_EQ(refusal(small(split(doubling))), place);
}

// What Oniguruma refuses though PCRE2 does not.
TEST(Tokenizer, RefusesWhatOnigurumaRefuses) {
  for (const char* pattern :
       {"{2,}h", "a|{1,3}", "({2}a)", "(?m){,2}", "(?<=(?!a)b)", "(?<=(?=a)b)", "(?<=(?<!a)b)", "(?<!(?=a)b)",
        "(?<!(a)b)", "(?<!(?<n>a)b)", "(?<!(?<=(?i:(a))))", "a(?)b", "\\pL", "[\\PL]", "(?<=\\z)a", "(?<!\\Z)a"}) {
    EXPECT_EQ(refusal(small(split(pattern))), "tokenizer.unsupported at /pre_tokenizer/pattern/Regex") << pattern;
  }
  for (const char* pattern : {"{h", "a{b}", "a{,}", "{", "(?<=(?<=a)b)", "(?<!(?<=a)b)", "(?<!(?<!a)b)", "(?<=(a)b)",
                              "(?<!(?>a)b)", "(?<!\\b)", "(?<=^a)"}) {
    EXPECT_EQ(refusal(small(split(pattern))), "") << pattern;
  }
}

// Oniguruma refuses some of these and ends others elsewhere than PCRE2 does.
TEST(Tokenizer, RefusesRepeatsOfWhatMayBeEmpty) {
  for (const char* pattern : {"(?=a)*",
                              "(?!\\S)+",
                              "(?<=a)??",
                              "(?<!a){1,3}",
                              "\\b?",
                              "^*",
                              "$+",
                              "\\A?",
                              "\\B{2}",
                              "(?:^)*",
                              "(?:(?=a))*",
                              "(?:a|^)*",
                              "(?:^|(?:b|\\b))+",
                              "(?i)^*",
                              "(?x: ^ * )",
                              "^{0}",
                              "(?:(?#c)^)*",
                              "(^)*",
                              "(?:)*",
                              "(a*)*",
                              "(?:a|b?)+",
                              "(?>a?){2}",
                              "(?:a{0,2}b{,3})+"}) {
    EXPECT_EQ(refusal(small(split(pattern))), "tokenizer.unsupported at /pre_tokenizer/pattern/Regex") << pattern;
  }
  for (const char* pattern :
       {"(?:\\ba)*", "(?:(?:^a)|b)*", "(?i)(?:^|a)b*", "(?:a?b)*", "a{2}?b?", "(?:a{1,2}|[b])+", "(?:a|b)?"}) {
    EXPECT_EQ(refusal(small(split(pattern))), "") << pattern;
  }
}

TEST(Tokenizer, EndsPatternsThatBacktrackForever) {
  const auto tokenizer = read(small(split("(?:a|a|aa)*[b-d]")));
  ASSERT_TRUE(tokenizer.ok());
  const auto start = std::chrono::steady_clock::now();
  const auto ids = tokenizer->encode(std::string(4000, 'a'));
  ASSERT_FALSE(ids.ok());
  EXPECT_EQ(ids.error().code, "tokenizer.regex_limit");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
}

TEST(Tokenizer, AddsSpecialTokensWhenAsked) {
  const Json part_x = {{"SpecialToken", {{"id", "x"}, {"type_id", 0}}}};
  const Json part_a = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  Json post = {{"type", "TemplateProcessing"},
               {"single", {part_x, part_a, part_x}},
               {"special_tokens", {{"x", {{"id", "x"}, {"ids", {2, 5}}, {"tokens", {"c", " "}}}}}}};
  EXPECT_EQ(encode(small({{"post_processor", post}}), "ab"), (Ids{2, 5, 3, 2, 5}));
  EXPECT_EQ(encode(small({{"post_processor", post}}), "ab", {.add_special_tokens = false}), Ids{3});
  post["special_tokens"] = Json::object();
  EXPECT_EQ(refusal(small({{"post_processor", post}})), "tokenizer.unsupported at /post_processor/single/0");
  post["single"] = {{{"Sequence", {{"id", "B"}}}}};
  EXPECT_EQ(refusal(small({{"post_processor", post}})), "tokenizer.unsupported at /post_processor/single/0");
}

TEST(Tokenizer, ByteTokensAreTwoHexadecimalDigits) {
  const Json model = {{"vocab", {{"<0x-1>", 0}, {"<0xE4>", 1}, {"<0xbd>", 2}, {"<0xA0>", 3}, {"<0xGG>", 4}, {"a", 5}}},
                      {"merges", Json::array()}};
  const auto tokenizer = read(small({{"decoder", {{"type", "ByteFallback"}}}}, model));
  ASSERT_TRUE(tokenizer.ok());
  EXPECT_EQ(*tokenizer->decode(Ids{0, 4}), "<0x-1><0xGG>");
  EXPECT_EQ(*tokenizer->decode(Ids{1, 2, 3, 5}),
            "\xE4\xBD\xA0"
            "a");
  EXPECT_EQ(*tokenizer->decode(Ids{1, 2, 5}),
            "\xEF\xBF\xBD\xEF\xBF\xBD"
            "a");
  EXPECT_EQ(*tokenizer->decode(Ids{-5, 99, 5}), "a");
  EXPECT_EQ(tokenizer->bytes_of(1), "\xE4");
  EXPECT_EQ(tokenizer->bytes_of(4), std::nullopt);
  EXPECT_EQ(tokenizer->bytes_of(99), std::nullopt);
}

TEST(Tokenizer, StreamEmitsWholeCharactersAsSoonAsTheyAreCertain) {
  const auto tokenizer =
      Tokenizer::from_json(*read_json(test::reference_dir() / "tokenizer" / "qwen3moe.json"), "qwen3moe.json");
  ASSERT_TRUE(tokenizer.ok());
  const std::string text = "caf\xC3\xA9 \xF0\x9F\x91\xA9\xF0\x9F\x8F\xBD \xE4\xBD\xA0\xE5\xA5\xBD";
  const auto ids = tokenizer->encode(text);
  ASSERT_TRUE(ids.ok());
  DetokenizerStream stream(*tokenizer);
  for (int round = 0; round < 2; ++round) {  // finish() makes the stream ready for another text
    std::string all;
    for (const auto id : *ids) {
      const std::string part = *stream.push(id);
      EXPECT_EQ(unicode::find_invalid_utf8(part), std::nullopt);
      all += part;
    }
    EXPECT_EQ(all, text);
    EXPECT_EQ(*stream.finish(), "");
  }
}

// A text without any break of 330 KB: merging is n log n, and no pattern backtracks over it more than a few times.
TEST(Tokenizer, LongTextsWithoutABreak) {
  std::string letters(330'000, 'a');
  std::uint32_t state = 1;
  for (auto& c : letters) {
    state = state * 1664525U + 1013904223U;
    c = static_cast<char>('a' + (state >> 24) % 26);
  }
  std::string marks = "a";
  for (int i = 0; i < 80'000; ++i) marks += i % 2 == 0 ? "\xCC\x81" : "\xCC\xA3";  // to be reordered
  const std::string texts[] = {std::string(330'000, 'a'), letters,
                               std::string(330'000, ' '), std::string(330'000, '\n'),
                               std::string(330'000, 'A'), marks};
  for (const char* name : {"qwen3moe", "mixtral", "gpt_oss", "deepseek"}) {
    const auto json = read_json(test::reference_dir() / "tokenizer" / (std::string(name) + ".json"));
    const auto tokenizer = Tokenizer::from_json(*json, name);
    ASSERT_TRUE(tokenizer.ok());
    for (const auto& text : texts) {
      const auto start = std::chrono::steady_clock::now();
      const auto ids = tokenizer->encode(text);
      const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
      ASSERT_TRUE(ids.ok()) << ids.error().message();
      RecordProperty(std::string(name) + "_ms", static_cast<int>(seconds.count() * 1000));
      EXPECT_LT(seconds.count(), 5.0) << name << " " << text.substr(0, 8);  // far below, but for sanitizers
      if (text != marks) {
        EXPECT_EQ(*tokenizer->decode(*ids), text);
      }
    }
  }
}

TEST(Tokenizer, LoadsAFolder) {
  const auto folder = test::data_dir() / "checkpoints" / "mixtral-awq-w4g32";
  const auto tokenizer = Tokenizer::load(folder);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message();
  const auto ids = tokenizer->encode("Hello");
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(ids->front(), 1);
  EXPECT_EQ(*tokenizer->decode(*ids), "Hello");
  EXPECT_FALSE(Tokenizer::load(folder / "nothing").ok());
}

}  // namespace
}  // namespace moracle
