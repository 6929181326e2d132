// A text on its way through normalizers and pre-tokenizers. It is working memory of one call, and so of one thread.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace moracle {

// `head` counts the leading bytes of a text that stem from the very first character of the input. It is all of the
// alignment that any step asks for: Metaspace with prepend_scheme "first" marks only pieces that begin there.
struct NormalizedText {
  std::string text;
  std::size_t head = 0;
};

struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t head = 0;   // as in NormalizedText, counted from `begin`
  bool at_start = false;  // the piece was cut off at the start of the input
};

// Pieces of one buffer, in order, none empty.
struct PieceList {
  std::string text;
  std::vector<Piece> pieces;

  [[nodiscard]] std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

}  // namespace moracle
