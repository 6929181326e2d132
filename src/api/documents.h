// The JSON documents of inspect, plan, verify and run, which the command line and the C interface share.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "device/gpu_device.h"
#include "generate/session.h"
#include "model/load/expert_room.h"
#include "model/load/memory_plan.h"
#include "model/model.h"
#include "text/reply/reply_event.h"
#include "verify/verify.h"

namespace moracle {

struct WarningChoice {
  bool decisions = true;  // those that the oracle gave for single layers too
};
// Each text once, with the modules that it is about behind it. Without control characters.
[[nodiscard]] std::vector<std::string> warnings_of(const LoadPlan& plan, const WarningChoice& choice = {});

[[nodiscard]] Json inspect_json(const LoadPlan& plan, const Checkpoint& checkpoint);

// Chosen experts of a hundred that are in slots, for which a plan says what a token reads.
inline constexpr std::array<int, 3> kShownHits{0, 50, 90};

// What is asked about a model's memory.
struct MemoryQuestion {
  Machine host{};                       // of one rank
  std::shared_ptr<GpuDevice> device{};  // that computes; null: the host does
  int tp = 1;
  int ep = 1;
  std::int64_t context = 0;  // 0: kUsualContext, or the model's where that is shorter
  Policy policy{};
  std::optional<KvType> kv{};  // as in LoadOptions
  std::uint64_t memory = 0;    // as in LoadOptions
  bool measure_disk = false;   // of a model whose experts share slots
  std::uint64_t free = 0;      // of the host; without a bound, whether experts then share slots. 0: nothing is said
};

struct MemoryAnswer {
  int tp = 1, ep = 1;
  Machine machine{};   // of the experts
  Machine host{};      // of all else
  bool split = false;  // they are two
  std::int64_t max_context = 0;
  ModelInfo info{};
  MemoryPlan memory{};
  std::optional<ExpertRoom> room{};  // under a bound, or where what is free is too little for all experts
  std::optional<double> disk{};      // bytes a second that experts are read at, where it was measured
  std::vector<Degree> tp_degrees{}, ep_degrees{};
  std::vector<std::string> warnings{};

  // Each machine's part of the memory plan, the host's first.
  struct Share {
    std::string machine;
    std::uint64_t weights, state, workspace, memory;
    std::uint64_t token_bytes;            // of weights, that a decoded token reads there
    double read_gb_s = 0;                 // by the data sheet; 0: not known
    std::optional<std::uint64_t> free{};  // of the memory, where it was asked
    [[nodiscard]] std::uint64_t total() const { return weights + state + workspace; }
    [[nodiscard]] bool fits() const { return total() <= free.value_or(memory); }
  };
  [[nodiscard]] std::vector<Share> shares() const;
  [[nodiscard]] bool fits() const;
};
// Errors: those of opening, of memory_plan() and, with a bound, of expert_room(), "memory.ranks" where that is of
// several ranks; "plan.tp" and "plan.ep" list the legal degrees.
Result<MemoryAnswer> plan_memory(const std::filesystem::path& folder, const MemoryQuestion& question);
[[nodiscard]] Json plan_json(const MemoryAnswer& plan);

// "1, 2, 4-8": of at least three in a row the first and the last.
[[nodiscard]] std::string numbers_text(const std::vector<int>& numbers);
// The same of the degrees that are legal.
[[nodiscard]] std::string legal_text(const std::vector<Degree>& degrees);

// "checkpoint", "backend", "checkpoint and backend", or empty.
[[nodiscard]] std::string fault_of(const Verification& result);
[[nodiscard]] Json verify_json(const Verification& result);

// A call of a tool that a reply asks for.
struct ToolCall {
  std::string id, name;
  std::string arguments{};  // JSON
};

// One reply of a model, its parts told apart.
struct Reply {
  std::string text;  // all that was generated, marks of parts included
  std::string reasoning;
  std::string answer;
  std::vector<ToolCall> calls;
  Generation generation;

  // What an event brings to its part.
  void add(const ReplyEvent& event);
  // Leaves out a call that is not among so many whole ones.
  void keep_calls(std::int64_t whole);
  // Whether the calls of a whole reply are what it ended for.
  [[nodiscard]] bool ended_to_call() const { return !calls.empty() && generation.finish == FinishReason::stop; }
};
// [{"id", "type": "function", "function": {"name", "arguments"}}], as OpenAI's API has calls.
[[nodiscard]] Json calls_json(std::span<const ToolCall> calls);
[[nodiscard]] Json run_json(const Session& session, const Reply& reply, std::span<const std::int32_t> prompt);

}  // namespace moracle
