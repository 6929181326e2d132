#include "text/tokenizer/component.h"

#include <fmt/format.h>

#include <limits>

#include "text/budgets.h"
#include "text/unicode.h"

namespace moracle {

Error at_place(Error error, const std::string& place) {
  error.where = error.where.empty() ? place : place + ": " + error.where;
  return error;
}

Error unsupported(const std::string& file, const std::string& pointer, std::string wanted, std::string found) {
  return {.code = "tokenizer.unsupported",
          .file = file,
          .where = pointer,
          .wanted = std::move(wanted),
          .found = std::move(found)};
}

namespace {

Result<std::string> component_type(const Json& json, const std::string& file, const std::string& pointer) {
  if (!json.is_object()) return unsupported(file, pointer, "an object with a type", json.type_name());
  const auto type = json.find("type");
  if (type == json.end() || !type->is_string()) {
    return unsupported(file, pointer + "/type", "the name of a component", "none");
  }
  return type->get<std::string>();
}

class ComponentWalk {
 public:
  ComponentWalk(const ComponentKind& kind, const std::string& file, Budget& budget, const AddComponent& add)
      : kind_(kind), file_(file), budget_(budget), add_(add) {}

  Result<> walk(const Json& json, const std::string& pointer, int depth) {
    MORACLE_TRY(count(pointer));
    MORACLE_ASSIGN(const std::string type, component_type(json, file_, pointer));
    if (type != "Sequence") return add_(json, type, pointer);
    if (depth >= kMaxSequenceDepth) return unsupported(file_, pointer, "sequences nested less than 16 deep", "more");
    const std::string place = pointer + "/" + kind_.items;
    const auto items = json.find(kind_.items);
    if (items == json.end() || !items->is_array()) {
      return Error{.code = "config.type",
                   .file = file_,
                   .where = place,
                   .wanted = "an array",
                   .found = items == json.end() ? "nothing" : items->type_name()};
    }
    for (std::size_t i = 0; i < items->size(); ++i) {
      MORACLE_TRY(walk((*items)[i], fmt::format("{}/{}", place, i), depth + 1));
    }
    return Ok{};
  }

 private:
  Result<> count(const std::string& pointer) {
    if (!budget_.in_time()) return at_place(budget_.error("tokenizer.limit"), pointer);
    if (++count_ <= kTokenizerComponents) return Ok{};
    return Error{.code = "tokenizer.limit",
                 .file = file_,
                 .where = pointer,
                 .wanted = fmt::format("at most {} components of a {}", kTokenizerComponents, kind_.name),
                 .found = "more"};
  }

  const ComponentKind& kind_;
  const std::string& file_;
  Budget& budget_;
  const AddComponent& add_;
  std::size_t count_ = 0;
};

}  // namespace

Result<> read_components(const Json& json, const ComponentKind& kind, const std::string& file,
                         const std::string& pointer, Budget& budget, const AddComponent& add) {
  if (json.is_null()) return Ok{};
  return ComponentWalk(kind, file, budget, add).walk(json, pointer, 0);
}

namespace {

Result<> require(const JsonReader& reader, std::string_view key, const char* wanted) {
  if (reader.has(key)) return Ok{};
  return Error{.code = "config.missing",
               .file = reader.file(),
               .where = reader.pointer(key),
               .wanted = wanted,
               .found = "nothing"};
}

}  // namespace

Result<std::string> required_string(const JsonReader& reader, std::string_view key) {
  MORACLE_TRY(require(reader, key, "a string"));
  return reader.string_or(key, "");
}

Result<bool> required_boolean(const JsonReader& reader, std::string_view key) {
  MORACLE_TRY(require(reader, key, "true or false"));
  return reader.boolean_or(key, false);
}

Result<std::string> optional_string(const JsonReader& reader, std::string_view key, std::string fallback) {
  if (reader.json().contains(key)) return required_string(reader, key);
  return fallback;
}

Result<bool> optional_boolean(const JsonReader& reader, std::string_view key, bool fallback) {
  if (reader.json().contains(key)) return required_boolean(reader, key);
  return fallback;
}

Result<> check_byte_level(const JsonReader& reader) {
  for (const char* key : {"add_prefix_space", "trim_offsets", "use_regex"}) {
    MORACLE_TRY(optional_boolean(reader, key, true));
  }
  return Ok{};
}

Result<MetaspaceSettings> read_metaspace(const JsonReader& reader) {
  using Prepend = MetaspaceSettings::Prepend;
  MORACLE_ASSIGN(std::string replacement, required_character(reader, "replacement"));
  MORACLE_ASSIGN(const std::string scheme, optional_string(reader, "prepend_scheme", "always"));
  MORACLE_ASSIGN(const bool split, reader.boolean_or("split", true));
  MORACLE_ASSIGN(const bool legacy_prefix, reader.boolean_or("add_prefix_space", true));
  auto prepend = Prepend::kAlways;
  if (scheme == "first") {
    prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    prepend = Prepend::kNever;
  } else if (scheme != "always") {
    return unsupported(reader.file(), reader.pointer("prepend_scheme"), "always, first or never", scheme);
  }
  if (!legacy_prefix && prepend != Prepend::kNever) {
    return unsupported(reader.file(), reader.pointer("add_prefix_space"), "true, or the prepend_scheme never", "false");
  }
  return MetaspaceSettings{std::move(replacement), prepend, split};
}

Result<> check_text_size(std::string_view text, const std::string& file, const std::string& pointer) {
  if (text.size() <= kTokenizerTextBytes) return Ok{};
  return unsupported(file, pointer, fmt::format("at most {} bytes", kTokenizerTextBytes),
                     fmt::format("{} bytes", text.size()));
}

Result<std::string> required_text(const JsonReader& reader, std::string_view key) {
  MORACLE_ASSIGN(std::string text, required_string(reader, key));
  MORACLE_TRY(check_text_size(text, reader.file(), reader.pointer(key)));
  return text;
}

Result<std::string> required_character(const JsonReader& reader, std::string_view key) {
  MORACLE_ASSIGN(std::string text, required_string(reader, key));
  if (text.empty() || unicode::decode_at(text, 0).size != text.size()) {
    return unsupported(reader.file(), reader.pointer(key), "one character",
                       fmt::format("{} bytes of text", text.size()));
  }
  return text;
}

Result<std::int32_t> token_id(const Json& json, const std::string& file, const std::string& pointer) {
  const auto fits = [&] {
    if (json.is_number_unsigned()) {
      return json.get<std::uint64_t>() < static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
    }
    return json.is_number_integer() && json.get<std::int64_t>() >= 0 &&
           json.get<std::int64_t>() < std::numeric_limits<std::int32_t>::max();
  };
  if (!fits()) {
    return Error{.code = "tokenizer.id",
                 .file = file,
                 .where = pointer,
                 .wanted = "a token id from 0 to 2^31 - 2",
                 .found = json.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 80)};
  }
  return json.get<std::int32_t>();
}

}  // namespace moracle
