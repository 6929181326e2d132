// One priority table per kind of scheme, one file each. Rows in the order of the choice, with the reason of the order.
#pragma once

#include <span>
#include <string_view>

#include "oracle/decide.h"

namespace moracle {

// A table and the schemes that ask it.
struct SchemeTable {
  Table table;
  bool (*serves)(const Scheme&);
};

extern const SchemeTable kWna16Table;
extern const SchemeTable kInt8Table;
extern const SchemeTable kW4A8Table;
extern const SchemeTable kFp8Table;
extern const SchemeTable kMxfp4Table;
extern const SchemeTable kMxfp6Table;
extern const SchemeTable kMxfp8Table;
extern const SchemeTable kNvfp4Table;
extern const SchemeTable kUnquantizedTable;

// What a card of kind `own` lacks to run here; empty: nothing.
[[nodiscard]] std::string_view missing(std::string_view card_id);

// Every card once, and no two cards of one id: a card listed twice would hide a mistake in the order.
[[nodiscard]] constexpr bool listed_once(std::span<const TableRow> rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = i + 1; j < rows.size(); ++j) {
      if (rows[i].card->id == rows[j].card->id) return false;
    }
  }
  return true;
}

}  // namespace moracle
