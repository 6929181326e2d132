#include "text/tokenizer/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/files/file_error.h"
#include "text/budgets.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tiktoken.h"
#include "text/unicode.h"

namespace moracle {

namespace {

// What a tokenizer.json may have; a misspelled component would be one less, and other ids.
constexpr std::array<std::string_view, 9> kKeys{"version",        "truncation", "padding",
                                                "added_tokens",   "normalizer", "pre_tokenizer",
                                                "post_processor", "decoder",    "model"};

// Reading components and added tokens; the files beside them are read in a pause.
struct Reading {
  Budget budget{kTokenizerReading};
  Searcher searcher{budget};
  Reading() { budget.pause(); }
};

// A place that has no file yet is in this one.
Error in_file(Error error, const std::string& file) {
  if (error.file.empty()) error.file = file;
  return error;
}

// Takes `part` out of the text; the bytes of it that were in front of `end`.
std::size_t erase_all(std::string& text, std::string_view part, std::size_t end) {
  std::string rest;
  std::size_t before = 0;
  std::size_t copied = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, copied)) {
    rest.append(text, copied, at - copied);
    copied = at + part.size();
    if (copied <= end) before += part.size();
  }
  rest.append(text, copied);
  text = std::move(rest);
  return before;
}

}  // namespace

// What one encoding works with.
struct Encoding {
  explicit Encoding(std::size_t own_bytes)
      : budget(kEncoding.plus(kEncodingPerByte.times(own_bytes))), searcher(budget) {}
  Budget budget;
  Searcher searcher;
  BpeScratch scratch{};
  std::vector<std::int32_t> ids{};
  std::string mark{};  // as the normalized text has it; empty: none
};

struct Tokenizer::State {
  std::string file;  // of the vocabulary
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe model;
  PostProcessor post_processor;
  Decoder decoder;
  AddedTokens added;
  TokenizerConfig config;
  bool in_parts = false;  // long texts are encoded in Kimi's parts

  using OwnTokens = std::vector<std::pair<std::int32_t, AddedToken>>;

  // The components of a tokenizer.json. `own` gets its added tokens.
  static Result<std::shared_ptr<State>> read(const Json& json, const std::string& file, Reading& reading,
                                             OwnTokens& own);
  // Adds the tokens that the files beside the vocabulary declare, and does what else they say.
  Result<> configure(TokenizerConfig given, Reading& reading);

  [[nodiscard]] std::optional<std::string_view> text(std::int32_t id) const {
    if (const auto text = added.text(id)) return text;
    return model.vocabulary().text(id);
  }
  // What of a token is decoded.
  [[nodiscard]] std::optional<std::string_view> shown(std::int32_t id, bool skip_special_tokens) const {
    const auto token = text(id);
    return token && skip_special_tokens && added.is_special(*token) ? std::nullopt : token;
  }

  Result<> encode(std::string_view text, bool add_special_tokens, Encoding& work) const {
    std::vector<AddedTokens::Section> sections;
    MORACLE_TRY(added.split(text, false, work.searcher, sections));
    for (const auto& section : sections) {
      if (section.id < 0) {
        MORACLE_TRY(encode_section(text.substr(section.begin, section.end - section.begin), section.begin == 0, work));
      } else if (section.end > section.begin) {
        work.ids.push_back(section.id);
      }
    }
    return post_processor.apply(work.ids, add_special_tokens, work.budget);
  }

  // Whether a token that controls a model is in the text: as written, or between those, as normalized.
  Result<bool> has_control(std::string_view text, bool only_special, Searcher& searcher) const {
    std::vector<AddedTokens::Section> sections;
    std::vector<AddedTokens::Section> inner;
    MORACLE_TRY(added.split(text, false, searcher, sections));
    for (const auto& section : sections) {
      if (added.is_control(section.id, only_special)) return true;
      if (section.id >= 0) continue;
      NormalizedText normalized{std::string(text.substr(section.begin, section.end - section.begin)), 0};
      MORACLE_TRY(normalizer.apply(normalized, searcher));
      MORACLE_TRY(added.split(normalized.text, true, searcher, inner));
      for (const auto& part : inner) {
        if (added.is_control(part.id, only_special)) return true;
      }
    }
    return false;
  }

