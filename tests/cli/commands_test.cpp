// The shapes of every command's answer, on a small real checkpoint.
#include <cmath>

#include "cli/cli_fixture.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

void expect_keys(const Json& object, const Strings& keys) {
  ASSERT_TRUE(object.is_object()) << object.dump();
  for (const std::string& key : keys) EXPECT_TRUE(object.contains(key)) << key << " in " << object.dump();
}

Json reference(const char* name) {
  auto json = read_json(std::filesystem::path(model_path(name)) / "ref.json");
  EXPECT_TRUE(json.ok());
  return *json;
}

double eval_nll(const char* model, const Strings& more) {
  Strings arguments = {
      "eval", model_path(model), "--text", (data_dir() / "checkpoints" / "heldout.txt").string(), "--limit", "4096"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Json json = json_of(arguments);
  expect_keys(json, {"tokens", "scored", "mean_nll", "perplexity", "seconds"});
  EXPECT_EQ(json.at("tokens"), 4096);
  EXPECT_EQ(json.at("scored"), 4088);
  EXPECT_NEAR(json.at("perplexity").get<double>(), std::exp(json.at("mean_nll").get<double>()), 1e-9);
  return json.at("mean_nll").get<double>();
}

TEST_F(CliTest, RunPrintsTheContract) {
  const Json json = json_of({"run", model_path(), "-p", "And God said unto Moses,", "-n", "8", "--temperature", "0"});
  expect_keys(json, {"text", "prompt_ids", "ids", "finish_reason", "backend", "timing", "peak_rss_bytes"});
  expect_keys(json.at("timing"),
              {"load_s", "prefill_s", "prefill_tokens", "decode_s", "decode_tokens", "prefill_tok_s", "decode_tok_s"});
  EXPECT_EQ(json.at("ids").size(), 8U);
  EXPECT_EQ(json.at("finish_reason"), "length");
  EXPECT_FALSE(json.at("prompt_ids").empty());
  EXPECT_TRUE(json.at("backend").contains("experts"));
  EXPECT_FALSE(json.at("text").get<std::string>().empty());
}

TEST_F(CliTest, RunIsTheSameForAnyNumberOfThreadsAndFromRunToRun) {
  const Strings arguments = {
      "run",           model_path(), "-p",       "The purpose of the package manager is to", "-n", "24",
      "--temperature", "0",          "--threads"};
  const auto with = [&](const char* threads) {
    Strings all = arguments;
    all.emplace_back(threads);
    return json_of(all);
  };
  const Json one = with("1");
  EXPECT_EQ(one.at("ids"), with("2").at("ids"));
  EXPECT_EQ(one.at("text"), with("3").at("text"));
}

TEST_F(CliTest, RunStreamsTheSameTextAsJsonTells) {
  const Strings arguments = {"run", model_path(),    "-p",  "In the beginning", "-n",
                             "12",  "--temperature", "0.8", "--seed",           "5"};
  const RunOutcome plain = moracle_run(arguments);
  EXPECT_EQ(plain.code, 0);
  EXPECT_EQ(plain.out, json_of(arguments).at("text").get<std::string>() + "\n");
  EXPECT_NE(plain.err.find("tokens/s"), std::string::npos);
  EXPECT_EQ(plain.err.find('\r'), std::string::npos) << "a progress bar outside of a terminal";
}

TEST_F(CliTest, RunReadsPromptsFromFilesAndAppliesTheTemplate) {
  std::ofstream(folder_ / "prompt.txt") << "And God said unto Moses,";
  const Json file = json_of({"run", model_path(), "-f", (folder_ / "prompt.txt").string(), "-n", "2"});
  const Json text = json_of({"run", model_path(), "-p", "And God said unto Moses,", "-n", "2"});
  EXPECT_EQ(file.at("prompt_ids"), text.at("prompt_ids"));
  const Json chat = json_of({"run", model_path(), "--chat", "-p", "And God said unto Moses,", "-n", "2"});
  EXPECT_EQ(chat.at("prompt_ids").front(), 4094);  // <|im_start|>
  EXPECT_GT(chat.at("prompt_ids").size(), text.at("prompt_ids").size());
}

TEST_F(CliTest, EvalAgreesWithTheReference) {
  for (const char* model : {"qwen3moe-gptq-w4g128-sym", "mixtral-awq-w4g32"}) {
    const double wanted = reference(model).at("nll").at("weight_only_dequant_fp32").get<double>();
    const double chosen = eval_nll(model, {});
    std::printf("[ %s: default NLL %.6f, reference %.6f ]\n", model, chosen, wanted);
    EXPECT_NEAR(chosen, wanted, wanted * 1e-3) << model;
  }
}

TEST_F(CliTest, EvalOfTheReferenceBackendAgreesClosely) {
  const char* model = "qwen3moe-gptq-w4g128-sym";
  const double wanted = reference(model).at("nll").at("weight_only_dequant_fp32").get<double>();
  EXPECT_NEAR(eval_nll(model, {"--backend", "ref"}), wanted, wanted * 1e-4);
}

TEST_F(CliTest, LogitsWritesATensor) {
  const auto file = folder_ / "logits.safetensors";
  const Json json = json_of({"logits", model_path(), "--ids", "1,2,3", "--out", file.string()});
  EXPECT_EQ(json.at("tokens"), 3);
  const TensorPlace place = find_tensor(file, "logits");
  EXPECT_EQ(place.end - place.begin, 3U * 4096 * 4);
  EXPECT_EQ(std::filesystem::file_size(file), place.end);
}

TEST_F(CliTest, InspectPrintsTheContract) {
  const Json json = json_of({"inspect", model_path()});
  expect_keys(json, {"architecture", "format", "total_bytes", "parameters", "experts_per_layer", "experts_per_token",
                     "layers", "warnings"});
  EXPECT_EQ(json.at("architecture"), "qwen3_moe");
  EXPECT_EQ(json.at("format"), "gptq");
  EXPECT_EQ(json.at("experts_per_layer"), 16);
  EXPECT_EQ(json.at("experts_per_token"), 4);
  int experts = 0;
  for (const Json& layer : json.at("layers")) {
    expect_keys(layer, {"name", "kind", "scheme", "excluded_by"});
    experts += layer.at("kind") == "experts" ? 1 : 0;
  }
  EXPECT_EQ(experts, 3);
  const RunOutcome text = moracle_run({"inspect", model_path()});
  EXPECT_EQ(text.code, 0);
  EXPECT_NE(text.out.find("qwen3_moe"), std::string::npos);
}

TEST_F(CliTest, ExplainPrintsTheContract) {
  const Json json = json_of({"explain", model_path()});
  expect_keys(json, {"device", "layers"});
  ASSERT_FALSE(json.at("layers").empty());
  for (const Json& layer : json.at("layers")) {
    expect_keys(layer, {"names", "scheme", "backend", "trace", "warnings"});
    expect_keys(layer.at("scheme"), {"weight", "activation"});
    for (const Json& candidate : layer.at("trace")) {
      expect_keys(candidate, {"backend", "supported", "kind", "reasons"});
      for (const Json& reason : candidate.at("reasons")) expect_keys(reason, {"rule", "wanted", "found"});
      EXPECT_EQ(candidate.at("supported"), candidate.at("reasons").empty());
    }
  }
  EXPECT_EQ(moracle_run({"explain", model_path(), "--all"}).code, 0);
}

TEST_F(CliTest, ExplainDecidesForOtherMachines) {
  const Json names = json_of({"devices"}).at("names");
  ASSERT_FALSE(names.empty());
  for (const Json& name : names) {
    const Json json = json_of({"explain", model_path(), "--device", name.get<std::string>()});
    EXPECT_FALSE(json.at("layers").empty()) << name;
  }
  const Json vllm = json_of({"explain", model_path(), "--engine", "vllm", "--device", "h200"});
  ASSERT_FALSE(vllm.at("layers").empty());
  EXPECT_TRUE(vllm.at("layers").at(0).at("backend").is_null()) << "none of its kernels is here";
  EXPECT_FALSE(vllm.at("layers").at(0).at("trace").empty());
  // The engine's earlier name.
  EXPECT_EQ(json_of({"explain", model_path(), "--engine", "reference", "--device", "h200"}), vllm);
}

TEST_F(CliTest, ABoundOfMemoryIsPlannedObeyedAndRefused) {
  EXPECT_TRUE(json_of({"plan", model_path()}).at("bound").is_null());
  const Json fits = json_of({"plan", model_path(), "--memory", "8G"}).at("bound");
  EXPECT_TRUE(fits.at("all_fit"));
  EXPECT_EQ(fits.at("slots"), 0);
  const RunOutcome text = moracle_run({"plan", model_path(), "--memory", "8G"});
  EXPECT_NE(text.out.find("all experts fit"), std::string::npos) << text.out;
  for (const char* command : {"plan", "run", "logits", "eval"}) {
    std::vector<std::string> arguments{command, model_path(), "--memory", "1M"};
    if (std::string_view(command) == "run") arguments.insert(arguments.end(), {"-p", "a", "-n", "1"});
    if (std::string_view(command) == "logits")
      arguments.insert(arguments.end(), {"--ids", "1,2", "--out", (folder_ / "logits.safetensors").string()});
    if (std::string_view(command) == "eval")
      arguments.insert(arguments.end(), {"--text", (data_dir() / "checkpoints" / "heldout.txt").string()});
    const RunOutcome refused = moracle_run(arguments);
    EXPECT_NE(refused.code, 0) << command;
    EXPECT_NE(refused.err.find("[memory.floor]"), std::string::npos) << command << ": " << refused.err;
  }
  const RunOutcome answered =
      moracle_run({"run", model_path(), "--memory", "4G", "-p", "a", "-n", "4", "--temperature", "0"});
  EXPECT_EQ(answered.code, 0) << answered.err;
  EXPECT_EQ(answered.out, moracle_run({"run", model_path(), "-p", "a", "-n", "4", "--temperature", "0"}).out);
}

TEST_F(CliTest, PlanPrintsTheContract) {
  const Json plan = json_of({"plan", model_path(), "--context", "128"});
  EXPECT_TRUE(plan["fits"]);
  EXPECT_TRUE(plan["packed"]);
  EXPECT_EQ(plan["layers"].size(), 3U);
  EXPECT_EQ(plan["layers"][0]["name"], "model.layers.0");
  EXPECT_EQ(plan["total_bytes"].get<std::int64_t>(), plan["weight_bytes"].get<std::int64_t>() +
                                                         plan["kv_cache_bytes"].get<std::int64_t>() +
                                                         plan["workspace_bytes"].get<std::int64_t>());
  // Two key heads of 64 for 128 positions, keys and values in bf16, three layers.
  EXPECT_EQ(plan["kv_cache_bytes"], 3 * 128 * 2 * 2 * 64 * 2);
  EXPECT_FALSE(plan["tp_degrees"][1]["legal"]);
  EXPECT_TRUE(plan["ep_degrees"][1]["legal"]);
  EXPECT_EQ(plan["layers"][0]["experts_kernel"]["kind"], "native");
  const Json elsewhere = json_of({"plan", model_path(), "--device", "t4", "--context", "128"});
  EXPECT_FALSE(elsewhere["packed"]);
  EXPECT_EQ(elsewhere["layers"][0]["experts_backend"], nullptr);
  const Json& kernel = elsewhere["layers"][0]["experts_kernel"];
  EXPECT_EQ(kernel["card"], "marlin.wna16");
  EXPECT_EQ(kernel["kind"], "external");
  EXPECT_TRUE(kernel["packed"]);
  EXPECT_LT(kernel["bytes"].get<std::int64_t>(), elsewhere["layers"][0]["feed_forward_bytes"].get<std::int64_t>());
  EXPECT_NE(moracle_run({"plan", model_path(), "--device", "t4"}).out.find("marlin (layout known)"), std::string::npos);
  const RunOutcome text = moracle_run({"plan", model_path(), "--ep", "2"});
  EXPECT_EQ(text.code, 0) << text.err;
  EXPECT_NE(text.out.find("2 ranks"), std::string::npos) << text.out;
  const RunOutcome refused = moracle_run({"plan", model_path(), "--tp", "2"});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find("--tp 2 leaves 64 columns a rank, wanted whole groups of 128 columns a rank"),
            std::string::npos)
      << refused.err;
  EXPECT_NE(refused.err.find("; legal: 1 "), std::string::npos) << refused.err;
}

