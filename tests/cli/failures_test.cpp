// Wrong usage, broken checkpoints, broken outputs: one clear sentence, the right exit code, nothing left behind.
#include <algorithm>

#include "cli/cli_fixture.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

// Sanitizers map terabytes, so that a program of theirs does not start under a limit of addresses.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kLimitsAddresses = false;
#elif defined(__has_feature)
constexpr bool kLimitsAddresses = !__has_feature(address_sanitizer) && !__has_feature(thread_sanitizer);
#else
constexpr bool kLimitsAddresses = true;
#endif

void expect_failure(const Strings& arguments, int code, const Strings& words) {
  const RunOutcome outcome = moracle_run(arguments);
  std::string line;
  for (const std::string& argument : arguments) line += " " + argument;
  EXPECT_EQ(outcome.code, code) << line << "\n" << outcome.err;
  EXPECT_EQ(outcome.out, "") << line;
  for (const std::string& word : words)
    EXPECT_NE(outcome.err.find(word), std::string::npos) << line << ": no '" << word << "' in\n" << outcome.err;
}

TEST_F(CliTest, WrongUsageIsTwoAndNamesTheOption) {
  const std::string model = model_path();
  expect_failure({}, 2, {"--help"});
  expect_failure({"sing"}, 2, {"moracle: unknown command 'sing'; there are run, ", "--help"});
  expect_failure({"inspec", model}, 2, {"unknown command 'inspec'; did you mean 'inspect'?"});
  expect_failure({"bench", "lyer"}, 2, {"unknown command 'lyer'; did you mean 'layer'?", "moracle bench --help"});
  expect_failure({"foo", "--help"}, 2, {"unknown command 'foo'"});
  expect_failure({"help", "foo"}, 2, {"unknown command 'foo'", "inspect"});
  expect_failure({"help", "run", "foo"}, 2, {"unknown argument 'foo'", "moracle run --help"});
  expect_failure({"help", "bench", "foo"}, 2, {"unknown command 'foo'; there are layer, model"});
  expect_failure({"run"}, 2, {"MODEL is missing", "moracle run --help"});
  expect_failure({"run", model, "-p", "a", "--backend", ""}, 2, {"--backend: wanted a kernel, found ''"});
  expect_failure({"verify", model, "--layout", ""}, 2, {"--layout: wanted a layout, found ''"});
  expect_failure({"explain", "--requests", ""}, 2, {"--requests: wanted a file, found ''"});
#ifdef MORACLE_SERVE
  for (const char* option : {"--api-key", "--api-key-file"})
    expect_failure({"serve", "/nowhere", "--port", "0", option, ""}, 2, {option, "found ''"});
#endif
  expect_failure({"run", model, "--top-k"}, 2, {"--top-k needs a value"});
  expect_failure({"run", model, "-n", "3", "-n", "4"}, 2, {"--max-tokens is given more than once"});
  expect_failure({"logits", model, "--ids", "1", "--out", "/nowhere/at/all"}, 1, {"/nowhere/at/all", "file.write"});
  expect_failure({"run", model, "--nonsense"}, 2, {"unknown option '--nonsense'"});
  expect_failure({"run", model, "--temprature=1"}, 2, {"unknown option '--temprature'; did you mean '--temperature'?"});
  expect_failure({"inspect", model, "more"}, 2, {"unknown argument 'more'"});
  expect_failure({"synth", "qwen3-30b-a3b", "--out", "x"}, 2, {"--scheme S is missing"});
  expect_failure({"run", model}, 2, {"-p"});
  expect_failure({"run", model, "-p", "a", "-f", "b"}, 2, {"--file"});
  for (const auto& [option, value] : std::vector<std::pair<std::string, std::string>>{{"-n", "-3"},
                                                                                      {"-n", "0"},
                                                                                      {"-n", "1e3"},
                                                                                      {"--temperature", "nan"},
                                                                                      {"--temperature", "-1"},
                                                                                      {"--temperature", "inf"},
                                                                                      {"--temperature", "hot"},
                                                                                      {"--top-p", "0"},
                                                                                      {"--top-p", "1.5"},
                                                                                      {"--min-p", "-0.1"},
                                                                                      {"--top-k", "-1"},
                                                                                      {"--seed", "abc"},
                                                                                      {"--threads", "0"},
                                                                                      {"--threads", "99999"},
                                                                                      {"--policy", "wild"}}) {
    const std::string name = option == "-n" ? "--max-tokens" : option;
    expect_failure({"run", model, "-p", "x", option, value}, 2, {name});
  }
  expect_failure({"eval", model}, 2, {"--text"});
  expect_failure({"eval", model, "--text", "x", "--window", "1"}, 2, {"--window"});
  expect_failure({"logits", model, "--ids", "1,x", "--out", "y"}, 2, {"--ids"});
  expect_failure({"logits", model, "--ids", "-1", "--out", "y"}, 2, {"--ids"});
  expect_failure({"bench"}, 2, {"bench --help"});
  expect_failure({"bench", "layer", "--shape", "huge", "--scheme", "bf16"}, 2, {"qwen3-30b-a3b"});
  expect_failure({"bench", "layer", "--shape", "gpt-oss-20b", "--scheme", "int3"}, 2, {"int4-g32"});
  expect_failure({"explain", model, "--device", "abacus"}, 2, {"abacus"});
}