  // Ids of the text between two added tokens that match raw text. `at_start`: the text begins the input.
  Result<> encode_section(std::string_view text, bool at_start, Encoding& work) const {
    if (!in_parts) return encode_part(text, at_start, work);
    std::vector<std::size_t> ends;
    kimi_parts(text, ends);
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      MORACLE_TRY(encode_part(text.substr(begin, end - begin), at_start && begin == 0, work));
      begin = end;
    }
    return Ok{};
  }

  Result<> encode_part(std::string_view text, bool at_start, Encoding& work) const {
    if (!work.searcher.pass(text.size(), 2 * text.size())) return work.searcher.limit();
    NormalizedText normalized{std::string(text), at_start ? unicode::decode_at(text, 0).size : 0};
    MORACLE_TRY(normalizer.apply(normalized, work.searcher));
    std::vector<AddedTokens::Section> sections;
    MORACLE_TRY(added.split(normalized.text, true, work.searcher, sections));
    for (const auto& section : sections) {
      if (section.id >= 0) {
        if (section.end > section.begin) work.ids.push_back(section.id);
        continue;
      }
      PieceList list;
      const std::size_t size = section.end - section.begin;
      const bool whole = size == normalized.text.size();
      std::size_t head = std::min(std::max(normalized.head, section.begin), section.end) - section.begin;
      list.text = whole ? std::move(normalized.text) : normalized.text.substr(section.begin, size);
      if (!work.mark.empty()) head -= erase_all(list.text, work.mark, head);
      if (list.text.empty()) continue;
      list.pieces.push_back({0, list.text.size(), head, head > 0});
      MORACLE_TRY(pre_tokenizer.apply(list, work.searcher));
      for (const auto& piece : list.pieces) {
        MORACLE_TRY(model.encode(list.view(piece), work.budget, work.scratch, work.ids));
      }
    }
    return Ok{};
  }
};

namespace {

// Of Kimi's tokenizer, which fills the places behind the vocabulary that no token has.
constexpr std::int32_t kKimiReserved = 256 + 2;
constexpr std::int32_t kMaxReserved = 1 << 20;

bool is_kimi(const TokenizerConfig& config) {
  return config.tokenizer_class == "TikTokenTokenizer";
}

Error no_tokenizer(const std::filesystem::path& folder) {
  std::string found;
  std::error_code code;
  for (const char* name : {"tokenizer.model", "vocab.json", "tekken.json", "vocab.txt", "spiece.model"}) {
    if (std::filesystem::exists(folder / name, code)) found += (found.empty() ? "only " : ", ") + std::string(name);
  }
  return {.code = "tokenizer.missing",
          .file = folder.string(),
          .wanted = "tokenizer.json or tiktoken.model",
          .found = found.empty() ? "neither" : found,
          .advice = found.empty() ? "download tokenizer.json"
                                  : "make tokenizer.json: transformers' AutoTokenizer.from_pretrained(FOLDER)"
                                    ".save_pretrained(FOLDER)"};
}

const Json& member_of(const Json& json, const char* key) {
  static const Json null;
  const auto found = json.find(key);
  return found == json.end() ? null : *found;
}

}  // namespace

Result<std::shared_ptr<Tokenizer::State>> Tokenizer::State::read(const Json& json, const std::string& file,
                                                                 Reading& reading, OwnTokens& own) {
  if (!json.is_object()) {
    return Error{.code = "config.type", .file = file, .where = "", .wanted = "an object", .found = json.type_name()};
  }
  const JsonReader reader(json, file);
  MORACLE_ASSIGN(const std::string version, reader.string_or("version", "1.0"));
  if (version != "1.0") {
    return Error{
        .code = "tokenizer.version", .file = file, .where = "/version", .wanted = "version 1.0", .found = version};
  }
  for (const auto& [key, value] : json.items()) {
    if (std::ranges::find(kKeys, key) != kKeys.end()) continue;
    return unsupported(file, "/" + key, fmt::format("one of {}", fmt::join(kKeys, ", ")), "another key");
  }
  auto state = std::make_shared<State>();
  state->file = file;
  MORACLE_ASSIGN(state->model, Bpe::from_json(member_of(json, "model"), file, "/model"));
  MORACLE_ASSIGN(own, read_added_tokens(member_of(json, "added_tokens"), file, "/added_tokens"));
  Budget& budget = reading.budget;
  budget.resume();
  MORACLE_ASSIGN(state->normalizer, Normalizer::from_json(member_of(json, "normalizer"), file, "/normalizer", budget));
  MORACLE_ASSIGN(state->pre_tokenizer,
                 PreTokenizer::from_json(member_of(json, "pre_tokenizer"), file, "/pre_tokenizer", budget));
  MORACLE_ASSIGN(state->post_processor,
                 PostProcessor::from_json(member_of(json, "post_processor"), file, "/post_processor", budget));
  MORACLE_ASSIGN(state->decoder, Decoder::from_json(member_of(json, "decoder"), file, "/decoder", budget));
  std::vector<AddedToken> tokens;
  for (const auto& [id, token] : own) tokens.push_back(token);
  auto added_all = state->added.add(tokens, state->model.vocabulary(), state->normalizer, reading.searcher);
  if (!added_all.ok()) return in_file(at_place(std::move(added_all).error(), "/added_tokens"), file);
  budget.pause();
  return state;
}

