#include "base/json.h"

#include <cmath>
#include <fstream>
#include <set>
#include <vector>

namespace moracle {

namespace {

Error type_error(const JsonReader& reader, std::string_view key, std::string wanted) {
  return Error{.code = "config.type",
               .file = reader.file(),
               .where = reader.pointer(key),
               .wanted = std::move(wanted),
               .found = reader.json().at(std::string(key)).dump().substr(0, 80)};
}

}  // namespace

Result<Json> parse_json(std::string_view text, const std::string& file, JsonLimits limits) {
  if (text.size() > limits.bytes) {
    return Error{.code = "json.size",
                 .file = file,
                 .wanted = "at most " + std::to_string(limits.bytes) + " bytes",
                 .found = std::to_string(text.size()) + " bytes"};
  }
  // nlohmann's parser recurses on its own stack only for values it accepts, and reports depth to the callback; the
  // callback cannot stop the parse, so depth is bounded beforehand by counting brackets outside strings.
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > limits.depth) {
        return Error{.code = "json.depth",
                     .file = file,
                     .where = "byte " + std::to_string(i),
                     .wanted = "nesting of at most " + std::to_string(limits.depth),
                     .found = "deeper nesting"};
      }
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  std::vector<std::set<std::string>> keys;
  std::string duplicate;
  const auto callback = [&](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys.empty()) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.empty()) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.back().insert(key).second && duplicate.empty()) duplicate = key;
    }
    return true;
  };
  try {
    Json json = Json::parse(text, callback);
    if (!duplicate.empty()) {
      return Error{.code = "json.duplicate",
                   .file = file,
                   .where = duplicate,
                   .wanted = "each key once",
                   .found = "a key that occurs twice"};
    }
    return json;
  } catch (const Json::parse_error& error) {
    return Error{.code = "json.syntax",
                 .file = file,
                 .where = "byte " + std::to_string(error.byte),
                 .wanted = "valid JSON in UTF-8",
                 .found = "a syntax error",
                 .advice = "download the file again"};
  } catch (const Json::exception& error) {
    return Error{.code = "json.syntax", .file = file, .wanted = "valid JSON", .found = error.what()};
  }
}

Result<std::string> read_text(const std::filesystem::path& path, std::size_t limit) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (code || !std::filesystem::exists(status)) {
    return Error{.code = "file.open", .file = path.string(), .wanted = "a readable file", .found = "no such file"};
  }
  if (!std::filesystem::is_regular_file(status)) {
    return Error{.code = "file.open", .file = path.string(), .wanted = "a regular file", .found = "something else"};
  }
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    return Error{
        .code = "file.open", .file = path.string(), .wanted = "a readable file", .found = "it cannot be opened"};
  }
  const auto size = std::filesystem::file_size(path, code);
  if (code || size > limit) {
    return Error{.code = "file.size",
                 .file = path.string(),
                 .wanted = "at most " + std::to_string(limit) + " bytes",
                 .found = code ? code.message() : std::to_string(size) + " bytes"};
  }
  std::string text(size, '\0');
  stream.read(text.data(), static_cast<std::streamsize>(size));
  if (static_cast<std::size_t>(stream.gcount()) != size) {
    return Error{.code = "file.read",
                 .file = path.string(),
                 .wanted = std::to_string(size) + " bytes",
                 .found = std::to_string(stream.gcount()) + " bytes"};
  }
  return text;
}

Result<Json> read_json(const std::filesystem::path& path, JsonLimits limits) {
  MORACLE_ASSIGN(const std::string text, read_text(path));
  return parse_json(text, path.string(), limits);
}

bool JsonReader::has(std::string_view key) const {
  const auto it = object_.find(std::string(key));
  return it != object_.end() && !it->is_null();
}

Result<std::int64_t> JsonReader::integer(std::string_view key, std::int64_t low, std::int64_t high) const {
  if (!has(key)) {
    return Error{
        .code = "config.missing", .file = file_, .where = pointer(key), .wanted = "an integer", .found = "nothing"};
  }
  const Json& value = object_.at(std::string(key));
  std::int64_t number = 0;
  bool integral = value.is_number_integer();
  if (integral) {
    if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
      integral = false;
    } else {
      number = value.get<std::int64_t>();
    }
  } else if (value.is_number_float()) {
    const double real = value.get<double>();
    integral = std::floor(real) == real && std::abs(real) < 9e15;
    if (integral) number = static_cast<std::int64_t>(real);
  }
  if (!integral) return type_error(*this, key, "an integer");
  if (number < low || number > high) {
    return Error{.code = "config.range",
                 .file = file_,
                 .where = pointer(key),
                 .wanted = std::to_string(low) + " to " + std::to_string(high),
                 .found = std::to_string(number)};
  }
  return number;
}

Result<std::int64_t> JsonReader::integer_or(std::string_view key, std::int64_t fallback, std::int64_t low,
                                            std::int64_t high) const {
  if (!has(key)) return fallback;
  return integer(key, low, high);
}

Result<double> JsonReader::number_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  const Json& value = object_.at(std::string(key));
  if (!value.is_number() || !std::isfinite(value.get<double>())) return type_error(*this, key, "a finite number");
  return value.get<double>();
}

Result<bool> JsonReader::boolean_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const Json& value = object_.at(std::string(key));
  if (!value.is_boolean()) return type_error(*this, key, "true or false");
  return value.get<bool>();
}

Result<std::string> JsonReader::string_or(std::string_view key, std::string fallback) const {
  if (!has(key)) return fallback;
  const Json& value = object_.at(std::string(key));
  if (!value.is_string()) return type_error(*this, key, "a string");
  return value.get<std::string>();
}

}  // namespace moracle
