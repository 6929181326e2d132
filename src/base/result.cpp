#include "base/result.h"

namespace moracle {

std::string Error::message() const {
  std::string text;
  const auto part = [&text](const std::string& piece, const char* before) {
    if (piece.empty()) return;
    if (!text.empty()) text += before;
    text += piece;
  };
  part(file, "");
  part(where, ": ");
  if (!wanted.empty()) part("wanted " + wanted, ": ");
  part(wanted.empty() ? found : "found " + found, wanted.empty() ? ": " : ", ");
  text += " [" + code + "]";
  part(advice, "; ");
  return text;
}

}  // namespace moracle
