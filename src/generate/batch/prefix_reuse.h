// What a scheduler does with the prefixes that its model stores. It belongs to the thread that drives the scheduler:
// stored prefixes have no lock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "generate/batch/sequence.h"
#include "generate/scheduler.h"
#include "model/model.h"

namespace moracle {

class PrefixReuse {
 public:
  PrefixReuse(Model& model, const SchedulerOptions& options)
      : model_(model), reuse_(options.reuse_prefixes), share_(options.share_prefixes) {}

  struct Found {
    std::int64_t restored = 0;   // tokens
    std::int64_t looked_up = 0;  // tokens; 0: the request wants none, or its prompt's logits
  };
  // Lets a sequence's new state begin with what is stored of its tokens.
  Found restore(ScheduledSequence& sequence, SequenceState& state) const;
  // How many of a sequence's tokens may be computed at once: up to where a recurrent state is to be stored, which is
  // behind the prompt's last whole block, and now and then.
  [[nodiscard]] std::int64_t until_stop(const ScheduledSequence& sequence) const;
  // Stores the whole blocks that a step has computed.
  void store(std::span<const StepPart> parts) const;
  // Gives up the least recently used one. False: none is held that nobody uses.
  [[nodiscard]] bool evict() const;
  // Bytes that evict() can give up, in the end.
  [[nodiscard]] std::size_t bytes() const;
  void clear() const;

 private:
  // Null: none is read or filled.
  [[nodiscard]] PrefixStore* store_of(const Request& request) const;
  [[nodiscard]] std::string salt_of(const Request& request) const;

  Model& model_;
  bool reuse_;
  bool share_;
};

}  // namespace moracle
