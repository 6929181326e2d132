// What cards accept and machines have, in the words of reasons. Each text is written at the end of `out`, so that a
// reason is one text without parts of its own.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "machine/machine.h"
#include "oracle/card.h"

namespace moracle {

template <class List, class Write>
void append_joined(std::string& out, const List& list, std::string_view between, Write write) {
  bool first = true;
  for (const auto& item : list) {
    if (!first) out += between;
    first = false;
    write(out, item);
  }
}

// "cpu x86_64 with avx2"
void append_machine(std::string& out, const Machine& machine);
// "cuda of capability from 8.0 to 9.0"
void append_device_rule(std::string& out, const DeviceRule& rule);
// "int4 g32/64/128 sym or asym with fp8 token dynamic activations"
void append_scheme_rule(std::string& out, const SchemeRule& rule, std::span<const std::int32_t> group_sizes);

}  // namespace moracle
