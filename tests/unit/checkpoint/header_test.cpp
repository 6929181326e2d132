#include "checkpoint/safetensors_header.h"

#include "unit/checkpoint/fixture.h"

namespace moracle {
namespace {

using test::braces;
using test::bytes_of;
using test::expect_error;
using test::safetensors_text;
using test::tensor_text;

constexpr const char* kPath = "folder/model.safetensors";

Result<SafetensorsHeader> parse(const std::string& file) {
  return parse_header(bytes_of(file), file.size(), kPath);
}
Result<SafetensorsHeader> parse(const std::string& header, std::size_t data_bytes) {
  return parse(safetensors_text(header, data_bytes));
}

// One hostile header per rule: what it breaks, and what the message must tell.
struct Hostile {
  const char* name;
  std::string header;
  std::size_t data_bytes;
  const char* code;
  std::vector<const char*> tells;
};

std::string one(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return braces(tensor_text("w", dtype, shape, offsets));
}
std::string two(const std::string& offsets_a, const std::string& offsets_b) {
  return braces(tensor_text("first", "U8", "[4]", offsets_a) + "," + tensor_text("second", "U8", "[4]", offsets_b));
}

std::vector<Hostile> syntax_rows() {
  const std::string good = tensor_text("w", "U8", "[4]", "[0,4]");
  return {
      {"empty", "", 0, "header.syntax", {"byte 8", "wanted '{'", "found the end"}},
      {"not_json", "PK..", 0, "header.syntax", {"byte 8", "found byte 0x50 'P'"}},
      {"array", "[]", 0, "header.syntax", {"byte 8", "wanted '{'"}},
      {"leading_space", " {}", 0, "header.syntax", {"byte 8"}},
      {"cut", "{\"w\":{\"dtype\":\"U8\"", 0, "header.syntax", {"'w'", "byte 26", "found the end"}},
      {"after_the_end", "{}{", 0, "header.syntax", {"byte 10", "nothing after"}},
      {"trailing_comma", braces(good + ","), 4, "header.syntax", {"wanted a string"}},
      {"no_colon", "{\"w\" 1}", 0, "header.syntax", {"byte 13", "wanted ':'"}},
      {"bad_utf8", "{\"\xC0\x80\":1}", 0, "header.syntax", {"byte 10", "valid UTF-8", "0xc0"}},
      {"surrogate_in_utf8", "{\"\xED\xA0\x80\":1}", 0, "header.syntax", {"valid UTF-8"}},
      {"cut_utf8", "{\"\xE2\x82", 0, "header.syntax", {"valid UTF-8"}},
      {"lone_surrogate", "{\"\\udc00\":1}", 0, "header.syntax", {"surrogate"}},
      {"half_pair", "{\"\\ud800x\":1}", 0, "header.syntax", {"surrogate"}},
      {"bad_escape", "{\"\\x41\":1}", 0, "header.syntax", {"escape"}},
      {"control_byte", std::string("{\"a\nb\":1}"), 0, "header.syntax", {"control byte", "0x0a"}},
      {"unclosed", "{\"abc", 0, "header.syntax", {"closing quote"}},
      {"deep", "{\"w\":{\"shape\":[[[[[[[[1]]]]]]]]}}", 0, "header.syntax", {"'w'", "byte 23", "wanted a number"}},
      {"tensor_is_list", "{\"w\":[]}", 0, "header.syntax", {"'w'", "wanted '{'"}},
      {"unknown_member", "{\"w\":{\"dtyp\":\"U8\"}}", 0, "header.syntax", {"'w'", "found 'dtyp'"}},
      {"no_shape", "{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "header.syntax", {"'w'", "found no shape"}},
      {"no_offsets", "{\"w\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "header.syntax", {"found no data_offsets"}},
      {"three_offsets", one("U8", "[4]", "[0,4,4]"), 4, "header.syntax", {"'w'", "wanted ']'"}},
      {"one_offset", one("U8", "[4]", "[0]"), 4, "header.syntax", {"'w'", "wanted ','"}},
      {"leading_zero", one("U8", "[04]", "[0,4]"), 4, "header.syntax", {"'w'", "wanted ',' or ']'"}},
      {"metadata_number", "{\"__metadata__\":{\"a\":1}}", 0, "header.syntax", {"wanted a string"}},
      {"metadata_nested", "{\"__metadata__\":{\"a\":{}}}", 0, "header.syntax", {"wanted a string"}},
  };
}

std::vector<Hostile> tensor_rows() {
  const std::string good = tensor_text("w", "U8", "[4]", "[0,4]");
  const std::string again = tensor_text("w", "U8", "[4]", "[4,8]");
  return {
      {"twice", braces(good + "," + again), 8, "tensor.duplicate", {"'w'", "byte 61", "each name once"}},
      {"twice_escaped",
       braces(good + "," + tensor_text("\\u0077", "U8", "[4]", "[4,8]")),
       8,
       "tensor.duplicate",
       {"'w'"}},
      {"member_twice", "{\"w\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0, "tensor.duplicate", {"'w'", "'dtype'"}},
      {"metadata_twice", "{\"__metadata__\":{},\"__metadata__\":{}}", 0, "tensor.duplicate", {"__metadata__"}},
      {"metadata_key_twice", "{\"__metadata__\":{\"a\":\"\",\"a\":\"\"}}", 0, "tensor.duplicate", {"'a'"}},
      {"unknown_dtype", one("F8", "[4]", "[0,4]"), 4, "dtype.unknown", {"'w'", "F8_E4M3", "found 'F8'"}},
      {"lower_case_dtype", one("f32", "[1]", "[0,4]"), 4, "dtype.unknown", {"found 'f32'"}},
      {"odd_f4", one("F4", "[3,3]", "[0,5]"), 5, "dtype.misaligned", {"'w'", "even number", "found 9 elements"}},
      {"negative", one("U8", "[-4]", "[0,4]"), 4, "number.range", {"'w'", "byte", "2^63", "found -4"}},
      {"minus_zero", one("U8", "[4]", "[-0,4]"), 4, "number.range", {"found -0"}},
      {"fraction", one("U8", "[4.5]", "[0,4]"), 4, "number.range", {"found 4.5"}},
      {"exponent", one("U8", "[4]", "[0,1e30]"), 4, "number.range", {"found 1e30"}},
      {"two_to_64", one("U8", "[4]", "[0,18446744073709551616]"), 4, "number.range", {"found 18446744073709551616"}},
      {"two_to_63", one("U8", "[9223372036854775808]", "[0,4]"), 4, "number.range", {"found 9223372036854775808"}},
      {"wraps_to_4",
       one("U8", "[4611686018427387905,4]", "[0,4]"),
       4,
       "shape.overflow",
       {"'w'", "63 bits", "[4611686018427387905, 4] of U8"}},
      {"bits_wrap", one("F64", "[288230376151711744]", "[0,0]"), 0, "shape.overflow", {"'w'", "of F64"}},
      {"zero_dim", one("U8", "[4,0]", "[0,0]"), 0, "shape.overflow", {"'w'", "at least 1", "[4, 0]"}},
      {"zero_before_wrap", one("U8", "[0,9223372036854775807,9]", "[0,0]"), 0, "shape.overflow", {"at least 1"}},
      {"rank_9", one("U8", "[1,1,1,1,1,1,1,1,1]", "[0,1]"), 1, "shape.overflow", {"'w'", "at most 8", "found more"}},
      {"size", one("F32", "[4]", "[0,4]"), 4, "tensor.size", {"'w'", "wanted 16 bytes", "found 4 bytes"}},
      {"backwards", one("U8", "[4]", "[4,0]"), 4, "offset.begin_end", {"'w'", "begin 4, end 0"}},
      {"hole_at_start",
       one("U8", "[4]", "[1,5]"),
       5,
       "offset.hole",
       {"'w' [1, 5)", "start of the data", "wanted begin 0", "found begin 1"}},
      {"hole",
       two("[0,4]", "[5,9]"),
       9,
       "offset.hole",
       {"'first' [0, 4)", "'second' [5, 9)", "wanted begin 4", "found begin 5"}},
      {"overlap",
       two("[3,7]", "[0,4]"),
       7,
       "offset.overlap",
       {"'first' [3, 7)", "'second' [0, 4)", "wanted begin 4", "found begin 3"}},
      {"same_place", two("[0,4]", "[0,4]"), 4, "offset.overlap", {"'first'", "'second'"}},
      {"trailing", two("[0,4]", "[4,8]"), 9, "offset.trailing", {"'second' [4, 8)", "end after", "found"}},
      {"trailing_alone",
       "{}",
       1,
       "offset.trailing",
       {"no tensor", "wanted the file to end after 10", "found 11 bytes"}},
      {"cut_download", two("[0,4]", "[4,8]"), 7, "file.truncated", {"'second' [4, 8)", "download cut", "wanted"}},
  };
}

void refuse(const std::vector<Hostile>& rows) {
  for (const Hostile& row : rows) {
    SCOPED_TRACE(row.name);
    const auto result = parse(row.header, row.data_bytes);
    expect_error(result, row.code, {kPath});
    if (result.ok()) continue;
    for (const char* part : row.tells) EXPECT_THAT(result.error().message(), testing::HasSubstr(part));
    EXPECT_FALSE(result.error().wanted.empty());
    EXPECT_FALSE(result.error().found.empty());
  }
}

TEST(SafetensorsHeader, RefusesBrokenSyntaxAtItsByte) {
  refuse(syntax_rows());
}
TEST(SafetensorsHeader, RefusesLyingTensors) {
  refuse(tensor_rows());
}

TEST(SafetensorsHeader, RefusesFilesThatAreTooSmall) {
  expect_error(parse(""), "header.too_small", {kPath, "at least 8 bytes", "found 0 bytes"});
  expect_error(parse("1234567"), "header.too_small", {kPath, "found 7 bytes"});
}

TEST(SafetensorsHeader, RefusesLengthsBeforeAllocating) {
  const std::string all_ones = std::string(8, '\xFF') + "{}";
  expect_error(parse(all_ones), "header.length", {kPath, "at most 2 bytes", "found 18446744073709551615 bytes"});
  std::string beyond = safetensors_text("{}", 0);
  beyond[0] = 3;
  expect_error(parse(beyond), "header.length", {"at most 2 bytes, the rest of the file", "found 3 bytes"});
  // 100,000,001 in a file that claims to be larger: the cap speaks, not the file.
  const std::string capped = std::string("\x01\xE1\xF5\x05\0\0\0\0", 8) + "{}";
  expect_error(parse_header(bytes_of(capped), std::uint64_t{1} << 40, kPath), "header.length",
               {"at most 100000000 bytes", "found 100000001 bytes"});
  // A caller that hands over less than the header gets an error, not a read past the end.
  const std::string short_span = safetensors_text("{}", 0);
  expect_error(parse_header(bytes_of(short_span).first(9), 10, kPath), "header.length", {"10 bytes", "9 bytes"});
}

TEST(SafetensorsHeader, KnowsGitLfsPointers) {
  expect_error(parse("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 4976698672\n"), "lfs.pointer",
               {kPath, "git-LFS pointer, 4976698672 bytes expected", "run git lfs pull"});
  expect_error(parse("version https://git-lfs.github.com/spec/v1\n"), "lfs.pointer", {"an unknown number of bytes"});
}

TEST(SafetensorsHeader, CapsTheNumberOfKeys) {
  std::string metadata = "{\"__metadata__\":{";
  metadata.reserve(12U << 20);
  for (std::size_t i = 0; i <= kMaxHeaderEntries; ++i)
    metadata.append("\"").append(std::to_string(i)).append("\":\"\",");
  metadata += "\"\":\"\"}}";
  expect_error(parse(metadata, 0), "header.entries", {kPath, "byte", "at most 393216"});

  std::string tensors = "{";
  tensors.reserve(64U << 20);
  for (std::size_t i = 0; i <= kMaxHeaderEntries; ++i) {
    const std::string number = std::to_string(i);
    tensors.append("\"").append(number).append("\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]},");
  }
  tensors += "}";
  expect_error(parse(tensors, 0), "header.entries", {kPath, "byte", "at most 393216"});
}

TEST(SafetensorsHeader, ShowsHostileNamesHarmlessly) {
  const auto result = parse(braces(tensor_text("\\u001b[2J\\u009b", "F7", "[]", "[0,1]")), 1);
  expect_error(result, "dtype.unknown", {"\\x1b[2J\\xc2\\x9b"});
  const auto longer = parse(braces(tensor_text(std::string(100000, 'n'), "F7", "[]", "[0,1]")), 1);
  ASSERT_FALSE(longer.ok());
  EXPECT_LT(longer.error().message().size(), 600U);
}

TEST(SafetensorsHeader, ReadsEveryDtypeAndSortsByOffset) {
  const std::vector<std::pair<std::string, int>> dtypes = {
      {"BOOL", 8}, {"U8", 8},    {"I8", 8},   {"U16", 16},    {"I16", 16},    {"U32", 32},
      {"I32", 32}, {"U64", 64},  {"I64", 64}, {"F8_E4M3", 8}, {"F8_E5M2", 8}, {"F8_E8M0", 8},
      {"F4", 4},   {"BF16", 16}, {"F16", 16}, {"F32", 32},    {"F64", 64}};
  std::string header = "{";
  std::size_t end = 0;
  std::vector<std::string> entries;
  for (const auto& [dtype, bits] : dtypes) {
    const std::size_t size = static_cast<std::size_t>(bits) * 6 / 8;
    entries.push_back(tensor_text(dtype, dtype, "[ 2 , 3 ]", fmt::format("[{},{}]", end, end + size)));
    end += size;
  }
  for (auto it = entries.rbegin(); it != entries.rend(); ++it) {
    if (header.size() > 1) header += ',';
    header += *it;
  }
  const auto result = parse(header + "}  \n", end);
  ASSERT_TRUE(result.ok()) << result.error().message();
  ASSERT_EQ(result->tensors.size(), dtypes.size());
  for (std::size_t i = 0; i < dtypes.size(); ++i) {
    EXPECT_EQ(result->tensors[i].name, dtypes[i].first);
    EXPECT_EQ(to_string(result->tensors[i].dtype), dtypes[i].first);
    EXPECT_EQ(bits_of(result->tensors[i].dtype), dtypes[i].second);
    EXPECT_EQ(result->tensors[i].shape, (std::vector<std::int64_t>{2, 3}));
  }
}

TEST(SafetensorsHeader, AcceptsScalarsEscapesMetadataAndNothing) {
  const std::string escaped = tensor_text("a\\/\\u00e9\\ud83d\\ude00\\t", "F32", "[]", "[0,4]");
  const auto scalar = parse(braces("\"__metadata__\":{\"format\":\"pt\"}," + escaped), 4);
  ASSERT_TRUE(scalar.ok()) << scalar.error().message();
  EXPECT_EQ(scalar->tensors[0].name, "a/\xC3\xA9\xF0\x9F\x98\x80\t");
  EXPECT_TRUE(scalar->tensors[0].shape.empty());
  const auto empty = parse("{}", 0);
  ASSERT_TRUE(empty.ok()) << empty.error().message();
  EXPECT_TRUE(empty->tensors.empty());
  EXPECT_EQ(empty->data_start, 10U);
}

}  // namespace
}  // namespace moracle