Result<> Tokenizer::State::configure(TokenizerConfig given, Reading& reading) {
  config = std::move(given);
  const auto warn = [&](const std::string& text) { config.warnings.push_back(config.file + ": " + text); };
  reading.budget.resume();
  auto done = added.add(config.tokens, model.vocabulary(), normalizer, reading.searcher);
  if (done.ok()) done = added.finish(config.split_special_tokens, reading.searcher);
  if (!done.ok()) return in_file(std::move(done).error(), config.file);
  for (const auto& [id, token] : config.by_id) {
    const auto own = added.id(token.content);
    if (token.content.empty() || own == id) continue;
    warn(fmt::format("added_tokens_decoder has {} as {}, but its id is {}, as in transformers", token.content, id,
                     own.value_or(-1)));
    break;
  }
  if (config.remakes_byte_level) {
    pre_tokenizer.set_byte_level_prefix_space(config.add_prefix_space.value_or(false));
  } else if (config.add_prefix_space &&
             pre_tokenizer.prefix_space().value_or(*config.add_prefix_space) != *config.add_prefix_space) {
    warn(fmt::format("add_prefix_space {} is not applied, as in transformers: tokenizer.json says otherwise",
                     *config.add_prefix_space));
  }
  return Ok{};
}

Result<Tokenizer> Tokenizer::load(const std::filesystem::path& folder) {
  const auto path = folder / "tokenizer.json";
  MORACLE_ASSIGN(const bool exists, file_exists(path));
  if (!exists) return load_tiktoken(folder);
  const std::string file = path.string();
  MORACLE_ASSIGN(const Json json, read_json(path, {.values = kTokenizerValues}));
  Reading reading;
  State::OwnTokens own;
  MORACLE_ASSIGN(const auto state, State::read(json, file, reading, own));
  MORACLE_ASSIGN(TokenizerConfig config, TokenizerConfig::load(folder, own, true));
  MORACLE_TRY(state->configure(std::move(config), reading));
  const TokenizerConfig& given = state->config;
  for (const auto& [key, asked, done] :
       {std::tuple{"add_bos_token", given.add_bos_token, state->post_processor.adds_before()},
        std::tuple{"add_eos_token", given.add_eos_token, state->post_processor.adds_behind()}}) {
    if (!asked || *asked == done) continue;
    state->config.warnings.push_back(
        fmt::format("{}: {} {} is not applied, as in transformers: the post-processor of tokenizer.json adds {}",
                    given.file, key, *asked, done ? "one" : "none"));
  }
  return Tokenizer(state);
}

Result<Tokenizer> Tokenizer::load_tiktoken(const std::filesystem::path& folder) {
  const auto path = folder / "tiktoken.model";
  MORACLE_ASSIGN(const bool exists, file_exists(path));
  if (!exists) return no_tokenizer(folder);
  MORACLE_ASSIGN(const std::string text, read_text(path, JsonLimits{}.bytes));
  const std::string file = path.string();
  auto state = std::make_shared<State>();
  state->file = file;
  MORACLE_ASSIGN(state->model, read_tiktoken(text, file));
  MORACLE_ASSIGN(TokenizerConfig config, TokenizerConfig::load(folder, {}, false));
  state->in_parts = is_kimi(config);
  Reading reading;
  reading.budget.resume();
  MORACLE_ASSIGN(state->pre_tokenizer, PreTokenizer::from_json(tiktoken_pre_tokenizer(is_kimi(config)), file,
                                                               "/pre_tokenizer", reading.budget));
  MORACLE_ASSIGN(state->decoder, Decoder::from_json({{"type", "ByteLevel"}}, file, "/decoder", reading.budget));
  // Special tokens follow the vocabulary; a place that none has is reserved.
  const Vocabulary& vocabulary = state->model.vocabulary();
  const auto base = static_cast<std::int32_t>(vocabulary.size());
  std::int32_t end = is_kimi(config) ? base + kKimiReserved : base;
  if (!config.by_id.empty()) end = std::max(end, config.by_id.back().first + 1);
  if (end - base > kMaxReserved) {
    return Error{.code = "tokenizer.id",
                 .file = config.file,
                 .where = "/added_tokens_decoder",
                 .wanted = fmt::format("ids that follow the {} tokens of tiktoken.model", base),
                 .found = fmt::format("{}", end - 1)};
  }
  std::map<std::int32_t, AddedToken> behind(config.by_id.begin(), config.by_id.end());
  for (std::int32_t id = base; id < end; ++id) {
    const auto [place, reserved] = behind.try_emplace(id);
    if (reserved) place->second = {.content = fmt::format("<|reserved_token_{}|>", id), .special = true};
    auto added_one = state->added.add_at(id, place->second, vocabulary, reading.searcher);
    if (!added_one.ok()) return in_file(std::move(added_one).error(), config.file);
  }
  reading.budget.pause();
  const bool kimi = is_kimi(config);
  MORACLE_TRY(state->configure(std::move(config), reading));
  if (!kimi) {
    const auto token = [&](const char* name, std::optional<bool> on) {
      return on.value_or(false) ? state->added.id(state->config.token(name)) : std::nullopt;
    };
    state->post_processor = PostProcessor::frame(token("bos_token", state->config.add_bos_token),
                                                 token("eos_token", state->config.add_eos_token), state->config.file);
  }
  return Tokenizer(std::move(state));
}

