// Limits, the sandbox, errors and where a model folder keeps its template. What templates render is in cases_test.cpp.
#include "text/template/chat_template.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <regex>
#include <string>

#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle {
namespace {

Result<std::string> render(const std::string& source, const Json& context = Json::object(),
                           TemplateLimits limits = {}) {
  MORACLE_ASSIGN(const ChatTemplate made, ChatTemplate::parse(source, "test.jinja", limits));
  return made.render(context);
}

std::string code_of(const Result<std::string>& result) {
  return result.ok() ? "rendered" : result.error().code;
}

std::string repeat(const std::string& text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

struct Hostile {
  const char* name;
  std::string source;
};

class ChatTemplateLimits : public testing::TestWithParam<Hostile> {};

TEST_P(ChatTemplateLimits, StopsEarly) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of(render(GetParam().source)), "template.limit");
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  // Two million steps take well under a second, and what has no limit takes hours; the margin is for sanitizers on a
  // busy machine.
  EXPECT_LT(elapsed.count(), 300.0);
}

const Hostile kHostile[] = {
    {"nested_loops", "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}"},
    {"range", "{% for a in range(1000000000000) %}{% endfor %}"},
    {"range_extremes", "{{ range(-9223372036854775807, 9223372036854775807) }}"},
    {"text_repetition", "{{ 'x' * 1000000000 }}"},
    {"list_repetition", "{{ [0] * 1000000000 }}"},
    {"doubling",
     "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}"},
    {"many_long_texts",
     "{% set s = 'x' * 10000000 %}{% set ns = namespace(l=[]) %}{% for i in range(10000) %}{% set ns.l = ns.l + [s ~ "
     "i] %}{% endfor %}"},
    {"output", "{% set s = 'x' * 1000000 %}{% for i in range(1000) %}{{ s }}{% endfor %}"},
    {"sharing",
     "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == "
     "[ns.l[0], 1] }}{{ ns.l|string|length }}"},
    {"shared_json",
     "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l|tojson "
     "}}"},
    {"deep_value", "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}"},
    {"deep_lazy_value",
     "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l]|select('defined') %}{% endfor %}"},
    {"deep_method",
     "{% set ns = namespace(l={}) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l}.items %}{% endfor %}"},
    {"self_holding_namespace", "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}"},
    {"macro_recursion", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}"},
    {"mutual_recursion",
     "{% macro f(n) %}{{ g(n + 1) }}{% endmacro %}{% macro g(n) %}{% if n %}{% for i in [1] %}{{ [f(n + "
     "1)]|map('string')|join }}{% endfor %}{% endif %}{% endmacro %}{{ f(1) }}"},
    {"recursive_loop", "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}"},
    {"caller_recursion",
     "{% macro f() %}{% call f() %}{{ caller() }}{% endcall %}{% endmacro %}{% call f() %}x{% endcall %}"},
    {"power", "{{ 9 ** 9 ** 9 }}"},
    {"factorial", "{% set ns = namespace(n=2) %}{% for i in range(100) %}{% set ns.n = ns.n * ns.n %}{% endfor %}"},
    {"negation", "{{ -(-9223372036854775807 - 1) }}"},
    {"division", "{{ (-9223372036854775807 - 1) // -1 }}"},
    {"format_width", "{{ '%1000000000d' % 1 }}"},
    {"brace_width", "{{ '{:1000000000}'.format(1) }}"},
    {"justify", "{{ 'x'.ljust(1000000000) }}"},
    {"date_width", "{{ strftime_now('%100000000d') }}"},
    {"indentation", "{{ ('a\\n' * 1000000)|indent(1000000) }}"},
    {"replace_nothing", "{% set s = 'x' * 1000000 %}{{ s.replace('', s) }}"},
    {"quadratic_search",
     "{% set a = 'a' * 16000000 %}{% set b = 'a' * 8000000 ~ 'b' %}{% for i in range(1000) %}{{ b in a }}{% endfor %}"},
    {"parentheses", "{{ " + repeat("(", 100000) + "1" + repeat(")", 100000) + " }}"},
    {"brackets", "{{ " + repeat("[", 100000) + repeat("]", 100000) + " }}"},
    {"negations", "{{ " + repeat("not ", 100000) + "1 }}"},
    {"signs", "{{ " + repeat("-", 100000) + "1 }}"},
    {"chain", "{{ 1" + repeat(" + 1", 100000) + " }}"},
    {"filters", "{{ 1" + repeat("|string", 100000) + " }}"},
    {"members", "{{ a" + repeat(".b", 100000) + " }}"},
    {"conditions", "{{ 1" + repeat(" if 1 else 1", 100000) + " }}"},
    {"blocks", repeat("{% if 1 %}", 100000)},
    {"targets", "{% for " + repeat("(", 100000) + "a" + repeat(")", 100000) + " in b %}{% endfor %}"},
};

