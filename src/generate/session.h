// A model folder, opened, decided on and loaded: what every command that computes starts from.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "device/gpu_device.h"
#include "generate/generate.h"
#include "generate/generation_config.h"
#include "generate/load_rates.h"
#include "generate/model_text.h"
#include "machine/machine.h"
#include "model/model.h"
#include "text/constrain/model_outputs.h"
#include "text/constrain/reply_rules.h"
#include "text/reply/reply_reader.h"

namespace moracle {

struct SessionOptions {
  std::filesystem::path folder;
  Machine machine;                      // the running one
  std::shared_ptr<GpuDevice> device{};  // that computes the model; null: this machine does
  Policy policy;
  int threads = 0;                          // 0: the machine's cores
  const CallSyntax* call_syntax = nullptr;  // in place of what the chat template tells
  bool needs_text = true;                   // false: commands that work on token ids do without a tokenizer
  bool guard_content = false;               // texts of conversations spell no control tokens
  // Called with the small files before anything of the weights is opened; an error ends the opening. May be empty.
  std::function<Result<>(const ModelText&)> on_text{};
  std::function<void(const std::string&)> on_warning{};    // about small files and threads; may be empty
  std::function<void(const LoadPlan&)> on_plan{};          // before the weights are read; may be empty
  std::function<bool(const LoadProgress&)> on_progress{};  // whether to go on, else "interrupted"; may be empty
  bool generates = true;                                   // false: settings() are not made
  GenerationChoice choice{};                               // of one that generates
  bool measure_rates = false;  // what LoadTime says of the machine, before the weights are read
  std::optional<KvType> kv{};  // as in LoadOptions
  std::size_t kv_memory = 0;   // this and what follows as in LoadOptions
  std::uint64_t memory = 0;
  std::int64_t sequences = LoadOptions{}.sequences;
  std::int64_t context = 0;
};

// Where the time of a load went.
struct LoadTime {
  double seconds = 0;          // from the folder's name to a model, without the measurement of rates
  double weights_seconds = 0;  // of those, reading and packing weights
  std::uint64_t bytes = 0;     // of all tensors that were read
  LoadRates rates{};           // with measure_rates

  [[nodiscard]] double rate() const { return weights_seconds > 0 ? static_cast<double>(bytes) / weights_seconds : 0; }
  // Packing reads the files once, and writes as much to memory or copies it to the device: the slower of both bounds
  // it. 0: not measured.
  struct Bound {
    double rate = 0;
    std::string_view name{};
  };
  [[nodiscard]] Bound bound() const {
    const Bound written =
        rates.to_device > 0 ? Bound{rates.to_device, "device-copy"} : Bound{rates.copy, "memory-copy"};
    return rates.read > 0 && rates.read < written.rate ? Bound{rates.read, "file-read"} : written;
  }
};

class Session {
 public:
  // Small files first, so that a broken tokenizer or a wrong prompt does not cost a load. Errors: those of
  // Checkpoint::open, ModelText::open, GenerationConfig::settle, `on_text`, LoadPlan::make and load_model.
  static Result<std::unique_ptr<Session>> open(const SessionOptions& options);

  [[nodiscard]] Model& model() { return *model_; }
  [[nodiscard]] ThreadPool& pool() { return *pool_; }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }
  [[nodiscard]] const ModelInfo& info() const { return model_->info(); }
  // In which the model keeps keys and values.
  [[nodiscard]] KvType kv() const { return kv_; }
  [[nodiscard]] const std::vector<ModuleReport>& modules() const { return modules_; }
  [[nodiscard]] const std::vector<std::string>& warnings() const { return warnings_; }
  [[nodiscard]] const ModelText& text() const { return *text_; }
  // Holds replies to forms; only with `needs_text`.
  [[nodiscard]] const std::shared_ptr<ModelOutputs>& outputs() const { return outputs_; }
  // Only where it generates.
  [[nodiscard]] const GenerationSettings& settings() const { return settings_; }
  [[nodiscard]] const LoadTime& load_time() const { return load_; }
  [[nodiscard]] double load_seconds() const { return load_.seconds; }
  // Layer kind ("experts", "linear") -> backend; several of one kind are joined by commas.
  [[nodiscard]] std::map<std::string, std::string> backends() const;

 private:
  Session() = default;
  static Result<std::unique_ptr<Session>> open_unguarded(const SessionOptions& options);
  Result<> read_text(const SessionOptions& options);

  std::filesystem::path folder_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Model> model_;
  KvType kv_ = KvType::bf16;
  std::vector<ModuleReport> modules_;
  std::vector<std::string> warnings_;
  std::optional<ModelText> text_;
  std::shared_ptr<ModelOutputs> outputs_;
  GenerationSettings settings_;
  LoadTime load_;
};

// What a caller chooses about one completion.
struct Completion {
  GenerationSettings settings{};
  std::int64_t max_tokens = 512;
  std::int64_t context = 0;                          // most tokens in all; 0: what the model can hold
  std::shared_ptr<const ConstraintSource> output{};  // of hold_reply(); null: any answer
  // Reads the reply's events; null: none are wanted. It gets what `on_text` gets, and `on_event` what that means.
  ReplyReader* reader = nullptr;
  ReplyReader::Emit on_event{};
};

// What holds replies to `prompt`, whose end `settings` tells; null: they are free. Errors: those of hold_rules.
Result<std::shared_ptr<const ConstraintSource>> hold_reply(const Session& session, const ReplyRules& rules,
                                                           std::string_view prompt, const GenerationSettings& settings);

// generate() with text: `state` holds the first tokens of `prompt`, `on_text` gets pieces as they are settled, never
// half a character, and never an end-of-sequence token, a stop text or what follows one. A stop text that is a token
// ends it, too, where that token is made, and so does the reader's last call. With a reader the marks of parts are
// text, also where they are special tokens, which other text leaves out. `interrupted` may be empty.
Result<Generation> complete(Session& session, SequenceState& state, std::span<const std::int32_t> prompt,
                            const Completion& completion, const std::function<void(std::string_view)>& on_text,
                            const std::function<bool()>& interrupted);

}  // namespace moracle
