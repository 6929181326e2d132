#include "engine/generation_config.h"

#include <algorithm>

namespace moracle {

namespace {

Result<std::int32_t> token_id(const Json& value, const JsonReader& from, const char* key, std::int64_t vocabulary) {
  if (!value.is_number_integer()) {
    return Error{.code = "config.type",
                 .file = from.file(),
                 .where = from.pointer(key),
                 .wanted = "a token id or a list of token ids",
                 .found = value.dump()};
  }
  const auto id = value.is_number_unsigned() && value.get<std::uint64_t>() > INT32_MAX ? std::int64_t{INT64_MAX}
                                                                                       : value.get<std::int64_t>();
  if (id < 0 || id >= vocabulary) {
    return Error{.code = "config.range",
                 .file = from.file(),
                 .where = from.pointer(key),
                 .wanted = "an id from 0 to " + std::to_string(vocabulary - 1),
                 .found = value.dump()};
  }
  return static_cast<std::int32_t>(id);
}

// An id, a list of ids, or nothing.
Result<std::vector<std::int32_t>> token_ids(const JsonReader& from, const char* key, std::int64_t vocabulary) {
  std::vector<std::int32_t> ids;
  if (!from.json().is_object() || !from.has(key)) return ids;
  const Json& value = from.json().at(key);
  const Json list = value.is_array() ? value : Json::array({value});
  for (const Json& element : list) {
    MORACLE_ASSIGN(const std::int32_t id, token_id(element, from, key, vocabulary));
    ids.push_back(id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<SamplingOptions> published_sampling(const JsonReader& from) {
  SamplingOptions sampling;
  MORACLE_ASSIGN(const bool do_sample, from.boolean_or("do_sample", false));
  if (!do_sample || !from.has("temperature")) return sampling;
  MORACLE_ASSIGN(sampling.temperature, from.number_or("temperature", 0.0));
  MORACLE_ASSIGN(sampling.top_k, from.integer_or("top_k", 0, 0, INT32_MAX));
  MORACLE_ASSIGN(sampling.top_p, from.number_or("top_p", 1.0));
  MORACLE_ASSIGN(sampling.min_p, from.number_or("min_p", 0.0));
  if (auto checked = check(sampling); !checked.ok()) {
    Error error = std::move(checked).error();
    error.where = from.pointer(error.where);
    error.file = from.file();
    return error;
  }
  return sampling;
}

}  // namespace

bool GenerationConfig::stops(std::int32_t id) const {
  return std::binary_search(eos_ids.begin(), eos_ids.end(), id);
}

Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder, const Json& config,
                                                std::int64_t vocabulary) {
  const auto path = folder / "generation_config.json";
  std::error_code code;
  Json published = Json::object();
  if (std::filesystem::exists(path, code)) {
    MORACLE_ASSIGN(published, read_json(path));
    if (!published.is_object()) {
      return Error{
          .code = "config.type", .file = path.string(), .wanted = "a JSON object", .found = published.type_name()};
    }
  }
  const bool nested = config.contains("text_config") && config.at("text_config").is_object();
  const JsonReader first(published, path.string());
  const JsonReader second(config, (folder / "config.json").string());
  const JsonReader third(nested ? config.at("text_config") : config, (folder / "config.json").string(),
                         nested ? "/text_config" : "");
  GenerationConfig result;
  MORACLE_ASSIGN(result.sampling, published_sampling(first));
  std::vector<std::int32_t> bos;
  for (const JsonReader* reader : {&first, &second, &third}) {
    if (result.eos_ids.empty()) {
      MORACLE_ASSIGN(result.eos_ids, token_ids(*reader, "eos_token_id", vocabulary));
    }
    if (bos.empty()) {
      MORACLE_ASSIGN(bos, token_ids(*reader, "bos_token_id", vocabulary));
    }
  }
  if (!bos.empty()) result.bos_id = bos.front();
  return result;
}

}  // namespace moracle
