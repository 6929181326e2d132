// Choices that went wrong elsewhere, each by vLLM's tables and by Moracle's own, on named machines.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <iterator>

#include "compat/vllm/layer.h"
#include "compat/vllm/tables/tables.h"
#include "kernels/kernel.h"
#include "kernels/schemes.card.h"

namespace moracle {
namespace {

constexpr QuantKey kInt4{.element = Element::int4, .scale = ScaleType::f16, .granularity = Granularity::group(128)};
constexpr QuantKey kMxfp4{.element = Element::e2m1, .scale = ScaleType::e8m0, .granularity = Granularity::group(32)};
constexpr QuantKey kNvfp4{
    .element = Element::e2m1, .scale = ScaleType::e4m3, .granularity = Granularity::group(16), .second_level = true};

Problem experts(const QuantKey& weight, std::optional<QuantKey> activation = std::nullopt) {
  return {.scheme = {.weight = weight, .activation = activation},
          .experts = 128,
          .top_k = 8,
          .hidden = 2048,
          .intermediate = 768};
}

Machine machine(const std::string& name, const char* more = nullptr) {
  Machine found = *resolve_machine(name);
  if (more != nullptr) found.libraries.emplace_back(more);
  return found;
}

Decision own(const Problem& problem, const Machine& where, const Policy& policy = {}) {
  return decide(problem, where, policy, **table_for(problem.scheme));
}

enum class Order : std::uint8_t { capable, alone };
vllm::Layer asked(const Problem& problem, const vllm::Policy& policy, const char* source) {
  return *vllm::as_vllm({.layer = problem, .routing = Routing::topk_softmax, .source_layout = source}, policy);
}
vllm::Decision theirs(const Problem& problem, const Machine& where, const vllm::Policy& policy = {},
                      Order order = Order::capable, const char* source = "compressed-tensors") {
  const vllm::Layer layer = asked(problem, policy, source);
  const vllm::Table* const table = order == Order::alone ? static_order_of(*layer.table) : layer.table;
  return decide(layer.question, where, layer.policy, *table);
}

// What would serve if it were built here.
std::string chosen(const Decision& decision) {
  return decision.best_if_built == nullptr ? "none" : std::string(decision.best_if_built->backend);
}
// By the table's name.
std::string chosen(const vllm::Decision& decision) {
  return decision.chosen ? std::string(decision.backend()) : "none";
}

bool says(const std::vector<std::string>& texts, std::string_view part) {
  return std::any_of(texts.begin(), texts.end(),
                     [part](const std::string& text) { return text.find(part) != std::string::npos; });
}

// Case a: FlashInfer, Marlin, batched Marlin in this order, against a walk that looks at zero points and biases.
TEST(HardCases, AStaticOrderAndAWalkThatLooksAtZeroPointsAndBias) {
  ASSERT_EQ(static_order_of(vllm::kWna16Table), &vllm::kWna16RevertedTable);
  EXPECT_EQ(static_order_of(vllm::kNvfp4Table), nullptr);
  struct Row {
    const char* source;
    const char* where;
    const char* order;
    const char* walk;
  };
  for (const Row& row :
       {Row{"compressed-tensors", "a100", "MARLIN", "MARLIN"}, Row{"compressed-tensors", "mi300x", "none", "TRITON"},
        Row{"gptq", "mi300x", "none", "EMULATION"}, Row{"awq", "h200", "MARLIN", "HUMMING"}}) {
    Problem problem = experts(kInt4);
    problem.zero_points = row.source == std::string_view("awq");
    const vllm::Decision order = theirs(problem, machine(row.where), {}, Order::alone, row.source);
    const vllm::Decision walk = theirs(problem, machine(row.where), {}, Order::capable, row.source);
    std::cout << row.source << " int4 on " << row.where << ": order alone " << chosen(order) << ", walk "
              << chosen(walk) << "\n";
    EXPECT_EQ(chosen(order), row.order) << row.source << " " << row.where;
    EXPECT_EQ(chosen(walk), row.walk) << row.source << " " << row.where;
    for (const vllm::Candidate& candidate : order.trace) {
      for (const Reason& reason : candidate.reasons)
        EXPECT_FALSE(reason.rule == Rule::zero_points || reason.rule == Rule::bias) << "the order alone never looks";
    }
  }
}

// Moracle's own question does not hold who packed the checkpoint.
TEST(HardCases, AZeroPointsAndBiasDoNotMoveMoraclesChoice) {
  for (const bool bias : {false, true}) {
    Problem problem = experts(kInt4);
    problem.scheme.weight.symmetric = false;
    problem.zero_points = true;
    problem.bias = bias;
    EXPECT_EQ(chosen(own(problem, machine("zen4"))), "avx512vnni") << bias;
  }
}

vllm::Policy with_aiter() {
  vllm::Policy policy;
  policy.facts.emplace_back("VLLM_ROCM_USE_AITER", "1");
  return policy;
}

// Case b: on gfx950 the activation key decides; elsewhere emulation, which says what it is.
TEST(HardCases, BTheActivationKeyDecidesOnGfx950) {
  Problem plain = experts(kMxfp4);
  plain.activation.fn = ActivationFn::swigluoai;
  Problem fp8 = plain;
  fp8.scheme.activation = schemes::kFp8Tensor;
  EXPECT_EQ(chosen(theirs(plain, machine("gfx950"), with_aiter())), "AITER_MXFP4_BF16");
  EXPECT_EQ(chosen(theirs(fp8, machine("gfx950"), with_aiter())), "AITER_MXFP4_FP8");
  for (const char* elsewhere : {"mi250x", "mi300x"}) {
    const vllm::Decision decision = theirs(fp8, machine(elsewhere, "quark"), with_aiter());
    EXPECT_EQ(chosen(decision), "EMULATION") << elsewhere;
    EXPECT_TRUE(says(decision.warnings, "EMULATION emulates this scheme")) << elsewhere;
  }
  // Without the switch AITER is out, and the answer is emulation or nothing.
  EXPECT_EQ(chosen(theirs(fp8, machine("gfx950", "quark"))), "EMULATION");
}

TEST(HardCases, BMoracleServesEveryKeyAsItIsAndSaysWhereNothingFastCan) {
  for (const std::optional<QuantKey>& key :
       {std::optional<QuantKey>(), std::optional(schemes::kFp8Tensor), std::optional(schemes::kMxfp4Group)}) {
    const Problem problem = experts(kMxfp4, key);
    const Decision here = own(problem, machine("zen4"));
    EXPECT_EQ(chosen(here), key ? "avx512bf16" : "avx512vnni");
    const Decision there = own(problem, machine("gfx950"));
    ASSERT_NE(there.winner, nullptr);
    EXPECT_EQ(there.winner->backend, "ref");
    EXPECT_TRUE(says(there.warnings, "far slower"));
  }
}

// Case c: a kernel that quantizes activations inside accepts the scheme that does not ask for it.
TEST(HardCases, CNvfp4WithPlainActivationsOnSm12x) {
  const Problem plain = experts(kNvfp4);
  const Problem both = experts(kNvfp4, schemes::kNvfp4Group);
  const vllm::Policy named{.pinned = "flashinfer_b12x"};
  for (const char* where : {"rtx5090", "gb10"}) {
    EXPECT_EQ(chosen(theirs(plain, machine(where), named)), "FLASHINFER_B12X") << where;
    EXPECT_EQ(chosen(theirs(both, machine(where), named)), "FLASHINFER_B12X") << where;
    EXPECT_EQ(chosen(theirs(plain, machine(where))), "MARLIN") << "never by itself on " << where;
  }
  const vllm::Decision refused = theirs(plain, machine("b200"), named);
  EXPECT_EQ(chosen(refused), "none");
  ASSERT_FALSE(refused.trace.empty());
  EXPECT_EQ(refused.trace.front().reasons.front().rule, Rule::device);
  // Moracle serves both pairs as they are asked for.
  for (const Problem& problem : {plain, both}) {
    const Decision decision = own(problem, machine("zen4"));
    ASSERT_NE(decision.winner, nullptr);
    EXPECT_EQ(decision.winner->backend, problem.scheme.activation ? "avx512bf16" : "avx512vnni");
  }
}

// Case d: Quark's INT8 per channel and dynamic per token, against the older per tensor with a static scale.
TEST(HardCases, DQuarkInt8PerChannelAndPerTensor) {
  constexpr QuantKey kChannel{.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::channel()};
  constexpr QuantKey kTensor{.element = Element::int8, .scale = ScaleType::f32, .granularity = Granularity::tensor()};
  const Problem modern = experts(kChannel, schemes::kInt8Token);
  const Problem legacy = experts(kTensor, schemes::kInt8Tensor);
  EXPECT_EQ(chosen(theirs(modern, machine("h200"), {}, Order::capable, "quark")), "TRITON");
  // That engine serves it past its oracle, by a kernel of the front-end's own.
  const vllm::Decision past = theirs(legacy, machine("h200"), {}, Order::capable, "quark");
  EXPECT_EQ(chosen(past), "none");
  EXPECT_TRUE(std::all_of(past.trace.begin(), past.trace.end(),
                          [](const vllm::Candidate& candidate) { return !candidate.reasons.empty(); }));
  for (const Problem& problem : {modern, legacy}) {
    const Decision decision = own(problem, machine("zen4"));
    EXPECT_EQ(chosen(decision), "avx512vnni");
    EXPECT_EQ(decision.best_if_built->id, "cpu.avx512vnni.int8") << "one table, one card, no path beside it";
  }
}

// Case f: a pinned backend serves or fails, and the failure says why and what is usable here.
TEST(HardCases, FAnUnsupportedPinnedBackendFailsAndSaysWhy) {
  const Problem problem = experts(kInt4);
  const auto failed = winner_of(own(problem, machine("zen3"), {.pinned = "avx512bf16"}), problem);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, "oracle.pinned");
  EXPECT_EQ(failed.error().found,
            "backend avx512bf16 cannot serve this layer here: needs avx512, avx512_vnni, avx512_bf16, avx512_vbmi");
  EXPECT_EQ(failed.error().advice, "usable here: avx2, ref");

