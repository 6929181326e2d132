// Rows that the cards of the CPU kernels have in each table.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/generic/name_argument.h"
#include "kernels/cards.h"
#include "oracle/decide.h"

namespace moracle {

// The rows of a priority table: the cards of a family, then the others.
template <NameArgument kFamily, std::size_t kOthers>
constexpr auto behind_cpu_cards(const TableRow (&others)[kOthers]) {
  constexpr auto kOfFamily = [](const CpuCard& card) { return card.family == kFamily.view(); };
  constexpr auto kCount = static_cast<std::size_t>(std::count_if(kCpuCards.begin(), kCpuCards.end(), kOfFamily));
  static_assert(kCount > 0);
  std::array<TableRow, kCount + kOthers> rows{};
  std::size_t at = 0;
  for (const CpuCard& card : kCpuCards)
    if (kOfFamily(card)) rows[at++] = {&card.card, card.why};
  for (const TableRow& row : others) rows[at++] = row;
  return rows;
}

}  // namespace moracle