TEST_F(CliTest, VerifyFindsASoundCheckpointSound) {
  const Json json = json_of({"verify", model_path()});
  expect_keys(json, {"layers", "checkpoint_findings", "ok"});
  EXPECT_EQ(json.at("ok"), true);
  ASSERT_EQ(json.at("layers").size(), 3U);
  for (const Json& layer : json.at("layers")) {
    expect_keys(layer, {"name", "backend", "max_abs_err", "mean_abs_err", "rel_err", "cosine"});
    EXPECT_GT(layer.at("cosine").get<double>(), 0.9999);
  }
}

TEST_F(CliTest, VerifyHoldsRanksToTheWhole) {
  const Json json = json_of({"verify", model_path(), "--ep", "4"});
  EXPECT_EQ(json.at("ok"), true);
  for (const Json& layer : json.at("layers")) {
    EXPECT_EQ(layer.at("ranks").at("same_bits"), true);
    EXPECT_LE(layer.at("ranks").at("rel_err").get<double>(), 1e-6);
  }
  const RunOutcome cut = moracle_run({"verify", model_path(), "--tp", "2"});
  EXPECT_EQ(cut.code, 1);
  EXPECT_NE(cut.err.find("--tp 2 leaves 64 columns a rank"), std::string::npos) << cut.err;
  const RunOutcome uneven = moracle_run({"verify", model_path(), "--ep", "3"});
  EXPECT_NE(uneven.err.find("--ep 3 does not divide 16 experts"), std::string::npos) << uneven.err;
}

