// How one module's tensors are stored: what a format has to know once its config has been read.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/decode/packed_int.h"
#include "format/format.h"

namespace moracle {

class StoredScheme {
 public:
  virtual ~StoredScheme() = default;
  // The tensor without which a module is not quantized: "weight_packed".
  [[nodiscard]] virtual std::string_view codes_part() const = 0;
  [[nodiscard]] virtual Scheme scheme(const ModuleRef& module, const TensorClaims& claims) const = 0;
  [[nodiscard]] virtual Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const = 0;
};

// A format whose config assigns a StoredScheme to each module, or leaves it unquantized. What is stored must agree.
class SchemeFormat : public Format {
 public:
  [[nodiscard]] Result<ModuleScheme> scheme_of(const ModuleRef& module, const TensorClaims& claims) const final;
  [[nodiscard]] Result<StoredLinear> open(const ModuleRef& module, TensorClaims& claims) const final;
  [[nodiscard]] std::vector<std::string> warnings() const override;

 protected:
  struct Verdict {
    std::shared_ptr<const StoredScheme> scheme{};  // null: unquantized
    std::string rule{};                            // what in the config decides so
  };
  // What the config says of a module, whatever is stored.
  [[nodiscard]] virtual Result<Verdict> configured(const ModuleRef& module, const TensorClaims& claims) const = 0;
  // Whether a module that the config takes for quantized may be stored unquantized all the same: in formats whose
  // configs do not list what they leave out.
  [[nodiscard]] virtual Result<bool> plain_allowed(const ModuleRef& module) const = 0;

  [[nodiscard]] const std::shared_ptr<ValueNotes>& notes() const { return notes_; }
  void add_warning(std::string text) { warnings_.push_back(std::move(text)); }
  // Of the modules opened so far; null before.
  [[nodiscard]] const Checkpoint* checkpoint() const { return checkpoint_.get(); }

 private:
  [[nodiscard]] Result<Verdict> judge(const ModuleRef& module, const TensorClaims& claims) const;

  std::vector<std::string> warnings_;
  std::shared_ptr<ValueNotes> notes_ = std::make_shared<ValueNotes>();
  mutable std::shared_ptr<const Checkpoint> checkpoint_;
};

}  // namespace moracle
