#include "generate/generation_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string_view>
#include <utility>

#include "base/files/config_file.h"
#include "base/files/file_error.h"
#include "checkpoint/text_config.h"

namespace moracle {

namespace {

constexpr std::int64_t kDefaultTokens = 512;
constexpr std::size_t kShown = 60;  // bytes of a value in a message
// Every token is held against all of them.
constexpr std::size_t kMaxStopTexts = 1024;
constexpr std::size_t kStopTextBytes = 4096;

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown) + "...";
  return text;
}

bool is_number(const Json& value, double low, double high) {
  return value.is_number() && value.get<double>() >= low && value.get<double>() <= high;
}

// A member that transformers knows and this engine does not apply.
struct Foreign {
  std::string_view key;
  bool sampling_only;
  bool (*off)(const Json& value);
};

bool at_most_zero(const Json& value) {
  return is_number(value, -INFINITY, 0);
}
bool at_most_one(const Json& value) {
  return is_number(value, -INFINITY, 1);
}
bool one(const Json& value) {
  return is_number(value, 1, 1);
}
bool one_or_more(const Json& value) {
  return is_number(value, 1, INFINITY) || is_number(value, -1, -1);
}
bool not_between_zero_and_one(const Json& value) {
  return at_most_zero(value) || is_number(value, 1, INFINITY);
}
bool nothing(const Json& value) {
  return value.empty();  // null, [], {}
}
bool no(const Json& value) {
  return value == false;
}
bool minus_one(const Json& value) {
  return is_number(value, -1, -1);
}

constexpr std::array kForeign = {
    Foreign{"typical_p", true, one_or_more},
    Foreign{"epsilon_cutoff", true, not_between_zero_and_one},
    Foreign{"eta_cutoff", true, not_between_zero_and_one},
    Foreign{"top_h", true, one_or_more},
    Foreign{"no_repeat_ngram_size", false, at_most_zero},
    Foreign{"encoder_no_repeat_ngram_size", false, at_most_zero},
    Foreign{"encoder_repetition_penalty", false, one},
    Foreign{"bad_words_ids", false, nothing},
    Foreign{"force_words_ids", false, nothing},
    Foreign{"constraints", false, nothing},
    Foreign{"sequence_bias", false, nothing},
    Foreign{"suppress_tokens", false, nothing},
    Foreign{"begin_suppress_tokens", false, nothing},
    Foreign{"forced_bos_token_id", false, minus_one},
    Foreign{"forced_eos_token_id", false, minus_one},
    Foreign{"forced_decoder_ids", false, nothing},
    Foreign{"exponential_decay_length_penalty", false, nothing},
    Foreign{"min_length", false, at_most_zero},
    Foreign{"min_new_tokens", false, at_most_zero},
    Foreign{"max_time", false, minus_one},
    Foreign{"num_beams", false, at_most_one},
    Foreign{"num_return_sequences", false, at_most_one},
    Foreign{"penalty_alpha", false, at_most_zero},
    Foreign{"guidance_scale", false, one},
    Foreign{"dola_layers", false, nothing},
    Foreign{"token_healing", false, no},
    Foreign{"watermarking_config", false, nothing},
};

// Members beside kSamplingFields that are read here, or that choose no token.
constexpr std::array<std::string_view, 26> kKnown = {"do_sample",
                                                     "max_new_tokens",
                                                     "max_length",
                                                     "stop_strings",
                                                     "eos_token_id",
                                                     "bos_token_id",
                                                     "pad_token_id",
                                                     "decoder_start_token_id",
                                                     "user_token_id",
                                                     "assistant_token_id",
                                                     "transformers_version",
                                                     "use_cache",
                                                     "num_beam_groups",
                                                     "diversity_penalty",
                                                     "length_penalty",
                                                     "early_stopping",
                                                     "low_memory",
                                                     "renormalize_logits",
                                                     "remove_invalid_values",
                                                     "disable_compile",
                                                     "is_assistant",
                                                     "max_matching_ngram_size",
                                                     "prefill_chunk_size",
                                                     "target_lookbehind",
                                                     "chat_format",
                                                     "max_window_size"};
