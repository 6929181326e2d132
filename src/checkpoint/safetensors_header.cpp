#include "checkpoint/safetensors_header.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "base/files/lfs_pointer.h"
#include "base/json_scanner.h"
#include "base/printable.h"
#include "base/random/keyed_hash.h"

namespace moracle {

namespace {

constexpr const char* kDamaged = "the file is damaged or hostile; download it again";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string bytes_text(std::uint64_t count) {
  return std::to_string(count) + " bytes";
}

Error lfs_error(std::string_view text, const std::string& path) {
  std::string expected = "an unknown number of";
  if (const auto line = text.find("\nsize "); line != std::string_view::npos) {
    const auto digits = text.substr(line + 6, 20);
    std::uint64_t size = 0;
    const auto [stop, code] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
    if (code == std::errc{} && stop != digits.data()) expected = std::to_string(size);
  }
  return Error{.code = "lfs.pointer",
               .file = path,
               .wanted = "the weights themselves",
               .found = "a git-LFS pointer, " + expected + " bytes expected",
               .advice = std::string(kLfsAdvice)};
}

std::string span_text(const TensorEntry& entry) {
  return in_quotes(entry.name) + " [" + std::to_string(entry.begin) + ", " + std::to_string(entry.end) + ")";
}

// A tensor's members, as they come in.
struct Members {
  std::optional<std::string> dtype;
  std::optional<std::vector<std::int64_t>> shape;
  std::optional<std::array<std::int64_t, 2>> offsets;
};

class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& path)
      : text_(text), scanner_(text, kSafetensorsPrefix, path, "header.syntax") {}

  Result<> parse();
  std::vector<TensorEntry>& entries() { return entries_; }

 private:
  Result<> tensor(std::string& name, std::uint64_t byte);  // takes the name if all is well
  Result<> member(Members& members, const std::string& key, std::uint64_t byte);
  Result<> shape(std::optional<std::vector<std::int64_t>>& out);
  Result<> offsets(std::optional<std::array<std::int64_t, 2>>& out);
  Result<> metadata(std::uint64_t byte);
  Result<> unique_names() const;
  Error duplicate(std::string_view key, std::uint64_t byte) const;

  std::string_view text_;
  JsonScanner scanner_;
  std::vector<TensorEntry> entries_;
  std::vector<std::uint64_t> name_bytes_;  // where each entry's name stands
  bool has_metadata_ = false;
};

Error HeaderParser::duplicate(std::string_view key, std::uint64_t byte) const {
  return Error{.code = "tensor.duplicate",
               .file = scanner_.file(),
               .where = in_quotes(key) + " at byte " + std::to_string(byte),
               .wanted = "each name once",
               .found = "a second one of this name",
               .advice = kDamaged};
}

Error too_many(const std::string& path, std::uint64_t byte) {
  return Error{.code = "header.entries",
               .file = path,
               .where = "byte " + std::to_string(byte),
               .wanted = "at most " + std::to_string(kMaxHeaderEntries) + " entries",
               .found = "more",
               .advice = kDamaged};
}

Result<> HeaderParser::parse() {
  if (!text_.starts_with('{')) return scanner_.error("'{' as the first byte of the header");
  MORACLE_TRY(scanner_.object([&](std::string name, std::uint64_t byte) -> Result<> {
    if (name == "__metadata__") return metadata(byte);
    if (entries_.size() == kMaxHeaderEntries) return too_many(scanner_.file(), byte);
    auto result = tensor(name, byte);
    if (!result.ok()) result.error().where = in_quotes(name) + ": " + result.error().where;
    return result;
  }));
  MORACLE_TRY(scanner_.expect_end());
  return unique_names();
}

Result<> HeaderParser::tensor(std::string& name, std::uint64_t byte) {
  Members members;
  MORACLE_TRY(scanner_.object([&](const std::string& key, std::uint64_t at) { return member(members, key, at); }));
  if (!members.dtype || !members.shape || !members.offsets) {
    return Error{.code = "header.syntax",
                 .file = scanner_.file(),
                 .where = "byte " + std::to_string(byte),
                 .wanted = "dtype, shape and data_offsets",
                 .found = std::string("no ") + (!members.dtype   ? "dtype"
                                                : !members.shape ? "shape"
                                                                 : "data_offsets"),
                 .advice = kDamaged};
  }
  const auto dtype = parse_dtype(*members.dtype);
  if (!dtype) {
    return Error{.code = "dtype.unknown",
                 .file = scanner_.file(),
                 .where = "byte " + std::to_string(byte),
                 .wanted =
                     "BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F8_E4M3, F8_E5M2, F8_E8M0, F4, BF16, F16, F32 "
                     "or F64",
                 .found = in_quotes(*members.dtype)};
  }
  entries_.push_back(TensorEntry{.name = std::move(name),
                                 .dtype = *dtype,
                                 .shape = std::move(*members.shape),
                                 .begin = static_cast<std::uint64_t>((*members.offsets)[0]),
                                 .end = static_cast<std::uint64_t>((*members.offsets)[1])});
  name_bytes_.push_back(byte);
  return Ok{};
}

