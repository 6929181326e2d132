// The "post_processor" of a tokenizer.json: puts special tokens around the ids of a text. It is constant once made, for
// every thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/budget.h"
#include "base/json.h"
#include "base/result.h"
#include "text/tokenizer/component.h"

namespace moracle {

class PostProcessor {
 public:
  // Reads the value at `pointer` (null: nothing to do). Types: TemplateProcessing (its "single"), BertProcessing,
  // RobertaProcessing, ByteLevel (which only moves offsets), Sequence; any other is "tokenizer.unsupported". Too many
  // are "tokenizer.limit".
  static Result<PostProcessor> from_json(const Json& json, const std::string& file, const std::string& pointer,
                                         Budget& budget);

  // The text with these tokens before and behind it, which `file` names as bos_token and eos_token.
  static PostProcessor frame(std::optional<std::int32_t> before, std::optional<std::int32_t> behind,
                             const std::string& file);

  // Whether any token is added before or behind a text.
  [[nodiscard]] bool adds_before() const;
  [[nodiscard]] bool adds_behind() const;

  // Whether a model of so many tokens knows all that is added. Error: "tokenizer.id", with the place.
  [[nodiscard]] Result<> check_ids(std::int64_t vocabulary) const;

  // Error: "tokenizer.limit".
  Result<> apply(std::vector<std::int32_t>& ids, bool add_special_tokens, Budget& budget) const;

 private:
  struct Part {
    bool text = false;  // the ids so far; else the tokens below
    std::vector<std::int32_t> ids;
    std::string where;  // of the ids, in the file
  };
  using Template = std::vector<Part>;

  Result<> append(const Json& json, const std::string& type, const std::string& file, const std::string& pointer);
  Result<> append_template(const JsonReader& reader);
  Result<> append_frame(const JsonReader& reader);

  std::string file_;
  std::size_t added_ = 0;  // ids that all templates add
  std::vector<Template> steps_;
};

}  // namespace moracle
