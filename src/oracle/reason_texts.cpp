#include "oracle/reason_texts.h"

#include <algorithm>

#include "oracle/decide.h"

namespace moracle {

std::string_view ReasonTexts::keep(std::string_view text) {
  if (text.size() > left_) {
    const std::size_t size = std::max(kBlock, text.size());
    blocks_.push_back(std::make_unique_for_overwrite<char[]>(size));
    end_ = blocks_.back().get();
    left_ = size;
  }
  char* const begin = end_;
  end_ = std::copy(text.begin(), text.end(), begin);
  left_ -= text.size();
  return {begin, text.size()};
}

std::string_view ReasonTexts::of(const Scheme& scheme) {
  if (!scheme_ || scheme_->first != scheme)
    scheme_ = {scheme, written([&scheme](std::string& out) { append_scheme(out, scheme); })};
  return scheme_->second;
}

}  // namespace moracle
