// config.json of a language model, whichever of its two spellings it uses.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "checkpoint/checkpoint.h"
#include "scheme/glu.h"
#include "scheme/quant_key.h"

namespace moracle {

// What every architecture has, with its defaults filled in where a key is absent. All values are in range, and
// products of any three of them fit 63 bits.
struct CommonConfig {
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;  // divides heads
  std::int64_t head_dim = 0;  // even; 0 as a default: hidden / heads
  std::int64_t vocabulary = 0;
  std::int64_t max_positions = 0;
  double norm_eps = 1e-6;
  bool tied = false;  // lm_head shares the embedding, unless it is stored
  Element dtype = Element::bf16;
};

// Largest values that any published model comes near; beyond them a config is refused.
inline constexpr std::int64_t kMaxLayers = 4096;
inline constexpr std::int64_t kMaxHidden = std::int64_t{1} << 18;
inline constexpr std::int64_t kMaxIntermediate = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxHeads = 4096;
inline constexpr std::int64_t kMaxHeadDim = 4096;
inline constexpr std::int64_t kMaxVocabulary = std::int64_t{1} << 24;
inline constexpr std::int64_t kMaxExperts = 8192;
inline constexpr std::int64_t kMaxTopK = 64;
inline constexpr std::int64_t kMaxConvolution = 64;
inline constexpr std::int64_t kMaxPositions = (std::int64_t{1} << 31) - 1;

// The text model's part of a config: the file itself, or its "text_config". Of two keys that say the same thing one is
// used, as transformers 5 does (docs/checkpoints.md); where they differ, a warning names both.
class ModelConfig {
 public:
  // Errors: "config.type", "config.missing" (no model_type).
  static Result<ModelConfig> of(const Checkpoint& checkpoint);

  // Types under which an architecture may know the model: the text part's own, then the whole model's.
  [[nodiscard]] const std::vector<std::string>& model_types() const { return model_types_; }
  [[nodiscard]] const JsonReader& reader() const { return reader_; }
  // Of the whole model, where the text part is nested.
  [[nodiscard]] const std::optional<JsonReader>& outer() const { return outer_; }

  // What the config says twice and differently, each once. Copies of a config share them.
  void warn(std::string text) const;
  [[nodiscard]] const std::vector<std::string>& warnings() const { return *warnings_; }
  // "/rope_theta = 1 is used, not /rope_parameters/rope_theta = 2", where they differ. Pointers name whole paths.
  void warn_of_two(const std::string& used, const Json& value, const std::string& unused, const Json& other) const;
  // A key that no one reads and that asks for something: present, and not null, false or empty.
  void warn_unread(std::string_view key, std::string_view why) const;
  // A list of what each layer is, beside the keys that are used for it and say `used`.
  void warn_of_kinds(std::string_view key, const std::vector<std::string>& used, std::string_view why) const;
  // A window that the architecture does not have.
  void warn_of_window() const;

  // Errors: "config.type", "config.range", with the JSON pointer.
  [[nodiscard]] Result<CommonConfig> common(const CommonConfig& defaults) const;
  // A key with two spellings, of which the first counts where both are there.
  [[nodiscard]] Result<std::int64_t> either(std::string_view key, std::string_view other, std::int64_t fallback,
                                            std::int64_t low, std::int64_t high) const;
  // "hidden_act" or `key`. Errors: "config.unsupported".
  [[nodiscard]] Result<ActivationFn> activation(std::string_view key = "hidden_act") const;
  // A list of layer numbers. Errors: "config.type", "config.range".
  [[nodiscard]] Result<std::vector<std::int64_t>> layer_list(std::string_view key, std::int64_t layers) const;

  // What kind each layer is, by a list that may go on for draft heads; empty where the key is absent. Errors:
  // "config.type", "config.range" (fewer than `layers`), "config.unsupported" (a kind that is not among `known`).
  [[nodiscard]] Result<std::vector<std::string>> layer_kinds(std::string_view key, std::int64_t layers,
                                                             std::span<const std::string_view> known) const;
  // Whether each layer is what a list of 0 and 1 says, which may go on for draft heads; empty where the key is absent.
  // Errors: "config.type", "config.range" (fewer than `layers`, or another number).
  [[nodiscard]] Result<std::vector<bool>> layer_flags(std::string_view key, std::int64_t layers) const;
  // Errors: "config.type", "config.range" unless 0 < value <= high.
  [[nodiscard]] Result<float> positive(std::string_view key, double fallback, double high) const;
  // Refuses a key that asks for what is not there: it is absent, null or `value`. Errors: "config.unsupported".
  [[nodiscard]] Result<> only(std::string_view key, const Json& value) const;

  // An error about one key of this config.
  [[nodiscard]] Error error(std::string code, std::string_view key, std::string wanted, std::string found) const;

 private:
  ModelConfig(JsonReader reader, std::optional<JsonReader> outer, std::vector<std::string> model_types)
      : reader_(std::move(reader)), outer_(std::move(outer)), model_types_(std::move(model_types)) {}

  // Keys of the text model that stand in the whole model's part, where nobody reads them.
  void compare_with_outer() const;

  JsonReader reader_;
  std::optional<JsonReader> outer_;
  std::vector<std::string> model_types_;
  std::shared_ptr<std::vector<std::string>> warnings_ = std::make_shared<std::vector<std::string>>();
};

}  // namespace moracle
