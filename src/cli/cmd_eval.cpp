// moracle eval and moracle logits: the numbers a model gives.
#include <fmt/format.h>

#include "cli/interrupt.h"
#include "cli/options.h"
#include "cli/program.h"
#include "verify/evaluate.h"

namespace moracle::cli {

namespace {

constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40;

struct EvalOptions : ModelOptions {
  std::string text;
  std::int64_t window = 512;
  std::int64_t limit = 0;  // 0: all
  bool json = false;
};

Result<int> eval_command(const EvalOptions& options, Console& console) {
  MORACLE_ASSIGN(const std::string text, read_text(options.text));
  std::vector<std::int32_t> ids;
  const auto prepare = [&](const ModelText& model) -> Result<> {
    auto encoded = model.tokenizer().encode(text);
    if (!encoded.ok()) return in_file(std::move(encoded).error(), options.text);
    ids = *std::move(encoded);
    if (options.limit > 0 && std::ssize(ids) > options.limit) ids.resize(static_cast<std::size_t>(options.limit));
    const std::int64_t context = model.info() ? model.info()->max_context : options.window;
    MORACLE_TRY(check_evaluation(std::ssize(ids), options.window, context));
    return model.check_ids(ids);
  };
  MORACLE_ASSIGN(const auto session, options.open(console, {.on_text = prepare, .generates = false}));
  EvaluateOptions evaluation;
  evaluation.window = options.window;
  evaluation.interrupted = [] { return interrupted(); };
  evaluation.on_progress = [&](std::int64_t done, std::int64_t total) {
    console.progress("evaluating", static_cast<double>(done), static_cast<double>(total));
  };
  MORACLE_ASSIGN(const Evaluation result, evaluate(session->model(), session->pool(), ids, evaluation));
  console.end_progress();
  if (result.interrupted) console.note("moracle: interrupted; the figures are of the windows that were finished\n");
  if (options.json) {
    console.json({{"tokens", result.tokens},
                  {"scored", result.scored},
                  {"mean_nll", result.mean_nll},
                  {"perplexity", result.perplexity},
                  {"seconds", result.seconds},
                  {"window", options.window},
                  {"interrupted", result.interrupted},
                  {"backend", session->backends()}});
  } else {
    console.out(fmt::format("tokens      {} ({} scored, windows of {})\nmean NLL    {:.6f}\nperplexity  {:.4f}\n",
                            result.tokens, result.scored, options.window, result.mean_nll, result.perplexity));
    console.note(fmt::format("{:.2f} s\n", result.seconds));
  }
  return result.interrupted ? interrupt_exit_code() : 0;
}

struct LogitsOptions : ModelOptions {
  std::string ids;
  std::string out;
  bool json = false;
};

// Before hours of work for a file that cannot be written.
Result<> check_folder_of(const std::filesystem::path& file) {
  std::error_code code;
  const std::filesystem::path folder = file.parent_path();
  if (folder.empty() || std::filesystem::is_directory(folder, code)) return Ok{};
  return Error{.code = "file.write", .file = file.string(), .wanted = "a folder to write to", .found = "none there"};
}

Result<int> logits_command(const LogitsOptions& options, Console& console) {
  MORACLE_ASSIGN(const auto numbers, parse_integers(options.ids, "--ids", 0, INT32_MAX));
  const std::vector<std::int32_t> ids(numbers.begin(), numbers.end());
  const auto check = [&](const ModelText& model) -> Result<> {
    MORACLE_TRY(check_folder_of(options.out));
    return model.check_prompt(ids, 0, 0);
  };
  MORACLE_ASSIGN(const auto session,
                 options.open(console, {.needs_text = false, .on_text = check, .generates = false}));
  MORACLE_ASSIGN(const std::vector<float> logits, prefill_logits(session->model(), ids));
  if (interrupted()) return interrupt_exit_code();
  MORACLE_TRY(write_logits(options.out, logits, std::ssize(ids), session->info().vocab_size));
  if (options.json) {
    console.json({{"tokens", ids.size()},
                  {"vocabulary", session->info().vocab_size},
                  {"file", options.out},
                  {"backend", session->backends()}});
  } else {
    console.out(fmt::format("{}: logits [{}, {}]\n", options.out, ids.size(), session->info().vocab_size));
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& root, Program& program) {
  CLI::App* command =
      root.add_subcommand("eval", "Compute the perplexity of a text, and its mean negative log-likelihood");
  auto options = std::make_shared<EvalOptions>();
  options->add(*command);
  command->add_option("--text", options->text, "Text to score, tokenized once and whole")
      ->type_name("FILE")
      ->required();
  command->add_option("--window", options->window, "Tokens per window; windows do not overlap (default: 512)")
      ->type_name("N")
      ->check(whole_number(2, INT32_MAX));
  command->add_option("--limit", options->limit, "Score the first N tokens only (default: all)")
      ->type_name("N")
      ->check(whole_number(2, kMaxTokens));
  add_json(*command, options->json);
  command->footer("Example:\n  moracle eval ./Mixtral-8x7B-AWQ --text wiki.test.raw --limit 65536");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = eval_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(code.error());
    };
  });
}

void add_logits(CLI::App& root, Program& program) {
  CLI::App* command = root.add_subcommand("logits", "Write the logits of one prefill to a safetensors file");
  auto options = std::make_shared<LogitsOptions>();
  options->add(*command);
  command->add_option("--ids", options->ids, "Token ids, separated by commas")->type_name("1,2,3")->required();
  command->add_option("--out", options->out, "File to write: tensor `logits`, f32 [tokens, vocabulary]")
      ->type_name("FILE.safetensors")
      ->required();
  add_json(*command, options->json);
  command->footer("Example:\n  moracle logits ./Qwen3-30B-A3B-GPTQ-Int4 --ids 785,2326,12932 --out logits.safetensors");
  command->callback([options, &program] {
    program.action = [options, &program] {
      const auto code = logits_command(*options, program.console);
      return code.ok() ? *code : program.console.fail(code.error());
    };
  });
}

}  // namespace moracle::cli
