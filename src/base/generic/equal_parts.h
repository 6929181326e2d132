// A count in near-equal parts. A template on a tag, so that code of one instruction set shares no function with other
// code.
#pragma once

#include <cstdint>

namespace moracle {

// Splits `count` into near-equal parts of at most `most`, instead of full ones and a tail of one. The longer ones come
// first.
template <class Tag = void>
class EqualParts {
 public:
  constexpr EqualParts(std::int64_t count, std::int64_t most)
      : parts_((count + most - 1) / most),
        length_(parts_ > 0 ? count / parts_ : 0),
        longer_(parts_ > 0 ? count % parts_ : 0) {}
  [[nodiscard]] constexpr std::int64_t size() const { return parts_; }
  [[nodiscard]] constexpr std::int64_t begin(std::int64_t part) const {
    return part * length_ + (part < longer_ ? part : longer_);
  }
  [[nodiscard]] constexpr std::int64_t count(std::int64_t part) const { return begin(part + 1) - begin(part); }

 private:
  std::int64_t parts_;
  std::int64_t length_;
  std::int64_t longer_;
};

}  // namespace moracle