TEST_F(CliTest, WorkThatCannotBeDoneIsOneAndSaysWhy) {
  const std::string model = model_path();
  expect_failure({"run", (folder_ / "nowhere").string(), "-p", "x"}, 1, {"nowhere"});
  expect_failure({"inspect", folder_.string()}, 1, {"config.json"});
  expect_failure({"run", model, "-p", "x", "--backend", "abacus"}, 1, {"abacus"});
  const RunOutcome pinned = moracle_run({"run", model, "-p", "x", "--backend", "marlin"});
  EXPECT_EQ(pinned.code, 1);
  const std::string sentence = pinned.err.substr(std::min(pinned.err.find("moracle: error"), pinned.err.size()));
  EXPECT_EQ(std::count(sentence.begin(), sentence.end(), '\n'), 1) << "one sentence: " << pinned.err;
  EXPECT_NE(pinned.err.find("backend marlin cannot serve this layer here: needs cuda"), std::string::npos)
      << pinned.err;
  EXPECT_NE(pinned.err.find("usable here: "), std::string::npos) << pinned.err;
  expect_failure({"run", model, "-p", ""}, 1, {"prompt"});
  expect_failure({"run", model, "-f", (folder_ / "no.txt").string()}, 1, {"no.txt"});
  expect_failure({"eval", model, "--text", (folder_ / "no.txt").string()}, 1, {"no.txt"});
  expect_failure({"eval", model, "--text", (data_dir() / "checkpoints" / "heldout.txt").string(), "--window", "4096"},
                 1, {"2048"});
  expect_failure({"logits", model, "--ids", "99999", "--out", (folder_ / "x").string()}, 1, {"99999"});
  expect_failure({"bench", "layer", "--shape", "gpt-oss-20b", "--scheme", "int4-g128"}, 1, {"128", "2880"});
  expect_failure({"synth", "qwen3-30b-a3b", "--scheme", "mxfp4", "--out", (folder_ / "s").string()}, 1,
                 {"synth.unsupported", "int4-g128"});
  expect_failure({"synth", "qwen3-30b-a3b", "--scheme", "bf16", "--out", model}, 1, {"synth.exists"});
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CliTest, ATruncatedFileIsRefusedByName) {
  const auto model = copy_model();
  std::filesystem::resize_file(model / "model.safetensors", 7'000'000);
  for (const char* command : {"inspect", "explain", "verify"})
    expect_failure({command, model.string()}, 1, {"model.safetensors"});
  expect_failure({"run", model.string(), "-p", "x"}, 1, {"model.safetensors"});
}

TEST_F(CliTest, ANaNScaleIsRefusedByTensor) {
  const auto model = copy_model();
  const std::string tensor = "model.layers.1.mlp.experts.3.up_proj.scales";
  const TensorPlace place = find_tensor(model / "model.safetensors", tensor);
  overwrite(model / "model.safetensors", place.begin + 10, std::string("\x00\x7E", 2));
  expect_failure({"run", model.string(), "-p", "x"}, 1, {"model.layers.1.mlp.experts.3.up_proj"});
  const Json json = json_of({"verify", model.string()}, 1);
  EXPECT_EQ(json.at("ok"), false);
  EXPECT_EQ(json.at("fault"), "checkpoint");
  ASSERT_FALSE(json.at("checkpoint_findings").empty());
  EXPECT_NE(json.dump().find("experts.3.up_proj"), std::string::npos);
}

