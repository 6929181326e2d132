// A generation_config.json, a byte 0, and a config.json: settings in their ranges, or faults that name the file.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "base/json.h"
#include "fuzz_input.h"
#include "generate/generation_config.h"
#include "json_mutator.h"
#include "support/temporary_folder.h"

namespace {

using moracle::fuzz::require;

constexpr std::int64_t kVocabulary = 100;

const moracle::fuzz::JsonVocabulary& words() {
  static const moracle::fuzz::JsonVocabulary kWords{
      .keys = {"eos_token_id", "bos_token_id", "do_sample", "temperature", "top_k", "top_p", "min_p", "text_config",
               "pad_token_id", "repetition_penalty", "presence_penalty", "frequency_penalty", "max_new_tokens",
               "max_length", "stop_strings", "num_beams"},
      .strings = {"0.7", "1", "none", "true"}};
  return kWords;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const moracle::test::TemporaryFolder kFolder;
  const auto parts = moracle::fuzz::parts_of(std::span(data, size), 2);
  const auto config = moracle::parse_json(parts[1].empty() ? "{}" : parts[1], "config.json");
  if (!config.ok() || !config->is_object()) return 0;
  kFolder.write("generation_config.json", parts[0]);
  const moracle::GenerationConfig loaded = moracle::load_generation_config(kFolder.path(), *config, kVocabulary);
  for (const moracle::GenerationConfig::Fault& fault : loaded.faults) {
    moracle::fuzz::check_error(fault.error);
    require(!fault.error.file.empty());
  }
  const auto in_range = [](std::int32_t id) { return id >= 0 && id < kVocabulary; };
  require(std::ranges::all_of(loaded.eos_ids, in_range) && std::ranges::is_sorted(loaded.eos_ids));
  require(!loaded.bos_id || in_range(*loaded.bos_id));
  const auto settled = loaded.settle({});
  if (!settled.ok()) {
    moracle::fuzz::check_error(settled.error());
    return 0;
  }
  const moracle::SamplingOptions& sampling = settled->sampling;
  require(std::isfinite(sampling.temperature) && sampling.temperature >= 0);
  require(sampling.top_k >= 0 && sampling.top_p > 0 && sampling.top_p <= 1);
  require(sampling.min_p >= 0 && sampling.min_p <= 1);
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  std::mt19937 rng(seed);
  const auto parts = moracle::fuzz::parts_of(std::span(data, size), 2);
  std::string published(parts[0]);
  std::string config(parts[1]);
  std::string& changed = rng() % 3 == 0 ? config : published;
  changed = moracle::fuzz::mutate_json(changed, words(), rng);
  return moracle::fuzz::give_back(published + '\0' + config, data, most);
}
