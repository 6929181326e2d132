// What kernels measured about their settings, remembered from one load to the next: a small file for each machine
// beside the packed layers. See docs/cache.md.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "engine/pack_cache.h"
#include "engine/tuning_file.h"
#include "machine/machine.h"

namespace moracle {

class TuningCache final : public TuningStore {
 public:
  // Reads what is remembered for this machine, program and number of threads. Without a folder, and for programs that
  // nothing tells from others, it remembers for as long as it lives. What is not well-formed is measured again.
  // MORACLE_TUNING=measure measures everything again; what the user has decided (decided_tuning) is asked before.
  TuningCache(const PackCacheOptions& options, const Machine& machine, int threads);

  [[nodiscard]] const TuningTrials* recall(std::string_view kind) override;
  void keep(std::string_view kind, TuningTrials trials, double seconds) override;

  // Empty: nothing is known of layers of this kind.
  [[nodiscard]] std::optional<RememberedTuning> find(std::string_view kind) const;
  // Of the kinds that were recalled or kept, each once, in that order.
  [[nodiscard]] std::vector<RememberedTuning> used() const;
  // What was measured so far took.
  [[nodiscard]] double seconds() const { return seconds_; }
  // Writes what was measured, if anything was, together with what others have written in the meantime.
  void finish();

 private:
  [[nodiscard]] Result<> write() const;

  PackCacheOptions options_;
  std::filesystem::path path_;  // empty: nothing is read or written
  TuningKey key_;
  int threads_;
  std::optional<TuningTrials> decided_;     // by the user
  std::vector<RememberedTuning> known_;     // for this number of threads
  std::vector<RememberedTuning> measured_;  // of these, the ones that are not written yet
  double seconds_ = 0;
  std::vector<std::string> used_;
};

// "streams many (x1.51 over one), run_from 3; measured 2026-11-22", for people.
[[nodiscard]] std::string tuning_text(const RememberedTuning& tuning);
// {"kind", "threads", "measured", "settings": {"streams": "many", ...}, "trials": [...]}; "measured" is null where the
// user has decided.
[[nodiscard]] Json tuning_json(const RememberedTuning& tuning);

}  // namespace moracle
