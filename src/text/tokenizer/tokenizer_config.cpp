#include "text/tokenizer/tokenizer_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string_view>

#include "base/files/config_file.h"
#include "base/files/file_error.h"
#include "text/tokenizer/component.h"

namespace moracle {
namespace {

// The names that every tokenizer may have, in transformers' order. Any other member that ends in "_token" and is a
// token is named as well.
constexpr std::array<std::string_view, 7> kNames = {"bos_token", "eos_token", "unk_token", "sep_token",
                                                    "pad_token", "cls_token", "mask_token"};

// Classes of transformers that make the byte-level pre-tokenizer anew, and the tokens they name by themselves.
struct RemadeClass {
  std::string_view name;
  std::array<std::string_view, 3> end_of_text;  // members that are "<|endoftext|>" where the file leaves them out
  bool plain_specials = false;                  // takes all flags off named and further special tokens
};
constexpr std::array kRemade = {
    RemadeClass{"Qwen2Tokenizer", {"eos_token", "unk_token", "pad_token"}, true},
    RemadeClass{"Qwen3_5Tokenizer", {"eos_token", "unk_token", "pad_token"}},
    RemadeClass{"GPT2Tokenizer", {"bos_token", "eos_token", "unk_token"}},
    RemadeClass{"GPTNeoXTokenizer", {"bos_token", "eos_token", "unk_token"}},
};

const RemadeClass* remade_class(std::string_view name) {
  if (name.ends_with("Fast")) name.remove_suffix(4);
  const auto* const found = std::find_if(kRemade.begin(), kRemade.end(), [&](const auto& c) { return c.name == name; });
  return found == kRemade.end() ? nullptr : found;
}

bool is_standard(std::string_view key) {
  return std::find(kNames.begin(), kNames.end(), key) != kNames.end();
}

Result<std::optional<Json>> read_object(const std::filesystem::path& path) {
  MORACLE_ASSIGN(const bool exists, file_exists(path));
  if (!exists) return std::optional<Json>();
  MORACLE_ASSIGN(Json json, read_config_file(path));
  if (!json.is_object()) {
    return Error{.code = "config.type", .file = path.string(), .wanted = "an object", .found = json.type_name()};
  }
  return std::optional<Json>(std::move(json));
}

// A token as the files write it: a text, or an object with flags. `special` is what an object that does not say is.
Result<AddedToken> read_token(const Json& json, const std::string& file, const std::string& pointer, bool special) {
  if (json.is_string()) return AddedToken{.content = json.get<std::string>(), .special = true};
  if (!json.is_object()) {
    return Error{.code = "config.type",
                 .file = file,
                 .where = pointer,
                 .wanted = "a token: a text or an object with content",
                 .found = json.type_name()};
  }
  const JsonReader reader(json, file, pointer);
  AddedToken token;
  MORACLE_ASSIGN(token.content, required_string(reader, "content"));
  MORACLE_ASSIGN(token.single_word, reader.boolean_or("single_word", false));
  MORACLE_ASSIGN(token.lstrip, reader.boolean_or("lstrip", false));
  MORACLE_ASSIGN(token.rstrip, reader.boolean_or("rstrip", false));
  MORACLE_ASSIGN(token.special, reader.boolean_or("special", special));
  MORACLE_ASSIGN(token.normalized, reader.boolean_or("normalized", !token.special));
  return token;
}

// An id that is the key of an object.
Result<std::int32_t> read_id(const std::string& key, const std::string& file, const std::string& pointer) {
  const bool digits = !key.empty() && key.size() <= 10 && key.find_first_not_of("0123456789") == std::string::npos;
  return token_id(digits ? Json(std::stoull(key)) : Json(key), file, pointer);
}

// The text of a token; empty where it is none.
std::string content_of(const Json& json) {
  const Json content = json.is_object() ? json.value("content", Json()) : json;
  return content.is_string() ? content.get<std::string>() : std::string();
}

class Merger {
 public:
  using Own = std::vector<std::pair<std::int32_t, AddedToken>>;

  Merger(std::filesystem::path folder, const Own& own) : folder_(std::move(folder)), own_(own) {}