INSTANTIATE_TEST_SUITE_P(Hostile, ChatTemplateLimits, testing::ValuesIn(kHostile),
                         [](const testing::TestParamInfo<Hostile>& info) { return info.param.name; });

TEST(ChatTemplate, WorksUpToTheDepthLimit) {
  // Nothing but the depth is in the way: the same construct one level below the limit renders.
  EXPECT_EQ(code_of(render("{{ " + repeat("[", 90) + repeat("]", 90) + "|length }}")), "rendered");
  EXPECT_EQ(code_of(render("{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(90) }}")),
            "rendered");
  EXPECT_EQ(code_of(render("{{ 1" + repeat(" + 1", 180) + " }}")), "rendered");
}

TEST(ChatTemplate, CyclesDoNotLeak) {
  // Under AddressSanitizer a namespace, macro or loop that held itself would be reported.
  EXPECT_EQ(code_of(render(
                "{% set ns = namespace() %}{% set ns.me = ns %}{% macro f() %}{{ f }}{% endmacro %}{% set ns.f = f %}"
                "{% for x in [1] %}{% set ns.l = loop %}{% set ns.c = loop.cycle %}{% endfor %}"
                "{% set ns.g = [ns, f]|map('default') %}")),
            "rendered");
}

// Values this deep are taken apart without recursion. The time limit is for slow sanitizers on busy machines.
TEST(ChatTemplate, LongListOfNamespaces) {
  EXPECT_EQ(
      code_of(render(
          "{% set ns = namespace(a=1) %}{% for i in range(50000) %}{% set ns.a = namespace(a=ns.a) %}{% endfor %}",
          Json::object(), TemplateLimits{.time = std::chrono::minutes(5)})),
      "rendered");
}

TEST(ChatTemplate, RefusesOtherFiles) {
  for (const char* tag : {"include 'x'", "import 'x' as x", "from 'x' import y", "extends 'x'", "block x"}) {
    const auto made = ChatTemplate::parse(std::string("a\n{% ") + tag + " %}", "test.jinja");
    ASSERT_FALSE(made.ok()) << tag;
    EXPECT_EQ(made.error().code, "template.syntax");
    EXPECT_EQ(made.error().where, "line 2");
  }
}

TEST(ChatTemplate, ErrorsNameTheirLine) {
  const auto undefined = render("\n\n{{ messages[0].content }}");
  ASSERT_FALSE(undefined.ok());
  EXPECT_EQ(undefined.error().code, "template.undefined");
  EXPECT_EQ(undefined.error().where, "line 3");
  EXPECT_EQ(undefined.error().found, "'messages' is undefined");
  EXPECT_EQ(undefined.error().file, "test.jinja");
  const auto raised = render("{{ raise_exception('No way: ' ~ 1) }}");
  ASSERT_FALSE(raised.ok());
  EXPECT_EQ(raised.error().code, "template.raised");
  EXPECT_EQ(raised.error().found, "No way: 1");
  EXPECT_EQ(render("{{ raise_exception(messages) }}").error().found,  // undefined: an empty text
            "the template refuses the chat and gives no reason");
  EXPECT_EQ(code_of(render("{{ [].append(1) }}")), "template.type");
  EXPECT_EQ(code_of(render("{{ ''.__class__.__mro__ }}")), "template.type");
}

