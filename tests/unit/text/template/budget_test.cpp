// Whatever a template can name, called 100 000 times with texts of 16 MB: it ends within a second of CPU time, with
// results, an error of the call, or the budget's end. The names come from the interpreter's own tables, so that a new
// one is tried as well. MORACLE_TEMPLATE_ATTACK=1 tries more texts and arguments.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/template/interpreter.h"

namespace moracle {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#elif defined(__has_feature)
constexpr bool kSanitized = __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
constexpr bool kSanitized = false;
#endif
constexpr double kSeconds = kSanitized ? 20 : 1;

double cpu_seconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

using jinja::Arguments;
using jinja::Interpreter;
using jinja::Value;

// The calls of one name, under one budget.
using Call = std::function<bool(Interpreter&, const Value& subject, Arguments& arguments)>;

// Returns the CPU seconds.
double expect_end(const Call& call, const Value& subject, const Arguments& arguments, const std::string& what) {
  const std::string file = "test.jinja";
  const TemplateLimits limits;
  Interpreter in(limits, file);
  const double start = cpu_seconds();
  bool going = true;
  for (int i = 0; i < 100'000 && going; ++i) {
    Arguments given = arguments;
    going = in.charge(1) && call(in, subject, given);
  }
  const double seconds = cpu_seconds() - start;
  EXPECT_LT(seconds, kSeconds) << what;
  if (in.failed()) {
    EXPECT_LT(in.error().message().size(), 1000U) << what;
  }
  return seconds;
}

struct Named {
  std::string name;
  Value value;
};

std::string repeated(std::string_view part, std::size_t bytes) {
  std::string text;
  text.reserve(bytes + part.size());
  while (text.size() < bytes) text += part;
  return text;
}

bool tries_all() {
  return std::getenv("MORACLE_TEMPLATE_ATTACK") != nullptr;
}

// Texts of 16 MB that one or the other operation takes long for. Under a sanitizer, where most loops last until the
// budget's clock ends them, one text of two bytes a character.
const std::vector<Named>& texts() {
  static const auto* made = [] {
    auto* out = new std::vector<Named>;
    std::vector<std::string> parts = {"\u0130"};
    if (!kSanitized || tries_all()) parts.insert(parts.end(), {"a", "\n"});
    if (tries_all()) parts.insert(parts.end(), {"A", " ", "\x01", "\"", "9", "a,", "%s{}", "\u00df", "0.", "%(a)s"});
    for (const std::string& part : parts) out->push_back({part, Value::text(repeated(part, 16'000'000))});
    return out;
  }();
  return *made;
}

Value list_of(std::vector<Value> items, jinja::SequenceKind kind = jinja::SequenceKind::list) {
  return Value(Value::Data(std::make_shared<const jinja::Sequence>(std::move(items), kind)));
}

Value dict_of(const Value& key, const Value& value) {
  auto dict = std::make_shared<jinja::Dict>();
  dict->add(key, value);
  return Value(Value::Data(jinja::DictPtr(std::move(dict))));
}

std::vector<Arguments> arguments_with(const Value& s) {
  const Value a = Value::text("a"), none = Value::text(""), two = Value::integer(2), many = Value::integer(16'000'000);
  std::vector<Arguments> all = {{}, {{s}, {}}, {{a}, {}}, {{s, s}, {}}, {{a, s}, {}}, {{two}, {}}};
  if (tries_all()) {
    for (const Arguments& more : std::initializer_list<Arguments>{{{none, s}, {}},
                                                                  {{many}, {}},
                                                                  {{s, a}, {}},
                                                                  {{a, a}, {}},
                                                                  {{list_of({s, s})}, {}},
                                                                  {{list_of({s, s}, jinja::SequenceKind::tuple)}, {}},
                                                                  {{many, s}, {}},
                                                                  {{s, two, two}, {}},
                                                                  {{}, {{"attribute", s}}},
                                                                  {{}, {{"attribute", Value::integer(0)}}},
                                                                  {{Value::text("upper")}, {}},
                                                                  {{Value::text("in"), s}, {}},
                                                                  {{}, {{"indent", two}, {"sort_keys", two}}}}) {
      all.push_back(more);
    }
  }
  return all;
}

enum class Subject { text, list, tuple, dict };

Value make_subject(Subject kind, const Value& text) {
  switch (kind) {
    case Subject::text:
      return text;
    case Subject::list:
      return list_of({text, text});
    case Subject::tuple:
      return list_of({text, text}, jinja::SequenceKind::tuple);
    case Subject::dict:
      return dict_of(text, text);
  }
  return {};
}

// A test is many such loops, one for each text, subject and list of arguments; the longest is told with the result.
void try_all(const Call& call, std::initializer_list<Subject> kinds) {
  double longest = 0;
  for (const auto& [name, text] : texts()) {
    for (const Subject kind : kinds) {
      const Value subject = make_subject(kind, text);
      std::size_t number = 0;
      for (const Arguments& arguments : arguments_with(text)) {
        const std::string what = testing::PrintToString(name) + ", subject " + std::to_string(static_cast<int>(kind)) +
                                 ", arguments " + std::to_string(number++);
        longest = std::max(longest, expect_end(call, subject, arguments, what));
        testing::Test::RecordProperty("longest_cpu_ms", static_cast<int>(longest * 1000));
        if (testing::Test::HasFailure()) return;
      }
    }
  }
}

std::string readable(const testing::TestParamInfo<std::string>& info) {
  std::string name;
  for (const char c : info.param) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? std::string(1, c) : "_";
  return name + "_" + std::to_string(info.index);
}

template <class Entry>
std::vector<std::string> names_of(std::span<const Entry> entries) {
  std::vector<std::string> names;
  for (const Entry& entry : entries) names.emplace_back(entry.name);
  return names;
}

class Filters : public testing::TestWithParam<std::string> {};
TEST_P(Filters, EndWithinASecond) {
  try_all([](Interpreter& in, const Value& subject,
             Arguments& arguments) { return in.apply_filter(GetParam(), subject, arguments).has_value(); },
          {Subject::text, Subject::list, Subject::dict});
}
INSTANTIATE_TEST_SUITE_P(Text, Filters, testing::ValuesIn(names_of(jinja::text_filters())), readable);
INSTANTIATE_TEST_SUITE_P(List, Filters, testing::ValuesIn(names_of(jinja::list_filters())), readable);

class Tests : public testing::TestWithParam<std::string> {};
TEST_P(Tests, EndWithinASecond) {
  try_all([](Interpreter& in, const Value& subject,
             Arguments& arguments) { return in.apply_test(GetParam(), subject, arguments).has_value(); },
          {Subject::text, Subject::list, Subject::dict});
}
INSTANTIATE_TEST_SUITE_P(All, Tests, testing::ValuesIn(names_of(jinja::all_tests())), readable);

class Methods : public testing::TestWithParam<std::string> {
 protected:
  static bool call(Interpreter& in, const Value& subject, Arguments& arguments) {
    const auto method = jinja::find_method(in, subject, GetParam());
    return method && in.call(*method, arguments).has_value();
  }
};
class TextMethods : public Methods {};
TEST_P(TextMethods, EndWithinASecond) {
  try_all(call, {Subject::text});
}
INSTANTIATE_TEST_SUITE_P(All, TextMethods, testing::ValuesIn(names_of(jinja::text_methods())), readable);

class DictMethods : public Methods {};
TEST_P(DictMethods, EndWithinASecond) {
  try_all(call, {Subject::dict});
}
INSTANTIATE_TEST_SUITE_P(All, DictMethods, testing::ValuesIn(names_of(jinja::dict_methods())), readable);

class ListMethods : public Methods {};
TEST_P(ListMethods, EndWithinASecond) {
  try_all(call, {Subject::list, Subject::tuple});
}
INSTANTIATE_TEST_SUITE_P(All, ListMethods, testing::ValuesIn(names_of(jinja::list_methods())), readable);

}  // namespace
}  // namespace moracle
