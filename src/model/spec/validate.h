// What everything that is built from a spec relies on, in one place.
#pragma once

#include "model/spec/config.h"
#include "model/spec/spec.h"

namespace moracle {

// Refuses a spec that no forward pass can be built from, whatever made it so: a key out of range, a default that does
// not fit the other keys, keys that contradict each other. Errors: "config.range", and "config.missing" where no key
// holds the value, with config.json and the JSON pointer of the key that the value comes from.
Result<> validate(const ModelSpec& spec, const ModelConfig& config);

}  // namespace moracle
