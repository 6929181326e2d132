// What a model of a test does with the samples of a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace moracle::test {

// From the logits of `result`, whose spans say where their rows begin.
inline void sample_on_host(const Batch& batch, std::int64_t vocabulary, BatchResult& result) {
  if (batch.samples == nullptr) return;
  static ThreadPool pool(1);
  SampleArgs args = batch.samples->args;
  std::vector<std::int32_t> rows;
  for (const BatchSamples::Row& row : batch.samples->rows) {
    const auto first = static_cast<std::int64_t>(result.spans[row.span].logits) / vocabulary;
    rows.push_back(static_cast<std::int32_t>(first + row.row));
  }
  result.ids.resize(rows.size());
  result.logprobs.resize(rows.size());
  result.tops.resize(rows.size() * static_cast<std::size_t>(args.most_tops));
  args.logits = result.logits.data();
  args.logit_row = rows.data();
  args.ids = result.ids.data();
  args.logprobs = result.logprobs.data();
  args.top = result.tops.data();
  std::vector<std::byte> workspace(ref_ops().workspace(args, pool.threads()));
  Stream stream(pool);
  ref_ops().sample({.stream = stream, .workspace = workspace}, args);
}

}  // namespace moracle::test
