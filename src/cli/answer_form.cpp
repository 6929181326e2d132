#include "cli/answer_form.h"

#include <fmt/format.h>

#include <utility>

#include "base/files/file.h"
#include "base/json/document.h"
#include "cli/options.h"

namespace moracle::cli {

Result<AnswerForm> AnswerForm::read(const std::string& file) {
  MORACLE_ASSIGN(const std::string text, read_text(file, kOutputFormatBytes));
  AnswerForm form{.file = file, .format = {.kind = OutputFormat::Kind::json_schema}};
  MORACLE_ASSIGN(form.format.schema, parse_ordered_json(text, file));
  if (auto grammar = grammar_of(form.format); !grammar.ok()) return in_file(std::move(grammar).error(), file);
  return form;
}

Result<> AnswerForm::check_whole(const Generation& generation) const {
  if (generation.finish != FinishReason::length) return Ok{};
  return Error{.code = "answer.cut",
               .file = file,
               .wanted = "an answer that meets the schema",
               .found = fmt::format("one that was cut after {} tokens", generation.ids.size()),
               .advice = "allow more with -n or --context"};
}

}  // namespace moracle::cli