constexpr std::array<std::string_view, 8> kKnownStarts = {
    "_", "output_", "return_", "assistant_", "num_assistant_", "prompt_lookup_", "cache_", "compile_"};

// Whether nobody can say that the member changes no answer.
bool is_unknown(std::string_view key) {
  const auto same = [&](std::string_view known) { return known == key; };
  return find_sampling_field(key) == nullptr && std::none_of(kKnown.begin(), kKnown.end(), same) &&
         std::none_of(kForeign.begin(), kForeign.end(), [&](const Foreign& member) { return member.key == key; }) &&
         std::none_of(kKnownStarts.begin(), kKnownStarts.end(),
                      [&](std::string_view start) { return key.starts_with(start); });
}

// Reads the members of one object, and turns what cannot be used into faults.
class Reader {
 public:
  Reader(const Json& object, std::string file, std::string pointer, GenerationConfig& config)
      : object_(object), reader_(object, std::move(file), std::move(pointer)), config_(config) {}

  [[nodiscard]] bool has(std::string_view key) const { return reader_.has(key); }
  [[nodiscard]] const Json& at(std::string_view key) const { return object_.at(std::string(key)); }

  // Null, and -1 where that is off, leave what `options` has.
  void number(const SamplingField& field, SamplingOptions& options) {
    const std::string_view key = field.name;
    if (!has(key) || (field.minus_one_is_off && minus_one(at(key)))) return;
    SamplingOptions tried = options;
    const auto read = std::visit([&](auto member) { return read_into(tried.*member, key); }, field.member);
    if (!read.ok()) return fault(key, read.error());
    if (auto checked = check(tried); !checked.ok()) {
      Error error = std::move(checked).error();
      error.code = "config.range";
      error.file = reader_.file();
      error.where = reader_.pointer(key);
      return fault(key, std::move(error));
    }
    options = tried;
  }
  void flag(std::string_view key, bool& target) {
    auto value = reader_.boolean_or(key, target);
    if (!value.ok()) return fault(key, std::move(value).error());
    target = *value;
  }
  void count(std::string_view key, std::optional<std::int64_t>& target) {
    if (!has(key) || minus_one(at(key))) return;
    auto value = reader_.integer(key, 1, INT64_MAX);
    if (!value.ok()) return fault(key, std::move(value).error());
    target = *value;
  }
  // A text or a list of texts.
  void texts(std::string_view key, std::vector<std::string>& target) {
    if (!has(key)) return;
    const Json texts = list(key);
    if (texts.size() > kMaxStopTexts)
      return fault(
          key, out_of_range(key, "at most " + std::to_string(kMaxStopTexts) + " texts", std::to_string(texts.size())));
    for (const Json& text : texts) {
      if (!text.is_string() || text.get_ref<const std::string&>().empty())
        return fault(key, wrong(key, "a text or a list of texts"));
      const auto& bytes = text.get_ref<const std::string&>();
      if (bytes.size() > kStopTextBytes)
        return fault(key, out_of_range(key, "texts of at most " + std::to_string(kStopTextBytes) + " bytes",
                                       std::to_string(bytes.size()) + " bytes"));
      target.push_back(bytes);
    }
  }
  // An id or a list of ids. Those that no vocabulary of this size can make are left out.
  [[nodiscard]] std::vector<std::int32_t> ids(std::string_view key, std::int64_t vocabulary) {
    std::vector<std::int32_t> result;
    if (!object_.is_object() || !has(key)) return result;
    for (const Json& id : list(key)) {
      if (!id.is_number_integer()) {
        fault(key, wrong(key, "a token id or a list of token ids"));
        return {};
      }
      const bool huge = id.is_number_unsigned() && id.get<std::uint64_t>() > INT32_MAX;
      const std::int64_t value = huge ? -1 : id.get<std::int64_t>();
      if (value >= 0 && value < vocabulary) result.push_back(static_cast<std::int32_t>(value));
    }
    std::sort(result.begin(), result.end());
    result.erase(std::unique(result.begin(), result.end()), result.end());
    return result;
  }
  void fault(std::string_view key, Error error) { config_.faults.push_back({std::string(key), std::move(error)}); }

