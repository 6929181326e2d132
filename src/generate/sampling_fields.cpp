#include "generate/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>

namespace moracle {

std::string SamplingField::limits() const {
  if (is_whole() && high == kNoLimit) return fmt::format("at least {}", low);
  if (high == kNoLimit) return fmt::format("a finite number {} {}", above_low ? "above" : "of at least", low);
  return fmt::format("a number {} {} {} {}", above_low ? "above" : "from", low, above_low ? "and at most" : "to", high);
}

std::string SamplingField::option() const {
  std::string dashed(name);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  return dashed;
}

const SamplingField* find_sampling_field(std::string_view name) {
  const auto found = std::find_if(kSamplingFields.begin(), kSamplingFields.end(),
                                  [&](const SamplingField& field) { return field.name == name; });
  return found == kSamplingFields.end() ? nullptr : &*found;
}

Result<> check(const SamplingOptions& options) {
  for (const SamplingField& field : kSamplingFields) {
    const auto value = std::visit([&](auto member) { return static_cast<double>(options.*member); }, field.member);
    if (field.accepts(value)) continue;
    return Error{.code = "sampling.range",
                 .where = std::string(field.name),
                 .wanted = field.limits(),
                 .found = std::to_string(value)};
  }
  return Ok{};
}

void SamplingChoice::apply(SamplingOptions& to) const {
  for (std::size_t i = 0; i < chosen_.size(); ++i) {
    if (chosen_[i]) std::visit([&](auto member) { to.*member = values_.*member; }, kSamplingFields[i].member);
  }
}

std::size_t SamplingChoice::index_of(decltype(SamplingField::member) member) {
  const auto found = std::find_if(kSamplingFields.begin(), kSamplingFields.end(),
                                  [&](const SamplingField& field) { return field.member == member; });
  return static_cast<std::size_t>(found - kSamplingFields.begin());
}

}  // namespace moracle
