#include "generate/batch/prefix_reuse.h"

#include <algorithm>

#include "model/state/prefix_store.h"
#include "model/state/state.h"

namespace moracle {

namespace {

// Where recurrent states are stored on the way through a long sequence.
constexpr std::int64_t kStopTokens = 1024;

// The end of the prompt's last whole block, the last token left out: its logits are computed each time.
std::int64_t prompt_stop(const ScheduledSequence& sequence) {
  return (sequence.prompt_size() - 1) / kBlockTokens * kBlockTokens;
}

}  // namespace

PrefixStore* PrefixReuse::store_of(const Request& request) const {
  return reuse_ && request.reuse_prefix && request.state == nullptr ? model_.prefixes() : nullptr;
}

std::string PrefixReuse::salt_of(const Request& request) const {
  const std::string key = share_ ? std::string() : request.key;
  return std::to_string(key.size()) + ":" + key + request.salt;
}

PrefixReuse::Found PrefixReuse::restore(ScheduledSequence& sequence, SequenceState& state) const {
  sequence.stored = 0;
  PrefixStore* const stored = store_of(sequence.request);
  // Logits of stored tokens are not stored.
  const bool scores = sequence.scores_prompt() && sequence.told < sequence.prompt_size();
  if (stored == nullptr || scores) return {};
  const std::int64_t restored = stored->restore(state, sequence.ids, salt_of(sequence.request));
  sequence.stored = restored / kBlockTokens;
  return {.restored = restored, .looked_up = std::ssize(sequence.ids)};
}

std::int64_t PrefixReuse::until_stop(const ScheduledSequence& sequence) const {
  const PrefixStore* const stored = store_of(sequence.request);
  if (stored == nullptr || !stored->needs_stops()) return sequence.missing();
  const std::int64_t length = sequence.state->length();
  std::int64_t stop = (length / kStopTokens + 1) * kStopTokens;
  if (length < prompt_stop(sequence)) stop = std::min(stop, prompt_stop(sequence));
  return std::min(sequence.missing(), stop - length);
}

void PrefixReuse::store(std::span<const StepPart> parts) const {
  for (const StepPart& part : parts) {
    ScheduledSequence& sequence = *part.sequence;
    PrefixStore* const stored = store_of(sequence.request);
    const std::int64_t whole = part.end / kBlockTokens;
    if (stored == nullptr || part.error || whole == sequence.stored) continue;
    const bool stops = part.end % kStopTokens == 0 || part.end == prompt_stop(sequence);
    if (stored->needs_stops() && !stops) continue;
    stored->store(*sequence.state, sequence.ids, salt_of(sequence.request));
    sequence.stored = whole;
  }
}

bool PrefixReuse::evict() const {
  PrefixStore* const stored = model_.prefixes();
  return stored != nullptr && stored->evict();
}

std::size_t PrefixReuse::bytes() const {
  const PrefixStore* const stored = model_.prefixes();
  return stored != nullptr ? stored->bytes() : 0;
}

void PrefixReuse::clear() const {
  if (PrefixStore* const stored = model_.prefixes(); reuse_ && stored != nullptr) stored->clear();
}

}  // namespace moracle