TEST_F(CliTest, PlanTellsWhetherNodesPay) {
  const Json slow = json_of({"plan", model_path(), "--nodes", "2", "--link", "10gbe", "--bandwidth", "20"}).at("nodes");
  EXPECT_EQ(slow.at("pays"), false);
  EXPECT_EQ(slow.at("replicas_fit"), true);
  EXPECT_TRUE(slow.at("tp_rank_bytes").is_null()) << "groups of 128 columns";
  EXPECT_NE(slow.at("tp_rule").get<std::string>().find("64 columns a rank"), std::string::npos);
  ASSERT_EQ(slow.at("steps").size(), 4U);
  const Json& one = slow.at("steps").at(0);
  EXPECT_NEAR(one.at("tp_ms").get<double>(), one.at("one_ms").get<double>() / 2 + one.at("tp_link_ms").get<double>(),
              1e-9);
  // Three layers, two sums of 256 numbers of bf16 each, 130 us and 1.2 GB/s.
  EXPECT_NEAR(one.at("tp_link_ms").get<double>(), 6 * (0.130 + 512 / 1.2e6), 1e-9);
  const Json quick =
      json_of({"plan", model_path(), "--nodes", "2", "--link", "60:25", "--bandwidth", "20"}).at("nodes");
  EXPECT_NEAR(quick.at("steps").at(0).at("tp_link_ms").get<double>(), 6 * (0.060 + 512 / 3.125e6), 1e-9);
  EXPECT_NE(moracle_run({"plan", model_path(), "--nodes", "2", "--link", "wire"}).err.find("25gbe"), std::string::npos);
  EXPECT_NE(moracle_run({"plan", model_path(), "--nodes", "2", "--device", "zen4"}).err.find("--bandwidth"),
            std::string::npos);
  const RunOutcome text = moracle_run({"plan", model_path(), "--nodes", "2", "--bandwidth", "20"});
  EXPECT_NE(text.out.find("do not cut this model over this link"), std::string::npos) << text.out;
}

