// Which rows of a table a question reaches, before any class is asked.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "compat/vllm/decide.h"

namespace moracle::vllm {

struct RowSelection {
  std::vector<const Row*> rows;            // in the order of the trace
  std::vector<std::string_view> backends;  // those asked for by name or by force; empty: all, unless `restricted`
  bool restricted = false;
  std::string_view wanted;  // what restricted them, for messages
  std::string_view verdict;
  const ForcedRule* forced = nullptr;
  bool unknown = false;
  bool without_variant = false;

  [[nodiscard]] bool takes(std::string_view backend) const {
    return !restricted || std::find(backends.begin(), backends.end(), backend) != backends.end();
  }
};

// `wanted` refers to `policy`.
[[nodiscard]] RowSelection select_rows(const Question& question, const Machine& machine, const Policy& policy,
                                       const Table& table);

}  // namespace moracle::vllm