  Result<TokenizerConfig> run(bool whole) {
    config_.file = path("tokenizer_config.json");
    MORACLE_ASSIGN(const auto file, read_object(config_.file));
    const auto map = read_object(path("special_tokens_map.json"));
    const auto added = read_object(path("added_tokens.json"));
    if (file) MORACLE_TRY(read_config(*file));
    if (file && file->contains("added_tokens_decoder")) {
      MORACLE_TRY(read_decoder(file->at("added_tokens_decoder")));
      // Neither is used, so neither stops anything.
      for (const auto* unused : {&map, &added}) {
        if (!unused->ok()) config_.warnings.push_back("not used: " + unused->error().message());
      }
      if (map.ok() && *map) compare_map(**map);
      if (added.ok() && *added) compare_added(**added);
    } else {
      if (!map.ok()) return map.error();
      if (!added.ok()) return added.error();
      if (*map) MORACLE_TRY(merge_map(**map));
      if (*added) MORACLE_TRY(merge_added(**added));
      if (whole) {
        for (const auto& [id, token] : own_) declare(id, token);
      }
    }
    if (!listed_) MORACLE_TRY(take_additional());
    if (additional_.is_array()) {
      for (const Json& token : additional_) unread_.push_back(content_of(token));
    }
    if (file) name_by_class(*file);
    list_tokens();
    return std::move(config_);
  }

 private:
  [[nodiscard]] std::string path(const char* name) const { return (folder_ / name).string(); }

  Result<> read_config(const Json& json) {
    const JsonReader reader(json, config_.file);
    MORACLE_ASSIGN(config_.tokenizer_class, reader.string_or("tokenizer_class", ""));
    MORACLE_ASSIGN(config_.split_special_tokens, reader.boolean_or("split_special_tokens", false));
    for (const auto& [key, target] :
         {std::pair{"add_bos_token", &config_.add_bos_token}, std::pair{"add_eos_token", &config_.add_eos_token},
          std::pair{"add_prefix_space", &config_.add_prefix_space}}) {
      if (!reader.has(key)) continue;
      MORACLE_ASSIGN(*target, reader.boolean_or(key, false));
    }
    config_.chat_template = json.value("chat_template", Json());
    for (const char* key :
         {"clean_up_tokenization_spaces", "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output"}) {
      MORACLE_ASSIGN(const bool on, reader.boolean_or(key, false));
      if (!on) break;
      if (std::string_view(key).ends_with("output")) warn(config_.file, std::string(key) + " is not applied");
    }
    MORACLE_TRY(read_names(json, config_.file));
    return read_extras(json);
  }

  // Members of tokenizer_config.json or special_tokens_map.json that name one token each.
  Result<> read_names(const Json& json, const std::string& file) {
    for (const std::string_view name : kNames) {
      const auto found = json.find(std::string(name));
      if (found == json.end()) continue;
      std::optional<AddedToken> token;
      if (!found->is_null()) {
        MORACLE_ASSIGN(token, read_token(*found, file, "/" + std::string(name), true));
      }
      name_token(std::string(name), token, file);
    }
    for (const auto& [key, value] : json.items()) {
      if (!key.ends_with("_token") || is_standard(key) || content_of(value).empty()) continue;
      MORACLE_ASSIGN(AddedToken token, read_token(value, file, "/" + key, true));
      // Of these the first file's holds.
      if (const auto found = named_.find(key); found == named_.end()) {
        name_token(key, std::move(token), file);
      } else if (found->second && found->second->content != token.content) {
        warn(file, fmt::format("{} {} is not used, as in transformers: tokenizer_config.json, which has {}, holds", key,
                               token.content, found->second->content));
      }
    }
    return Ok{};
  }

  void name_token(std::string name, std::optional<AddedToken> token, const std::string& file) {
    const auto found = named_.find(name);
    if (found != named_.end() && token && found->second && found->second->content != token->content) {
      warn(file, fmt::format("{} {} holds, as in transformers, over {} of tokenizer_config.json", name, token->content,
                             found->second->content));
    }
    if (found == named_.end() && !is_standard(name)) further_.push_back(name);
    named_.insert_or_assign(std::move(name), std::move(token));
  }

