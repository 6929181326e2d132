// Measured settings are remembered for the machine, program and number of threads that they were measured with, and
// nothing that a file could hold does harm.
#include "engine/tuning_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "engine/explain_plan.h"
#include "support/temporary_folder.h"
#include "support/test_data.h"

namespace moracle {
namespace {

namespace fs = std::filesystem;

const TuningTrials kTrials = {
    {.setting = "streams", .value = "many", .against = "one", .tokens = 1, .gain = 1.5, .noise = 0.0625, .taken = true},
    {.setting = "run_from", .value = "4", .against = "8", .tokens = 1, .gain = 0.75},
    {.setting = "run_from", .value = "32", .against = "8", .tokens = 1, .gain = 1.01}};

class TuningCaches : public testing::Test {
 protected:
  void SetUp() override {
    unsetenv("MORACLE_TUNING");
    unsetenv("MORACLE_STREAMS");
    machine.cpu_model = "a CPU";
    machine.l3_bytes = 1 << 20;
  }
  void TearDown() override { SetUp(); }

  TuningCache open(int threads = 2) {
    return {{.folder = folder, .note = [this](const std::string& note) { notes.push_back(note); }}, machine, threads};
  }
  void remember(const std::string& kind, int threads = 2) {
    TuningCache cache = open(threads);
    cache.keep(kind, kTrials, 0.25);
    cache.finish();
  }
  fs::path file() const { return fs::directory_iterator(folder)->path(); }
  std::string text() const {
    std::ifstream stream(file());
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  void write(const std::string& contents) const {
    const fs::path path = file();
    std::ofstream(path, std::ios::trunc) << contents;
  }

  Machine machine;
  std::vector<std::string> notes;
  test::TemporaryFolder temporary;
  fs::path folder = temporary.path() / "cache";
};

TEST_F(TuningCaches, RememberFromOneLoadToTheNext) {
  remember("a kind");
  TuningCache cache = open();
  const TuningTrials* const trials = cache.recall("a kind");
  ASSERT_NE(trials, nullptr);
  EXPECT_EQ(*trials, kTrials);
  EXPECT_EQ(cache.recall("another kind"), nullptr);
  ASSERT_EQ(cache.used().size(), 1U) << "of the other nothing is known";
  EXPECT_EQ(cache.used()[0].measured.size(), 10U);
  EXPECT_EQ(fs::status(folder).permissions(), fs::perms::owner_all);
  EXPECT_TRUE(notes.empty());
}

TEST_F(TuningCaches, NothingMeasuredWritesNothing) {
  TuningCache cache = open();
  EXPECT_EQ(cache.recall("a kind"), nullptr);
  cache.finish();
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(TuningCaches, WhatNoiseHasDrownedIsMeasuredAgain) {
  TuningTrials trials = kTrials;
  trials[1].noise = 0.3;
  TuningCache cache = open();
  cache.keep("a kind", trials, 0.25);
  EXPECT_NE(cache.recall("a kind"), nullptr) << "one measurement a load";
  EXPECT_EQ(cache.seconds(), 0.25);
  cache.keep("another", trials, 0.5);
  EXPECT_EQ(cache.seconds(), 0.75) << "of all kinds";
  cache.finish();
  EXPECT_EQ(open().recall("a kind"), nullptr);
}

TEST_F(TuningCaches, WithoutAFolderForAsLongAsItLives) {
  TuningCache cache({}, machine, 2);
  cache.keep("a kind", kTrials, 0.25);
  EXPECT_NE(cache.recall("a kind"), nullptr);
  cache.finish();
  EXPECT_FALSE(fs::exists(folder));
}

TEST_F(TuningCaches, AnotherMachineMeasuresForItself) {
  remember("a kind");
  const Machine first = machine;
  for (const auto& change : std::vector<std::function<void(Machine&)>>{
           [](Machine& m) { m.cpu_model = "another"; }, [](Machine& m) { m.l3_bytes *= 2; },
           [](Machine& m) { m.cores += 1; }, [](Machine& m) { m.cpu_features ^= 1U; }}) {
    machine = first;
    change(machine);
    EXPECT_EQ(open().recall("a kind"), nullptr);
  }
  machine = first;
  EXPECT_NE(open().recall("a kind"), nullptr);
}

TEST_F(TuningCaches, AnotherProgramMeasuresForItself) {
  remember("a kind");
  const std::string program = program_identity();
  ASSERT_FALSE(program.empty());
  std::string contents = text();
  const std::size_t at = contents.find(program);
  ASSERT_NE(at, std::string::npos);
  contents[at] = contents[at] == '0' ? '1' : '0';
  write(contents);
  EXPECT_EQ(open().recall("a kind"), nullptr);
  remember("a kind");
  EXPECT_NE(open().recall("a kind"), nullptr) << "its own in the place of the other's";
}

TEST_F(TuningCaches, NumbersOfThreadsAreKeptApart) {
  remember("a kind", 2);
  EXPECT_EQ(open(3).recall("a kind"), nullptr);
  remember("a kind", 3);
  EXPECT_NE(open(2).recall("a kind"), nullptr);
  EXPECT_NE(open(3).recall("a kind"), nullptr);
}

TEST_F(TuningCaches, WhatIsNotWellFormedIsMeasuredAgain) {
  remember("a kind");
  const std::string good = text();
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string contents = good;
    const std::size_t at = contents.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? contents : contents.replace(at, from.size(), to);
  };
  std::string many = "1";
  for (int i = 0; i < 200; ++i) many += ",1";
  const std::vector<std::string> broken = {
      "",
      "null",
      "[]",
      "{}",
      good.substr(0, good.size() / 2),
      std::string(1 << 20, ' ') + good,
      std::string(100000, '['),
      with("tuning 1", "tuning 2"),
      with("\"streams\"", "7"),
      with("\"streams\"", "\"\\u001b[31m\""),
      with("\"streams\"", "\"" + std::string(600, 'x') + "\""),
      with("1.5", "-1.5"),
      with("1.5", "1e400"),
      with("1.5", "\"fast\""),
      with("true", "1"),
      with("\"threads\": 2", "\"threads\": 0"),
      with("\"threads\": 2", "\"threads\": 2.5"),
      with("\"threads\": 2", "\"threads\": 18446744073709551615"),
      with("\"threads\"", "\"ropes\""),
      with("\"trials\": [", "\"trials\": [" + many + ","),
      with("\"layers\": [", "\"layers\": [" + many + ","),
  };
  for (const std::string& contents : broken) {
    write(contents);
    EXPECT_EQ(open().recall("a kind"), nullptr) << contents.substr(0, 200);
    remember("a kind");
    EXPECT_NE(open().recall("a kind"), nullptr) << "it is written anew";
  }
  fs::remove(file());
  EXPECT_EQ(open().recall("a kind"), nullptr);
  remember("a kind");
  const fs::path path = file();
  fs::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(open().recall("a kind"), nullptr) << "a pipe that nobody writes hangs nobody";
}

TEST_F(TuningCaches, TheFileStaysSmall) {
  for (int i = 0; i < 3; ++i) {
    TuningCache cache = open();
    for (int j = 0; j < 60; ++j) cache.keep("kind " + std::to_string(60 * i + j), kTrials, 0.25);
    cache.finish();
  }
  EXPECT_EQ(open().recall("kind 51"), nullptr) << "the oldest go";
  EXPECT_NE(open().recall("kind 52"), nullptr);
  EXPECT_NE(open().recall("kind 179"), nullptr);
  EXPECT_LT(fs::file_size(file()), 200'000U);
}

TEST_F(TuningCaches, WhatOthersWroteInTheMeantimeStays) {
  TuningCache first = open();
  TuningCache second = open();
  first.keep("one kind", kTrials, 0.25);
  second.keep("another", kTrials, 0.25);
  first.finish();
  second.finish();
  EXPECT_NE(open().recall("one kind"), nullptr);
  EXPECT_NE(open().recall("another"), nullptr);
}

TEST_F(TuningCaches, AFolderThatCannotBeWrittenCostsALine) {
  folder = "/proc/moracle";
  remember("a kind");
  EXPECT_EQ(notes.size(), 1U);
}

TEST_F(TuningCaches, TheUserDecides) {
  remember("a kind");
  setenv("MORACLE_TUNING", "default", 1);
  EXPECT_EQ(*open().recall("a kind"), TuningTrials());
  setenv("MORACLE_TUNING", "measure", 1);
  EXPECT_EQ(open().recall("a kind"), nullptr);
  unsetenv("MORACLE_TUNING");
  setenv("MORACLE_STREAMS", "one", 1);
  EXPECT_EQ(*open().recall("a kind"), TuningTrials());
  setenv("MORACLE_STREAMS", "many", 1);
  TuningCache many = open();
  ASSERT_EQ(many.recall("any kind")->size(), 2U);
  EXPECT_EQ(many.recall("any kind")->at(0).value, "many");
  EXPECT_EQ(tuning_text(*many.find("any kind")), "streams many, ahead on, as the environment says");
  setenv("MORACLE_STREAMS", "seven", 1);
  EXPECT_EQ(*open().recall("a kind"), kTrials);
}

TEST_F(TuningCaches, Words) {
  RememberedTuning tuning{.kind = "a kind", .threads = 2, .measured = "2026-11-22", .trials = kTrials};
  EXPECT_EQ(tuning_text(tuning), "streams many (x1.50 over one), run_from 8; measured 2026-11-22");
  const Json json = tuning_json(tuning);
  EXPECT_EQ(json.at("settings"), (Json{{"streams", "many"}, {"run_from", "8"}}));
  EXPECT_EQ(json.at("trials").size(), 3U);
  EXPECT_EQ(json.at("measured"), "2026-11-22");
  tuning.trials[0].taken = false;
  EXPECT_EQ(tuning_text(tuning),
            "defaults kept, nothing was faster by more than noise: streams one, run_from 8; measured 2026-11-22");
  tuning.trials[1].taken = true;
  tuning.trials[2].against = "4";
  EXPECT_EQ(tuning_text(tuning), "streams one, run_from 4 (x0.75 over 8); measured 2026-11-22");
}

}  // namespace
}  // namespace moracle