TEST_F(CliTest, RanksAreVllms) {
  const RunOutcome asked = moracle_run({"run", model_path(), "--tp", "2", "--prompt", "x"});
  EXPECT_EQ(asked.code, 2);
  EXPECT_NE(asked.err.find("--tensor-parallel-size"), std::string::npos) << asked.err;
}

TEST_F(CliTest, VerifyComputesFromAnotherDevicesLayout) {
  for (const char* layout : {"marlin", "triton"}) {
    const Json json = json_of({"verify", model_path(), "--layout", layout});
    EXPECT_EQ(json.at("ok"), true) << layout;
    for (const Json& layer : json.at("layers")) {
      EXPECT_EQ(layer.at("backend"), layout);
      EXPECT_LT(layer.at("rel_err").get<double>(), 1e-5) << "16-bit scales keep every bit there";
    }
  }
  EXPECT_NE(moracle_run({"verify", model_path(), "--layout", "avx2"}).code, 0) << "no layout of another device";
}

// Lines of a file, timed with routings that other engines draw too; lines that cannot be timed are told and left out.
TEST_F(CliTest, BenchLayerTimesAFileOfCells) {
  const test::TemporaryFolder folder;
  const std::string cells = folder.path() / "cells.txt";
  const std::string out = folder.path() / "out.json";
  std::ofstream(cells)
      << "# shape scheme tokens\nE=8,K=256,N=128,topk=2 int4-g128 1 3\n\nE=4,K=64,N=64,topk=1 bf16 2 # one\n";
  const Json json = json_of({"bench", "layer", "--cells", cells, "--routing", "spec", "--out", out});
  ASSERT_EQ(json.size(), 3U);
  for (const Json& row : json) {
    expect_keys(row,
                {"shape", "scheme", "M", "us", "min_us", "max_us", "calls", "copies", "experts", "backend", "rel_err"});
    EXPECT_GT(row.at("us").get<double>(), 0.0);
    EXPECT_EQ(row.at("calls"), 12);
    EXPECT_LT(row.at("rel_err").get<double>(), 0.012);
  }
  EXPECT_EQ(json[0].at("experts"), 2.0);
  EXPECT_EQ(Json::parse(std::ifstream(out)), json);
  std::ofstream(cells) << "Q int4-g128 1 none\n";
  const auto bad = moracle_run({"bench", "layer", "--cells", cells, "--routing", "spec"});
  EXPECT_NE(bad.code, 0);
  EXPECT_NE(bad.err.find("line 1"), std::string::npos) << bad.err;
  EXPECT_EQ(moracle_run({"bench", "layer", "--cells", cells}).code, 2) << "only with those routings";
  EXPECT_EQ(moracle_run({"bench", "layer", "--shape", "qwen3-30b-a3b"}).code, 2) << "no scheme";
}

