#include "engine/tuning_cache.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

namespace moracle {

namespace {

constexpr const char* kSuffix = ".tuning";

bool measure_again() {
  const char* const tuning = std::getenv("MORACLE_TUNING");  // NOLINT(concurrency-mt-unsafe): nothing here sets it
  return tuning != nullptr && std::string_view(tuning) == "measure";
}

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm day{};
  gmtime_r(&now, &day);
  return fmt::format("{:04}-{:02}-{:02}", day.tm_year + 1900, day.tm_mon + 1, day.tm_mday);
}

auto same_kind(std::string_view kind, int threads) {
  return [kind, threads](const RememberedTuning& tuning) { return tuning.kind == kind && tuning.threads == threads; };
}

// Whether noise left a question open that a quieter time would answer. Such trials serve one load alone.
bool drowned(const TuningTrials& trials) {
  constexpr double kWorthless = 0.25;
  return std::any_of(trials.begin(), trials.end(),
                     [](const TuningTrial& trial) { return !trial.taken && trial.noise > kWorthless; });
}

// A setting with the value that the trials leave in force, and the trial that put it there.
struct SettingInForce {
  std::string name;
  std::string value;
  const TuningTrial* taken = nullptr;
};

std::vector<SettingInForce> settings_in_force(const TuningTrials& trials) {
  std::vector<SettingInForce> settings;
  for (const TuningTrial& trial : trials) {
    auto setting = std::find_if(settings.begin(), settings.end(),
                                [&](const SettingInForce& known) { return known.name == trial.setting; });
    if (setting == settings.end()) setting = settings.insert(setting, {.name = trial.setting, .value = trial.against});
    if (!trial.taken) continue;
    setting->value = trial.value;
    setting->taken = &trial;
  }
  return settings;
}

}  // namespace

TuningCache::TuningCache(const PackCacheOptions& options, const Machine& machine, int threads)
    : options_(options), threads_(threads), decided_(decided_tuning()) {
  key_.machine = fmt::format("{}; {}; {} cores; {} NUMA nodes; L2 {}; L3 {}", machine.cpu_model,
                             feature_list(machine.cpu_features), machine.cores, machine.numa_nodes, machine.l2_bytes,
                             machine.l3_bytes);
  key_.program = program_identity();
  if (options.folder.empty() || key_.program.empty()) return;
  path_ = options.folder / (file_name_for(key_.machine) + kSuffix);
  if (measure_again()) return;
  auto read = read_tunings(path_, key_);
  if (!read.ok()) return;
  for (RememberedTuning& tuning : *read) {
    if (tuning.threads == threads_) known_.push_back(std::move(tuning));
  }
}

const TuningTrials* TuningCache::recall(std::string_view kind) {
  if (std::find(used_.begin(), used_.end(), kind) == used_.end()) used_.emplace_back(kind);
  if (decided_) return &*decided_;
  const auto known = std::find_if(known_.begin(), known_.end(), same_kind(kind, threads_));
  return known == known_.end() ? nullptr : &known->trials;
}

void TuningCache::keep(std::string_view kind, TuningTrials trials, double seconds) {
  seconds_ += seconds;
  const RememberedTuning tuning{
      .kind = std::string(kind), .threads = threads_, .measured = today(), .trials = std::move(trials)};
  std::erase_if(known_, same_kind(kind, threads_));
  known_.push_back(tuning);
  if (!drowned(tuning.trials)) measured_.push_back(tuning);
}

std::optional<RememberedTuning> TuningCache::find(std::string_view kind) const {
  if (decided_)
    return RememberedTuning{.kind = std::string(kind), .threads = threads_, .measured = {}, .trials = *decided_};
  const auto known = std::find_if(known_.begin(), known_.end(), same_kind(kind, threads_));
  return known == known_.end() ? std::nullopt : std::optional(*known);
}

std::vector<RememberedTuning> TuningCache::used() const {
  std::vector<RememberedTuning> tunings;
  for (const std::string& kind : used_) {
    if (auto tuning = find(kind)) tunings.push_back(std::move(*tuning));
  }
  return tunings;
}

Result<> TuningCache::write() const {
  make_cache_folder(path_.parent_path());
  auto others = read_tunings(path_, key_);
  std::vector<RememberedTuning> all = others.ok() ? std::move(*others) : std::vector<RememberedTuning>();
  for (const RememberedTuning& tuning : measured_) {
    std::erase_if(all, same_kind(tuning.kind, tuning.threads));
    all.push_back(tuning);
  }
  return write_tunings(path_, key_, all);
}

void TuningCache::finish() {
  if (path_.empty() || measured_.empty()) return;
  const Result<> written = write();
  if (!written.ok() && options_.note) options_.note("measured settings not kept: " + written.error().message());
  measured_.clear();
}

std::string tuning_text(const RememberedTuning& tuning) {
  std::string text;
  bool changed = false;
  for (const SettingInForce& setting : settings_in_force(tuning.trials)) {
    text += (text.empty() ? "" : ", ") + setting.name + " " + setting.value;
    if (setting.taken == nullptr) continue;
    changed = true;
    if (!tuning.measured.empty())
      text += fmt::format(" (x{:.2f} over {})", setting.taken->gain, setting.taken->against);
  }
  if (tuning.measured.empty()) return (text.empty() ? "defaults" : text) + ", as the environment says";
  if (!changed) text = "defaults kept, nothing was faster by more than noise: " + text;
  return text + "; measured " + tuning.measured;
}

Json tuning_json(const RememberedTuning& tuning) {
  Json settings = Json::object();
  for (const SettingInForce& setting : settings_in_force(tuning.trials)) settings[setting.name] = setting.value;
  Json trials = Json::array();
  for (const TuningTrial& trial : tuning.trials) trials.push_back(to_json(trial));
  return {{"kind", tuning.kind},
          {"threads", tuning.threads},
          {"measured", tuning.measured.empty() ? Json() : Json(tuning.measured)},
          {"settings", std::move(settings)},
          {"trials", std::move(trials)}};
}

}  // namespace moracle