Result<> HeaderParser::member(Members& members, const std::string& key, std::uint64_t byte) {
  if (key == "dtype" && !members.dtype) {
    MORACLE_ASSIGN(members.dtype, scanner_.string());
    return Ok{};
  }
  if (key == "shape" && !members.shape) return shape(members.shape);
  if (key == "data_offsets" && !members.offsets) return offsets(members.offsets);
  if (key == "dtype" || key == "shape" || key == "data_offsets") return duplicate(key, byte);
  return Error{.code = "header.syntax",
               .file = scanner_.file(),
               .where = "byte " + std::to_string(byte),
               .wanted = "dtype, shape or data_offsets",
               .found = in_quotes(key),
               .advice = kDamaged};
}

Result<> HeaderParser::shape(std::optional<std::vector<std::int64_t>>& out) {
  std::vector<std::int64_t> dims;
  MORACLE_TRY(scanner_.array([&](std::size_t index) -> Result<> {
    if (index == kMaxRank) {
      return Error{.code = "shape.overflow",
                   .file = scanner_.file(),
                   .where = "byte " + std::to_string(scanner_.position()),
                   .wanted = "at most " + std::to_string(kMaxRank) + " dimensions",
                   .found = "more",
                   .advice = kDamaged};
    }
    MORACLE_ASSIGN(const std::int64_t dim, scanner_.count());
    dims.push_back(dim);
    return Ok{};
  }));
  out = std::move(dims);
  return Ok{};
}

Result<> HeaderParser::offsets(std::optional<std::array<std::int64_t, 2>>& out) {
  std::array<std::int64_t, 2> pair{};
  MORACLE_TRY(scanner_.expect('['));
  MORACLE_ASSIGN(pair[0], scanner_.count());
  MORACLE_TRY(scanner_.expect(','));
  MORACLE_ASSIGN(pair[1], scanner_.count());
  MORACLE_TRY(scanner_.expect(']'));
  out = pair;
  return Ok{};
}

Result<> HeaderParser::metadata(std::uint64_t byte) {
  if (has_metadata_) return duplicate("__metadata__", byte);
  has_metadata_ = true;
  std::set<std::string> keys;
  return scanner_.object([&](std::string key, std::uint64_t at) -> Result<> {
    if (keys.size() == kMaxHeaderEntries) return too_many(scanner_.file(), at);
    MORACLE_TRY(scanner_.string());
    const auto [place, inserted] = keys.insert(std::move(key));
    if (!inserted) return duplicate(*place, at);
    return Ok{};
  });
}

// By a hash with a key of its own: names chosen to collide cost nothing. Tells the first that comes a second time.
Result<> HeaderParser::unique_names() const {
  using Hashed = std::pair<std::size_t, std::size_t>;  // the name's hash, the entry
  std::vector<Hashed> order;
  order.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i)
    order.emplace_back(KeyedHash()(std::string_view(entries_[i].name)), i);
  std::sort(order.begin(), order.end());
  std::size_t second = entries_.size();
  for (auto group = order.begin(); group != order.end();) {
    const auto end = std::find_if(group, order.end(), [&](const Hashed& one) { return one.first != group->first; });
    const auto same_name = [&](const Hashed& one) {
      return std::any_of(group, end, [&](const Hashed& other) {
        return other.second < one.second && entries_[other.second].name == entries_[one.second].name;
      });
    };
    const auto twin = std::find_if(group, end, same_name);
    if (twin != end) second = std::min(second, twin->second);
    group = end;
  }
  if (second == entries_.size()) return Ok{};
  return duplicate(entries_[second].name, name_bytes_[second]);
}

