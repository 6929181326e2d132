#include "text/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/tokenizer/byte_level.h"
#include "text/unicode.h"

namespace moracle {
namespace {

constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// A stretch of one piece, a delimiter or not.
struct Segment {
  std::size_t begin, end;
  bool delimiter;
};

// Covers [0, size) with the matches and what lies between them.
void cover(const std::vector<MatchSpan>& matches, std::size_t size, bool invert, std::vector<Segment>& segments) {
  segments.clear();
  std::size_t at = 0;
  for (const auto& match : matches) {
    if (match.begin > at) segments.push_back({at, match.begin, invert});
    segments.push_back({match.begin, match.end, !invert});
    at = match.end;
  }
  if (at < size) segments.push_back({at, size, invert});
}

// Joins or drops segments as the behavior asks.
void arrange(std::vector<Segment>& segments, SplitBehavior behavior) {
  if (behavior == SplitBehavior::kIsolated) return;
  if (behavior == SplitBehavior::kRemoved) {
    std::erase_if(segments, [](const Segment& s) { return s.delimiter; });
    return;
  }
  const bool backward = behavior == SplitBehavior::kMergedWithNext;
  if (backward) std::reverse(segments.begin(), segments.end());
  std::vector<Segment> joined;
  bool previous = false;
  for (const auto& segment : segments) {
    const bool join =
        behavior == SplitBehavior::kContiguous ? segment.delimiter == previous : segment.delimiter && !previous;
    if (join && !joined.empty()) {
      (backward ? joined.back().begin : joined.back().end) = backward ? segment.begin : segment.end;
    } else {
      joined.push_back(segment);
    }
    previous = segment.delimiter;
  }
  if (backward) std::reverse(joined.begin(), joined.end());
  segments = std::move(joined);
}

Piece slice(const Piece& piece, std::size_t begin, std::size_t end) {
  return {piece.begin + begin, piece.begin + end, piece.head > begin ? std::min(piece.head, end) - begin : 0,
          piece.head > begin};
}

// Cuts every piece where `find` (piece text -> matches) says.
template <class Find>
Result<> split_pieces(PieceList& list, SplitBehavior behavior, bool invert, Searcher& searcher, const Find& find) {
  const std::size_t count = list.pieces.size();
  if (!searcher.pass(count, count * sizeof(Piece))) return searcher.limit();
  std::vector<Piece> pieces;
  pieces.reserve(count);
  const bool keeps_whole = !invert || behavior != SplitBehavior::kRemoved;
  std::vector<MatchSpan> matches;
  std::vector<Segment> segments;
  for (const auto& piece : list.pieces) {
    MORACLE_TRY(find(list.view(piece), matches));
    if (matches.empty()) {
      if (keeps_whole && piece.end > piece.begin) pieces.push_back(slice(piece, 0, piece.end - piece.begin));
      continue;
    }
    // Each match is a segment, and so is what lies before it.
    const std::size_t most = 2 * matches.size() + 1;
    if (!searcher.pass(most, most * (sizeof(Segment) + sizeof(Piece)))) return searcher.limit();
    cover(matches, piece.end - piece.begin, invert, segments);
    arrange(segments, behavior);
    for (const auto& segment : segments) {
      if (segment.end > segment.begin) pieces.push_back(slice(piece, segment.begin, segment.end));
    }
  }
  list.pieces = std::move(pieces);
  return Ok{};
}

// Writes every piece anew into a fresh buffer of at most `most` bytes; `write(out, piece, text)` appends it and returns
// the new head.
template <class Write>
Result<> rewrite_pieces(PieceList& list, std::size_t most, Searcher& searcher, const Write& write) {
  if (!searcher.pass(list.text.size() + list.pieces.size(), most)) return searcher.limit();
  std::string out;
  out.reserve(list.text.size() + list.text.size() / 4);
  for (auto& piece : list.pieces) {
    const std::size_t begin = out.size();
    const std::size_t head = write(out, piece, list.view(piece));
    piece.begin = begin;
    piece.end = out.size();
    piece.head = head;
  }
  list.text = std::move(out);
  return Ok{};
}

Result<SplitBehavior> behavior_of(const JsonReader& reader, const std::string& name) {
  static constexpr std::pair<std::string_view, SplitBehavior> kNames[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous}};
  for (const auto& [known, behavior] : kNames) {
    if (name == known) return behavior;
  }
  return unsupported(reader.file(), reader.pointer("behavior"), "a known split behavior", name);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const Json& json, const std::string& file, const std::string& pointer,
                                             Budget& budget) {
  PreTokenizer result;
  MORACLE_TRY(read_components(json, {.name = "pre-tokenizer", .items = "pretokenizers"}, file, pointer, budget,
                              [&](const Json& step, const std::string& type, const std::string& place) {
                                return result.add(step, type, file, place);
                              }));
  return result;
}

Result<> PreTokenizer::add(const Json& json, const std::string& type, const std::string& file,
                           const std::string& pointer) {
  const JsonReader reader(json, file, pointer);
  places_.push_back(pointer);
  if (type == "Split") return add_split(json, reader, pointer);
  if (type == "ByteLevel") return add_byte_level(reader);
  if (type == "Metaspace") {
    MORACLE_ASSIGN(Metaspace step, read_metaspace(reader));
    steps_.emplace_back(std::move(step));
    return Ok{};
  }
  if (type == "Digits") {
    MORACLE_ASSIGN(const bool individual, required_boolean(reader, "individual_digits"));
    steps_.emplace_back(
        Characters{&unicode::is_numeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    MORACLE_ASSIGN(const std::string name, optional_string(reader, "behavior", "Isolated"));
    MORACLE_ASSIGN(const SplitBehavior behavior, behavior_of(reader, name));
    steps_.emplace_back(Characters{&unicode::is_punctuation, behavior});
  } else if (type == "WhitespaceSplit") {
    steps_.emplace_back(Characters{&unicode::is_white_space, SplitBehavior::kRemoved});
  } else if (type == "Whitespace") {
    steps_.emplace_back(Whitespace{});
  } else {
    return unsupported(file, pointer + "/type", "a known pre-tokenizer", type);
  }
  return Ok{};
}

Result<> PreTokenizer::add_split(const Json& json, const JsonReader& reader, const std::string& pointer) {
  MORACLE_ASSIGN(TextPattern pattern,
                 TextPattern::from_json(json.value("pattern", Json()), reader.file(), pointer + "/pattern"));
  MORACLE_ASSIGN(const std::string name, required_string(reader, "behavior"));
  MORACLE_ASSIGN(const SplitBehavior behavior, behavior_of(reader, name));
  MORACLE_ASSIGN(const bool invert, required_boolean(reader, "invert"));
  steps_.emplace_back(Split{std::move(pattern), behavior, invert});
  return Ok{};
}

Result<> PreTokenizer::add_byte_level(const JsonReader& reader) {
  MORACLE_TRY(check_byte_level(reader));
  MORACLE_ASSIGN(const bool prefix, required_boolean(reader, "add_prefix_space"));
  MORACLE_ASSIGN(const bool use_regex, optional_boolean(reader, "use_regex", true));
  ByteLevel step{std::nullopt, prefix};
  if (use_regex) {
    MORACLE_ASSIGN(step.pattern, TextPattern::regex(kGpt2Pattern));
  }
  steps_.emplace_back(std::move(step));
  return Ok{};
}

Result<> PreTokenizer::apply(PieceList& list, Searcher& searcher) const {
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    auto done = std::visit([&](const auto& step) { return apply_step(step, list, searcher); }, steps_[i]);
    if (!done.ok()) return at_place(std::move(done).error(), places_[i]);
  }
  return Ok{};
}

std::optional<bool> PreTokenizer::prefix_space() const {
  for (const Step& step : steps_) {
    if (const auto* bytes = std::get_if<ByteLevel>(&step)) return bytes->add_prefix_space;
    if (const auto* spaces = std::get_if<Metaspace>(&step)) return spaces->prepend != Metaspace::Prepend::kNever;
  }
  return std::nullopt;
}

void PreTokenizer::set_byte_level_prefix_space(bool on) {
  for (Step& step : steps_) {
    if (auto* bytes = std::get_if<ByteLevel>(&step)) bytes->add_prefix_space = on;
  }
}

Result<> PreTokenizer::apply_step(const Split& step, PieceList& list, Searcher& searcher) {
  return split_pieces(list, step.behavior, step.invert, searcher, [&](std::string_view text, auto& matches) {
    return step.pattern.find_all(text, searcher, matches);
  });
}

Result<> PreTokenizer::apply_step(const ByteLevel& step, PieceList& list, Searcher& searcher) {
  if (step.add_prefix_space) {
    const auto prepend = [](std::string& out, const Piece& piece, std::string_view text) {
      const bool prefix = !text.starts_with(' ');
      if (prefix) out.push_back(' ');
      out += text;
      return piece.head + (prefix && piece.head > 0 ? 1 : 0);
    };
    MORACLE_TRY(rewrite_pieces(list, list.text.size() + list.pieces.size(), searcher, prepend));
  }
  if (step.pattern) {
    const auto find = [&](std::string_view text, auto& matches) {
      return step.pattern->find_all(text, searcher, matches);
    };
    MORACLE_TRY(split_pieces(list, SplitBehavior::kIsolated, false, searcher, find));
  }
  return rewrite_pieces(list, 2 * list.text.size(), searcher,
                        [](std::string& out, const Piece& piece, std::string_view text) {
                          const std::size_t begin = out.size();
                          append_byte_level(out, text.substr(0, piece.head));
                          const std::size_t head = out.size() - begin;
                          append_byte_level(out, text.substr(piece.head));
                          return head;
                        });
}

Result<> PreTokenizer::apply_step(const Metaspace& step, PieceList& list, Searcher& searcher) {
  const auto mark = [&](std::string& out, const Piece& piece, std::string_view text) {
    const bool marked = text.starts_with(' ') || text.starts_with(step.replacement);
    const bool wanted =
        step.prepend == Metaspace::Prepend::kAlways || (step.prepend == Metaspace::Prepend::kFirst && piece.at_start);
    const std::size_t begin = out.size();
    const bool prefix = wanted && !marked;
    if (prefix) out += step.replacement;
    std::size_t head = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == ' ') {
        out += step.replacement;
      } else {
        out.push_back(text[i]);
      }
      if (i + 1 == piece.head) head = out.size() - begin;
    }
    return head;
  };
  const std::size_t most = (list.text.size() + list.pieces.size()) * step.replacement.size();
  MORACLE_TRY(rewrite_pieces(list, most, searcher, mark));
  if (!step.split) return Ok{};
  const auto find = [&](std::string_view text, std::vector<MatchSpan>& matches) -> Result<> {
    matches.clear();
    for (auto at = text.find(step.replacement); at != std::string_view::npos;) {
      if (!searcher.found(matches, {at, at + step.replacement.size()})) return searcher.limit();
      at = text.find(step.replacement, at + step.replacement.size());
    }
    return Ok{};
  };
  return split_pieces(list, SplitBehavior::kMergedWithNext, false, searcher, find);
}

