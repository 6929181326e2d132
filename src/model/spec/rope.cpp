#include "model/spec/rope.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <optional>

namespace moracle {

namespace {

// Where the values come from: one object of rope_parameters or of rope_scaling.
struct Source {
  const Json* object = nullptr;  // null: nothing but the defaults
  std::string pointer;
  bool of_layer = false;  // of one kind of layer
};

std::string type_of(const Json& rope) {
  for (const char* key : {"rope_type", "type"}) {
    const auto found = rope.find(key);
    if (found != rope.end() && found->is_string()) return found->get<std::string>();
  }
  return "default";
}

// What the object says of the frequencies of text, with the two spellings of its type as one. Theta and the rotated
// part have places of their own outside of it.
Json content(const Json& object) {
  Json said = object;
  for (const char* key : {"type", "rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved"}) {
    said.erase(key);
  }
  said["rope_type"] = type_of(object) == "mrope" ? "default" : type_of(object);
  return said;
}

// rope_scaling, the older key, counts where it says something: it is what people add to a config by hand.
Result<std::string> source_key(const ModelConfig& config) {
  const JsonReader& reader = config.reader();
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    if (!reader.has(key)) continue;
    const Json& json = reader.json().at(key);
    if (!json.is_object()) return config.error("config.type", key, "an object", json.type_name());
  }
  if (!reader.has("rope_scaling") || reader.json().at("rope_scaling").empty()) {
    return std::string(reader.has("rope_parameters") ? "rope_parameters" : "");
  }
  if (reader.has("rope_parameters")) {
    const Json& used = reader.json().at("rope_scaling");
    const Json& unused = reader.json().at("rope_parameters");
    if (content(used) != content(unused)) {
      config.warn_of_two(reader.pointer("rope_scaling"), used, reader.pointer("rope_parameters"), unused);
    }
  }
  return std::string("rope_scaling");
}

Result<Source> find_source(const ModelConfig& config, const std::string& layer_type) {
  const JsonReader& reader = config.reader();
  MORACLE_ASSIGN(const std::string key, source_key(config));
  if (key.empty()) return Source{};
  const Json& json = reader.json().at(key);
  const bool per_type = std::any_of(json.begin(), json.end(), [](const Json& value) { return value.is_object(); });
  if (!per_type) return Source{&json, reader.pointer(key)};
  const auto entry = json.find(layer_type);
  if (entry == json.end() || !entry->is_object()) {
    return config.error("config.missing", key, "an entry for layer type '" + layer_type + "'", "none");
  }
  return Source{&*entry, reader.pointer(key) + "/" + layer_type, true};
}

Error range_error(const JsonReader& reader, std::string_view key, std::string wanted, double found) {
  return Error{.code = "config.range",
               .file = reader.file(),
               .where = reader.pointer(key),
               .wanted = std::move(wanted),
               .found = std::to_string(found)};
}

Result<double> positive(const JsonReader& reader, std::string_view key, double fallback, double high) {
  return reader.number_or(key, fallback, {.low = 0.0, .high = high, .above_low = true});
}

// A key that newer files keep among the rope parameters and older ones beside them: `first` counts where both have it.
Result<double> of_either(const ModelConfig& config, const JsonReader& first, const JsonReader& second,
                         std::string_view key, double fallback, double high) {
  if (!first.has(key)) return positive(second, key, fallback, high);
  MORACLE_ASSIGN(const double used, positive(first, key, fallback, high));
  if (second.has(key)) {
    const std::string name(key);
    const Json& other = second.json().at(name);
    // Whole numbers are written with and without a point.
    if (!other.is_number() || other.get<double>() != used) {
      config.warn_of_two(first.pointer(key), first.json().at(name), second.pointer(key), other);
    }
  }
  return used;
}

// rope_scaling takes the place of all of rope_parameters, whose theta goes with it.
void warn_of_lost_theta(const ModelConfig& config, const Source& source, double theta) {
  constexpr const char* kTheta = "rope_theta";
  const JsonReader& reader = config.reader();
  if (source.pointer != reader.pointer("rope_scaling") || !reader.has("rope_parameters")) return;
  const Json& unused = reader.json().at("rope_parameters");
  if (!unused.contains(kTheta) || !unused[kTheta].is_number() || unused[kTheta].get<double>() == theta) return;
  config.warn("rope_theta is " + Json(theta).dump() + ", and not " + reader.pointer("rope_parameters/rope_theta") +
              " = " + unused[kTheta].dump() +
              ", since rope_scaling takes the place of rope_parameters; write it there");
}

// Keys of a rope that say something, and that its type does not have: a "factor" without a type, a key that only some
// engine knows.
void warn_of_unread_keys(const ModelConfig& config, const Json& rope, const std::string& pointer) {
  constexpr std::array<std::string_view, 8> kOfAll{"rope_type",
                                                   "type",
                                                   "rope_theta",
                                                   "partial_rotary_factor",
                                                   "original_max_position_embeddings",
                                                   "mrope_section",
                                                   "mrope_interleaved",
                                                   "finetuned"};
  static const std::map<std::string, std::vector<std::string_view>> kOfType{
      {"linear", {"factor"}},
      {"longrope", {"factor", "attention_factor", "short_factor", "long_factor", "short_mscale", "long_mscale"}},
      {"dynamic", {"factor", "alpha", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"}},
      {"yarn", {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}},
      {"deepseek_yarn",
       {"factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor"}}};
  const std::string type = type_of(rope);
  const auto own = kOfType.find(type);
  for (const auto& [key, value] : rope.items()) {
    const bool known =
        std::find(kOfAll.begin(), kOfAll.end(), key) != kOfAll.end() ||
        (own != kOfType.end() && std::find(own->second.begin(), own->second.end(), key) != own->second.end());
    const bool silent = value.is_null() || value == false || (key == "factor" && value == 1.0);
    if (known || silent) continue;
    config.warn(pointer + "/" + key + " = " + value.dump(-1, ' ', true).substr(0, 120) +
                " is not read: a rope of type " + type + " has no such key");
  }
}

double mscale(double factor, double c) {
  return factor > 1.0 ? 0.1 * c * std::log(factor) + 1.0 : 1.0;
}

Result<double> attention_factor(const JsonReader& reader, double factor) {
  if (reader.has("attention_factor")) return positive(reader, "attention_factor", 1.0, 1e6);
  MORACLE_ASSIGN(const double first, reader.number_or("mscale", 0.0));
  MORACLE_ASSIGN(const double all, reader.number_or("mscale_all_dim", 0.0));
  if (first == 0.0 || all == 0.0) return mscale(factor, 1.0);
  const double ratio = mscale(factor, first) / mscale(factor, all);
  if (!(ratio > 0.0) || ratio > 1e6) return range_error(reader, "mscale", "a usable ratio to mscale_all_dim", first);
  return ratio;
}

// Of the scores, in attention that asks for it.
Result<double> score_scale(const JsonReader& reader, double factor) {
  MORACLE_ASSIGN(const double all, reader.number_or("mscale_all_dim", 0.0));
  if (all == 0.0) return 1.0;
  const double square = mscale(factor, all) * mscale(factor, all);
  if (!(square > 0.0) || square > 1e6) return range_error(reader, "mscale_all_dim", "a usable scale of scores", all);
  return square;
}

struct Frequencies {
  std::vector<double> inv_freq;
  double scale = 1.0;
  double reach = 0.0;  // positions
  double score_scale = 1.0;
  double limit = 0.0;  // as of RopeSpec
};

Frequencies yarn(const YarnSpec& spec, double scale, double theta, std::int64_t dims) {
  return {
      .inv_freq = yarn_frequencies(spec, theta, dims), .scale = scale, .reach = spec.original_positions * spec.factor};
}

Result<Frequencies> yarn(const JsonReader& reader, double theta, std::int64_t dims, double max_positions) {
  YarnSpec spec;
  MORACLE_ASSIGN(spec.original_positions, positive(reader, "original_max_position_embeddings", max_positions, 1e12));
  MORACLE_ASSIGN(spec.factor, positive(reader, "factor", std::max(1.0, max_positions / spec.original_positions), 1e6));
  MORACLE_ASSIGN(spec.beta_fast, positive(reader, "beta_fast", 32.0, 1e9));
  MORACLE_ASSIGN(spec.beta_slow, positive(reader, "beta_slow", 1.0, 1e9));
  MORACLE_ASSIGN(spec.truncate, reader.boolean_or("truncate", true));
  if (theta <= 1.0) return range_error(reader, "rope_theta", "more than 1 for yarn", theta);
  MORACLE_ASSIGN(const double scale, attention_factor(reader, spec.factor));
  Frequencies found = yarn(spec, scale, theta, dims);
  MORACLE_ASSIGN(found.score_scale, score_scale(reader, spec.factor));
  return found;
}

Result<Frequencies> llama3(const JsonReader& reader, double theta, std::int64_t dims, double max_positions) {
  Llama3Spec spec;
  MORACLE_ASSIGN(spec.factor, positive(reader, "factor", 8.0, 1e6));
  MORACLE_ASSIGN(spec.low_freq_factor, positive(reader, "low_freq_factor", 1.0, 1e6));
  MORACLE_ASSIGN(spec.high_freq_factor, positive(reader, "high_freq_factor", 4.0, 1e6));
  MORACLE_ASSIGN(spec.original_positions, positive(reader, "original_max_position_embeddings", max_positions, 1e12));
  if (spec.high_freq_factor <= spec.low_freq_factor) {
    return range_error(reader, "high_freq_factor", "more than low_freq_factor", spec.high_freq_factor);
  }
  return Frequencies{llama3_frequencies(spec, theta, dims), 1.0, 0.0};
}

// With "alpha" a larger theta from the first position on; else that of each call's length, which up to
// max_position_embeddings, where contexts end, is theta itself.
Result<Frequencies> dynamic(const JsonReader& reader, double theta, std::int64_t dims) {
  MORACLE_ASSIGN(const double alpha, positive(reader, "alpha", 1.0, 1e6));
  const auto d = static_cast<double>(dims);
  return Frequencies{plain_frequencies(dims > 2 ? theta * std::pow(alpha, d / (d - 2.0)) : theta, dims)};
}

// The factors of short contexts, which hold up to the positions that the model was first trained on.
Result<Frequencies> longrope(const JsonReader& reader, double theta, std::int64_t dims, double max_positions) {
  constexpr const char* kFactors = "short_factor";
  Frequencies found{plain_frequencies(theta, dims)};
  const Json factors = reader.has(kFactors) ? reader.json().at(kFactors) : Json();
  const auto usable = [](const Json& factor) {
    return factor.is_number() && factor.get<double>() > 0.0 && factor.get<double>() < 1e6;
  };
  if (!factors.is_array() || factors.size() != found.inv_freq.size() ||
      !std::all_of(factors.begin(), factors.end(), usable)) {
    return Error{.code = "config.range",
                 .file = reader.file(),
                 .where = reader.pointer(kFactors),
                 .wanted = std::to_string(found.inv_freq.size()) + " numbers above 0",
                 .found = factors.is_array() ? std::to_string(factors.size()) + " entries" : factors.type_name()};
  }
  for (std::size_t i = 0; i < factors.size(); ++i) found.inv_freq[i] /= factors[i].get<double>();
  MORACLE_ASSIGN(found.limit, positive(reader, "original_max_position_embeddings", max_positions, 1e12));
  MORACLE_ASSIGN(const double factor, positive(reader, "factor", std::max(1.0, max_positions / found.limit), 1e6));
  const double usual =
      factor > 1.0 && found.limit > 1.0 ? std::sqrt(1.0 + std::log(factor) / std::log(found.limit)) : 1.0;
  MORACLE_ASSIGN(const double scale, positive(reader, "attention_factor", usual, 1e6));
  MORACLE_ASSIGN(found.scale, positive(reader, "short_mscale", scale, 1e6));
  return found;
}

// Pairs of the whole head, of which those behind the rotated part stand still. `rotated` is that part's dimensions.
Frequencies proportional(double theta, std::int64_t rotated, std::int64_t head_dim) {
  Frequencies found{plain_frequencies(theta, head_dim)};
  std::fill(found.inv_freq.begin() + rotated / 2, found.inv_freq.end(), 0.0);
  return found;
}

Result<Frequencies> frequencies(const JsonReader& reader, double theta, std::int64_t dims, double max_positions) {
  const std::string_view key = reader.has("rope_type") ? "rope_type" : "type";
  MORACLE_ASSIGN(const std::string type, reader.string_or(key, "default"));
  // "mrope" only differs from the default for images: text has the same position in every section.
  if (type == "default" || type == "mrope") return Frequencies{plain_frequencies(theta, dims)};
  if (type == "linear") {
    MORACLE_ASSIGN(const double factor, positive(reader, "factor", 1.0, 1e6));
    Frequencies result{plain_frequencies(theta, dims), 1.0, max_positions * factor};
    for (double& f : result.inv_freq) f /= factor;
    return result;
  }
  if (type == "yarn" || type == "deepseek_yarn") return yarn(reader, theta, dims, max_positions);
  if (type == "llama3") return llama3(reader, theta, dims, max_positions);
  if (type == "dynamic") return dynamic(reader, theta, dims);
  if (type == "longrope") return longrope(reader, theta, dims, max_positions);
  return Error{.code = "config.unsupported",
               .file = reader.file(),
               .where = reader.pointer(key),
               .wanted = "default, linear, yarn, llama3, dynamic, longrope or proportional",
               .found = type};
}

// `holder` is where the rotary factor was found, for the message.
Result<RopeSpec> make_rope(const JsonReader& parameters, const JsonReader& holder, double theta, double rotary_factor,
                           const RopeDefaults& defaults) {
  RopeSpec rope;
  rope.rotary_dims = static_cast<std::int64_t>(static_cast<double>(defaults.head_dim) * rotary_factor);
  if (rope.rotary_dims < 2 || rope.rotary_dims % 2 != 0) {
    return range_error(holder, "partial_rotary_factor", "an even number of rotated dimensions",
                       static_cast<double>(rope.rotary_dims));
  }
  Frequencies found;
  if (type_of(parameters.json()) == "proportional") {
    found = proportional(theta, rope.rotary_dims, defaults.head_dim);
    rope.rotary_dims = defaults.head_dim;
  } else if (defaults.yarn && parameters.json().empty()) {
    found = yarn(*defaults.yarn, mscale(defaults.yarn->factor, 1.0), theta, rope.rotary_dims);
  } else {
    MORACLE_ASSIGN(found,
                   frequencies(parameters, theta, rope.rotary_dims, static_cast<double>(defaults.max_positions)));
  }
  for (const double f : found.inv_freq) rope.inv_freq.push_back(static_cast<float>(f));
  rope.scale = static_cast<float>(found.scale);
  rope.score_scale = static_cast<float>(found.score_scale);
  rope.limit = static_cast<std::int64_t>(std::min(found.limit, static_cast<double>(kMaxPositions)));
  const double reach = std::min(found.reach, static_cast<double>(kMaxPositions));
  rope.max_positions = std::max(defaults.max_positions, static_cast<std::int64_t>(reach));
  return rope;
}

}  // namespace

std::vector<double> plain_frequencies(double theta, std::int64_t dims) {
  std::vector<double> inv_freq;
  for (std::int64_t i = 0; i < dims / 2; ++i) {
    inv_freq.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  return inv_freq;
}

std::vector<double> yarn_frequencies(const YarnSpec& yarn, double theta, std::int64_t dims) {
  const auto d = static_cast<double>(dims);
  // The (fractional) pair that turns `rotations` times within the original context.
  const auto dimension = [&](double rotations) {
    return d * std::log(yarn.original_positions / (2.0 * std::numbers::pi * rotations)) / (2.0 * std::log(theta));
  };
  double low = dimension(yarn.beta_fast);
  double high = dimension(yarn.beta_slow);
  if (yarn.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, d - 1.0);
  if (low == high) high += 0.001;  // a ramp of no width would divide by zero
  std::vector<double> inv_freq = plain_frequencies(theta, dims);
  for (std::size_t i = 0; i < inv_freq.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    inv_freq[i] = inv_freq[i] / yarn.factor * ramp + inv_freq[i] * (1.0 - ramp);
  }
  return inv_freq;
}

std::vector<double> llama3_frequencies(const Llama3Spec& llama3, double theta, std::int64_t dims) {
  std::vector<double> inv_freq = plain_frequencies(theta, dims);
  for (double& f : inv_freq) {
    const double turns = llama3.original_positions * f / (2.0 * std::numbers::pi);
    const double keep =
        std::clamp((turns - llama3.low_freq_factor) / (llama3.high_freq_factor - llama3.low_freq_factor), 0.0, 1.0);
    f = (1.0 - keep) * f / llama3.factor + keep * f;
  }
  return inv_freq;
}

Result<RopeSpec> parse_rope(const ModelConfig& config, const RopeDefaults& defaults) {
  MORACLE_ASSIGN(const Source source, find_source(config, defaults.layer_type));
  Json parameters = source.object != nullptr ? *source.object : Json::object();
  const JsonReader& outer = config.reader();
  const JsonReader inner(parameters, outer.file(), source.pointer);
  MORACLE_ASSIGN(const double theta, of_either(config, inner, outer, "rope_theta", defaults.theta, 1e15));
  MORACLE_ASSIGN(const double factor,
                 of_either(config, inner, outer, "partial_rotary_factor", defaults.rotary_factor, 1.0));
  warn_of_lost_theta(config, source, theta);
  if (inner.has("rope_type") && inner.has("type")) {
    config.warn_of_two(inner.pointer("rope_type"), parameters["rope_type"], inner.pointer("type"), parameters["type"]);
  }
  constexpr const char* kOriginal = "original_max_position_embeddings";
  if (source.object != nullptr && !source.of_layer && outer.has(kOriginal)) {
    MORACLE_ASSIGN(const double original, of_either(config, outer, inner, kOriginal, 0.0, 1e12));
    parameters[kOriginal] = original;
  }
  MORACLE_ASSIGN(RopeSpec rope, make_rope(inner, inner.has("partial_rotary_factor") ? inner : outer, theta,
                                          defaults.whole ? defaults.rotary_factor : factor, defaults));
  if (source.object != nullptr) warn_of_unread_keys(config, *source.object, source.pointer);
  return rope;
}

Result<RopeSpec> read_rope(const JsonReader& parameters, const RopeDefaults& defaults) {
  MORACLE_ASSIGN(const double theta, positive(parameters, "rope_theta", defaults.theta, 1e15));
  MORACLE_ASSIGN(const double factor, positive(parameters, "partial_rotary_factor", defaults.rotary_factor, 1.0));
  return make_rope(parameters, parameters, theta, factor, defaults);
}

}  // namespace moracle
