// Every case of tests/data/template/expected.jsonl against what jinja2 gave (tests/tools/template_cases.py).
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "support/test_data.h"
#include "text/template/chat_template.h"

namespace moracle {
namespace {

using nlohmann::ordered_json;

std::string describe(const ordered_json& one) {
  const std::string source = one.contains("source") ? one["source"].get<std::string>() : one["file"].get<std::string>();
  return source + "\n  context " + one["use"].dump() + "\n  jinja2 " +
         (one.contains("expected") ? one["expected"].dump() : one["error"].dump() + one["message"].dump());
}

// Python does not tell "undefined" from the other errors as finely as the message of a failed step would; what counts
// is that both fail, and that what the template itself raised arrives.
void check(const ordered_json& one, const ordered_json& context) {
  SCOPED_TRACE(describe(one));
  std::string source;
  if (one.contains("source")) {
    source = one["source"];
  } else {
    const auto text = read_text(test::data_dir() / "template" / one["file"].get<std::string>());
    ASSERT_TRUE(text.ok());
    source = *text;
  }
  const auto parsed = ChatTemplate::parse(source, "case");
  const std::string error = one.contains("error") ? one["error"].get<std::string>() : "";
  if (!parsed.ok()) {
    EXPECT_EQ(error, "syntax") << parsed.error().message();
    return;
  }
  const auto rendered = parsed->render(context);
  if (error.empty()) {
    ASSERT_TRUE(rendered.ok()) << rendered.error().message();
    EXPECT_EQ(*rendered, one["expected"].get<std::string>());
    return;
  }
  ASSERT_FALSE(rendered.ok()) << *rendered;
  if (error == "template.raised") {
    EXPECT_EQ(rendered.error().code, error);
    EXPECT_EQ(rendered.error().found, one["message"].get<std::string>());
  } else if (error == "template.undefined") {
    EXPECT_EQ(rendered.error().code, error) << rendered.error().message();
  } else {
    EXPECT_NE(rendered.error().code, "template.raised");
  }
}

std::size_t check_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::map<std::string, ordered_json> contexts;
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) {
    const auto one = ordered_json::parse(line);
    if (one.contains("name")) {
      contexts[one["name"].dump()] = one["context"];
      continue;
    }
    check(one, contexts.at(one["use"].dump()));
    ++count;
  }
  return count;
}

TEST(ChatTemplateCases, RenderAsJinjaDoes) {
  EXPECT_GT(check_file(test::data_dir() / "template" / "expected.jsonl"), 1000U);
}

TEST(ChatTemplateCases, FurtherFile) {
  const char* path = std::getenv("MORACLE_TEMPLATE_CASES");
  if (path == nullptr) GTEST_SKIP() << "MORACLE_TEMPLATE_CASES names no file";
  EXPECT_GT(check_file(path), 0U);
}

}  // namespace
}  // namespace moracle