  // The older name counts where the newer one says nothing.
  Result<> read_extras(const Json& json) {
    const Json specific = json.value("model_specific_special_tokens", Json());
    MORACLE_TRY(take_extras(specific, config_.file, "/model_specific_special_tokens"));
    const Json extra = json.value("extra_special_tokens", Json());
    additional_ = json.value("additional_special_tokens", Json());
    additional_file_ = config_.file;
    MORACLE_TRY(take_extras(extra, config_.file, "/extra_special_tokens"));
    listed_ = extra.is_array();
    return extra.empty() ? take_additional() : Ok{};
  }

  // The tokens under the older name, once nothing of the newer one can come.
  Result<> take_additional() {
    if (additional_.is_null()) return Ok{};
    listed_ = true;
    MORACLE_TRY(take_extras(std::exchange(additional_, Json()), additional_file_, "/additional_special_tokens"));
    return Ok{};
  }

  Result<> take_extras(const Json& json, const std::string& file, const std::string& pointer) {
    if (json.is_null()) return Ok{};
    if (json.is_object()) {
      for (const auto& [name, value] : json.items()) {
        MORACLE_ASSIGN(AddedToken token, read_token(value, file, pointer + "/" + name, true));
        name_token(name, std::move(token), file);
      }
      return Ok{};
    }
    if (!json.is_array()) {
      return Error{.code = "config.type",
                   .file = file,
                   .where = pointer,
                   .wanted = "a list of tokens, or an object of named ones",
                   .found = json.type_name()};
    }
    for (std::size_t i = 0; i < json.size(); ++i) {
      MORACLE_ASSIGN(AddedToken token, read_token(json[i], file, fmt::format("{}/{}", pointer, i), true));
      extras_.push_back(std::move(token));
    }
    return Ok{};
  }

  Result<> read_decoder(const Json& json) {
    const std::string pointer = "/added_tokens_decoder";
    if (!json.is_object()) {
      return Error{.code = "config.type",
                   .file = config_.file,
                   .where = pointer,
                   .wanted = "an object of tokens by id",
                   .found = json.type_name()};
    }
    for (const auto& [key, value] : json.items()) {
      MORACLE_ASSIGN(const std::int32_t id, read_id(key, config_.file, pointer + "/" + key));
      MORACLE_ASSIGN(const AddedToken token, read_token(value, config_.file, pointer + "/" + key, false));
      declare(id, token);
    }
    config_.by_id.assign(by_id_.begin(), by_id_.end());
    return Ok{};
  }

  // special_tokens_map.json speaks last where there is no added_tokens_decoder.
  Result<> merge_map(const Json& json) {
    const std::string file = path("special_tokens_map.json");
    MORACLE_TRY(read_names(json, file));
    const Json extra = json.value("extra_special_tokens", Json());
    MORACLE_TRY(take_extras(extra, file, "/extra_special_tokens"));
    listed_ = listed_ || extra.is_array();
    if (!json.contains("additional_special_tokens")) return Ok{};
    additional_ = json.at("additional_special_tokens");
    additional_file_ = file;
    return Ok{};
  }

  Result<> merge_added(const Json& json) {
    const std::string file = path("added_tokens.json");
    std::set<std::string> specials;
    for (const AddedToken& token : extras_) specials.insert(token.content);
    for (const auto& [name, token] : named_) {
      if (token && is_standard(name)) specials.insert(token->content);
    }
    for (const auto& [content, value] : json.items()) {
      MORACLE_ASSIGN(const std::int32_t id, token_id(value, file, "/" + content));
      const bool special = specials.contains(content);
      declare(id, {.content = content, .normalized = !special, .special = special});
    }
    return Ok{};
  }

  // What transformers does not read beside an added_tokens_decoder.
  void compare_map(const Json& json) {
    const std::string file = path("special_tokens_map.json");
    for (const std::string_view name : kNames) {
      const std::string content = content_of(json.value(std::string(name), Json()));
      const auto held = named_.find(std::string(name));
      const bool none = held == named_.end() || !held->second;
      if (content.empty() || (!none && held->second->content == content)) continue;
      warn(file, fmt::format("{} {} is not used, as in transformers: tokenizer_config.json, which has {}, holds", name,
                             content, none ? "none" : held->second->content));
    }
    const Json extras = json.value("additional_special_tokens", Json());
    if (!extras.is_array()) return;
    for (const Json& token : extras) unread_.push_back(content_of(token));
  }

