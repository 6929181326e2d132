// JSON texts: accepted exactly where nlohmann's own parser accepts them, no key comes twice and the limits hold; then
// with the same value. Alone with us are texts with a byte 0, where nlohmann's end, and with the numbers that only
// Python writes.
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "fuzz_input.h"
#include "json_mutator.h"

namespace {

using moracle::Json;
using moracle::fuzz::require;

// Finds keys that an object has twice, and how deep values nest.
class Observer : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t /*value*/) override { return true; }
  bool number_unsigned(number_unsigned_t /*value*/) override { return true; }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return true; }
  bool string(string_t& /*value*/) override { return true; }
  bool binary(binary_t& /*value*/) override { return true; }
  bool start_object(std::size_t /*size*/) override { return enter(); }
  bool key(string_t& value) override {
    twice |= !keys_.back().insert(value).second;
    return true;
  }
  bool end_object() override { return leave(); }
  bool start_array(std::size_t /*size*/) override { return enter(); }
  bool end_array() override { return leave(); }
  bool parse_error(std::size_t /*at*/, const std::string& /*token*/, const Json::exception& /*why*/) override {
    return false;
  }

  bool twice = false;
  std::size_t depth = 0;

 private:
  bool enter() {
    keys_.emplace_back();
    depth = std::max(depth, keys_.size());
    return true;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }
  std::vector<std::set<std::string>> keys_;
};

void check_getters(const Json& json) {
  if (!json.is_object()) return;
  const moracle::JsonReader reader(json, "fuzz");
  for (const auto& [key, value] : json.items()) {
    const auto integer = reader.integer(key, -5, 1000);
    if (integer.ok()) {
      require(*integer >= -5 && *integer <= 1000);
    } else {
      moracle::fuzz::check_error(integer.error());
    }
    const auto number = reader.number_or(key, 0.5);
    if (!number.ok()) moracle::fuzz::check_error(number.error());
    const auto text = reader.string_or(key, "");
    if (!text.ok()) moracle::fuzz::check_error(text.error());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto parsed = moracle::parse_json(text, "fuzz");
  if (parsed.ok()) {
    check_getters(*parsed);
  } else {
    moracle::fuzz::check_error(parsed.error());
  }
  if (text.find('\0') != std::string_view::npos) {
    require(!parsed.ok());
    return 0;
  }
  if (text.find("NaN") != std::string_view::npos || text.find("Infinity") != std::string_view::npos) return 0;
  Observer observer;
  const bool valid = Json::sax_parse(text, &observer);
  const bool within = !observer.twice && observer.depth <= static_cast<std::size_t>(moracle::JsonLimits().depth);
  require(parsed.ok() == (valid && within));
  if (parsed.ok()) require(*parsed == Json::parse(text));
  return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  static const moracle::fuzz::JsonVocabulary kWords{.keys = {"a", "b", "", "\xc3\xa9", "model_type"},
                                                    .strings = {"", "x", "\\u0000", "\xf0\x9f\x98\x80", "1e5"}};
  std::mt19937 rng(seed);
  // The grammar is tried by bytes, what lies behind it by values.
  static constexpr unsigned kByValues = 3;
  std::string text(reinterpret_cast<const char*>(data), size);
  if (rng() % kByValues == 0)
    return moracle::fuzz::give_back(moracle::fuzz::mutate_json(text, kWords, rng), data, most);
  return moracle::fuzz::mutate_bytes(data, size, most);
}
