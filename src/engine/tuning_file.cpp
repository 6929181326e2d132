#include "engine/tuning_file.h"

#include <algorithm>

#include "base/checked.h"
#include "base/json.h"
#include "checkpoint/atomic_file.h"

namespace moracle {

namespace {

constexpr const char* kFormat = "tuning 1";
constexpr std::size_t kMostBytes = std::size_t{512} << 10;
constexpr std::size_t kMostTrials = 32;
constexpr std::size_t kMostText = 512;
constexpr double kMostRatio = 1e6;

// Texts go to terminals.
bool printable(const std::string& text) {
  return text.size() <= kMostText && std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
}

// Checked access to the members of one object; after the first wrong one nothing counts.
class Members {
 public:
  explicit Members(const Json& object) : object_(object), good_(object.is_object()) {}

  std::string text(const char* name) {
    const Json* const value = find(name);
    good_ = good_ && value->is_string() && printable(value->get_ref<const std::string&>());
    return good_ ? value->get<std::string>() : std::string();
  }
  std::int64_t whole(const char* name, std::int64_t least, std::int64_t most) {
    const Json* const value = find(name);
    good_ = good_ && value->is_number_unsigned() && value->get<std::uint64_t>() <= static_cast<std::uint64_t>(most);
    const std::int64_t number = good_ ? value->get<std::int64_t>() : least;
    good_ = good_ && number >= least;
    return number;
  }
  double ratio(const char* name) {
    const Json* const value = find(name);
    good_ = good_ && value->is_number() && value->get<double>() >= 0 && value->get<double>() <= kMostRatio;
    return good_ ? value->get<double>() : 0;
  }
  bool truth(const char* name) {
    const Json* const value = find(name);
    good_ = good_ && value->is_boolean();
    return good_ && value->get<bool>();
  }
  // The elements of an array of at most `most`.
  template <class Body>
  void each(const char* name, std::size_t most, Body body) {
    const Json* const value = find(name);
    good_ = good_ && value->is_array() && value->size() <= most;
    if (!good_) return;
    for (const Json& element : *value) {
      Members members(element);
      body(members);
      good_ = good_ && members.good();
    }
  }
  [[nodiscard]] bool good() const { return good_; }

 private:
  const Json* find(const char* name) {
    if (!good_) return nullptr;
    const auto it = object_.find(name);
    good_ = it != object_.end();
    return good_ ? &*it : nullptr;
  }

  const Json& object_;
  bool good_;
};

RememberedTuning read_tuning(Members& layer) {
  RememberedTuning tuning;
  tuning.kind = layer.text("kind");
  tuning.threads = narrow<int>(layer.whole("threads", 1, 1 << 20));
  tuning.measured = layer.text("measured");
  layer.each("trials", kMostTrials, [&](Members& trial) {
    tuning.trials.push_back({.setting = trial.text("setting"),
                             .value = trial.text("value"),
                             .against = trial.text("against"),
                             .tokens = trial.whole("tokens", 0, 1 << 20),
                             .gain = trial.ratio("gain"),
                             .noise = trial.ratio("noise"),
                             .taken = trial.truth("taken")});
  });
  return tuning;
}

Json layer_json(const RememberedTuning& tuning) {
  Json trials = Json::array();
  for (const TuningTrial& trial : tuning.trials) trials.push_back(to_json(trial));
  return {
      {"kind", tuning.kind}, {"threads", tuning.threads}, {"measured", tuning.measured}, {"trials", std::move(trials)}};
}

}  // namespace

Json to_json(const TuningTrial& trial) {
  return {{"setting", trial.setting}, {"value", trial.value}, {"against", trial.against}, {"tokens", trial.tokens},
          {"gain", trial.gain},       {"noise", trial.noise}, {"taken", trial.taken}};
}

Result<std::vector<RememberedTuning>> read_tunings(const std::filesystem::path& path, const TuningKey& key) {
  Error error{.code = "cache.broken", .file = path.string(), .wanted = "measured settings", .found = "something else"};
  std::error_code code;
  if (!std::filesystem::exists(path, code)) {
    error.code = "cache.absent";
    return error;
  }
  const auto text = read_text(path, kMostBytes);
  const auto json = text.ok() ? parse_json(*text, path.string(), {.bytes = kMostBytes, .depth = 8}) : text.error();
  if (!json.ok()) {
    error.found = json.error().found;
    return error;
  }
  Members file(*json);
  if (file.text("moracle") != kFormat) return error;
  const bool ours = file.text("machine") == key.machine && file.text("program") == key.program;
  if (file.good() && !ours) {
    error.code = "cache.other";
    error.found = "those of another machine or program";
    return error;
  }
  std::vector<RememberedTuning> tunings;
  file.each("layers", kMostTunings, [&](Members& layer) { tunings.push_back(read_tuning(layer)); });
  if (!file.good()) return error;
  return tunings;
}

Result<> write_tunings(const std::filesystem::path& path, const TuningKey& key,
                       const std::vector<RememberedTuning>& tunings) {
  Json layers = Json::array();
  for (std::size_t i = tunings.size() - std::min(tunings.size(), kMostTunings); i < tunings.size(); ++i)
    layers.push_back(layer_json(tunings[i]));
  const Json file = {
      {"moracle", kFormat}, {"machine", key.machine}, {"program", key.program}, {"layers", std::move(layers)}};
  MORACLE_ASSIGN(AtomicFile out, AtomicFile::create(path, 0));
  MORACLE_TRY(out.write(file.dump(1, ' ', true, Json::error_handler_t::replace) + "\n"));
  return out.commit();
}

}  // namespace moracle
