// A constraint says which tokens a reply may have next.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

namespace moracle {

// The state of one reply's constraint. Masks are those of SampleArgs: bit id % 32 of word id / 32 is 1 where the token
// may come next.
class Constraint {
 public:
  virtual ~Constraint() = default;

  // Whether every token may come next: no mask is needed.
  [[nodiscard]] virtual bool allows_all() const = 0;
  // Clears the bits of tokens that may not come next, and no other, so that constraints of one reply join. Ids behind
  // the mask are left out.
  virtual void narrow(std::span<std::uint32_t> mask) const = 0;
  // The token was chosen.
  virtual void advance(std::int32_t id) = 0;
  // Whether the reply is complete, so that only its end may come next.
  [[nodiscard]] virtual bool must_end() const { return false; }
};

// Makes the constraints of one request's replies. Immutable.
class ConstraintSource {
 public:
  virtual ~ConstraintSource() = default;
  // Of one reply, which ends with one of `ends`, and with none of them before it is complete.
  [[nodiscard]] virtual std::unique_ptr<Constraint> start(std::span<const std::int32_t> ends) const = 0;
};

// Makes replies' constraints `Held` of what they share.
template <class Held, class Shared>
class SharedSource final : public ConstraintSource {
 public:
  explicit SharedSource(std::shared_ptr<const Shared> shared) : shared_(std::move(shared)) {}
  [[nodiscard]] std::unique_ptr<Constraint> start(std::span<const std::int32_t> ends) const override {
    return std::make_unique<Held>(shared_, ends);
  }

 private:
  std::shared_ptr<const Shared> shared_;
};

}  // namespace moracle
