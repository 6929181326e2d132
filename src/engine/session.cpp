#include "engine/session.h"

#include <set>

#include "engine/clock.h"

namespace moracle {

namespace {

std::vector<std::string> files_of(const Checkpoint& checkpoint) {
  std::set<std::string> files;
  for (const auto& [name, tensor] : checkpoint.tensors()) files.insert(tensor.file);
  return {files.begin(), files.end()};
}

bool few_logits(const SessionOptions& options, SamplingOptions sampling) {
  sampling.temperature = options.temperature.value_or(sampling.temperature);
  sampling.top_k = options.top_k.value_or(sampling.top_k);
  return options.generates && deciding_logits(sampling) > 0;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const SessionOptions& options) {
  const Stopwatch watch;
  std::unique_ptr<Session> session(new Session);
  MORACLE_ASSIGN(auto checkpoint, Checkpoint::open(options.folder));
  session->folder_ = checkpoint->folder();
  const Json config = checkpoint->config();
  const std::string identity = checkpoint->identity();
  const std::shared_ptr<const Checkpoint> files = checkpoint;
  MORACLE_ASSIGN(auto plan, LoadPlan::make(std::move(checkpoint), options.machine, options.policy));
  if (options.on_plan) options.on_plan(*plan);
  MORACLE_ASSIGN(session->generation_, load_generation_config(session->folder_, config, plan->info().vocabulary));
  if (options.needs_text) {
    MORACLE_ASSIGN(session->tokenizer_, Tokenizer::load(session->folder_));
    MORACLE_ASSIGN(session->chat_template_, ChatTemplate::load(session->folder_));
  }
  session->modules_ = plan->modules();
  session->warnings_ = plan->warnings();
  session->pool_ = std::make_unique<ThreadPool>(options.threads > 0 ? options.threads : options.machine.cores);
  std::unique_ptr<PackCache> cache = PackCache::open(options.cache, identity, options.machine, *plan);
  LoadTime& load = session->load_;
  const double prepared = watch.seconds();
  if (options.measure_rates) {
    const bool found = cache != nullptr && cache->found();
    const std::vector<std::string> read = found ? std::vector{cache->path().string()} : files_of(*files);
    load.rates = measure_load_rates(read, files->total_bytes(), *session->pool_);
  }
  const Stopwatch weights;
  TuningCache tunings(options.cache, options.machine, session->pool_->threads());
  const LoadOptions how{.progress = options.on_progress,
                        .store = cache.get(),
                        .tunings = &tunings,
                        .likeliest = few_logits(options, session->generation_.sampling)};
  MORACLE_ASSIGN(session->model_, load_model(*plan, *session->pool_, how));
  load.tuning_seconds = tunings.seconds();
  load.weights_seconds = weights.seconds() - load.tuning_seconds;
  load.from_cache = cache != nullptr && cache->used();
  load.bytes = load.from_cache ? cache->bytes() : files->total_bytes();
  tunings.finish();
  session->tunings_ = tunings.used();
  session->cache_ = std::move(cache);
  if (session->cache_ != nullptr) session->cache_->finish();
  load.seconds = prepared + weights.seconds();
  return session;
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

Result<std::vector<std::int32_t>> Session::encode_prompt(std::string_view text, bool special) const {
  MORACLE_ASSIGN(auto ids, tokenizer_->encode(text, {.add_special_tokens = special}));
  if (ids.empty() && generation_.bos_id) ids.push_back(*generation_.bos_id);
  if (ids.empty()) {
    return Error{.code = "prompt.empty",
                 .wanted = "a prompt of at least one token",
                 .found = "an empty prompt",
                 .advice = "this model has no begin-of-sequence token to start from"};
  }
  return ids;
}

Result<std::string> Session::render_chat(const Json& messages) const {
  if (!chat_template_) {
    return Error{.code = "template.missing",
                 .file = folder_.string(),
                 .wanted = "a chat template (chat_template.jinja or tokenizer_config.json)",
                 .found = "none",
                 .advice = "give a plain prompt instead"};
  }
  Json context = chat_template_->special_tokens().is_object() ? chat_template_->special_tokens() : Json::object();
  context["messages"] = messages;
  context["add_generation_prompt"] = true;
  return chat_template_->render(context);
}

Result<Generation> complete(Session& session, SequenceState& state, std::span<const std::int32_t> prompt,
                            const Completion& completion, const std::function<void(std::string_view)>& on_text,
                            const std::function<bool()>& interrupted) {
  DetokenizerStream detokenizer(session.tokenizer());
  GenerateOptions options;
  options.sampling = completion.sampling;
  options.max_tokens = completion.max_tokens;
  options.stop_ids = session.generation().eos_ids;
  options.interrupted = interrupted;
  options.on_token = [&](std::int32_t id) {
    if (session.generation().stops(id)) return;
    const std::string piece = detokenizer.push(id);
    if (!piece.empty()) on_text(piece);
  };
  auto generation = generate(session.model(), state, prompt, options);
  const std::string rest = detokenizer.finish();
  if (!rest.empty()) on_text(rest);
  return generation;
}

}  // namespace moracle