Result<Tokenizer> Tokenizer::from_json(const Json& json, const std::string& file) {
  Reading reading;
  State::OwnTokens own;
  MORACLE_ASSIGN(const auto state, State::read(json, file, reading, own));
  reading.budget.resume();
  if (auto done = state->added.finish(false, reading.searcher); !done.ok())
    return in_file(std::move(done).error(), file);
  return Tokenizer(state);
}

Result<> Tokenizer::check_added_ids(std::int64_t vocabulary) const {
  return state_->post_processor.check_ids(vocabulary);
}

const TokenizerConfig& Tokenizer::config() const {
  return state_->config;
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view utf8, EncodeOptions options) const {
  MORACLE_TRY(unicode::check_utf8(utf8));
  Encoding work(options.own_bytes.value_or(utf8.size()));
  if (options.mark != 0) {
    std::string mark;
    unicode::append_utf8(mark, options.mark);
    if (state_->normalizer.writes_bytes()) {
      append_byte_level(work.mark, mark);
    } else {
      work.mark = std::move(mark);
    }
  }
  auto encoded = state_->encode(utf8, options.add_special_tokens, work);
  if (!encoded.ok()) return in_file(std::move(encoded).error(), state_->file);
  return std::move(work.ids);
}

std::vector<std::string> Tokenizer::control_tokens() const {
  return state_->added.controls();
}

Result<bool> Tokenizer::has_control_token(std::string_view utf8, bool only_special) const {
  MORACLE_TRY(unicode::check_utf8(utf8));
  Encoding work(utf8.size());
  auto has = state_->has_control(utf8, only_special, work.searcher);
  if (!has.ok()) return in_file(std::move(has).error(), state_->file);
  return has;
}

Result<std::vector<std::size_t>> Tokenizer::find_control_tokens(std::string_view utf8, bool only_special) const {
  Encoding work(utf8.size());
  std::vector<std::size_t> places;
  auto found = state_->added.find_controls(utf8, only_special, work.searcher, places);
  if (!found.ok()) return in_file(std::move(found).error(), state_->file);
  return places;
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  DecodeChain chain = state_->decoder.chain();
  chain.expect(ids.size());
  for (const auto id : ids) {
    if (const auto token = state_->shown(id, skip_special_tokens)) chain.push(*token);
  }
  chain.finish();
  auto text = chain.take();
  if (text.ok()) return text;
  return in_file(std::move(text).error(), state_->file);
}

std::optional<std::string> Tokenizer::bytes_of(std::int32_t id) const {
  const auto token = state_->text(id);
  return token ? state_->decoder.bytes_of(*token) : std::nullopt;
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

  // The chain's clock runs only while it works.
  template <class Work>
  Result<std::string> run(const Work& work) {
    chain.resume();
    work();
    auto text = chain.take();
    chain.pause();
    if (text.ok()) return text;
    return in_file(std::move(text).error(), state->file);
  }
};

DetokenizerStream::DetokenizerStream(const Tokenizer& tokenizer, bool skip_special_tokens)
    : impl_(std::make_unique<Impl>(Impl{tokenizer.state_, skip_special_tokens, tokenizer.state_->decoder.chain()})) {
  impl_->chain.pause();
}
DetokenizerStream::DetokenizerStream(DetokenizerStream&&) noexcept = default;
DetokenizerStream& DetokenizerStream::operator=(DetokenizerStream&&) noexcept = default;
DetokenizerStream::~DetokenizerStream() = default;

Result<std::string> DetokenizerStream::push(std::int32_t id) {
  const auto token = impl_->state->shown(id, impl_->skip_special_tokens);
  if (!token) return std::string();
  return impl_->run([&] {
    impl_->chain.expect(1);
    impl_->chain.push(*token);
  });
}

Result<std::string> DetokenizerStream::finish() {
  return impl_->run([&] { impl_->chain.finish(); });
}

}  // namespace moracle
