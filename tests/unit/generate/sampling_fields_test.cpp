#include "generate/sampling_fields.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

namespace moracle {
namespace {

// Sets one field to a value that its type can hold.
void put(SamplingOptions& options, const SamplingField& field, double value) {
  std::visit([&](auto member) { options.*member = static_cast<std::remove_cvref_t<decltype(options.*member)>>(value); },
             field.member);
}

TEST(SamplingFields, HaveNamesAndMembersOfTheirOwn) {
  std::set<std::string_view> names;
  SamplingOptions options;
  for (const SamplingField& field : kSamplingFields) {
    EXPECT_TRUE(names.insert(field.name).second) << field.name;
    EXPECT_EQ(find_sampling_field(field.name), &field);
    EXPECT_FALSE(field.request_text.empty()) << field.name;
    EXPECT_FALSE(field.option_text.empty()) << field.name;
    std::visit([&](auto member) { EXPECT_EQ(SamplingOptions{}.*member, options.*member) << field.name; }, field.member);
    put(options, field, 77);
  }
  EXPECT_EQ(find_sampling_field("seed"), nullptr);
}

TEST(SamplingFields, AreOffByDefaultAndRefusedBeyondTheirLimits) {
  EXPECT_TRUE(check(SamplingOptions{}).ok());
  for (const SamplingField& field : kSamplingFields) {
    SCOPED_TRACE(field.name);
    const auto refused = [&](double value) {
      SamplingOptions options;
      put(options, field, value);
      const auto checked = check(options);
      if (checked.ok()) return false;
      EXPECT_EQ(checked.error().code, "sampling.range");
      EXPECT_EQ(checked.error().where, field.name);
      EXPECT_EQ(checked.error().wanted, field.limits());
      return true;
    };
    EXPECT_EQ(refused(field.low), field.above_low);
    EXPECT_TRUE(refused(field.low - 1));
    if (field.high != kNoLimit) {
      EXPECT_FALSE(refused(field.high));
      EXPECT_TRUE(refused(field.high + 1));
    }
    if (field.is_whole()) continue;
    EXPECT_TRUE(refused(std::nan("")));
    EXPECT_TRUE(refused(INFINITY));
  }
}

TEST(SamplingFields, LimitsAreSaidInWords) {
  const auto limits = [](std::string_view name) { return find_sampling_field(name)->limits(); };
  EXPECT_EQ(limits("temperature"), "a finite number of at least 0");
  EXPECT_EQ(limits("top_k"), "at least 0");
  EXPECT_EQ(limits("top_p"), "a number above 0 and at most 1");
  EXPECT_EQ(limits("min_p"), "a number from 0 to 1");
  EXPECT_EQ(limits("repetition_penalty"), "a finite number above 0");
  EXPECT_EQ(limits("presence_penalty"), "a number from -2 to 2");
  EXPECT_EQ(find_sampling_field("top_k")->option(), "top-k");
}

TEST(SamplingChoice, ChangesWhatIsChosen) {
  SamplingChoice choice;
  choice.set(&SamplingOptions::top_k, std::int64_t{1} << 62U).set(&SamplingOptions::presence_penalty, 0.0);
  EXPECT_EQ(choice.get(&SamplingOptions::top_k), std::int64_t{1} << 62U);
  EXPECT_FALSE(choice.get(&SamplingOptions::temperature).has_value());
  EXPECT_TRUE(choice.has(*find_sampling_field("presence_penalty")));
  SamplingOptions options{.temperature = 0.5, .top_k = 3, .seed = 9, .presence_penalty = 1.0};
  choice.apply(options);
  EXPECT_EQ(options.temperature, 0.5);
  EXPECT_EQ(options.top_k, std::int64_t{1} << 62U);
  EXPECT_EQ(options.presence_penalty, 0.0);
  EXPECT_EQ(options.seed, 9U);
}

}  // namespace
}  // namespace moracle
