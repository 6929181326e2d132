#include "text/tokenizer/post_processor.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/budgets.h"

namespace moracle {
namespace {

// A template may repeat the text; more than this would only multiply memory.
constexpr std::size_t kMaxParts = 256;

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const Json& json, const std::string& file, const std::string& pointer,
                                               Budget& budget) {
  PostProcessor result;
  MORACLE_TRY(read_components(json, {.name = "post-processor", .items = "processors"}, file, pointer, budget,
                              [&](const Json& step, const std::string& type, const std::string& place) {
                                return result.append(step, type, file, place);
                              }));
  return result;
}

Result<> PostProcessor::append(const Json& json, const std::string& type, const std::string& file,
                               const std::string& pointer) {
  if (type == "ByteLevel") return Ok{};
  if (type == "TemplateProcessing") return append_template(json, file, pointer);
  if (type == "BertProcessing" || type == "RobertaProcessing") return append_frame(json, file, pointer);
  return unsupported(file, pointer + "/type", "a known post-processor", type);
}

// [cls] text [sep]; both members are [token, id].
Result<> PostProcessor::append_frame(const Json& json, const std::string& file, const std::string& pointer) {
  Template frame(3);
  frame[1].text = true;
  for (const auto& [key, place] : {std::pair{"cls", 0}, std::pair{"sep", 2}}) {
    const Json pair = json.value(key, Json());
    if (!pair.is_array() || pair.size() != 2) {
      return unsupported(file, pointer + "/" + key, "a pair of a token and its id", pair.type_name());
    }
    MORACLE_ASSIGN(const std::int32_t id, token_id(pair[1], file, fmt::format("{}/{}/1", pointer, key)));
    frame[static_cast<std::size_t>(place)].ids.push_back(id);
  }
  steps_.push_back(std::move(frame));
  return Ok{};
}

Result<> PostProcessor::append_template(const Json& json, const std::string& file, const std::string& pointer) {
  const Json single = json.value("single", Json());
  if (!single.is_array() || single.size() > kMaxParts) {
    return unsupported(file, pointer + "/single", "an array of at most 256 parts", single.type_name());
  }
  const Json tokens = json.value("special_tokens", Json());
  Template parts;
  std::size_t texts = 0;
  for (std::size_t i = 0; i < single.size(); ++i) {
    const std::string where = fmt::format("{}/single/{}", pointer, i);
    const auto member = [&](const char* kind) -> const Json* {
      if (!single[i].is_object() || single[i].size() != 1) return nullptr;
      const auto part = single[i].find(kind);
      if (part == single[i].end() || !part->is_object()) return nullptr;
      const auto id = part->find("id");
      return id != part->end() && id->is_string() ? &*id : nullptr;
    };
    if (const Json* sequence = member("Sequence")) {
      if (*sequence != "A" || ++texts > 1) return unsupported(file, where, "the sequence A, once", sequence->dump());
      parts.push_back({.text = true, .ids = {}});
      continue;
    }
    const Json* name = member("SpecialToken");
    if (name == nullptr) return unsupported(file, where, "a Sequence or a SpecialToken", single[i].type_name());
    const auto& key = name->get_ref<const std::string&>();
    const Json* token = tokens.is_object() && tokens.contains(key) ? &tokens[key] : nullptr;
    if (token == nullptr || !token->is_object() || !token->contains("ids") || !(*token)["ids"].is_array()) {
      return unsupported(file, where, "a token with ids in special_tokens", key);
    }
    added_ += (*token)["ids"].size();
    if (added_ > kPostProcessorIds) {
      return Error{.code = "tokenizer.limit",
                   .file = file,
                   .where = where,
                   .wanted = fmt::format("at most {} ids around a text", kPostProcessorIds),
                   .found = "more"};
    }
    Part part;
    for (const Json& id : (*token)["ids"]) {
      MORACLE_ASSIGN(const std::int32_t value, token_id(id, file, pointer + "/special_tokens/" + key + "/ids"));
      part.ids.push_back(value);
    }
    parts.push_back(std::move(part));
  }
  steps_.push_back(std::move(parts));
  return Ok{};
}

PostProcessor PostProcessor::frame(std::optional<std::int32_t> before, std::optional<std::int32_t> behind) {
  Template parts(3);
  if (before) parts[0].ids.push_back(*before);
  parts[1].text = true;
  if (behind) parts[2].ids.push_back(*behind);
  PostProcessor result;
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
