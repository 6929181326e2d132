// What the publisher says about generating: generation_config.json, else config.json. It is read once before a load,
// and constant from then on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/json/json_fwd.h"
#include "base/result.h"
#include "generate/sampling_fields.h"

namespace moracle {

// What a caller sets about one generation; unset: the publisher's, else off.
struct GenerationChoice {
  SamplingChoice sampling{};
  std::optional<std::int64_t> max_tokens{};
  std::uint64_t seed = 0;
  bool ignore_eos = false;  // end tokens end nothing
  // Whether or not the publisher says do_sample: at the temperature that it names, else at 1. So do servers.
  bool samples = false;
  std::vector<std::string> stop_texts{};  // beside the publisher's
};

// What holds for one generation.
struct GenerationSettings {
  SamplingOptions sampling{};
  std::vector<std::int32_t> stop_ids{};  // sorted
  std::vector<std::string> stop_texts{};
  std::optional<std::int64_t> max_tokens{};  // of the answer
  std::optional<std::int64_t> max_length{};  // of prompt and answer; only where max_tokens is unset
  std::vector<std::string> warnings{};       // what was published and is not done, for people

  // Most tokens of an answer to a prompt of so many tokens.
  [[nodiscard]] std::int64_t answer_tokens(std::int64_t prompt_tokens) const;
};

struct GenerationConfig {
  std::vector<std::int32_t> eos_ids{};  // generation stops at any of them; sorted
  std::optional<std::int32_t> bos_id{};
  bool do_sample = false;
  // As published, off where nothing usable is; temperature 0 where the publisher does not ask for sampling.
  SamplingOptions sampling{};
  std::optional<double> temperature{};  // as published, whether or not the publisher asks for sampling
  std::optional<std::int64_t> max_new_tokens{}, max_length{};
  std::vector<std::string> stop_strings{};
  // Members that cannot be used, by key ("": the whole file). They are errors only for a generation that needs them.
  struct Fault {
    std::string key;
    Error error;
  };
  std::vector<Fault> faults{};
  // Members that would change an answer and are not implemented, as "num_beams 4".
  struct Unapplied {
    std::string text;
    bool sampling_only = false;  // without meaning at temperature 0
  };
  std::vector<Unapplied> unapplied{};
  std::string greedy_because{};  // what a caller who chooses no temperature is told; may be empty
  std::string file{};            // for warnings

  // Adds an end token that other files name.
  void add_end(std::int32_t id);
  // The choice over what is published. Errors: the fault of a member that the choice leaves to the publisher.
  [[nodiscard]] Result<GenerationSettings> settle(const GenerationChoice& choice) const;
  // All faults as lines for people: for commands that generate nothing.
  [[nodiscard]] std::vector<std::string> fault_lines() const;
};

// `config` is config.json; generation_config.json in `folder` may be absent. Values that mean "off" (null, -1) are off,
// ids that are not below `vocabulary` are left out; whatever else cannot be used is a fault of the result.
GenerationConfig load_generation_config(const std::filesystem::path& folder, const Json& config,
                                        std::int64_t vocabulary);

}  // namespace moracle