 private:
  Result<> read_into(double& value, std::string_view key) const {
    MORACLE_ASSIGN(value, reader_.number_or(key, 0.0));
    return Ok{};
  }
  Result<> read_into(std::int64_t& value, std::string_view key) const {
    MORACLE_ASSIGN(value, reader_.integer(key, 0, INT32_MAX));
    return Ok{};
  }
  [[nodiscard]] Json list(std::string_view key) const { return at(key).is_array() ? at(key) : Json::array({at(key)}); }
  [[nodiscard]] Error out_of_range(std::string_view key, std::string wanted, std::string found) const {
    return Error{.code = "config.range",
                 .file = reader_.file(),
                 .where = reader_.pointer(key),
                 .wanted = std::move(wanted),
                 .found = std::move(found)};
  }
  [[nodiscard]] Error wrong(std::string_view key, std::string wanted) const {
    return Error{.code = "config.type",
                 .file = reader_.file(),
                 .where = reader_.pointer(key),
                 .wanted = std::move(wanted),
                 .found = shown(at(key))};
  }

  const Json& object_;
  JsonReader reader_;
  GenerationConfig& config_;
};

void read_sampling(Reader& from, GenerationConfig& config) {
  SamplingOptions& sampling = config.sampling;
  from.flag("do_sample", config.do_sample);
  for (const SamplingField& field : kSamplingFields) from.number(field, sampling);
  if (from.has("temperature")) config.temperature = sampling.temperature;
  if (config.do_sample) {
    if (!from.has("temperature")) {
      config.greedy_because = "do_sample without a temperature: the likeliest token is taken; --temperature 1 samples";
    }
    return;
  }
  if (!from.has("do_sample") && sampling.temperature > 0) {
    config.greedy_because =
        "a temperature without do_sample: the likeliest token is taken, as in transformers; --temperature samples";
  }
  sampling.temperature = 0;
}

Json read_published(const std::filesystem::path& path, GenerationConfig& config) {
  const auto exists = file_exists(path);
  if (exists.ok() && !*exists) return Json::object();
  auto json = exists.ok() ? read_config_file(path) : exists.error();
  if (json.ok() && json->is_object()) return *std::move(json);
  config.faults.push_back(
      {"",
       json.ok()
           ? Error{.code = "config.type", .file = path.string(), .wanted = "a JSON object", .found = json->type_name()}
           : std::move(json).error()});
  return Json::object();
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// Whether a generation under `choice` needs the published member.
bool needs(const std::string& key, const GenerationChoice& choice, const SamplingOptions& settled) {
  const bool samples = settled.temperature > 0;
  const bool has_temperature = choice.sampling.get(&SamplingOptions::temperature).has_value();
  if (key.empty()) return samples || !has_temperature;
  if (key == "do_sample") return !has_temperature;
  if (const SamplingField* const field = find_sampling_field(key); field != nullptr)
    return (samples || !field->draws_only) && !choice.sampling.has(*field);
  if (key == "max_new_tokens" || key == "max_length") return !choice.max_tokens;
  if (key == "eos_token_id") return !choice.ignore_eos;
  return key != "bos_token_id";
}

}  // namespace

std::int64_t GenerationSettings::answer_tokens(std::int64_t prompt_tokens) const {
  const std::int64_t most = max_tokens.value_or(kDefaultTokens);
  return max_length ? std::clamp<std::int64_t>(*max_length - prompt_tokens, 1, most) : most;
}

