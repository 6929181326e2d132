// A tokenizer.json, a byte 0, and a text: read, encoded, decoded. Ids of a text lie in the vocabulary, texts are UTF-8,
// and the same text gives the same ids again.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz_input.h"
#include "json_mutator.h"
#include "text/tokenizer/tokenizer.h"
#include "text/unicode.h"

namespace {

using moracle::Tokenizer;
using moracle::fuzz::check_error;
using moracle::fuzz::require;

void encode_and_decode(const Tokenizer& tokenizer, std::string_view text, bool special) {
  const auto ids = tokenizer.encode(text, {.add_special_tokens = special});
  if (!ids.ok()) return check_error(ids.error());
  // The post-processor's own tokens are those that its file names, in the vocabulary or not.
  for (const std::int32_t id : *ids) require(id >= 0 && (special || id < tokenizer.vocab_size()));
  const auto again = tokenizer.encode(text, {.add_special_tokens = special});
  if (!again.ok()) return check_error(again.error());  // the clock may end what was just in time before
  require(*again == *ids);
  const auto decoded = tokenizer.decode(*ids, special);
  if (!decoded.ok()) return check_error(decoded.error());
  require(!moracle::unicode::find_invalid_utf8(*decoded));
}

constexpr std::string_view kKeys =
    "type model vocab merges added_tokens normalizer pre_tokenizer post_processor decoder normalizers "
    "pretokenizers processors decoders pattern String Regex content behavior invert add_prefix_space trim_offsets "
    "use_regex replacement prepend_scheme split prepend id special lstrip rstrip normalized single_word "
    "byte_fallback ignore_merges fuse_unk unk_token continuing_subword_prefix end_of_word_suffix dropout "
    "individual_digits strip_left strip_right start stop single pair special_tokens SpecialToken Sequence ids "
    "tokens cls sep truncation padding version";
constexpr std::string_view kStrings =
    "BPE WordPiece Unigram Sequence Split ByteLevel Metaspace Digits Punctuation Whitespace WhitespaceSplit NFC "
    "NFD NFKC NFKD Prepend Replace Lowercase Strip StripAccents ByteFallback Fuse TemplateProcessing "
    "RobertaProcessing Isolated Removed MergedWithPrevious MergedWithNext Contiguous first always never A B a ab "
    "\xe2\x96\x81 <0x41> <0x00> <unk> \xc4\xa0 \xc4\xa0the \\s+(?!\\S)|\\s+ (a+)+$ \\p{L}+ . x* \xcc\x81 \xcd\x84";

const moracle::fuzz::JsonVocabulary& words() {
  static const auto kWords = [] {
    moracle::fuzz::JsonVocabulary words{.keys = moracle::fuzz::words_of(kKeys),
                                        .strings = moracle::fuzz::words_of(kStrings)};
    words.strings.insert(words.strings.end(), {" ", ""});
    return words;
  }();
  return kWords;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto parts = moracle::fuzz::parts_of(std::span(data, size), 2);
  const auto json = moracle::parse_json(parts[0], "fuzz");
  if (!json.ok()) return 0;
  const auto tokenizer = Tokenizer::from_json(*json, "fuzz");
  if (!tokenizer.ok()) {
    check_error(tokenizer.error());
    return 0;
  }
  require(tokenizer->vocab_size() >= 0);
  encode_and_decode(*tokenizer, parts[1], true);
  encode_and_decode(*tokenizer, "ab a\xc3\xa9 the\n\n 12 \xe6\xbc\xa2<unk><0x41>", false);
  const std::vector<std::int32_t> odd{0, 1, 2, tokenizer->vocab_size() - 1, tokenizer->vocab_size(), -1, INT32_MAX};
  const auto decoded = tokenizer->decode(odd, false);
  if (!decoded.ok()) {
    check_error(decoded.error());
    return 0;
  }
  require(!moracle::unicode::find_invalid_utf8(*decoded));
  return 0;
}

// The text behind the byte 0 changes as bytes, what is before it as JSON.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  std::mt19937 rng(seed);
  const auto parts = moracle::fuzz::parts_of(std::span(data, size), 2);
  std::string text(parts[1]);
  std::string json(parts[0]);
  if (rng() % 8 == 0) {
    text.resize(text.size() + 32);
    text.resize(
        moracle::fuzz::mutate_bytes(reinterpret_cast<std::uint8_t*>(text.data()), parts[1].size(), text.size()));
  } else {
    json = moracle::fuzz::mutate_json(json, words(), rng);
  }
  return moracle::fuzz::give_back(json + '\0' + text, data, most);
}

extern "C" std::size_t LLVMFuzzerCustomCrossOver(const std::uint8_t* one, std::size_t one_size,
                                                 const std::uint8_t* other, std::size_t other_size, std::uint8_t* out,
                                                 std::size_t most, unsigned seed) {
  std::mt19937 rng(seed);
  const auto first = moracle::fuzz::parts_of(std::span(one, one_size), 2);
  const auto second = moracle::fuzz::parts_of(std::span(other, other_size), 2);
  std::string text = moracle::fuzz::cross_json(first[0], second[0], rng) + '\0';
  text += first[1];
  return moracle::fuzz::give_back(text, out, most);
}