TEST_F(CliTest, BenchLayerPrintsTheContract) {
  const Json json = json_of({"bench", "layer", "--shape", "E=8,K=256,N=128,topk=2", "--scheme", "int4-g128", "--tokens",
                             "1,4", "--no-baseline"});
  expect_keys(json, {"backend", "device", "threads", "rows"});
  ASSERT_EQ(json.at("rows").size(), 2U);
  for (const Json& row : json.at("rows")) {
    expect_keys(row, {"tokens", "median_us", "min_us", "experts", "weight_bytes", "weight_gb_s", "gflop_s", "rel_err"});
    EXPECT_LT(row.at("rel_err").get<double>(), 0.012);
    expect_keys(row.at("calibration"), {"before", "after"});
    for (const auto& [when, limits] : row.at("calibration").items()) {
      expect_keys(limits, {"read_gb_s", "gflop_s", "unit"});
      EXPECT_GT(limits.at("read_gb_s").get<double>(), 0.0) << when;
      EXPECT_GT(limits.at("gflop_s").get<double>(), 0.0) << when;
    }
    EXPECT_GT(row.at("floor_us").get<double>(), 0.0);
    const auto experts = row.at("experts").get<std::int64_t>();
    EXPECT_EQ(row.at("weight_bytes").get<std::int64_t>(), experts * 3 * (256 * 128 / 2 + 256 * 128 / 128 * 2));
  }
  EXPECT_EQ(json.at("rows")[0].at("experts"), 2);
}

TEST_F(CliTest, BenchModelPrintsTheContract) {
  const Json json = json_of({"bench", "model", model_path(), "--prompt", "16", "--generate", "4"});
  expect_keys(json, {"load_s", "prefill_tok_s", "decode_tok_s", "peak_rss_bytes", "backend", "threads"});
  EXPECT_EQ(json.at("decode_tokens"), 4);
  EXPECT_GT(json.at("decode_tok_s").get<double>(), 0.0);
  const Json& weights = json.at("load_weights");
  expect_keys(weights,
              {"bytes", "s", "bytes_per_s", "copy_bytes_per_s", "read_bytes_per_s", "device_bytes_per_s", "share"});
  EXPECT_GT(weights.at("bytes").get<double>(), 0.0);
  EXPECT_LE(weights.at("s").get<double>(), json.at("load_s").get<double>());
  const auto rate = [&](const char* name) { return weights.at(name).get<double>(); };
  const bool by_files = rate("read_bytes_per_s") > 0 && rate("read_bytes_per_s") < rate("copy_bytes_per_s");
  const double bound = rate(by_files ? "read_bytes_per_s" : "copy_bytes_per_s");
  EXPECT_NEAR(rate("share"), rate("bytes_per_s") / bound, 1e-9);
}

