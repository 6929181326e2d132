// vLLM's tables against decisions that vLLM's own code made: every choice, every candidate, every reason.
#include <gtest/gtest.h>

#include <fstream>
#include <iostream>
#include <map>

#include "base/json.h"
#include "compat/vllm/request.h"
#include "support/gzip_lines.h"
#include "support/test_data.h"

namespace moracle::vllm {
namespace {

struct Agreement {
  int cases = 0;
  int choice = 0;      // backend, class or error
  int whole = 0;       // and notes
  int candidates = 0;  // of all traces
  int supported = 0;
  int reason = 0;
  int traces = 0;  // equal in all
};

bool same_choice(const Json& a, const Json& b) {
  for (const char* key : {"backend", "experts_class", "error"}) {
    if (a.value(key, Json()) != b.value(key, Json())) return false;
  }
  return true;
}

void compare(const Json& wanted, const Json& found, Agreement& sum) {
  ++sum.cases;
  sum.choice += same_choice(wanted["result"], found["result"]) ? 1 : 0;
  sum.whole += wanted["result"] == found["result"] ? 1 : 0;
  sum.traces += wanted["trace"] == found["trace"] ? 1 : 0;
  const Json& trace = wanted["trace"];
  sum.candidates += static_cast<int>(trace.size());
  for (std::size_t i = 0; i < trace.size() && trace.size() == found["trace"].size(); ++i) {
    const Json& other = found["trace"][i];
    if (trace[i]["backend"] != other["backend"] || trace[i]["experts_class"] != other["experts_class"]) continue;
    sum.supported += trace[i]["supported"] == other["supported"] ? 1 : 0;
    sum.reason += trace[i]["reason_kind"] == other["reason_kind"] ? 1 : 0;
  }
}

std::map<std::string, Agreement> agreement_on(const std::vector<std::string>& lines) {
  std::map<std::string, Agreement> sums;
  for (const std::string& line : lines) {
    const Json wanted = Json::parse(line);
    const auto answer = answer_request(line);
    EXPECT_TRUE(answer.ok()) << wanted["id"] << ": " << (answer.ok() ? "" : answer.error().code);
    if (answer.ok()) compare(wanted, Json::parse(answer.value()), sums[wanted["oracle"].get<std::string>()]);
  }
  return sums;
}

void expect_agreement(const std::map<std::string, Agreement>& sums) {
  for (const auto& [oracle, sum] : sums) {
    std::cout << oracle << ": " << sum.choice << " of " << sum.cases << " choices, " << sum.supported << " of "
              << sum.candidates << " candidates, " << sum.reason << " first reasons, " << sum.traces << " traces\n";
    EXPECT_EQ(sum.choice, sum.cases) << oracle;
    EXPECT_EQ(sum.whole, sum.cases) << oracle;
    EXPECT_EQ(sum.supported, sum.candidates) << oracle;
    EXPECT_EQ(sum.reason, sum.candidates) << oracle;
    EXPECT_EQ(sum.traces, sum.cases) << oracle;
  }
}

TEST(VllmDecisions, AgreeInEveryChoiceCandidateAndReason) {
  const auto lines = test::gzip_lines(test::reference_dir() / "decisions" / "decisions-train.jsonl");
  ASSERT_EQ(lines.size(), 13731U);
  expect_agreement(agreement_on(lines));
}

TEST(VllmDecisions, AgreeInTheCasesOfItsHistory) {
  const auto shared = test::shared_dir();
  if (!shared) GTEST_SKIP() << "the cases of vLLM's history are not here";
  std::ifstream file(*shared / "decisions" / "seed-cases.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  ASSERT_GT(lines.size(), 500U);
  expect_agreement(agreement_on(lines));
}

// A plain question; the named tests change what they are about.
Json request(const std::string& oracle, const std::string& kind, const std::string& arch, const std::string& libs,
             int capability) {
  return {{"id", "test"},
          {"oracle", oracle},
          {"platform", {{"kind", kind}, {"arch", arch}, {"libs", libs}, {"capability", capability}}},
          {"request",
           {{"quant", Json::object()},
            {"activation", "silu"},
            {"routing", "Renormalize"},
            {"shape", {{"hidden", 2048}, {"intermediate", 768}, {"num_experts", 128}, {"topk", 8}}},
            {"parallel", {{"tp", 1}, {"dp", 1}, {"pcp", 1}, {"sp", 1}, {"enable_ep", false}, {"eplb", false}}},
            {"dtype", "bf16"},
            {"moe_backend", "auto"},
            {"env", Json::object()}}}};
}
Json int4(const std::string& packer, bool zero_points, bool may_have_bias) {
  return {{"kind", packer},
          {"bits", 4},
          {"group_size", 128},
          {"weight_key", "kInt4Static"},
          {"may_have_zp", zero_points},
          {"may_have_bias", may_have_bias},
          {"allow_tile_padding", true}};
}
Json answer(const Json& question) {
  const auto text = answer_request(question.dump());
  EXPECT_TRUE(text.ok()) << (text.ok() ? "" : text.error().code + " " + text.error().where);
  return text.ok() ? Json::parse(text.value()) : Json{{"result", Json::object()}, {"trace", Json::array()}};
}
std::string chosen(const Json& question) {
  const Json result = answer(question)["result"];
  return result.contains("backend") ? result["backend"].get<std::string>() : result.value("error", "");
}
Json entry_of(const Json& question, const std::string& backend) {
  const Json reply = answer(question);
  for (const Json& entry : reply["trace"]) {
    if (entry["backend"] == backend) return entry;
  }
  return {};
}

// Case a: the order alone, against a walk that looks at zero points and biases first. Both can be asked for.
TEST(VllmCases, AStaticOrderAndTheWalkThatLooksAtTheCheckpoint) {
  Json walk = request("wna16", "rocm", "gfx942", "all", 94);
  walk["request"]["quant"] = int4("CT", false, false);
  Json order = walk;
  order["oracle"] = "wna16_reverted";
  std::cout << "gfx942, int4 from compressed-tensors: order alone " << chosen(order) << ", walk " << chosen(walk)
            << "\n";
  EXPECT_EQ(chosen(order), "no_backend");
  EXPECT_EQ(chosen(walk), "TRITON");

  walk["request"]["quant"] = int4("AWQ", true, true);
  EXPECT_EQ(chosen(walk), "EMULATION");
  EXPECT_EQ(entry_of(walk, "FLASHINFER_TRTLLM")["reason_kind"], "incompatible:zp_or_bias");
  EXPECT_EQ(entry_of(walk, "TRITON")["reason_kind"], "incompatible:bias");
  order["request"]["quant"] = walk["request"]["quant"];
  EXPECT_EQ(entry_of(order, "FLASHINFER_TRTLLM")["reason_kind"], "device") << "the order never looks at zero points";
}

Json mxfp4_on(const std::string& arch, int capability, const Json& activation_key) {
  Json question = request("mxfp4", "rocm", arch, "all", capability);
  question["request"]["quant"] = {{"weight_key", "kMxfp4Static"}, {"activation_key", activation_key}};
  question["request"]["activation"] = "swigluoai";
  question["request"]["env"]["VLLM_ROCM_USE_AITER"] = "1";
  return question;
}

// Case b: on gfx950 the activation key decides; elsewhere emulation, which says what it is.
TEST(VllmCases, TheActivationKeyDecidesOnGfx950) {
  EXPECT_EQ(chosen(mxfp4_on("gfx950", 95, nullptr)), "AITER_MXFP4_BF16");
  EXPECT_EQ(chosen(mxfp4_on("gfx950", 95, "kFp8StaticTensorSym")), "AITER_MXFP4_FP8");
  const Json elsewhere = mxfp4_on("gfx90a", 90, "kFp8StaticTensorSym");
  EXPECT_EQ(chosen(elsewhere), "EMULATION");
  auto question = read_request(elsewhere.dump());
  ASSERT_TRUE(question.ok());
  Request asked = std::move(question).value();
  asked.policy.explain = true;
  const Decision decision = decide(asked);
  ASSERT_TRUE(decision.chosen.has_value());
  EXPECT_TRUE(decision.trace[*decision.chosen].row->experts->emulation);
  ASSERT_EQ(decision.warnings.size(), 1U);
  EXPECT_NE(decision.warnings[0].find("EMULATION emulates this scheme"), std::string::npos);
  const moracle::Decision shown = explained(decision);
  EXPECT_EQ(shown.winner, nullptr) << "nothing of vLLM runs here";
  EXPECT_EQ(shown.if_built, "emulation");
}

TEST(VllmCases, ADroppedActivationKeyIsSaid) {
  Json question = request("mxfp4", "cuda", "sm90", "default", 90);
  question["request"]["quant"] = {{"weight_key", "kMxfp4Static"}, {"activation_key", "kFp8StaticTensorSym"}};
  question["request"]["activation"] = "swigluoai";
  const Json result = answer(question)["result"];
  EXPECT_EQ(result["backend"], "TRITON");
  EXPECT_EQ(result["notes"], Json::array({"activation_request_dropped_to_bf16"}));
}

// Case c: NVFP4 weights with 16-bit activations on 12.x, by the kernel that quantizes them inside.
TEST(VllmCases, Nvfp4WithPlainActivationsOnSm12x) {
  Json question = request("nvfp4", "cuda", "sm120", "default", 120);
  question["request"]["quant"] = {{"weight_key", "kNvfp4Static"}, {"activation_key", nullptr}};
  EXPECT_EQ(chosen(question), "MARLIN") << "never by itself";
  question["request"]["moe_backend"] = "flashinfer_b12x";
  EXPECT_EQ(chosen(question), "FLASHINFER_B12X");
  question["platform"]["arch"] = "sm100";
  question["platform"]["capability"] = 100;
  EXPECT_EQ(chosen(question), "override_unsupported:device");
}

// Case d: Quark INT8 per channel with dynamic tokens has kernels; a static activation scale has none in this oracle,
// because that checkpoint goes to a kernel of its own.
TEST(VllmCases, QuarkInt8PerChannelAndPerTensor) {
  Json question = request("int8", "cuda", "sm90", "default", 90);
  question["request"]["quant"] = {{"weight_key", "kInt8StaticChannelSym"}, {"activation_key", "kInt8DynamicTokenSym"}};
  EXPECT_EQ(chosen(question), "TRITON");
  question["request"]["quant"] = {{"weight_key", "kInt8StaticTensorSym"}, {"activation_key", "kInt8DynamicTensorSym"}};
  EXPECT_EQ(chosen(question), "TRITON");
  question["request"]["quant"] = {{"weight_key", "kInt8StaticTensorSym"}, {"activation_key", "kInt8DynamicTokenSym"}};
  EXPECT_EQ(chosen(question), "no_backend");
}

// Case f: a pinned backend serves or fails with its reason, and with nobody else's.
TEST(VllmCases, APinnedBackendFailsWithItsTrail) {
  Json question = request("fp8", "cuda", "sm80", "all", 80);
  question["request"]["quant"] = {{"weight_key", "kFp8Static128BlockSym"}, {"activation_key", "kFp8Dynamic128Sym"}};
  question["request"]["moe_backend"] = "deep_gemm";
  const Json reply = answer(question);
  EXPECT_EQ(reply["result"]["error"], "override_unsupported:device");
  ASSERT_EQ(reply["trace"].size(), 1U);
  EXPECT_EQ(reply["trace"][0]["backend"], "DEEPGEMM");
  question["request"]["moe_backend"] = "emulation";
  EXPECT_EQ(chosen(question), "override_unknown_for_oracle");

  auto read = read_request(question.dump());
  ASSERT_TRUE(read.ok());
  Request asked = std::move(read).value();
  asked.policy.explain = true;
  asked.policy.pinned = "deep_gemm";
  const moracle::Decision shown = explained(decide(asked));
  ASSERT_FALSE(shown.trace.empty());
  EXPECT_EQ(shown.trace.front().backend, "DEEPGEMM");
  EXPECT_EQ(shown.trace.front().reasons.front().rule, Rule::device);
  EXPECT_FALSE(shown.trace.front().reasons.front().wanted.empty());
  EXPECT_EQ(shown.trace.back().reasons[shown.trace.back().reasons.size() - 2].rule, Rule::override_);
}

// Case g: users type no dtype suffix, the activation key is part of the question, emulation is asked last.
TEST(VllmCases, NamesCarryNoActivationAndEmulationIsLast) {
  Json question = mxfp4_on("gfx950", 95, nullptr);
  question["request"]["moe_backend"] = "aiter";
  EXPECT_EQ(chosen(question), "AITER_MXFP4_BF16");
  question["request"]["quant"]["activation_key"] = "kMxfp4Dynamic";
  EXPECT_EQ(chosen(question), "AITER_MXFP4_MXFP4");

  const Json trace = answer(mxfp4_on("gfx950", 95, nullptr))["trace"];
  ASSERT_FALSE(trace.empty());
  EXPECT_EQ(trace.back()["backend"], "EMULATION");
}

// On 9.0 alone Humming is ahead of Marlin, and only where its library is.
TEST(VllmCases, HummingIsAheadOfMarlinOnSm90) {
  Json question = request("wna16", "cuda", "sm90", "default", 90);
  question["request"]["quant"] = int4("GPTQ", false, true);
  EXPECT_EQ(chosen(question), "HUMMING");
  question["platform"]["libs"] = "none";
  EXPECT_EQ(chosen(question), "MARLIN");
  question["platform"] = {{"kind", "cuda"}, {"arch", "sm89"}, {"libs", "default"}, {"capability", 89}};
  EXPECT_EQ(chosen(question), "MARLIN");
}

// Over DeepGEMM the fused dispatch routes as DeepSeek-V4 does, and no other way; over CuTe DSL it asks nothing.
TEST(VllmCases, TheFusedDispatchOverDeepGemmChecksTheRouting) {
  Json question = request("mxfp4_deepseek_v4", "cuda", "sm103", "default", 103);
  question["request"]["quant"] = {{"weight_key", "kMxfp4Static"}, {"activation_key", nullptr}};
  question["request"]["parallel"]["dp"] = 2;
  question["request"]["parallel"]["enable_ep"] = true;
  question["request"]["parallel"]["all2all"] = "allgather_reducescatter";
  question["request"]["moe_backend"] = "flashinfer_moe_ep_mega_deep_gemm";
  question["request"]["routing"] = "DeepseekV4";
  EXPECT_EQ(chosen(question), "FLASHINFER_MOE_EP_DEEP_GEMM");
  EXPECT_EQ(entry_of(question, "FLASHINFER_MOE_EP_DEEP_GEMM")["experts_class"], "FlashInferMoeEpExperts");
  for (const char* routing : {"Default", "Renormalize", "Llama4"}) {
    question["request"]["routing"] = routing;
    EXPECT_EQ(chosen(question), "override_unsupported:routing") << routing;
  }
  question["request"]["moe_backend"] = "flashinfer_moe_ep_cutedsl";
  EXPECT_EQ(chosen(question), "FLASHINFER_MOE_EP_CUTEDSL");
}

// AITER serves gfx1250 only where it is switched on, named or not.
TEST(VllmCases, AiterOnGfx1250NeedsItsSwitch) {
  Json mxfp8 = request("mxfp8", "rocm", "gfx1250", "all", 125);
  mxfp8["request"]["quant"] = {{"weight_key", "kMxfp8Static"}, {"activation_key", "kMxfp8Dynamic"}};
  mxfp8["request"]["moe_backend"] = "aiter";
  Json mxfp4 = mxfp4_on("gfx1250", 125, "kMxfp4Dynamic");
  mxfp4["request"]["env"] = Json::object();
  mxfp4["request"]["moe_backend"] = "aiter_triton_mxfp4_mxfp4";
  for (Json* question : {&mxfp8, &mxfp4}) {
    EXPECT_EQ(chosen(*question), "override_unsupported:device");
    (*question)["request"]["env"]["VLLM_ROCM_USE_AITER"] = "1";
  }
  EXPECT_EQ(chosen(mxfp8), "AITER_MXFP8");
  EXPECT_EQ(chosen(mxfp4), "AITER_TRITON_MXFP4_MXFP4");
}

// The generic class for CPUs hands any hidden size to zentorch, where that is.
TEST(VllmCases, ZentorchTakesAnyHiddenSize) {
  Json question = request("unquantized", "cpu", "x86_zen", "all", 0);
  question["request"]["quant"] = {{"weight_key", nullptr}, {"activation_key", nullptr}};
  question["request"]["shape"]["hidden"] = 1000;
  EXPECT_EQ(answer(question)["result"]["experts_class"], "CPUUnquantizedExperts");
  question["platform"]["libs"] = "none";
  EXPECT_EQ(chosen(question), "no_backend");
  const Json trace = answer(question)["trace"];
  EXPECT_EQ(trace.back()["experts_class"], "CPUUnquantizedExperts");
  EXPECT_EQ(trace.back()["reason_kind"], "shape");
}

TEST(VllmRequests, WhatVllmDoesNotKnowIsAnError) {
  const auto code_of = [](const Json& question) {
    const auto result = answer_request(question.dump());
    return result.ok() ? std::string("answered") : result.error().code;
  };
  const Json good = request("int8", "cuda", "sm90", "all", 90);
  EXPECT_EQ(code_of(good), "answered");
  Json bad = good;
  bad["oracle"] = "int9";
  EXPECT_EQ(code_of(bad), "request.unknown");
  bad = good;
  bad["request"]["quant"]["weight_key"] = "kInt9";
  EXPECT_EQ(code_of(bad), "request.unknown");
  bad = good;
  bad["request"]["quant"]["weight_key"] = "custom:uint99";
  EXPECT_EQ(code_of(bad), "request.unknown");
  bad = good;
  bad["request"]["activation"] = "sigh";
  EXPECT_EQ(code_of(bad), "request.unknown");
  bad = good;
  bad["platform"]["arch"] = "s";
  EXPECT_EQ(code_of(bad), "request.unknown");
  bad = good;
  bad["request"]["shape"]["hidden"] = -1;
  EXPECT_EQ(code_of(bad), "config.range");
  bad = good;
  bad["request"].erase("shape");
  EXPECT_EQ(code_of(bad), "config.missing");
  bad = good;
  bad["request"]["env"] = Json::array();
  EXPECT_EQ(code_of(bad), "config.missing");
  EXPECT_FALSE(answer_request("{").ok());
  EXPECT_FALSE(answer_request("[]").ok());
}

}  // namespace
}  // namespace moracle::vllm
