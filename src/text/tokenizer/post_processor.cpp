#include "text/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "text/budgets.h"

namespace moracle {
namespace {

// A template may repeat the text; more than this would only multiply memory.
constexpr std::size_t kMaxParts = 256;

// A member of "single" or "pair": {"Sequence": {"id": "A", "type_id": 0}}, or a SpecialToken with the name of one.
struct TemplatePart {
  bool sequence;
  std::string id;
};

Result<TemplatePart> read_part(const Json& json, const std::string& file, const std::string& pointer) {
  const auto member = json.is_object() && json.size() == 1 ? json.begin() : json.end();
  if (member == json.end() || !member->is_object() || (member.key() != "Sequence" && member.key() != "SpecialToken")) {
    return unsupported(file, pointer, "a Sequence or a SpecialToken", json.type_name());
  }
  const JsonReader reader(*member, file, pointer + "/" + member.key());
  TemplatePart part{member.key() == "Sequence", {}};
  MORACLE_ASSIGN(part.id, required_string(reader, "id"));
  if (part.sequence && part.id != "A" && part.id != "B") {
    return unsupported(file, reader.pointer("id"), "the sequence A or B", part.id);
  }
  if (member->contains("type_id")) MORACLE_TRY(reader.integer("type_id", 0, std::numeric_limits<std::uint32_t>::max()));
  return part;
}

Result<std::vector<TemplatePart>> read_parts(const JsonReader& reader, const std::string& key) {
  const auto list = reader.json().find(key);
  if (list == reader.json().end() || !list->is_array() || list->size() > kMaxParts) {
    return unsupported(reader.file(), reader.pointer(key), fmt::format("an array of at most {} parts", kMaxParts),
                       list == reader.json().end() ? "nothing" : list->type_name());
  }
  std::vector<TemplatePart> parts;
  for (std::size_t i = 0; i < list->size(); ++i) {
    MORACLE_ASSIGN(TemplatePart part,
                   read_part((*list)[i], reader.file(), fmt::format("{}/{}", reader.pointer(key), i)));
    parts.push_back(std::move(part));
  }
  return parts;
}

// {NAME: {"id": NAME, "ids": [ID], "tokens": [TEXT]}}; the ids of each name.
Result<std::map<std::string, std::vector<std::int32_t>, std::less<>>> read_special_tokens(const JsonReader& reader) {
  std::map<std::string, std::vector<std::int32_t>, std::less<>> tokens;
  const auto wrong = [&](const std::string& pointer, const char* wanted, const Json& found) {
    return unsupported(reader.file(), pointer, wanted, found.type_name());
  };
  const auto all = reader.json().find("special_tokens");
  if (all == reader.json().end()) return tokens;
  if (!all->is_object()) return wrong(reader.pointer("special_tokens"), "an object", *all);
  for (const auto& [name, token] : all->items()) {
    const std::string pointer = reader.pointer("special_tokens") + "/" + name;
    const auto ids = token.is_object() ? token.find("ids") : token.end();
    if (ids == token.end() || !ids->is_array()) return wrong(pointer, "a token with ids", token);
    MORACLE_TRY(optional_string(JsonReader(token, reader.file(), pointer), "id", ""));
    const auto texts = token.find("tokens");
    if (texts != token.end()) {
      if (!texts->is_array()) return wrong(pointer + "/tokens", "an array of texts", *texts);
      for (const Json& text : *texts) {
        if (!text.is_string()) return wrong(pointer + "/tokens", "an array of texts", text);
      }
    }
    auto& known = tokens[name];
    for (const Json& id : *ids) {
      MORACLE_ASSIGN(const std::int32_t value, token_id(id, reader.file(), pointer + "/ids"));
      known.push_back(value);
    }
  }
  return tokens;
}

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const Json& json, const std::string& file, const std::string& pointer,
                                               Budget& budget) {
  PostProcessor result;
  result.file_ = file;
  MORACLE_TRY(read_components(json, {.name = "post-processor", .items = "processors"}, file, pointer, budget,
                              [&](const Json& step, const std::string& type, const std::string& place) {
                                return result.append(step, type, file, place);
                              }));
  return result;
}

Result<> PostProcessor::append(const Json& json, const std::string& type, const std::string& file,
                               const std::string& pointer) {
  const JsonReader reader(json, file, pointer);
  if (type == "ByteLevel") return check_byte_level(reader);
  if (type == "TemplateProcessing") return append_template(reader);
  if (type == "BertProcessing" || type == "RobertaProcessing") return append_frame(reader);
  return unsupported(file, pointer + "/type", "a known post-processor", type);
}

// [cls] text [sep]; both members are [token, id]. The library takes anything as RobertaProcessing's other members.
Result<> PostProcessor::append_frame(const JsonReader& reader) {
  Template frame(3);
  frame[1].text = true;
  for (const auto& [key, place] : {std::pair{"cls", 0}, std::pair{"sep", 2}}) {
    const Json pair = reader.json().value(key, Json());
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string()) {
      return unsupported(reader.file(), reader.pointer(key), "a pair of a token and its id", pair.type_name());
    }
    MORACLE_ASSIGN(const std::int32_t id, token_id(pair[1], reader.file(), reader.pointer(key) + "/1"));
    Part& part = frame[static_cast<std::size_t>(place)];
    part.ids.push_back(id);
    part.where = reader.pointer(key) + "/1";
  }
  steps_.push_back(std::move(frame));
  return Ok{};
}

