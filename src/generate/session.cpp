#include "generate/session.h"

#include <algorithm>
#include <set>

#include "base/clock.h"
#include "base/guarded.h"
#include "checkpoint/hub_cache.h"
#include "generate/token_text.h"
#include "model/load/device_room.h"

namespace moracle {

namespace {

std::vector<std::string> files_of(const Checkpoint& checkpoint) {
  std::set<std::string> files;
  for (const auto& [name, tensor] : checkpoint.tensors()) files.insert(tensor.file);
  return {files.begin(), files.end()};
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  return guarded("open the model", [&] { return open_unguarded(options); });
}

Result<std::unique_ptr<Session>> Session::open_unguarded(const SessionOptions& options) {
  const Stopwatch watch;
  std::unique_ptr<Session> session(new Session);
  MORACLE_ASSIGN(session->folder_, resolve_model_folder(options.folder));
  MORACLE_TRY(session->read_text(options));
  MORACLE_ASSIGN(const std::shared_ptr<const Checkpoint> files, Checkpoint::open(session->folder_));
  const KvType kv = options.kv.value_or(default_kv_type(options.policy));
  MORACLE_ASSIGN(auto plan, plan_for_room(files, {options.machine, options.device}, options.policy,
                                          {.kv_memory = options.kv_memory, .sequences = options.sequences},
                                          {.context = options.context, .threads = options.machine.cores, .kv = kv}));
  if (options.on_plan) options.on_plan(*plan);
  session->modules_ = plan->modules();
  session->warnings_ = plan->warnings();
  session->pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : options.machine.cores);
  if (const std::string fewer = session->pool_->shortfall(); !fewer.empty()) {
    session->warnings_.push_back(fewer);
    if (options.on_warning) options.on_warning(fewer);
  }
  LoadTime& load = session->load_;
  const double prepared = watch.seconds();
  if (options.measure_rates) {
    load.rates = measure_load_rates(files_of(*files), files->total_bytes(), *session->pool_);
    if (options.device != nullptr) {
      MORACLE_ASSIGN(load.rates.to_device, measure_copy_rate(*options.device));
    }
  }
  const Stopwatch weights;
  session->kv_ = kv;
  const LoadOptions how{.progress = options.on_progress,
                        .kv = session->kv_,
                        .kv_memory = options.kv_memory,
                        .memory = options.memory,
                        .sequences = options.sequences,
                        .context = options.context};
  MORACLE_ASSIGN(session->model_, load_model(*plan, *session->pool_, how));
  if (options.needs_text) {
    session->outputs_ = std::make_shared<ModelOutputs>(session->text_->tokenizer(), session->text_->reply_format(),
                                                       session->text_->call_format(),
                                                       static_cast<std::int32_t>(session->model_->info().vocab_size));
  }
  load.weights_seconds = weights.seconds();
  load.bytes = files->total_bytes();
  for (const ModuleReport& module : session->modules_) {
    if (module.kind == "experts" && session->model_->expert_slots()) load.bytes -= module.bytes;
  }
  load.seconds = prepared + load.weights_seconds;
  return session;
}

Result<> Session::read_text(const SessionOptions& options) {
  MORACLE_ASSIGN(const Json config, Checkpoint::read_config(folder_));
  MORACLE_ASSIGN(text_, guarded("read the tokenizer and the chat template",
                                [&] { return ModelText::open(folder_, config, options.needs_text); }));
  if (options.needs_text && options.guard_content) text_->guard_content();
  if (options.needs_text && options.call_syntax != nullptr) text_->set_call_syntax(*options.call_syntax);
  std::vector<std::string> warnings = text_->warnings();
  if (options.generates) {
    MORACLE_ASSIGN(settings_, text_->generation().settle(options.choice));
    warnings.insert(warnings.end(), settings_.warnings.begin(), settings_.warnings.end());
  } else {
    for (std::string& line : text_->generation().fault_lines()) warnings.push_back(std::move(line));
  }
  if (options.on_warning) {
    for (const std::string& warning : warnings) options.on_warning(warning);
  }
  return options.on_text ? options.on_text(*text_) : Ok{};
}

std::map<std::string, std::string> Session::backends() const {
  std::map<std::string, std::string> result;
  for (const ModuleReport& module : modules_) {
    if (!module.decision || module.decision->winner == nullptr) continue;
    const std::string backend(module.decision->winner->backend);
    std::string& names = result[module.kind];
    if (("," + names + ",").find("," + backend + ",") != std::string::npos) continue;
    names += (names.empty() ? "" : ",") + backend;
  }
  return result;
}

Result<std::shared_ptr<const ConstraintSource>> hold_reply(const Session& session, const ReplyRules& rules,
                                                           std::string_view prompt,
                                                           const GenerationSettings& settings) {
  ModelOutputs* const outputs = settings.stop_ids.empty() ? nullptr : session.outputs().get();
  return guarded("hold the reply", [&] { return hold_rules(rules, outputs, prompt); });
}

Result<Generation> complete(Session& session, SequenceState& state, std::span<const std::int32_t> prompt,
                            const Completion& completion, const std::function<void(std::string_view)>& on_text,
                            const std::function<bool()>& interrupted) {
  const Tokenizer& tokenizer = session.text().tokenizer();
  ReplyReader* const reader = completion.reader;
  TokenText::Options kept{.stop = completion.settings.stop_texts};
  if (reader != nullptr) kept.format = reader->format();
  TokenText text(tokenizer, std::move(kept));
  const TokenText::Emit emit = [&](std::string_view piece, bool is_mark) {
    on_text(piece);
    if (reader == nullptr) return;
    if (is_mark) {
      reader->mark(piece, completion.on_event);
    } else {
      reader->text(piece, completion.on_event);
    }
  };
  // Why the text of a token cannot be had, which ends the generation.
  std::optional<Error> undecodable;
  GenerateOptions options;
  options.sampling = completion.settings.sampling;
  options.max_tokens = completion.max_tokens;
  options.context = completion.context;
  options.stop_ids = completion.settings.stop_ids;
  options.end_ids = completion.settings.stop_ids;
  options.output = completion.output;
  for (const StopToken& stop : session.text().stop_tokens(completion.settings.stop_texts)) {
    options.stop_ids.push_back(stop.id);
  }
  std::sort(options.stop_ids.begin(), options.stop_ids.end());
  options.interrupted = [&] { return undecodable || (interrupted && interrupted()); };
  const auto reached = [&] { return text.stops().reached() || (reader != nullptr && reader->ended()); };
  options.reached_stop = reached;
  options.on_token = [&](std::int32_t id) {
    if (std::binary_search(options.stop_ids.begin(), options.stop_ids.end(), id)) return;
    if (Result<> pushed = text.push(id, emit); !pushed.ok() && !undecodable) undecodable = std::move(pushed).error();
  };
  auto generation =
      guarded("generate", [&] { return generate(session.model(), session.pool(), state, prompt, options); });
  if (undecodable) return *std::move(undecodable);
  MORACLE_TRY(text.finish(emit));
  if (generation.ok() && reached()) generation->finish = FinishReason::stop;
  const bool cut = !generation.ok() || generation->finish != FinishReason::stop;
  if (reader != nullptr) reader->finish(completion.on_event, cut);
  return generation;
}

}  // namespace moracle