void GenerationConfig::add_end(std::int32_t id) {
  const auto place = std::lower_bound(eos_ids.begin(), eos_ids.end(), id);
  if (place == eos_ids.end() || *place != id) eos_ids.insert(place, id);
}

Result<GenerationSettings> GenerationConfig::settle(const GenerationChoice& choice) const {
  GenerationSettings settings;
  settings.sampling = sampling;
  if (choice.samples) settings.sampling.temperature = temperature.value_or(1.0);
  choice.sampling.apply(settings.sampling);
  settings.sampling.seed = choice.seed;
  MORACLE_TRY(check(settings.sampling));
  if (!choice.ignore_eos) settings.stop_ids = eos_ids;
  settings.stop_texts = stop_strings;
  settings.stop_texts.insert(settings.stop_texts.end(), choice.stop_texts.begin(), choice.stop_texts.end());
  settings.max_tokens = choice.max_tokens ? choice.max_tokens : max_new_tokens;
  if (!settings.max_tokens) settings.max_length = max_length;

  for (const Fault& fault : faults) {
    if (needs(fault.key, choice, settings.sampling)) {
      Error error = fault.error;
      if (fault.key.empty() && !choice.samples)
        error.advice += std::string(error.advice.empty() ? "" : ", or ") + "go without it: --temperature 0";
      return error;
    }
    settings.warnings.push_back("not used: " + fault.error.message());
  }
  std::vector<std::string> left;
  for (const Unapplied& member : unapplied) {
    if (!member.sampling_only || settings.sampling.temperature > 0) left.push_back(member.text);
  }
  if (!left.empty()) settings.warnings.push_back(file + ": not applied: " + joined(left));
  if (!greedy_because.empty() && !choice.sampling.get(&SamplingOptions::temperature) && !choice.samples)
    settings.warnings.push_back(file + ": " + greedy_because);
  if (settings.stop_ids.empty() && !choice.ignore_eos) {
    settings.warnings.emplace_back(
        "neither generation_config.json nor config.json nor the tokenizer names an end token of this model: an answer "
        "goes on until --max-tokens or a --stop text");
  }
  return settings;
}

std::vector<std::string> GenerationConfig::fault_lines() const {
  std::vector<std::string> lines;
  for (const Fault& fault : faults) lines.push_back("not used: " + fault.error.message());
  return lines;
}

GenerationConfig load_generation_config(const std::filesystem::path& folder, const Json& config,
                                        std::int64_t vocabulary) {
  GenerationConfig result;
  const auto path = folder / "generation_config.json";
  result.file = path.string();
  const Json published = read_published(path, result);
  const std::string config_path = (folder / "config.json").string();
  Reader first(published, path.string(), "", result);
  read_sampling(first, result);
  first.count("max_new_tokens", result.max_new_tokens);
  first.count("max_length", result.max_length);
  first.texts("stop_strings", result.stop_strings);
  for (const Foreign& member : kForeign) {
    if (!first.has(member.key) || member.off(first.at(member.key))) continue;
    result.unapplied.push_back({std::string(member.key) + " " + shown(first.at(member.key)), member.sampling_only});
  }
  for (const auto& [key, value] : published.items()) {
    if (!value.is_null() && is_unknown(key)) result.unapplied.push_back({key.substr(0, kShown) + " " + shown(value)});
  }
  std::vector<Reader> readers = {first, Reader(config, config_path, "", result)};
  const std::string pointer = text_pointer(config);
  const Json* const text = at_pointer(config, pointer);
  if (!pointer.empty() && text->is_object()) readers.emplace_back(*text, config_path, pointer, result);
  std::vector<std::int32_t> bos;
  for (Reader& reader : readers) {
    if (result.eos_ids.empty()) result.eos_ids = reader.ids("eos_token_id", vocabulary);
    if (bos.empty()) bos = reader.ids("bos_token_id", vocabulary);
  }
  if (!bos.empty()) result.bos_id = bos.front();
  return result;
}

}  // namespace moracle
