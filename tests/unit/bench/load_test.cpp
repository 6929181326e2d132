// What `bench serve` makes of a server's answers.
#ifdef MORACLE_SERVE

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "bench/load/call.h"
#include "bench/load/load.h"
#include "bench/load/prompts.h"
#include "bench/load/streamed_reply.h"

namespace moracle::load {
namespace {

using testing::HasSubstr;
using Time = StreamedReply::Time;

Time at(int ms) {
  return Time{} + std::chrono::hours(1) + std::chrono::milliseconds(ms);
}

TEST(BenchServe, PercentilesAreValuesThatOccurred) {
  std::vector<double> values;
  for (int i = 100; i > 0; --i) values.push_back(i);
  const Spread spread = spread_of(values);
  EXPECT_EQ(spread.p50, 50);
  EXPECT_EQ(spread.p90, 90);
  EXPECT_EQ(spread.p99, 99);
  EXPECT_EQ(spread.mean, 50.5);
  EXPECT_EQ(spread_of({7}).p50, 7);
  EXPECT_EQ(spread_of({7}).p99, 7);
  EXPECT_EQ(spread_of({}).p99, 0);
}

TEST(BenchServe, AStreamTellsItsTimesAtEverySplit) {
  const std::string stream =
      ": keep-alive\n\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata:{\"choices\":[{\"text\":\"\"}]}\r\n\r\n"
      "data: {\"choices\":[{\"text\":\"b\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,"
      "\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n";
  for (std::size_t split = 0; split <= stream.size(); ++split) {
    StreamedReply reply(at(0));
    ASSERT_TRUE(reply.take(stream.substr(0, split), at(10)).ok()) << split;
    ASSERT_TRUE(reply.take(stream.substr(split), at(30)).ok()) << split;
    ASSERT_TRUE(reply.finish().ok()) << split;
    EXPECT_EQ(reply.prompt_tokens(), 5);
    EXPECT_EQ(reply.cached_tokens(), 2);
    EXPECT_EQ(reply.completion_tokens(), 3);
    ASSERT_EQ(reply.gaps().size(), 1U);
    const std::size_t first_ends = stream.find("\"a\"}]}") + 7;
    EXPECT_NEAR(reply.first_s(), split >= first_ends ? 0.01 : 0.03, 1e-9) << split;
  }
}

TEST(BenchServe, TimesOfATokenAreOfThoseBehindTheFirst) {
  StreamedReply reply(at(0));
  ASSERT_TRUE(reply.take("data: {\"choices\":[{\"text\":\"a\"}]}\n", at(100)).ok());
  ASSERT_TRUE(reply.take("data: {\"choices\":[{\"text\":\"b\"}]}\n", at(180)).ok());
  ASSERT_TRUE(
      reply.take("data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":5}}\n", at(200)).ok());
  EXPECT_NEAR(reply.token_s(), 0.02, 1e-9);
  EXPECT_NEAR(reply.gaps().front(), 0.08, 1e-9);
  EXPECT_NEAR(reply.whole_s(), 0.18, 1e-9);
}

TEST(BenchServe, WhatIsNoStreamIsRefused) {
  const auto error_of = [](const std::string& text) {
    StreamedReply reply(at(0));
    auto taken = reply.take(text, at(1));
    if (taken.ok()) taken = reply.finish();
    return taken.ok() ? std::string() : taken.error().code + ": " + taken.error().found;
  };
  const std::string text = "data: {\"choices\":[{\"text\":\"a\"}]}\n";
  const std::string usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n";
  EXPECT_EQ(error_of(text + usage + "data: [DONE]\n"), "");
  for (const char* const wrong :
       {"<html>\n", "data: {\n", "data: 3\n", "data: {}\n", "data: {\"choices\":{}}\n", "data: {\"choices\":[{}]}\n",
        "data: {\"choices\":[3]}\n", "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":-1}}\n"}) {
    EXPECT_THAT(error_of(wrong), HasSubstr("bench.stream: ")) << wrong;
  }
  EXPECT_THAT(error_of(text + usage), HasSubstr("none"));                // no [DONE]
  EXPECT_THAT(error_of(text + "data: [DONE]\n"), HasSubstr("none"));     // no usage
  EXPECT_THAT(error_of(usage + "data: [DONE]\n"), HasSubstr("none"));    // no text
  EXPECT_THAT(error_of("data: [DONE]\n" + text), HasSubstr("choices"));  // behind the end
  EXPECT_THAT(error_of("data: {\"error\":{\"message\":\"no memory\"}}\n"), HasSubstr("no memory"));
  EXPECT_THAT(error_of(std::string((std::size_t{1} << 20) + 2, ' ')), HasSubstr("longer"));
}

TEST(BenchServe, PromptsDifferAndShareWhatTheyShall) {
  const PromptPlan plan{.words = 100, .spread = 0.5, .shared = 0.4};
  const auto prompts = make_prompts(plan, 50, 7);
  EXPECT_EQ(prompts, make_prompts(plan, 50, 7));
  EXPECT_NE(prompts, make_prompts(plan, 50, 8));
  const auto words = [](const std::string& text) { return std::count(text.begin(), text.end(), ' '); };
  std::size_t shared = 0;
  for (int spaces = 0; spaces <= 40; ++shared) spaces += prompts[0][shared] == ' ' ? 1 : 0;
  std::set<std::string> all(prompts.begin(), prompts.end());
  EXPECT_EQ(all.size(), prompts.size());
  std::set<std::ptrdiff_t> lengths;
  for (const std::string& prompt : prompts) {
    EXPECT_EQ(prompt.substr(0, shared - 1), prompts[0].substr(0, shared - 1));
    EXPECT_GE(words(prompt), 50);
    EXPECT_LE(words(prompt), 150);
    lengths.insert(words(prompt));
  }
  EXPECT_GT(lengths.size(), 20U);
}

TEST(BenchServe, ArrivalsHaveTheRateThatWasAsked) {
  const auto times = poisson_arrivals(4, 20001, 3);
  EXPECT_EQ(times.front(), 0);
  EXPECT_TRUE(std::is_sorted(times.begin(), times.end()));
  // 20,000 gaps of mean 1/4: five standard deviations of their sum are 5 · 1/4 · sqrt(20,000).
  EXPECT_NEAR(times.back(), 5000, 177);
  std::vector<double> gaps;
  for (std::size_t i = 1; i < times.size(); ++i) gaps.push_back(times[i] - times[i - 1]);
  EXPECT_NEAR(spread_of(gaps).p50, 0.25 * std::log(2.0), 0.01);
}

TEST(BenchServe, AddressesOfServers) {
  const auto address = parse_server_address("http://127.0.0.1:8080/v1/");
  ASSERT_TRUE(address.ok());
  EXPECT_EQ(address->host, "127.0.0.1");
  EXPECT_EQ(address->port, "8080");
  EXPECT_EQ(address->base, "");
  const auto six = parse_server_address("http://[::1]:81/llm/v1");
  ASSERT_TRUE(six.ok());
  EXPECT_EQ(six->host, "::1");
  EXPECT_EQ(six->port, "81");
  EXPECT_EQ(six->base, "/llm");
  EXPECT_EQ(parse_server_address("http://localhost")->port, "80");
  for (const char* const wrong :
       {"https://localhost", "http://", "http://a:b", "http://a:99999", "http://a b", "http://[::1", "http://a:1?x",
        "http://u@a", "http://a\r\nX: y", "ftp://a", "http://[::1]x"}) {
    EXPECT_FALSE(parse_server_address(wrong).ok()) << wrong;
  }
}

TEST(BenchServe, ThePictureHasEachRowAndNoMarkupOfTheServer) {
  BenchServeResult result{.model = "<script>&", .tokens_a_word = 1};
  for (const std::int64_t clients : {1, 8}) {
    BenchServeRow& row = result.rows.emplace_back();
    row.clients = clients;
    row.output_tokens = 40 * clients;
    row.seconds = 2;
    row.first_token = {.p50 = 0.25, .p99 = 0.5};
    row.inter_token = {.p50 = 0.0333, .p99 = 0.05};
  }
  const std::string picture = bench_serve_picture(result);
  EXPECT_THAT(picture, HasSubstr("&#60;script&#62;&#38;"));
  EXPECT_THAT(picture, testing::Not(HasSubstr("<script")));
  for (const char* const value : {">20<", ">160<", ">250<", ">33.3<", ">8<"}) EXPECT_THAT(picture, HasSubstr(value));
  std::size_t bars = 0;
  for (std::size_t i = picture.find("class=\"bar\""); i != std::string::npos;
       i = picture.find("class=\"bar\"", i + 1)) {
    ++bars;
  }
  EXPECT_EQ(bars, 6U);
}

}  // namespace
}  // namespace moracle::load

#endif  // MORACLE_SERVE
