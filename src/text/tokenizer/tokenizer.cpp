#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/unicode.h"

namespace moracle {

struct Tokenizer::State {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  PostProcessor post_processor;
  Decoder decoder;
  AddedTokens added;

  [[nodiscard]] std::optional<std::string_view> text(std::int32_t id) const {
    if (const auto text = added.text(id)) return text;
    return model.vocabulary().text(id);
  }

  // Ids of the text between two added tokens that match raw text. `at_start`: the text begins the input.
  Result<> encode_section(std::string_view text, bool at_start, BpeScratch& scratch,
                          std::vector<std::int32_t>& ids) const {
    NormalizedText normalized{std::string(text), at_start ? unicode::decode_at(text, 0).size : 0};
    MORACLE_TRY(normalizer.apply(normalized));
    std::vector<AddedTokens::Section> sections;
    added.split(normalized.text, true, sections);
    for (const auto& section : sections) {
      if (section.id >= 0) {
        if (section.end > section.begin) ids.push_back(section.id);
        continue;
      }
      PieceList list;
      const std::size_t size = section.end - section.begin;
      const bool whole = size == normalized.text.size();
      const std::size_t head = std::min(std::max(normalized.head, section.begin), section.end) - section.begin;
      list.text = whole ? std::move(normalized.text) : normalized.text.substr(section.begin, size);
      list.pieces.push_back({0, size, head, head > 0});
      MORACLE_TRY(pre_tokenizer.apply(list));
      for (const auto& piece : list.pieces) MORACLE_TRY(model.encode(list.view(piece), scratch, ids));
    }
    return Ok{};
  }
};

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer.json";
  MORACLE_ASSIGN(const Json json, read_json(path));
  return from_json(json, path.string());
}

Result<Tokenizer> Tokenizer::from_json(const Json& json, const std::string& file) {
  if (!json.is_object()) {
    return Error{.code = "config.type", .file = file, .where = "", .wanted = "an object", .found = json.type_name()};
  }
  const JsonReader reader(json, file);
  MORACLE_ASSIGN(const std::string version, reader.string_or("version", "1.0"));
  if (version != "1.0") {
    return Error{
        .code = "tokenizer.version", .file = file, .where = "/version", .wanted = "version 1.0", .found = version};
  }
  const auto member = [&](const char* key) -> const Json& {
    static const Json null;
    const auto found = json.find(key);
    return found == json.end() ? null : *found;
  };
  auto state = std::make_shared<State>();
  MORACLE_ASSIGN(state->normalizer, Normalizer::from_json(member("normalizer"), file, "/normalizer"));
  MORACLE_ASSIGN(state->pre_tokenizer, PreTokenizer::from_json(member("pre_tokenizer"), file, "/pre_tokenizer"));
  MORACLE_ASSIGN(state->model, Bpe::from_json(member("model"), file, "/model"));
  MORACLE_ASSIGN(state->post_processor, PostProcessor::from_json(member("post_processor"), file, "/post_processor"));
  MORACLE_ASSIGN(state->decoder, Decoder::from_json(member("decoder"), file, "/decoder"));
  MORACLE_ASSIGN(state->added, AddedTokens::from_json(member("added_tokens"), file, "/added_tokens",
                                                      state->model.vocabulary(), state->normalizer));
  return Tokenizer(std::move(state));
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view utf8, EncodeOptions options) const {
  if (const auto bad = unicode::find_invalid_utf8(utf8)) {
    return Error{.code = "text.utf8",
                 .where = fmt::format("byte {}", *bad),
                 .wanted = "well-formed UTF-8",
                 .found = fmt::format("byte 0x{:02x}", static_cast<unsigned char>(utf8[*bad]))};
  }
  std::vector<std::int32_t> ids;
  std::vector<AddedTokens::Section> sections;
  state_->added.split(utf8, false, sections);
  BpeScratch scratch;
  for (const auto& section : sections) {
    if (section.id < 0) {
      MORACLE_TRY(state_->encode_section(utf8.substr(section.begin, section.end - section.begin), section.begin == 0,
                                         scratch, ids));
    } else if (section.end > section.begin) {
      ids.push_back(section.id);
    }
  }
  state_->post_processor.apply(ids, options.add_special_tokens);
  return ids;
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  DetokenizerStream stream(*this, skip_special_tokens);
  std::string text;
  for (const auto id : ids) text += stream.push(id);
  return text + stream.finish();
}

std::int32_t Tokenizer::vocab_size() const {
  return std::max(state_->model.vocabulary().largest_id(), state_->added.largest_id()) + 1;
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto id = state_->added.id(token)) return id;
  return state_->model.vocabulary().id(token);
}

std::optional<std::string_view> Tokenizer::id_to_token(std::int32_t id) const {
  return state_->text(id);
}

struct DetokenizerStream::Impl {
  std::shared_ptr<const Tokenizer::State> state;
  bool skip_special_tokens;
  DecodeChain chain;
};

DetokenizerStream::DetokenizerStream(const Tokenizer& tokenizer, bool skip_special_tokens)
    : impl_(std::make_unique<Impl>(Impl{tokenizer.state_, skip_special_tokens, tokenizer.state_->decoder.chain()})) {}
DetokenizerStream::DetokenizerStream(DetokenizerStream&&) noexcept = default;
DetokenizerStream& DetokenizerStream::operator=(DetokenizerStream&&) noexcept = default;
DetokenizerStream::~DetokenizerStream() = default;

std::string DetokenizerStream::push(std::int32_t id) {
  const auto text = impl_->state->text(id);
  if (!text || (impl_->skip_special_tokens && impl_->state->added.is_special(*text))) return "";
  impl_->chain.push(*text);
  return impl_->chain.take();
}

std::string DetokenizerStream::finish() {
  impl_->chain.finish();
  return impl_->chain.take();
}

}  // namespace moracle