Result<> PostProcessor::append_template(const JsonReader& reader) {
  MORACLE_ASSIGN(const auto single, read_parts(reader, "single"));
  MORACLE_ASSIGN(const auto tokens, read_special_tokens(reader));
  if (reader.json().contains("pair")) MORACLE_TRY(read_parts(reader, "pair"));  // of two texts, which nobody encodes
  Template parts;
  std::size_t texts = 0;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const std::string where = fmt::format("{}/{}", reader.pointer("single"), i);
    const TemplatePart& part = single[i];
    if (part.sequence) {
      if (part.id != "A" || ++texts > 1) return unsupported(reader.file(), where, "the sequence A, once", part.id);
      parts.push_back({.text = true, .ids = {}, .where = {}});
      continue;
    }
    const auto token = tokens.find(part.id);
    if (token == tokens.end()) {
      return unsupported(reader.file(), where, "a token with ids in special_tokens", part.id);
    }
    added_ += token->second.size();
    if (added_ > kPostProcessorIds) {
      return Error{.code = "tokenizer.limit",
                   .file = reader.file(),
                   .where = where,
                   .wanted = fmt::format("at most {} ids around a text", kPostProcessorIds),
                   .found = "more"};
    }
    parts.push_back({.text = false,
                     .ids = token->second,
                     .where = fmt::format("{}/{}/ids", reader.pointer("special_tokens"), part.id)});
  }
  steps_.push_back(std::move(parts));
  return Ok{};
}

PostProcessor PostProcessor::frame(std::optional<std::int32_t> before, std::optional<std::int32_t> behind,
                                   const std::string& file) {
  Template parts(3);
  if (before) parts[0].ids.push_back(*before);
  parts[0].where = "/bos_token";
  parts[1].text = true;
  if (behind) parts[2].ids.push_back(*behind);
  parts[2].where = "/eos_token";
  PostProcessor result;
  result.file_ = file;
  result.steps_.push_back(std::move(parts));
  return result;
}

bool PostProcessor::adds_before() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Template& parts) {
    return !parts.empty() && !parts.front().text && !parts.front().ids.empty();
  });
}

bool PostProcessor::adds_behind() const {
  return std::any_of(steps_.begin(), steps_.end(), [](const Template& parts) {
    return !parts.empty() && !parts.back().text && !parts.back().ids.empty();
  });
}

Result<> PostProcessor::check_ids(std::int64_t vocabulary) const {
  for (const Template& parts : steps_) {
    for (const Part& part : parts) {
      const auto beyond = std::ranges::find_if(part.ids, [&](std::int32_t id) { return id >= vocabulary; });
      if (beyond == part.ids.end()) continue;
      return Error{.code = "tokenizer.id",
                   .file = file_,
                   .where = part.where,
                   .wanted = fmt::format("ids of the model's {} tokens around a text", vocabulary),
                   .found = fmt::format("{}", *beyond),
                   .advice = "take tokenizer and config.json of the same model"};
    }
  }
  return Ok{};
}

Result<> PostProcessor::apply(std::vector<std::int32_t>& ids, bool add_special_tokens, Budget& budget) const {
  for (const auto& parts : steps_) {
    const std::size_t most = ids.size() + added_ + parts.size();
    if (!budget.steps(1 + most / 16) || !budget.bytes(most * sizeof(std::int32_t)))
      return budget.error("tokenizer.limit");
    std::vector<std::int32_t> out;
    out.reserve(ids.size() + parts.size());
    for (const auto& part : parts) {
      if (part.text) {
        out.insert(out.end(), ids.begin(), ids.end());
      } else if (add_special_tokens) {
        out.insert(out.end(), part.ids.begin(), part.ids.end());
      }
    }
    ids = std::move(out);
  }
  return Ok{};
}

}  // namespace moracle