  const auto unknown = winner_of(own(problem, machine("zen4"), {.pinned = "abacus"}), problem);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, "oracle.pinned");
  EXPECT_EQ(unknown.error().found, "no kernel for this layer is called 'abacus'");
  EXPECT_NE(unknown.error().advice.find("avx512bf16, avx512, avx2, "), std::string::npos) << unknown.error().advice;

  const vllm::Decision elsewhere = theirs(problem, machine("h200"), {.pinned = "triton"});
  ASSERT_FALSE(elsewhere.trace.empty());
  EXPECT_EQ(elsewhere.trace.front().row->backend, "TRITON");
  EXPECT_EQ(elsewhere.trace.front().row->experts->id, "vllm.TritonWNA16Experts");
}

// Case g: users type a name without a dtype, and the scheme decides which variant it means.
TEST(HardCases, GNamesCarryNoDtypeAndTheSchemeDecidesTheVariant) {
  Problem plain = experts(kMxfp4);
  plain.activation.fn = ActivationFn::swigluoai;
  Problem fp4 = plain;
  fp4.scheme.activation = schemes::kMxfp4Group;
  vllm::Policy aiter = with_aiter();
  aiter.pinned = "aiter";
  EXPECT_EQ(chosen(theirs(plain, machine("gfx950"), aiter)), "AITER_MXFP4_BF16");
  EXPECT_EQ(chosen(theirs(fp4, machine("gfx950"), aiter)), "AITER_MXFP4_MXFP4");

  // In Moracle's tables what is typed is what the cards are called: by the machine, never by what is computed.
  for (const Table* table : all_tables()) {
    for (const std::string_view name : backend_names(*table)) {
      for (const char* suffix : {"_bf16", "_fp8", "_mxfp4", "_mxfp8", "_afp8", "_nvfp4", "_int8"})
        EXPECT_FALSE(name.ends_with(suffix)) << table->name << ": " << name;
    }
  }
  for (const QuantKey& weight : {kInt4, kMxfp4, kNvfp4}) {
    const Decision decision = own(experts(weight), machine("zen4"), {.pinned = "avx2"});
    EXPECT_EQ(chosen(decision), "avx2") << to_string(weight);
  }
}

