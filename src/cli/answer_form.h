// The form that `run` holds answers to.
#pragma once

#include <string>

#include "base/result.h"
#include "generate/session.h"
#include "text/constrain/output_format.h"

namespace moracle::cli {

// A JSON schema of --schema.
struct AnswerForm {
  std::string file{};
  OutputFormat format{};

  // Whether it can be held is known before a weight is read. Errors, in the file: those of read_text,
  // parse_ordered_json and grammar_of.
  static Result<AnswerForm> read(const std::string& file);
  // Whether the answer is whole, and so has the form. Error: "answer.cut".
  [[nodiscard]] Result<> check_whole(const Generation& generation) const;
};

}  // namespace moracle::cli
