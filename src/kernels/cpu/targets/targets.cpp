#include "kernels/cpu/targets/targets.h"

#include <iterator>
#include <utility>

namespace moracle::cpu {

const Target* find_target(std::string_view name) {
  const Target* found = nullptr;
  const auto look = [&]<std::size_t kAt>(std::integral_constant<std::size_t, kAt>) {
    if constexpr (built(kTargets[kAt])) {
      if (kTargets[kAt].name == name) found = &target_named<kTargets[kAt].name>();
    }
  };
  [&]<std::size_t... kAt>(std::index_sequence<kAt...>) {
    (look(std::integral_constant<std::size_t, kAt>()), ...);
  }(std::make_index_sequence<std::size(kTargets)>());
  return found;
}

}  // namespace moracle::cpu