TEST(HardCases, GEmulationIsTheLastCard) {
  for (const QuantKey& weight : {kInt4, kMxfp4, kNvfp4}) {
    const vllm::Decision decision = theirs(experts(weight), machine("a100"));
    ASSERT_FALSE(decision.trace.empty());
    EXPECT_EQ(decision.trace.back().row->backend, "EMULATION") << to_string(weight);
  }
  // Where vLLM asks its emulation before kernels that leave activations at 16 bits, the same rows with emulation behind
  // them all find a kernel, and say what became of the activations.
  const vllm::Layer layer = asked(experts(kMxfp4, schemes::kMxfp4Group), {}, "compressed-tensors");
  const Machine with_quark = machine("a100", "quark");
  EXPECT_EQ(chosen(decide(layer.question, with_quark, layer.policy, *layer.table)), "EMULATION");
  std::vector<vllm::Row> rows;
  for (const bool emulation : {false, true}) {
    std::ranges::copy_if(layer.table->rows, std::back_inserter(rows),
                         [&](const vllm::Row& row) { return row.experts->emulation == emulation; });
  }
  vllm::Table last = *layer.table;
  last.rows = rows;
  const vllm::Decision decision = decide(layer.question, with_quark, layer.policy, last);
  EXPECT_EQ(chosen(decision), "MARLIN");
  EXPECT_TRUE(says(decision.warnings, "MARLIN takes them at 16 bits"));
  for (const Table* table : all_tables())
    EXPECT_TRUE(table->rows.back().card->any_device_of_host) << table->name << ": the reference is last";
}

}  // namespace
}  // namespace moracle
