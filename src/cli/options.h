// Options that several commands share, and the checks that make wrong values wrong usage.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/console.h"
#include "device/place.h"
#include "generate/session.h"
#include "machine/machine.h"
#include "model/load/parallel_cut.h"
#include "oracle/decide.h"

namespace moracle::cli {

// Validators; their messages name the limits, CLI11 puts the option's name in front.
[[nodiscard]] CLI::Validator whole_number(std::int64_t low, std::int64_t high);
[[nodiscard]] CLI::Validator real_number(std::function<bool(double)> accepts, std::string wanted);
// "60G", "1.5GiB", "512m": becomes bytes, of which a K is 1024.
[[nodiscard]] CLI::Validator memory_size();
[[nodiscard]] CLI::Validator one_of(std::vector<std::string> words);
// Refuses an empty word, as of a shell's variable that is not set: it asks for no default.
[[nodiscard]] CLI::Validator named(const char* what);

// "1,4,16" -> numbers of at least `low`. Errors: "usage" naming the option.
Result<std::vector<std::int64_t>> parse_integers(const std::string& text, const std::string& option, std::int64_t low,
                                                 std::int64_t high);

// The same error, said to be of `file` where it names none.
[[nodiscard]] Error in_file(Error error, const std::string& file);

// How kernels are chosen.
struct BackendOptions {
  std::string backend;  // empty: the oracle's choice
  std::string policy = "exact";
  std::string invariant = "off";  // "on", "off" or "auto"

  // What the command sets before is said to be the default.
  void add(CLI::App& command);
  // As asked for where experts are computed.
  [[nodiscard]] bool batch_invariant(const Place& place) const;
  [[nodiscard]] Policy policy_value(const Place& place) const;
};

// What every command that computes takes.
struct ComputeOptions : BackendOptions {
  int threads = 0;
  std::string device = "cpu";
  std::uint64_t vram = 0;  // as in add_vram

  void add(CLI::App& command);
  // This machine, and the GPU that --device names. Errors: "device.unknown", "device.elsewhere" when the device is not
  // of this machine, "device.vram", those of open_device.
  [[nodiscard]] Result<Place> place() const;
};

struct ModelOptions : ComputeOptions {
  std::string model;
  std::string kv;            // empty: the default for the backend
  std::uint64_t memory = 0;  // as in add_memory
  bool no_cache = false;

  // `loads`: the command loads the model, so that it is asked how.
  void add(CLI::App& command, bool loads = true);
  // Opens and loads with progress, and tells of the plan on standard error. An interrupt while loading ends
  // the process: there is nothing to keep.
  struct Opening {
    bool measure_rates = false;  // what LoadTime says of the machine
    // As in SessionOptions.
    bool needs_text = true;
    bool guard_content = false;
    std::function<Result<>(const ModelText&)> on_text{};
    bool generates = true;
    GenerationChoice choice{};
    const CallSyntax* call_syntax = nullptr;
    std::size_t kv_memory = 0;  // this and what follows as in LoadOptions
    std::int64_t sequences = SessionOptions{}.sequences;
    std::int64_t context = 0;
    std::function<void(const LoadPlan&)> on_plan{};
    std::function<void(const LoadProgress&)> on_progress{};  // beside the bar; callable from several threads
  };
  Result<std::unique_ptr<Session>> open(Console& console, const Opening& opening) const;
};

void add_model(CLI::App& command, std::string& model);
void add_json(CLI::App& command, bool& json);
// Bytes of a GPU's memory that are used at most; 0: what is free less 2 %.
void add_vram(CLI::App& command, std::uint64_t& vram);
// Bytes of this machine's memory that a load takes at most; 0: what it takes.
void add_memory(CLI::App& command, std::uint64_t& memory);
// Errors: "device.vram" where there is a bound, and `device` names no GPU.
Result<> check_vram(std::uint64_t vram, const std::string& device);
// --tp and --ep: ranks that share a model, tp x ep of them.
void add_ranks(CLI::App& command, RankLayout& ranks);
// "tp 3 does not divide ..." as the option that asked for it; every other error as it is.
Error as_options(Error error);
// Whether texts of conversations may spell control tokens.
void add_trust_content(CLI::App& command, bool& trust_content);
// How the model writes calls of tools: a name of call_syntaxes(), or empty.
void add_tool_format(CLI::App& command, std::string& format);
// In what numbers keys and values are kept.
void add_kv(CLI::App& command, std::string& kv);
// An option of earlier versions, which scripts may still pass.
void add_no_cache(CLI::App& command, bool& no_cache);
void tell_no_cache(Console& console, bool no_cache);

// On standard error: what is loaded, in one line, and the plan's warnings.
void tell_plan(Console& console, const LoadPlan& plan, int threads);

}  // namespace moracle::cli