TEST_F(CliTest, BenchModelWritesWhichExpertsCallsChose) {
  const std::string path = (folder_ / "routing.jsonl").string();
  json_of({"bench", "model", model_path(), "--prompt", "9", "--generate", "3", "--routing-trace", path});
  std::ifstream file(path);
  std::vector<Json> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
  ASSERT_EQ(lines.size(), 1U + 1U + 3U) << "the model, the prompt, and each token";
  const auto layers = lines.front().at("layers").get<std::size_t>();
  const auto experts = lines.front().at("experts").get<std::int64_t>();
  for (std::size_t call = 1; call < lines.size(); ++call) {
    ASSERT_EQ(lines[call].size(), layers);
    for (const Json& chosen : lines[call]) {
      const auto ids = chosen.get<std::vector<std::int64_t>>();
      EXPECT_FALSE(ids.empty());
      EXPECT_TRUE(std::ranges::is_sorted(ids));
      EXPECT_LT(ids.back(), experts);
      EXPECT_EQ(ids.size(), call == 1 ? ids.size() : lines[2][0].size()) << "as many as a token takes";
    }
  }
  EXPECT_EQ(moracle_run({"bench", "model", model_path(), "--routing-trace", folder_.string()}).code, 1) << "a folder";
}

TEST_F(CliTest, BenchModelTimesSeveralSequences) {
  const Json json = json_of(
      {"bench", "model", model_path(), "--prompt", "8", "--generate", "2", "--runs", "2", "--sequences", "1,3"});
  ASSERT_EQ(json.at("rows").size(), 2U);
  EXPECT_EQ(json.at("rows")[1].at("sequences"), 3);
  EXPECT_EQ(json.at("runs"), 2);
  for (const Json& row : json.at("rows")) {
    EXPECT_GT(row.at("decode_tok_s").get<double>(), 0.0);
    EXPECT_LE(row.at("least_tok_s").get<double>(), row.at("most_tok_s").get<double>());
  }
}

TEST_F(CliTest, BenchModelDraws) {
  const Json json = json_of(
      {"bench", "model", model_path(), "--generate", "3", "--prompt", "4", "--temperature", "0.5", "--top-k", "7"});
  EXPECT_EQ(json.at("temperature"), 0.5);
  EXPECT_EQ(json.at("top_k"), 7);
  EXPECT_EQ(json.at("decode_tokens"), 3);
  EXPECT_EQ(moracle_run({"bench", "model", model_path(), "--temperature", "-1"}).code, 2);
}

// Drawn among the likeliest, with the head packed for it, and among all with the same seed and so small a top-p that
// both come to the same.
TEST_F(CliTest, RunDrawsAlikeHoweverTheHeadIsPacked) {
  const auto ids = [&](const char* top_k, const char* top_p) {
    return json_of({"run", model_path(), "-p", "a", "-n", "12", "--json", "--temperature", "0.8", "--seed", "3",
                    "--top-k", top_k, "--top-p", top_p})
        .at("ids");
  };
  EXPECT_EQ(ids("64", "0.000001"), ids("0", "0.000001"));
}

// Scripts may still pass it. A load writes nothing: no folder of the user appears.
TEST_F(CliTest, NoCacheIsAcceptedAndNothingIsKept) {
  const std::string home = (folder_ / "home").string();
  std::filesystem::create_directory(home);
  const std::vector<std::string> words{"run", model_path(), "-p", "a", "-n", "2"};
  std::vector<std::string> at_home{"/usr/bin/env", "HOME=" + home, "XDG_CACHE_HOME=" + home + "/cache", MORACLE_BINARY};
  at_home.insert(at_home.end(), words.begin(), words.end());
  const RunOutcome plain = run_process(at_home);
  EXPECT_EQ(plain.code, 0) << plain.err;
  EXPECT_EQ(plain.err.find("--no-cache"), std::string::npos) << plain.err;
  EXPECT_TRUE(std::filesystem::is_empty(home));
  for (std::vector<std::string> command : {words, {"explain", model_path()}, {"verify", model_path()}}) {
    command.emplace_back("--no-cache");
    const RunOutcome outcome = moracle_run(command);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_NE(outcome.err.find("--no-cache does nothing"), std::string::npos) << outcome.err;
  }
  EXPECT_EQ(moracle_run({"run", model_path(), "--cache-dir", home}).code, 2);
}