  void compare_added(const Json& json) {
    for (const auto& [content, id] : json.items()) unread_.push_back(content);
  }

  void name_by_class(const Json& json) {
    const RemadeClass* const remade = remade_class(config_.tokenizer_class);
    if (remade == nullptr) return;
    config_.remakes_byte_level = true;
    const AddedToken end{.content = "<|endoftext|>", .special = true};
    const auto is_end = [&](const auto& entry) { return entry.second.content == end.content; };
    if (std::none_of(own_.begin(), own_.end(), is_end) && std::none_of(by_id_.begin(), by_id_.end(), is_end)) return;
    for (const std::string_view name : remade->end_of_text) {
      if (!json.contains(name)) named_.try_emplace(std::string(name), end);
    }
  }

  void declare(std::int32_t id, const AddedToken& token) {
    by_id_.insert_or_assign(id, token);
    by_text_.insert_or_assign(token.content, token);
  }

  void list_tokens() {
    std::vector<AddedToken>& tokens = config_.tokens;
    std::set<std::string> known;  // texts that are not added once more
    for (const auto& [id, token] : own_) known.insert(token.content);
    for (const auto& [id, token] : by_id_) {
      known.insert(token.content);
      tokens.push_back(token);
    }
    std::set<AddedToken> added(tokens.begin(), tokens.end());
    const auto add = [&](const AddedToken& token) {
      if (!known.contains(token.content) && added.insert(token).second) tokens.push_back(token);
    };
    std::set<std::string> named;
    std::vector<std::string> names(kNames.begin(), kNames.end());
    names.insert(names.end(), further_.begin(), further_.end());
    for (const std::string& name : names) {
      const auto found = named_.find(name);
      if (found == named_.end() || !found->second) continue;
      config_.named.emplace_back(name, found->second->content);
      named.insert(found->second->content);
      const auto declared = by_text_.find(found->second->content);
      add(declared == by_text_.end() || !is_standard(name) ? *found->second : declared->second);
    }
    for (const AddedToken& token : extras_) add(token);
    for (AddedToken& token : tokens) {
      token.special = token.special || named.contains(token.content);
      known.insert(token.content);
    }
    const RemadeClass* const remade = remade_class(config_.tokenizer_class);
    if (remade != nullptr && remade->plain_specials) {
      for (const auto& [name, content] : config_.named) tokens.push_back({.content = content, .special = true});
      for (const AddedToken& token : extras_) tokens.push_back({.content = token.content, .special = true});
    }
    std::erase_if(unread_, [&](const std::string& content) { return content.empty() || known.contains(content); });
    if (!unread_.empty()) {
      warn(folder_.string(),
           fmt::format("{} special tokens, as {}, are not used, as in transformers: tokenizer_config.json lists others",
                       unread_.size(), unread_.front()));
    }
  }

  void warn(const std::string& file, const std::string& text) { config_.warnings.push_back(file + ": " + text); }

  std::filesystem::path folder_;
  const Own& own_;
  TokenizerConfig config_;
  std::map<std::string, std::optional<AddedToken>> named_;
  std::vector<std::string> further_;  // names beyond kNames, in the order they came
  std::vector<AddedToken> extras_;
  bool listed_ = false;  // there was a list under the newer name
  Json additional_;      // not taken so far
  std::string additional_file_;
  std::map<std::int32_t, AddedToken> by_id_;
  std::map<std::string, AddedToken> by_text_;  // also of those whose id another took
  std::vector<std::string> unread_;
};

}  // namespace

Result<TokenizerConfig> TokenizerConfig::load(const std::filesystem::path& folder,
                                              const std::vector<std::pair<std::int32_t, AddedToken>>& own, bool whole) {
  return Merger(folder, own).run(whole);
}

std::string TokenizerConfig::token(std::string_view name) const {
  const auto found = std::find_if(named.begin(), named.end(), [&](const auto& entry) { return entry.first == name; });
  return found == named.end() ? std::string() : found->second;
}

}  // namespace moracle
