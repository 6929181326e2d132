// Every key of config.json, nested ones too, is dropped, nulled and set to extremes: each time a typed error, or a
// model that serves finite logits.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>

#include "base/json.h"
#include "base/memory.h"
#include "support/model_fixture.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

// JSON texts, since not all of them are values of JSON. Nothing drops the key.
constexpr std::array kExtremes{"",
                               "null",
                               "0",
                               "-1",
                               "1",
                               "2",
                               "3",
                               "2147483648",
                               "0.5",
                               "1e308",
                               "-1e308",
                               "1e-320",
                               "\"\"",
                               "\"x\"",
                               "[]",
                               "{}",
                               "[1]",
                               "true",
                               "false",
                               "NaN",
                               "Infinity",
                               "-Infinity",
                               "9007199254740992",
                               "9223372036854775808",
                               "-9223372036854775808",
                               "100000000000000000000000000000"};

std::vector<std::string> folders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(data_dir() / "families")) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace_if(name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
  return name;
}

// Of lists, the first and the last element.
void add_pointers(const Json& json, const Json::json_pointer& at, std::vector<Json::json_pointer>& pointers) {
  if (json.is_object()) {
    for (const auto& [key, value] : json.items()) {
      pointers.push_back(at / key);
      add_pointers(value, at / key, pointers);
    }
  } else if (json.is_array()) {
    for (const std::size_t index : {std::size_t{0}, json.size() - 1}) {
      if (index >= json.size() || (index == json.size() - 1 && json.size() < 2 && index != 0)) continue;
      pointers.push_back(at / index);
      add_pointers(json[index], at / index, pointers);
    }
  }
}

std::string with(const Json& config, const Json::json_pointer& pointer, const std::string& text) {
  Json changed = config;
  if (text.empty()) {
    Json& parent = changed[pointer.parent_pointer()];
    if (parent.is_object()) {
      parent.erase(pointer.back());
    } else {
      parent.erase(std::stoul(pointer.back()));
    }
    return changed.dump();
  }
  const std::string mark = "\"@here@\"";
  changed[pointer] = "@here@";
  std::string dumped = changed.dump();
  return dumped.replace(dumped.find(mark), mark.size(), text);
}

class ConfigExtremes : public testing::TestWithParam<std::string> {
 protected:
  ConfigExtremes() : original_(data_dir() / "families" / GetParam()) {
    std::filesystem::create_symlink(original_ / "model.safetensors", folder_.path() / "model.safetensors");
  }

  // The error, or none where finite logits were served.
  Error outcome(const Policy& policy) {
    auto checkpoint = Checkpoint::open(folder_.path());
    if (!checkpoint.ok()) return checkpoint.error();
    auto plan = LoadPlan::make(*checkpoint, machine_, policy);
    if (!plan.ok()) return plan.error();
    auto model = load_model(**plan, pool_);
    if (!model.ok()) return model.error();
    auto state = (*model)->new_sequence();
    if (!state.ok()) return state.error();
    for (const std::vector<std::int32_t>& ids : {std::vector<std::int32_t>{1, 2, 3}, std::vector<std::int32_t>{4}}) {
      Ragged batch;
      batch.add(**state, ids);
      std::vector<float> logits;
      const auto done = batch.forward(**model, LogitRows::all, logits);
      if (!done.ok()) return done.error();
      EXPECT_EQ(logits.size(), ids.size() * static_cast<std::size_t>((*model)->info().vocab_size));
      EXPECT_TRUE(std::all_of(logits.begin(), logits.end(), [](float logit) { return std::isfinite(logit); }));
    }
    return {};
  }

  std::filesystem::path original_;
  TemporaryFolder folder_;
  Machine machine_ = probe_machine();
  ThreadPool pool_{1};
};

TEST_P(ConfigExtremes, AreRefusedOrServed) {
  const auto config = read_json(original_ / "config.json");
  ASSERT_TRUE(config.ok());
  std::vector<Json::json_pointer> pointers;
  add_pointers(*config, Json::json_pointer(), pointers);
  const std::size_t before = peak_resident_bytes();
  std::size_t number = 0;
  for (const Json::json_pointer& pointer : pointers) {
    for (const char* text : kExtremes) {
      SCOPED_TRACE(pointer.to_string() + " = " + (*text == '\0' ? "dropped" : text));
      // A file that is emptied and written anew is flushed to the disk by some file systems; a new one is not.
      std::filesystem::remove(folder_.path() / "config.json");
      folder_.write("config.json", with(*config, pointer, text));
      const auto begin = std::chrono::steady_clock::now();
      const Error error = outcome(++number % 2 == 0 ? pinned("ref") : Policy{});
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      EXPECT_LT(took.count(), 10.0);
      EXPECT_LT(error.message().size(), 4096U);
      EXPECT_FALSE(error.code.starts_with("memory.")) << error.message();
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(number, 500U);
  if (before != 0) {
    EXPECT_LT(peak_resident_bytes(), before + (std::size_t{1} << 30));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, ConfigExtremes, testing::ValuesIn(folders()), name_of);

}  // namespace
}  // namespace moracle::test