TEST_F(CliTest, VerifyFindsDeadAndSaturatedExperts) {
  const auto model = copy_model();
  const auto file = model / "model.safetensors";
  const TensorPlace dead = find_tensor(file, "model.layers.0.mlp.experts.2.down_proj.qweight");
  overwrite(file, dead.begin, std::string(dead.end - dead.begin, '\x88'));
  const TensorPlace saturated = find_tensor(file, "model.layers.2.mlp.experts.5.gate_proj.qweight");
  overwrite(file, saturated.begin, std::string(saturated.end - saturated.begin, '\xF0'));
  const Json json = json_of({"verify", model.string()}, 1);
  EXPECT_EQ(json.at("fault"), "checkpoint");
  const std::string findings = json.at("checkpoint_findings").dump();
  EXPECT_NE(findings.find("model.layers.0.mlp.experts.2.down_proj"), std::string::npos) << findings;
  EXPECT_NE(findings.find("dead expert"), std::string::npos) << findings;
  EXPECT_NE(findings.find("model.layers.2.mlp.experts.5.gate_proj"), std::string::npos) << findings;
  EXPECT_NE(findings.find("saturated"), std::string::npos) << findings;
}

TEST_F(CliTest, ARenamedExpertIsRefusedByName) {
  const auto model = copy_model();
  std::ifstream in(model / "model.safetensors", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  in.close();
  const std::string name = "model.layers.1.mlp.experts.7.gate_proj.qweight";
  const std::size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  overwrite(model / "model.safetensors", at, "model.layers.1.mlp.experts.7.hate_proj.qweight");
  expect_failure({"run", model.string(), "-p", "x"}, 1, {"model.layers.1.mlp.experts.7.gate_proj"});
  expect_failure({"explain", model.string()}, 1, {"model.layers.1.mlp.experts.7.gate_proj"});
}

TEST_F(CliTest, CtrlCKeepsThePartialText) {
  const RunOutcome outcome = moracle_run({"run", model_path(), "-p", "And", "-n", "2000", "--temperature", "1"},
                                         {.signal_on = " ", .signal = SIGINT});
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_FALSE(outcome.signalled);
  const RunOutcome terminated =
      moracle_run({"eval", model_path(), "--text", (data_dir() / "checkpoints" / "heldout.txt").string(), "--backend",
                   "ref", "--threads", "1"},
                  {.signal_on = "moracle: ", .signal = SIGTERM});
  EXPECT_EQ(terminated.code, 143) << terminated.err;
  EXPECT_FALSE(terminated.signalled);
}

TEST_F(CliTest, CtrlCLeavesNoHalfCheckpoint) {
  const RunOutcome outcome = moracle_run(
      {"synth", "qwen3-30b-a3b", "--scheme", "int4-g128", "--layers", "4", "--out", (folder_ / "new").string()},
      {.signal_after_s = 0.3});
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(CliTest, AReaderThatGoesAwayIsNoError) {
  const RunOutcome outcome =
      moracle_run({"run", model_path(), "-p", "And", "-n", "400", "--temperature", "1"}, {.hang_up_after = 5});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_FALSE(outcome.signalled);
  EXPECT_EQ(outcome.err.find("error"), std::string::npos) << outcome.err;
  EXPECT_EQ(moracle_run({"inspect", model_path()}, {.close_stdout = true}).code, 0);
}

TEST_F(CliTest, AFullDiskIsAnError) {
  for (const Strings& arguments : std::vector<Strings>{
           {"inspect", model_path(), "--json"}, {"run", model_path(), "-p", "And", "-n", "4"}, {"--help"}}) {
    const RunOutcome outcome = moracle_run(arguments, {.stdout_path = "/dev/full"});
    EXPECT_EQ(outcome.code, 1) << arguments[0];
    EXPECT_NE(outcome.err.find("standard output"), std::string::npos) << outcome.err;
  }
  expect_failure({"logits", model_path(), "--ids", "1", "--out", "/dev/full"}, 1, {"/dev/full"});
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

// A user who may start no more threads than there are gets an answer, and a warning.
TEST_F(CliTest, FewerThreadsThanAskedForAreAWarning) {
  const std::vector<std::string> run{"run", model_path(), "-p", "ab a", "-n", "2", "--temperature", "0"};
  const auto with_threads = [&](const char* threads, const RunOptions& options) {
    std::vector<std::string> arguments = run;
    arguments.insert(arguments.end(), {"--threads", threads});
    return moracle_run(arguments, options);
  };
  const RunOutcome alone = with_threads("1", {});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const RunOutcome limited = with_threads("4", {.most_tasks = 1});
  if (limited.code == 127) GTEST_SKIP() << "the program cannot be run by another user";
  EXPECT_EQ(limited.code, 0) << limited.err;
  EXPECT_EQ(limited.out, alone.out);
  EXPECT_NE(limited.err.find("moracle: warning: wanted 4 threads, found 1"), std::string::npos) << limited.err;
  EXPECT_NE(limited.err.find("ulimit -u"), std::string::npos) << limited.err;
  EXPECT_EQ(alone.err.find("threads, found"), std::string::npos) << alone.err;
}

// The error has a code, and says what the memory was for and which limit was met.
TEST_F(CliTest, MemoryThatRunsOutIsOneError) {
  if (!kLimitsAddresses) GTEST_SKIP() << "a sanitizer needs more addresses than the test leaves";
  bool refused = false;
  for (const std::uint64_t mib : {24U, 32U, 48U, 64U, 96U, 128U, 192U}) {
    const RunOutcome outcome =
        moracle_run({"run", model_path(), "-p", "x", "-n", "2", "--threads", "1"}, {.address_space = mib << 20U});
    if (outcome.code == 0 || outcome.code == 127) continue;  // enough, or too little to start a program at all
    EXPECT_EQ(outcome.code, 1) << mib << " MiB: " << outcome.err;
    const bool typed =
        outcome.err.find("[memory.") != std::string::npos || outcome.err.find("[file.map]") != std::string::npos;
    EXPECT_TRUE(typed) << mib << " MiB: " << outcome.err;
    refused = refused || typed;
  }
  EXPECT_TRUE(refused);
}

// A long context is addresses until it is used: a limit of them below 64 such contexts stops nobody.
TEST_F(CliTest, LongContextsFitLimitedAddresses) {
  if (!kLimitsAddresses) GTEST_SKIP() << "a sanitizer needs more addresses than the test leaves";
  const auto model = copy_model();
  auto config = read_json(model / "config.json");
  ASSERT_TRUE(config.ok());
  (*config)["max_position_embeddings"] = 1 << 20;
  std::ofstream(model / "config.json") << config->dump();
  const std::vector<std::string> arguments{"run", model.string(), "-p", "x", "-n", "2", "--threads", "1"};
  const RunOutcome free = moracle_run(arguments);
  ASSERT_EQ(free.code, 0) << free.err;
  const RunOutcome limited = moracle_run(arguments, {.address_space = std::uint64_t{1} << 30U});
  EXPECT_EQ(limited.code, 0) << limited.err;
  EXPECT_EQ(limited.out, free.out);
}

// Names of a file drive no terminal, in errors, tables, warnings and documents.
TEST_F(CliTest, NamesOfAFileDriveNoTerminal) {
  const auto is_safe = [](const std::string& text) {
    for (const char* bad : {"\x1b", "\x07", "\u009b", "\u202e"}) {
      if (text.find(bad) != std::string::npos) return false;
    }
    return true;
  };
  const auto model = copy_model();
  auto config = read_json(model / "config.json");
  ASSERT_TRUE(config.ok());
  const std::string evil = "\x1b]0;title\x07\u009b31m\u202e" + std::string(100'000, 'x');
  const auto write = [&](const Json& changed) { std::ofstream(model / "config.json") << changed.dump(); };
  for (const char* key : {"model_type", "dtype", "hidden_act"}) {
    Json changed = *config;
    changed[key] = evil;
    write(changed);
    const RunOutcome outcome = moracle_run({"inspect", model.string()});
    EXPECT_EQ(outcome.code, 1) << key;
    EXPECT_TRUE(is_safe(outcome.err)) << outcome.err;
    EXPECT_LT(outcome.err.size(), 4096U) << key;
    EXPECT_NE(outcome.err.find("\\x1b]0;title"), std::string::npos) << outcome.err;
  }
  // A name of the exclude list that matches nothing is a warning.
  Json changed = *config;
  changed["quantization_config"]["modules_to_not_convert"] = {evil};
  changed["quantization_config"]["dynamic"] = {{"-:" + evil, Json::object()}};
  write(changed);
  for (const char* command : {"inspect", "explain", "plan"}) {
    for (const bool json : {false, true}) {
      std::vector<std::string> arguments{command, model.string()};
      if (json) arguments.emplace_back("--json");
      const RunOutcome outcome = moracle_run(arguments);
      EXPECT_TRUE(is_safe(outcome.out)) << command;
      EXPECT_TRUE(is_safe(outcome.err)) << command << outcome.err;
      EXPECT_LT(outcome.err.size(), 4096U) << command;
    }
  }
}

TEST_F(CliTest, APublishersWrongFileIsNoWrongUsage) {
  const auto model = copy_model();
  std::ofstream(model / "generation_config.json") << R"({"do_sample": true, "temperature": -1})";
  expect_failure({"run", model.string(), "-p", "x", "-n", "2"}, 1,
                 {"generation_config.json", "/temperature", "config.range"});
}

}  // namespace
}  // namespace moracle::test
