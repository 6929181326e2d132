// Cards of external kernels whose layout is packed here, asked for by name: no decision of this machine takes them.
#pragma once

#include <string_view>

#include "base/result.h"
#include "machine/machine.h"
#include "oracle/card.h"

namespace moracle {

// A machine that the card is made for, without libraries.
[[nodiscard]] Machine device_of(const KernelCard& card);

// The card of `backend` that holds these experts. Errors: "oracle.layout", with the reasons against each of its cards.
Result<const KernelCard*> layout_card_for(std::string_view backend, const Problem& problem);

}  // namespace moracle