// A flag: its value stands behind "=", and the word behind a bare one is the model.
TEST_F(CliTest, BatchInvarianceIsAskedForAlikeInEveryCommand) {
  const auto rules_out_kernels = [&](const std::string& option, const std::string& machine) {
    const Json json = json_of({"explain", option, model_path(), "--device", machine});
    return json.dump().find(R"("rule":"batch_invariance")") != std::string::npos;
  };
  EXPECT_TRUE(rules_out_kernels("--batch-invariant", "sapphire-rapids"));
  EXPECT_TRUE(rules_out_kernels("--batch-invariant=on", "sapphire-rapids"));
  EXPECT_FALSE(rules_out_kernels("--batch-invariant=off", "sapphire-rapids"));
  EXPECT_FALSE(rules_out_kernels("--batch-invariant=auto", "sapphire-rapids"));
  EXPECT_TRUE(rules_out_kernels("--batch-invariant=auto", "zen4"));

  std::vector<std::vector<std::string>> commands{
      {"run", "-p", "a"},
      {"eval", "--text", (data_dir() / "checkpoints" / "heldout.txt").string()},
      {"logits", "--ids", "1", "--out", "x"},
      {"verify"},
      {"plan"},
      {"bench", "model"}};
#ifdef MORACLE_SERVE
  commands.insert(commands.end(), {{"serve", "--port", "0"}, {"bench", "serve"}});
#endif
  for (std::vector<std::string> command : commands) {
    command.insert(command.end(), {"--batch-invariant", "/nowhere"});
    const RunOutcome absent = moracle_run(command);
    EXPECT_EQ(absent.code, 1) << command.front() << absent.err;
    EXPECT_NE(absent.err.find("/nowhere: wanted a model folder"), std::string::npos) << absent.err;
    command[command.size() - 2] = "--batch-invariant=some";
    const RunOutcome wrong = moracle_run(command);
    EXPECT_EQ(wrong.code, 2) << command.front();
    EXPECT_NE(wrong.err.find("--batch-invariant: wanted on or off or auto, found 'some'"), std::string::npos)
        << wrong.err;
  }
}

TEST_F(CliTest, BenchModelTellsWhereTheTimeGoes) {
  const Json json = json_of({"bench", "model", model_path(), "--prompt", "64", "--generate", "16"});
  double seconds = 0;
  for (const char* part : {"prefill_phases", "decode_phases"}) {
    const Json& phases = json.at(part);
    expect_keys(phases, {"embedding", "norms", "projections", "attention", "routing", "experts", "shared_experts",
                         "dense", "head", "other"});
    double shares = 0;
    for (const auto& [name, phase] : phases.items()) {
      seconds += phase.at("s").get<double>();
      shares += phase.at("share").get<double>();
    }
    EXPECT_NEAR(shares, 1.0, 1e-9) << part;
    for (const char* used : {"embedding", "norms", "projections", "attention", "routing", "experts", "head", "other"}) {
      EXPECT_GT(phases.at(used).at("s").get<double>(), 0.0) << part << " " << used;
    }
    EXPECT_EQ(phases.at("shared_experts").at("s"), 0.0) << "a model without them";
  }
  const double whole = 64 / json.at("prefill_tok_s").get<double>() + 16 / json.at("decode_tok_s").get<double>();
  EXPECT_NEAR(seconds, whole, 0.1 * whole + 1e-3) << "every moment belongs to one phase";
}

TEST_F(CliTest, DevicesTellsMachineAndNames) {
  const Json json = json_of({"devices"});
  expect_keys(json, {"machine", "names"});
  EXPECT_EQ(json.at("names")[0], "cpu");
}

TEST_F(CliTest, HelpHasAnExampleEverywhere) {
  for (const Strings& command : std::vector<Strings>{{},
                                                     {"run"},
                                                     {"inspect"},
                                                     {"explain"},
                                                     {"plan"},
                                                     {"eval"},
                                                     {"logits"},
                                                     {"verify"},
                                                     {"bench"},
                                                     {"bench", "layer"},
                                                     {"bench", "model"},
                                                     {"synth"},
                                                     {"devices"}}) {
    Strings arguments = command;
    arguments.emplace_back("--help");
    const RunOutcome outcome = moracle_run(arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Example:"), std::string::npos) << outcome.out;
    std::string usage = "Usage: moracle ";
    for (const std::string& name : command) usage += name + " ";
    EXPECT_NE(outcome.out.find(usage + "["), std::string::npos) << outcome.out;
  }
  EXPECT_EQ(moracle_run({"--version"}).out.rfind("moracle ", 0), 0U);
}

}  // namespace
}  // namespace moracle::test
