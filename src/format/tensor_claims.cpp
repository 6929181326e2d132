#include <string>

#include "format/format.h"

namespace moracle {
namespace {

Error missing(const Checkpoint& checkpoint, std::string_view name) {
  return Error{.code = "tensor.missing",
               .file = checkpoint.folder().string(),
               .where = std::string(name),
               .wanted = "a tensor of this name",
               .found = "none"};
}

Error taken_twice(const TensorView& tensor) {
  return Error{.code = "tensor.twice",
               .file = tensor.file,
               .where = tensor.name,
               .wanted = "each tensor to be used once",
               .found = "a second use"};
}

}  // namespace

bool TensorClaims::has_module(std::string_view module) const {
  const std::string prefix = std::string(module) + ".";
  const auto at = checkpoint_->tensors().lower_bound(prefix);
  return at != checkpoint_->tensors().end() && at->first.starts_with(prefix);
}

Result<const TensorView*> TensorClaims::claim(std::string_view name) {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) return missing(*checkpoint_, name);
  if (shared_.contains(tensor) || !claimed_.insert(tensor).second) return taken_twice(*tensor);
  claims_.push_back(tensor);
  return tensor;
}

Result<const TensorView*> TensorClaims::claim_shared(std::string_view name) {
  const TensorView* tensor = find(name);
  if (tensor == nullptr) return missing(*checkpoint_, name);
  if (claimed_.contains(tensor)) return taken_twice(*tensor);
  if (shared_.insert(tensor).second) claims_.push_back(tensor);
  return tensor;
}

std::vector<std::string> TensorClaims::unclaimed() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : checkpoint_->tensors())
    if (!claimed_.contains(&tensor) && !shared_.contains(&tensor)) names.push_back(name);
  return names;
}

}  // namespace moracle
