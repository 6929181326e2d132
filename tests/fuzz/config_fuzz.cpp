// Model folders of every publisher's format, described in JSON (support/model_folder.h) and mutated: opened, planned,
// inspected, loaded, and run for two tokens. Whatever they hold, an answer or an error that names the place.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config_words.h"
#include "fuzz_input.h"
#include "json_mutator.h"
#include "model/load/explain_plan.h"
#include "model/load/memory_plan.h"
#include "model/model.h"

#include "support/model_folder.h"
#include "support/temporary_folder.h"

namespace {

using moracle::Checkpoint;
using moracle::LoadPlan;
using moracle::Result;
using moracle::fuzz::check_error;
using moracle::fuzz::require;

constexpr std::size_t kMostBytes = std::size_t{8} << 20;

const moracle::Machine& machine() {
  static const moracle::Machine kMachine = moracle::probe_machine();
  return kMachine;
}

// What `inspect`, `explain` and `plan` ask for.
Result<> inspect(const std::filesystem::path& folder) {
  MORACLE_ASSIGN(const auto checkpoint, Checkpoint::open(folder));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(checkpoint, machine(), {}));
  require(!moracle::explain_plan_json(*plan, machine()).empty());
  require(!moracle::tensor_degrees(*plan).empty() && !moracle::expert_degrees(*plan).empty());
  for (const int degree : {1, 2}) {
    const auto cut = moracle::memory_plan(*plan, {.tp = degree, .ep = degree});
    if (!cut.ok()) check_error(cut.error());
  }
  return moracle::Ok{};
}

Result<> run(const std::filesystem::path& folder, bool by_reference) {
  moracle::Policy policy;
  if (by_reference) policy.pinned = "ref";
  MORACLE_ASSIGN(auto checkpoint, Checkpoint::open(folder));
  MORACLE_ASSIGN(const auto plan, LoadPlan::make(std::move(checkpoint), machine(), policy));
  static moracle::ThreadPool pool(1);
  MORACLE_ASSIGN(const auto model, moracle::load_model(*plan, pool));
  MORACLE_ASSIGN(const auto state, model->new_sequence());
  MORACLE_TRY(model->reserve(2));
  const auto last = static_cast<std::int32_t>(model->info().vocab_size - 1);
  for (std::int32_t position = 0; position < 2; ++position) {
    const std::vector<std::int32_t> ids{position == 0 ? 0 : last};
    const std::vector<std::int32_t> positions{position};
    const std::vector<moracle::Batch::Span> spans{{.begin = 0, .count = 1}};
    moracle::SequenceState* const states[] = {state.get()};
    std::vector<float> logits;
    MORACLE_TRY(model->forward({.ids = ids, .positions = positions, .spans = spans}, states,
                               moracle::LogitRows::last_of_each, logits));
    require(logits.size() == static_cast<std::size_t>(model->info().vocab_size));
    for (const float logit : logits) require(!std::isnan(logit));
  }
  return moracle::Ok{};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moracle::test::TemporaryFolder kFolder;
  const auto description =
      moracle::parse_json(std::string_view(reinterpret_cast<const char*>(data), size), "description");
  if (!description.ok()) return -1;
  const auto folder = moracle::test::make_folder(*description, kMostBytes);
  if (!folder) return -1;
  moracle::test::write_folder(*folder, kFolder.path());
  const auto inspected = inspect(kFolder.path());
  if (!inspected.ok()) {
    check_error(inspected.error());
    return 0;
  }
  // Most inputs by the reference kernel; of the others the oracle says which kernel.
  const auto done = run(kFolder.path(), size % 4 != 0);
  if (!done.ok()) check_error(done.error());
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  static const moracle::fuzz::JsonVocabulary kWords{.keys = moracle::fuzz::words_of(moracle::fuzz::kConfigKeys),
                                                    .strings = moracle::fuzz::words_of(moracle::fuzz::kConfigStrings)};
  std::mt19937 rng(seed);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  // Tensors have most of the values; what goes wrong is mostly in the files beside them.
  const char* const part = rng() % 3 == 0 ? "tensors" : "files";
  return moracle::fuzz::give_back(moracle::fuzz::mutate_member(text, part, kWords, rng), data, most);
}
