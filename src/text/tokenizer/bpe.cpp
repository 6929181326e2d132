#include "text/tokenizer/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "text/budgets.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/component.h"
#include "text/unicode.h"

namespace moracle {
namespace {

constexpr char32_t kIndexedCharacters = 0x3000;
constexpr std::size_t kSymbolBytes = 32;  // with its place in the heap
constexpr std::size_t kHeapPerStep = 8;   // levels of the heap that a step pays for
constexpr std::size_t kShortPiece = 16;   // its heap has at most four levels

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32) | static_cast<std::uint32_t>(right);
}

Error bad_merge(const std::string& file, const std::string& where, std::string wanted, std::string found) {
  return {
      .code = "tokenizer.merge", .file = file, .where = where, .wanted = std::move(wanted), .found = std::move(found)};
}

// Null where it is absent.
const Json& member(const Json& object, const char* key) {
  static const Json kNull;
  const auto found = object.find(key);
  return found == object.end() ? kNull : *found;
}

Result<> check_count(std::size_t count, std::size_t most, const char* what, const std::string& file,
                     const std::string& where) {
  if (count <= most) return Ok{};
  return Error{.code = "tokenizer.limit",
               .file = file,
               .where = where,
               .wanted = fmt::format("at most {} {}", most, what),
               .found = fmt::format("{}", count)};
}

}  // namespace

Result<Bpe> Bpe::from_json(const Json& json, const std::string& file, const std::string& pointer) {
  if (!json.is_object()) return unsupported(file, pointer, "a model object", json.type_name());
  const JsonReader reader(json, file, pointer);
  MORACLE_ASSIGN(const std::string type, reader.string_or("type", "BPE"));
  if (type != "BPE") return unsupported(file, pointer + "/type", "BPE", type);
  MORACLE_ASSIGN(const double dropout, reader.number_or("dropout", 0.0, {.low = 0.0, .high = 1.0}));
  if (dropout != 0.0) {
    return unsupported(file, pointer + "/dropout", "no dropout: encoding is deterministic", fmt::format("{}", dropout));
  }
  Bpe model;
  MORACLE_ASSIGN(model.fuse_unknown_, reader.boolean_or("fuse_unk", false));
  MORACLE_ASSIGN(model.byte_fallback_, reader.boolean_or("byte_fallback", false));
  MORACLE_ASSIGN(model.ignore_merges_, reader.boolean_or("ignore_merges", false));
  for (const auto& [key, affix] :
       {std::pair{"continuing_subword_prefix", &model.prefix_}, std::pair{"end_of_word_suffix", &model.suffix_}}) {
    MORACLE_ASSIGN(*affix, reader.string_or(key, ""));
    MORACLE_TRY(check_text_size(*affix, file, reader.pointer(key)));
  }
  MORACLE_TRY(model.read_vocabulary(member(json, "vocab"), file, pointer + "/vocab"));
  MORACLE_TRY(model.read_merges(member(json, "merges"), file, pointer + "/merges"));
  if (reader.has("unk_token")) {
    MORACLE_ASSIGN(model.unknown_text_, reader.string_or("unk_token", ""));
    model.unknown_id_ = model.vocabulary_.id(*model.unknown_text_);
  }
  model.index_characters();
  return model;
}

Result<Bpe> Bpe::from_ranks(const Ranks& ranks, const std::string& file) {
  Bpe model;
  model.ignore_merges_ = true;
  MORACLE_TRY(check_count(ranks.size(), kVocabularyTokens, "tokens", file, ""));
  IdByText by_bytes;
  std::size_t single = 0;
  std::string spelled;
  for (const auto& [bytes, rank] : ranks) {
    spelled.clear();
    append_byte_level(spelled, bytes);
    if (!model.vocabulary_.add(spelled, rank)) {
      return Error{.code = "tokenizer.id",
                   .file = file,
                   .wanted = "an id of its own for every token",
                   .found = fmt::format("rank {}, or its token, twice", rank)};
    }
    by_bytes.emplace(bytes, rank);
    if (bytes.size() == 1) ++single;
  }
  if (single != 256) {
    return Error{.code = "tokenizer.tiktoken",
                 .file = file,
                 .wanted = "each of the 256 bytes as a token",
                 .found = fmt::format("{}", single),
                 .advice = "download the file again"};
  }
  for (const auto& [bytes, rank] : ranks) {
    for (std::size_t cut = 1; cut < bytes.size(); ++cut) {
      const auto left = by_bytes.find(std::string_view(bytes).substr(0, cut));
      if (left == by_bytes.end()) continue;
      const auto right = by_bytes.find(std::string_view(bytes).substr(cut));
      if (right == by_bytes.end()) continue;
      const std::uint64_t pair = pair_key(left->second, right->second);
      if (!model.merges_.contains(pair)) model.merges_[pair] = Target{static_cast<std::uint32_t>(rank), rank};
    }
  }
  model.index_characters();
  return model;
}