// As jinja2 compiles it: an unknown name in a branch waits for its use.
TEST(ChatTemplate, UnknownFiltersAndTestsAreFoundBeforeRendering) {
  const char* refused[] = {
      "{% for x in [] %}{{ x|nope }}{% endfor %}",
      "{{ nil and x|nope }}",
      "{{ x is nope or true }}",
      "{% macro m(a=1|nope) %}{% endmacro %}",
      "{% if no %}{% for x in [] %}{{ x|nope }}{% endfor %}{% endif %}",
      "{% filter nope %}x{% endfilter %}",
      "{% set x | nope %}y{% endset %}",
      "{{ f(1, *x|nope) if yes }}{{ [{'k': x|nope}] }}",
  };
  for (const char* source : refused) {
    const auto made = ChatTemplate::parse(source, "test.jinja");
    ASSERT_FALSE(made.ok()) << source;
    EXPECT_EQ(made.error().code, "template.syntax");
    EXPECT_NE(made.error().found.find("named 'nope'"), std::string::npos) << made.error().found;
  }
  for (const char* source : {"{% if no %}{{ x|nope }}{% elif x is nope %}{% endif %}", "{{ x|nope if no else 'b' }}",
                             "{{ false and x|nope }}", "{{ true or x is nope }}"})
    EXPECT_TRUE(ChatTemplate::parse(source, "test.jinja").ok()) << source;
  EXPECT_EQ(code_of(render("{% if true %}{{ 1|nope }}{% endif %}")), "template.type");
}

TEST(ChatTemplate, SubscriptsTakeTuples) {
  EXPECT_EQ(*render("{{ {(): 1, (1, 2): 3}[] }}{{ {(1, 2): 3}[1, 2] }}"), "13");
  EXPECT_EQ(code_of(render("{{ [1][0,] }}")), "template.syntax");
}

TEST(ChatTemplate, WhatIterationGivesOfAnEscapedTextIsPlain) {
  EXPECT_EQ(*render("{{ 'ab'|e|list }}{{ ['ab'|e|first, 'ab'|e|last] }}"), "['a', 'b']['a', Markup('b')]");
}

TEST(ChatTemplate, PartsOfAnEscapedTextAreEscaped) {
  EXPECT_EQ(*render("{{ ('a,b'|e).split(',') }}{{ ('a'|e).rsplit() }}{{ ('a'|e).splitlines() }}"),
            "[Markup('a'), Markup('b')][Markup('a')][Markup('a')]");
}

TEST(ChatTemplate, SetsAreRefused) {
  EXPECT_EQ(code_of(render("{{ {'a': 1}.keys() - 'b' }}")), "template.unsupported");
}

TEST(ChatTemplate, RefusesTextThatIsNotUtf8) {
  EXPECT_EQ(code_of(render("\xff")), "template.syntax");
  EXPECT_EQ(code_of(render("{{ x }}", Json{{"x", "\xc3"}})), "template.type");
  EXPECT_EQ(code_of(render("{{ x }}", Json{{"\xc3", "x"}})), "template.type");
}

TEST(ChatTemplate, ContextHasToBeAnObject) {
  EXPECT_EQ(code_of(render("x", Json::array())), "template.type");
}

TEST(ChatTemplate, DeepContext) {
  Json deep = 1;
  for (int i = 0; i < 10000; ++i) deep = Json::array({std::move(deep)});
  EXPECT_EQ(code_of(render("x", Json{{"deep", std::move(deep)}})), "template.limit");
}

TEST(ChatTemplate, KeepsTheKeyOrderOfAnOrderedContext) {
  const auto made = ChatTemplate::parse("{{ x | tojson }}", "test.jinja");
  ASSERT_TRUE(made.ok());
  const auto ordered = made->render(nlohmann::ordered_json{{"x", {{"b", 1}, {"a", 2}}}});
  ASSERT_TRUE(ordered.ok());
  EXPECT_EQ(*ordered, R"({"b": 1, "a": 2})");
  const auto sorted = made->render(Json{{"x", {{"b", 1}, {"a", 2}}}});
  ASSERT_TRUE(sorted.ok());
  EXPECT_EQ(*sorted, R"({"a": 2, "b": 1})");
}

TEST(ChatTemplate, Date) {
  const auto today = render("{{ strftime_now('%Y-%m-%d %H:%M') }}");
  ASSERT_TRUE(today.ok());
  EXPECT_TRUE(std::regex_match(*today, std::regex(R"(20\d\d-[01]\d-[0-3]\d [0-2]\d:[0-5]\d)"))) << *today;
}

TEST(ChatTemplate, RendersTwiceTheSame) {
  const auto made = ChatTemplate::parse(
      "{% set ns = namespace(n=0) %}{% for i in x %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "t");
  ASSERT_TRUE(made.ok());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(*made->render(Json{{"x", {1, 2, 3}}}), "6");
}

}  // namespace
}  // namespace moracle