// Offsets in order, size as dtype and shape say.
Result<> check_entry(const TensorEntry& entry, const std::string& path) {
  if (entry.end < entry.begin) {
    return Error{.code = "offset.begin_end",
                 .file = path,
                 .where = in_quotes(entry.name),
                 .wanted = "data_offsets [begin, end) with begin <= end",
                 .found = "begin " + std::to_string(entry.begin) + ", end " + std::to_string(entry.end),
                 .advice = kDamaged};
  }
  auto size = tensor_bytes(entry.dtype, entry.shape);
  if (!size.ok()) {
    Error error = std::move(size).error();
    error.file = path;
    error.where = in_quotes(entry.name);
    error.advice = kDamaged;
    return error;
  }
  if (*size != entry.end - entry.begin) {
    return Error{.code = "tensor.size",
                 .file = path,
                 .where = in_quotes(entry.name),
                 .wanted = bytes_text(*size) + ", as dtype and shape say",
                 .found = bytes_text(entry.end - entry.begin) + " between its data_offsets",
                 .advice = kDamaged};
  }
  return Ok{};
}

// Sorted entries must start at 0 and touch each other, and end where the file ends.
Result<> check_layout(const std::vector<TensorEntry>& entries, std::uint64_t data_start, std::uint64_t file_size,
                      const std::string& path) {
  std::uint64_t covered = 0;
  const TensorEntry* before = nullptr;
  const auto before_text = [&] {
    return before == nullptr ? std::string("the start of the data") : span_text(*before);
  };
  for (const TensorEntry& entry : entries) {
    if (entry.begin != covered) {
      return Error{.code = entry.begin > covered ? "offset.hole" : "offset.overlap",
                   .file = path,
                   .where = span_text(entry) + " after " + before_text(),
                   .wanted = "begin " + std::to_string(covered),
                   .found = "begin " + std::to_string(entry.begin),
                   .advice = kDamaged};
    }
    covered = entry.end;
    before = &entry;
  }
  const std::uint64_t there = file_size - data_start;
  const std::string last = before == nullptr ? "no tensor" : "last tensor " + span_text(*before);
  if (there > covered) {
    return Error{.code = "offset.trailing",
                 .file = path,
                 .where = last,
                 .wanted = "the file to end after " + bytes_text(data_start + covered),
                 .found = bytes_text(file_size),
                 .advice = kDamaged};
  }
  if (there < covered) {
    return Error{.code = "file.truncated",
                 .file = path,
                 .where = last,
                 .wanted = bytes_text(data_start + covered) + ", as the header says",
                 .found = bytes_text(file_size) + ": download cut",
                 .advice = "download the file again"};
  }
  return Ok{};
}

}  // namespace

Result<std::uint64_t> header_length(std::span<const std::byte> start, std::uint64_t file_size,
                                    const std::string& path) {
  if (file_size < kSafetensorsPrefix || start.size() < kSafetensorsPrefix) {
    return Error{.code = "header.too_small",
                 .file = path,
                 .wanted = "at least " + bytes_text(kSafetensorsPrefix) + " of header length",
                 .found = bytes_text(std::min<std::uint64_t>(file_size, start.size())),
                 .advice = "the file is empty or cut; download it again"};
  }
  if (as_text(start).starts_with(kLfsStart)) return lfs_error(as_text(start), path);
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kSafetensorsPrefix; ++i) length |= std::to_integer<std::uint64_t>(start[i]) << (8 * i);
  const std::uint64_t room = std::min(kMaxHeaderBytes, file_size - kSafetensorsPrefix);
  if (length > room) {
    return Error{
        .code = "header.length",
        .file = path,
        .where = "byte 0",
        .wanted = "a header of at most " + bytes_text(room) + (room == kMaxHeaderBytes ? "" : ", the rest of the file"),
        .found = bytes_text(length),
        .advice = "the file is cut or no safetensors file; download it again"};
  }
  return length;
}

Result<SafetensorsHeader> parse_header(std::span<const std::byte> start, std::uint64_t file_size,
                                       const std::string& path) {
  MORACLE_ASSIGN(const std::uint64_t length, header_length(start, file_size, path));
  if (start.size() - kSafetensorsPrefix < length) {
    return Error{.code = "header.length",
                 .file = path,
                 .where = "byte 0",
                 .wanted = bytes_text(kSafetensorsPrefix + length) + " of prefix and header",
                 .found = bytes_text(start.size())};
  }
  HeaderParser parser(as_text(start.subspan(kSafetensorsPrefix, length)), path);
  MORACLE_TRY(parser.parse());
  SafetensorsHeader header{.tensors = std::move(parser.entries()), .data_start = kSafetensorsPrefix + length};
  for (const TensorEntry& entry : header.tensors) MORACLE_TRY(check_entry(entry, path));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const TensorEntry& a, const TensorEntry& b) { return a.begin < b.begin; });
  MORACLE_TRY(check_layout(header.tensors, header.data_start, file_size, path));
  return header;
}

}  // namespace moracle