Result<> Bpe::read_vocabulary(const Json& json, const std::string& file, const std::string& pointer) {
  if (!json.is_object()) {
    return Error{
        .code = "config.type", .file = file, .where = pointer, .wanted = "an object", .found = json.type_name()};
  }
  MORACLE_TRY(check_count(json.size(), kVocabularyTokens, "tokens", file, pointer));
  std::size_t bytes = 0;
  for (const auto& [text, value] : json.items()) bytes += text.size();
  vocabulary_.reserve(json.size(), bytes);
  for (const auto& [text, value] : json.items()) {
    MORACLE_ASSIGN(const std::int32_t id, token_id(value, file, pointer + "/" + text));
    if (!vocabulary_.add(text, id)) {
      return Error{.code = "tokenizer.id",
                   .file = file,
                   .where = pointer + "/" + text,
                   .wanted = "an id of its own for every token",
                   .found = fmt::format("{}, which is \"{}\" already", id, *vocabulary_.text(id))};
    }
  }
  return Ok{};
}

Result<> Bpe::read_merges(const Json& json, const std::string& file, const std::string& pointer) {
  if (!json.is_array()) {
    return Error{
        .code = "config.type", .file = file, .where = pointer, .wanted = "an array", .found = json.type_name()};
  }
  MORACLE_TRY(check_count(json.size(), kMerges, "merges", file, pointer));
  merges_.reserve(json.size());
  const bool pairs = !json.empty() && json[0].is_array();
  std::uint32_t rank = 0;
  for (std::size_t i = 0; i < json.size(); ++i) {
    const Json& item = json[i];
    const std::string where = fmt::format("{}/{}", pointer, i);
    if (pairs) {
      if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_string()) {
        return bad_merge(file, where, "a pair of two strings", item.type_name());
      }
      MORACLE_TRY(
          add_merge(item[0].get_ref<const std::string&>(), item[1].get_ref<const std::string&>(), rank++, file, where));
      continue;
    }
    if (!item.is_string()) return bad_merge(file, where, "a string of two tokens", item.type_name());
    const std::string_view line = item.get_ref<const std::string&>();
    if (line.starts_with("#version")) continue;
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos || line.find(' ', space + 1) != std::string_view::npos) {
      return bad_merge(file, where, "two tokens with one space between", std::string(line.substr(0, 80)));
    }
    MORACLE_TRY(add_merge(line.substr(0, space), line.substr(space + 1), rank++, file, where));
  }
  return Ok{};
}

Result<> Bpe::add_merge(std::string_view left, std::string_view right, std::uint32_t rank, const std::string& file,
                        const std::string& where) {
  if (right.size() < prefix_.size()) {
    return bad_merge(file, where, "a right side that starts with the subword prefix", std::string(right));
  }
  const std::string merged = std::string(left) + std::string(right.substr(prefix_.size()));
  const auto left_id = vocabulary_.id(left);
  const auto right_id = vocabulary_.id(right);
  const auto merged_id = vocabulary_.id(merged);
  if (!left_id || !right_id || !merged_id) {
    return bad_merge(file, where, "a merge of two tokens into a third, all in the vocabulary",
                     fmt::format("\"{}\" + \"{}\"", left.substr(0, 80), right.substr(0, 80)));
  }
  merges_[pair_key(*left_id, *right_id)] = Target{rank, *merged_id};
  return Ok{};
}

void Bpe::index_characters() {
  character_ids_.assign(kIndexedCharacters, -1);
  for (std::size_t number = 0; number < vocabulary_.size(); ++number) {
    const auto [text, id] = vocabulary_.token(number);
    if (text.empty()) continue;
    const auto first = unicode::decode_at(text, 0);
    if (first.size == text.size() && first.code < kIndexedCharacters) character_ids_[first.code] = id;
  }
  byte_ids_.assign(256, -1);
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (const auto id = vocabulary_.id(fmt::format("<0x{:02X}>", byte))) byte_ids_[byte] = *id;
  }
}

// Id of one character as it stands in the piece; `spelled` becomes its text with the subword prefix and suffix.
std::optional<std::int32_t> Bpe::character_id(std::string_view character, bool first, bool last,
                                              std::string& spelled) const {
  const bool prefixed = !first && !prefix_.empty();
  const bool suffixed = last && !suffix_.empty();
  spelled.clear();
  if (prefixed) spelled += prefix_;
  spelled += character;
  if (suffixed) spelled += suffix_;
  if (prefixed || suffixed) return vocabulary_.id(spelled);
  const char32_t code = unicode::decode_at(character, 0).code;
  if (code >= kIndexedCharacters) return vocabulary_.id(character);
  return character_ids_[code] < 0 ? std::nullopt : std::optional(character_ids_[code]);
}