Result<> PreTokenizer::apply_step(const Characters& step, PieceList& list, Searcher& searcher) {
  const auto find = [&](std::string_view text, std::vector<MatchSpan>& matches) -> Result<> {
    matches.clear();
    if (!searcher.pass(text.size(), 0)) return searcher.limit();
    for (std::size_t at = 0; at < text.size();) {
      const auto next = unicode::decode_at(text, at);
      if (step.is_delimiter(next.code) && !searcher.found(matches, {at, at + next.size})) return searcher.limit();
      at += next.size;
    }
    return Ok{};
  };
  return split_pieces(list, step.behavior, false, searcher, find);
}

Result<> PreTokenizer::apply_step(const Whitespace& /*step*/, PieceList& list, Searcher& searcher) {
  enum class Kind { kSpace, kWord, kOther };
  const auto find = [&](std::string_view text, std::vector<MatchSpan>& matches) -> Result<> {
    matches.clear();
    if (!searcher.pass(text.size(), 0)) return searcher.limit();
    Kind previous = Kind::kSpace;
    for (std::size_t at = 0; at < text.size();) {
      const auto next = unicode::decode_at(text, at);
      Kind kind = Kind::kOther;
      if (unicode::is_white_space(next.code)) kind = Kind::kSpace;
      if (unicode::is_word(next.code)) kind = Kind::kWord;
      if (kind != Kind::kSpace) {
        if (kind == previous) {
          matches.back().end = at + next.size;
        } else if (!searcher.found(matches, {at, at + next.size})) {
          return searcher.limit();
        }
      }
      previous = kind;
      at += next.size;
    }
    return Ok{};
  };
  return split_pieces(list, SplitBehavior::kRemoved, true, searcher, find);
}

}  // namespace moracle