const Bpe::Target* Bpe::target(std::int32_t left, std::int32_t right) const {
  return merges_.find(pair_key(left, right));
}

Result<> Bpe::place_symbols(std::string_view piece, BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  symbols.clear();
  const auto add = [&](std::int32_t id) {
    const auto index = static_cast<std::int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({id, index - 1, -1, true});
  };
  bool unknown_pending = false;  // an unknown token waits: a following one may be fused with it
  const auto flush_unknown = [&] {
    if (unknown_pending) add(*unknown_id_);
    unknown_pending = false;
  };
  for (std::size_t at = 0; at < piece.size();) {
    const std::size_t size = unicode::decode_at(piece, at).size;
    const auto id = character_id(piece.substr(at, size), at == 0, at + size == piece.size(), scratch.buffer_);
    at += size;
    if (id) {
      flush_unknown();
      add(*id);
      continue;
    }
    const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (byte_fallback_ &&
        std::all_of(scratch.buffer_.begin(), scratch.buffer_.end(), [&](char c) { return byte_id(c) >= 0; })) {
      // A waiting unknown token stays behind these bytes, as in the library.
      for (const char c : scratch.buffer_) add(byte_id(c));
      continue;
    }
    if (!unknown_text_) continue;  // characters outside the vocabulary vanish
    if (!unknown_id_) {
      return Error{.code = "tokenizer.unknown_token",
                   .wanted = "the model's unk_token in its vocabulary",
                   .found = fmt::format("a character outside the vocabulary and no token \"{}\"", *unknown_text_)};
    }
    if (!fuse_unknown_) flush_unknown();
    unknown_pending = true;
  }
  flush_unknown();
  return Ok{};
}

void Bpe::merge_symbols(BpeScratch& scratch) const {
  auto& symbols = scratch.symbols_;
  auto& heap = scratch.heap_;
  heap.clear();
  const auto consider = [&](std::int32_t left) {
    const auto& symbol = symbols[static_cast<std::size_t>(left)];
    if (symbol.next < 0) return false;
    const Target* merge = target(symbol.id, symbols[static_cast<std::size_t>(symbol.next)].id);
    if (merge == nullptr) return false;
    heap.push_back({merge->rank, static_cast<std::uint32_t>(left), merge->id});
    return true;
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<std::int32_t>(i));
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const auto top = heap.back();
    heap.pop_back();
    const auto position = static_cast<std::int32_t>(top.position);
    auto& symbol = symbols[top.position];
    if (!symbol.live || symbol.next < 0) continue;
    auto& right = symbols[static_cast<std::size_t>(symbol.next)];
    const Target* merge = target(symbol.id, right.id);
    if (merge == nullptr || merge->id != top.id) continue;  // the pair has changed since
    symbol.id = top.id;
    symbol.next = right.next;
    right.live = false;
    if (right.next >= 0) symbols[static_cast<std::size_t>(right.next)].previous = position;
    if (symbol.previous >= 0 && consider(symbol.previous)) std::push_heap(heap.begin(), heap.end());
    if (consider(position)) std::push_heap(heap.begin(), heap.end());
  }
}

// Every character is spelled with the affixes, and may become as many symbols; each symbol may enter the heap, which
// costs the logarithm of the piece's size.
bool Bpe::take(std::string_view piece, Budget& budget) const {
  const std::size_t affixes = prefix_.size() + suffix_.size();
  if (affixes == 0 && piece.size() < kShortPiece) {
    return budget.steps(1 + piece.size() / 2) && budget.bytes(piece.size() * kSymbolBytes);
  }
  const std::size_t symbols = piece.size() * (1 + (byte_fallback_ ? affixes : 0));
  const auto levels = static_cast<std::size_t>(std::bit_width(symbols));
  return budget.steps(1 + piece.size() * affixes / 16 + symbols * levels / kHeapPerStep) &&
         budget.bytes(symbols * kSymbolBytes);
}

Result<> Bpe::encode(std::string_view piece, Budget& budget, BpeScratch& scratch,
                     std::vector<std::int32_t>& ids) const {
  if (piece.size() >= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()) / 8) {
    return Error{
        .code = "text.size", .wanted = "a text of less than 256 MiB", .found = fmt::format("{}", piece.size())};
  }
  if (!take(piece, budget)) return budget.error("tokenizer.limit");
  if (ignore_merges_) {
    if (const auto id = vocabulary_.id(piece)) {
      ids.push_back(*id);
      return Ok{};
    }
  }
  MORACLE_TRY(place_symbols(piece, scratch));
  merge_symbols(scratch);
  for (const auto& symbol : scratch.symbols_) {
    if (symbol.live) ids.push_back(symbol.id);
  }
  return Ok{};
}

}  // namespace moracle
