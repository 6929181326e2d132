// Every screen as a person sees it, on terminals of 60, 80 and 200 columns, held against files in tests/data/screens.
// MORACLE_WRITE_SCREENS=1 writes them anew; look at each before it is committed.
#include <cstdlib>
#include <fstream>
#include <regex>
#include <sstream>

#include "cli/cli_fixture.h"
#include "cli/screen_of.h"
#include "cli/terminal.h"
#include "support/scripted_model.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

constexpr unsigned short kWidths[] = {60, 80, 200};

std::filesystem::path golden_dir() {
  return std::filesystem::path(data_dir()) / "screens";
}

// Columns of a line of screen_of(); the tests' texts have no wide characters.
std::size_t columns(const std::string& line) {
  static const std::regex colour("\\\\e\\[[0-9;]*m");
  const std::string plain = std::regex_replace(line, colour, "");
  return static_cast<std::size_t>(std::count_if(
      plain.begin(), plain.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

// Measured figures become "#", and the space that they leave one blank. Numbers that are part of a name stay.
std::string without_figures(const std::string& text) {
  static const std::regex colour("\\\\e\\[[0-9;]*m");
  static const std::regex number("(^|[^A-Za-z0-9_.-])[0-9]+(\\.[0-9]+)?(e[-+][0-9]+)?(?![0-9A-Za-z_])");
  static const std::regex units("# (B|KiB|MiB|GiB)\\b");
  static const std::regex spaces(" +");
  // How many of its parts the line of figures has depends on their digits.
  static const std::regex run_line(
      "(moracle: # tokens, # tokens/s)(; prompt #, # tokens/s)?(; load # s)?(; peak # bytes)?\n");
  const auto plain = [](std::string part) {
    part = std::regex_replace(part, number, "$1#");
    part = std::regex_replace(part, units, "# bytes");
    return std::regex_replace(part, spaces, " ");
  };
  std::string out;
  auto last = text.cbegin();
  for (std::sregex_iterator it(text.begin(), text.end(), colour), end; it != end; ++it) {
    out += plain(std::string(last, (*it)[0].first)) + it->str();
    last = (*it)[0].second;
  }
  out += plain(std::string(last, text.cend()));
  return std::regex_replace(out, run_line, "$1 ...\n");
}

void expect_fits(const std::string& name, unsigned short width, const std::string& screen) {
  std::istringstream lines(screen);
  for (std::string line; std::getline(lines, line);) EXPECT_LE(columns(line), width) << name << ": " << line;
}

void expect_screen(const std::string& name, unsigned short width, const std::string& screen, bool measured) {
  expect_fits(name, width, screen);
  const std::string shown = measured ? without_figures(screen) : screen;
  const auto path = golden_dir() / (name + "." + std::to_string(width) + ".txt");
  if (std::getenv("MORACLE_WRITE_SCREENS") != nullptr) {
    std::filesystem::create_directories(golden_dir());
    std::ofstream(path) << shown;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << path << " is missing; MORACLE_WRITE_SCREENS=1 writes it";
  std::istringstream found(shown);
  std::string want;
  std::string have;
  for (int number = 1;; ++number) {
    const bool more_wanted = static_cast<bool>(std::getline(file, want));
    const bool more_found = static_cast<bool>(std::getline(found, have));
    if (!more_wanted && !more_found) return;
    ASSERT_TRUE(more_wanted == more_found && want == have)
        << path << ":" << number << "\nwanted: " << (more_wanted ? want : "the end")
        << "\nfound:  " << (more_found ? have : "the end")
        << "\nMORACLE_WRITE_SCREENS=1 writes the screen as it is now";
  }
}

struct Screen {
  std::string name;
  Strings arguments;
  int code = 0;
  bool measured = false;  // it shows figures of this machine
};

class ScreensTest : public CliTest {
 protected:
  // In the folder of the small checkpoints, so that paths are short and the same everywhere; with the kernels that
  // every machine has.
  static Terminal open(const Strings& arguments, unsigned short width, const std::string& folder) {
    return Terminal(arguments, {{"TERM", "xterm"}, {"MORACLE_CPU_FEATURES", "avx2"}, {"HF_HUB_CACHE", "/nowhere/hub"}},
                    width, folder);
  }
  static std::string shown(const Screen& screen, unsigned short width,
                           const std::string& folder = (data_dir() / "checkpoints").string()) {
    Terminal terminal = open(screen.arguments, width, folder);
    EXPECT_EQ(terminal.finish(), screen.code) << terminal.text();
    return screen_of(terminal.text());
  }
  // Builds without a server list fewer commands; their lists are not held against the files.
  static bool lists_what_others_lack(const std::string& name) {
#ifdef MORACLE_SERVE
    static_cast<void>(name);
    return false;
#else
    return name == "help" || name == "no-command" || name == "help-bench";
#endif
  }
  static void expect_screens(const std::vector<Screen>& screens) {
    for (const Screen& screen : screens) {
      if (lists_what_others_lack(screen.name)) {
        EXPECT_EQ(shown(screen, kWidths[2]).find("\n  serve "), std::string::npos) << screen.name;
        continue;
      }
      for (const unsigned short width : kWidths)
        expect_screen(screen.name, width, shown(screen, width), screen.measured);
    }
  }
};

constexpr const char* kModel = "qwen3moe-gptq-w4g128-sym";

TEST_F(ScreensTest, Help) {
  std::vector<Screen> screens = {{"help", {"help"}}, {"help-bench", {"bench", "--help"}}};
  for (const char* command : {"run", "inspect", "explain", "plan", "verify", "eval", "logits", "synth", "devices",
                              "completions", "help", "version"})
    screens.push_back({std::string("help-") + command, {"help", command}});
  for (const char* command : {"layer", "model"})
    screens.push_back({std::string("help-bench-") + command, {"help", "bench", command}});
#ifdef MORACLE_SERVE
  screens.push_back({"help-serve", {"help", "serve"}});
  screens.push_back({"help-bench-serve", {"help", "bench", "serve"}});
#endif
  expect_screens(screens);
}

TEST_F(ScreensTest, Inspect) {
  expect_screens({{"inspect", {"inspect", kModel}}});
}

// Rules that hold the layers' numbers, as names and as patterns, and one layer that has a rule of its own.
TEST_F(ScreensTest, InspectHasOneRowAPattern) {
  const auto model = folder_ / "ruled";
  std::filesystem::copy(data_dir() / "families" / "qwen3_5_moe", model, std::filesystem::copy_options::recursive);
  Json config = *read_json(model / "config.json");
  Json ignored = {"lm_head", "re:.*shared_expert_gate$"};
  for (int layer = 0; layer < 4; ++layer) {
    const std::string number = std::to_string(layer);
    ignored.push_back("re:.*layers\\." + number + "\\.(linear|self)_attn\\..*");
    for (const char* name : {"gate", "shared_expert.gate_proj", "shared_expert.up_proj", "experts"})
      ignored.push_back("model.language_model.layers." + number + ".mlp." + name);
    ignored.push_back(layer == 2 ? "re:.*2.mlp.shared_expert.down_proj"
                                 : "model.language_model.layers." + number + ".mlp.shared_expert.down_proj");
  }
  config["quantization_config"] = {
      {"quant_method", "compressed-tensors"},
      {"format", "pack-quantized"},
      {"quantization_status", "compressed"},
      {"ignore", ignored},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}},
          {"weights",
           {{"num_bits", 4}, {"type", "int"}, {"symmetric", true}, {"strategy", "group"}, {"group_size", 32}}},
          {"input_activations", nullptr}}}}}};
  std::ofstream(model / "config.json") << config.dump();
  for (const unsigned short width : kWidths)
    expect_screen("inspect-rules", width, shown({"", {"inspect", "ruled"}}, width, folder_.string()), false);
}

TEST_F(ScreensTest, Plan) {
  expect_screens({{"plan", {"plan", kModel, "--device", "zen4"}},
                  {"plan-t4", {"plan", "mixtral-awq-w4g32", "--device", "t4", "--tp", "2"}},
                  {"plan-tp", {"plan", kModel, "--tp", "3"}, 1}});
}

TEST_F(ScreensTest, Explain) {
  expect_screens({{"explain-zen4", {"explain", kModel, "--device", "zen4"}},
                  {"explain-zen4-all", {"explain", kModel, "--device", "zen4", "--all"}},
                  {"explain-h200", {"explain", kModel, "--device", "h200"}},
                  {"explain-here", {"explain", kModel}}});
}

TEST_F(ScreensTest, Devices) {
  expect_screens(
      {{"devices-zen4", {"devices", "--device", "zen4"}}, {"devices-h200", {"devices", "--device", "h200"}}});
}

TEST_F(ScreensTest, Version) {
  for (const unsigned short width : kWidths) {
    const std::string screen = shown({"version", {"version"}}, width);
    for (const char* fact : {"moracle 0.", "build  ", "compiler  ", "instruction sets  avx2 ", "CUDA object  "})
      EXPECT_NE(screen.find(fact), std::string::npos) << screen;
  }
}

TEST_F(ScreensTest, Verify) {
  expect_screens({{"verify", {"verify", kModel, "--threads", "1"}, 0, true}});
}

TEST_F(ScreensTest, Errors) {
  expect_screens({{"unknown-command", {"inspec", kModel}, 2},
                  {"unknown-option", {"run", kModel, "--temprature", "1"}, 2},
                  {"no-command", {}, 2},
                  {"no-model", {"run"}, 2},
                  {"wrong-path", {"inspect", "./qwen"}, 1},
                  {"not-in-hub", {"run", "Qwen/Qwen3-30B-A3B-GPTQ-Int4", "-p", "x"}, 1},
                  {"pinned", {"run", kModel, "-p", "x", "--backend", "marlin"}, 1}});
  std::filesystem::copy(model_path(), folder_ / "cut", std::filesystem::copy_options::recursive);
  std::filesystem::resize_file(folder_ / "cut" / "model.safetensors", 7'000'000);
  for (const unsigned short width : kWidths)
    expect_screen("truncated", width, shown({"", {"inspect", "cut"}, 1}, width, folder_.string()), false);
}

TEST_F(ScreensTest, BenchLayerDrawsOneBar) {
  for (const unsigned short width : kWidths) {
    Terminal terminal = open({"bench", "layer", "--shape", "E=8,K=256,N=128,topk=2", "--scheme", "int4-g128",
                              "--tokens", "1", "--no-baseline", "--threads", "1"},
                             width, folder_.string());
    EXPECT_EQ(terminal.finish(), 0) << terminal.text();
    expect_screen("bench-layer", width, screen_of(terminal.text()), true);
    // Every frame of the bar, none of which stays.
    static const std::regex frame(
        "\r\x1b\\[K(packing|timing [0-9]+ tokens|timing the bf16 detour) \\[#* *\\] +[0-9]+ %");
    std::string text = terminal.text();
    EXPECT_GT(std::distance(std::sregex_iterator(text.begin(), text.end(), frame), std::sregex_iterator()), 3) << text;
    text = std::regex_replace(text, frame, "");
    EXPECT_EQ(text.find('['), text.find("\x1b[K") + 1) << "nothing but one bar, and its wiping: " << text;
  }
}

// Screens whose lines depend on what was measured.
TEST_F(ScreensTest, NoLineIsWiderThanTheScreen) {
  const std::string out = folder_.string() + "/";
  std::ofstream(out + "text") << "Once upon a time there was a model that fitted the screen.";
  const std::vector<Strings> commands = {{"devices"},
                                         {"eval", kModel, "--text", out + "text"},
                                         {"logits", kModel, "--ids", "1,2,3", "--out", out + "logits"},
                                         {"bench", "model", kModel, "--prompt", "8", "--generate", "2"}};
  for (const unsigned short width : kWidths) {
    for (const Strings& command : commands) expect_fits(command[0], width, shown({"", command}, width));
  }
}

// A model that reasons before it answers.
const Script kThinker = {.reply = {"<think>", "\nTwo and", " two.\n", "</think>", "\n\nFour", ", plainly."},
                         .special = {}};

TEST_F(ScreensTest, Chat) {
  write_scripted_model(folder_ / "thinker", kThinker);
  const Strings typed = {"/help",  "2+2?",  "/set temperature 0.7", "/set top-p 7",
                         "/stats", "/hlep", "/system Be brief.",    "/save talk.json",
                         "/reset", "/exit"};
  for (const unsigned short width : kWidths) {
    std::filesystem::remove(folder_ / "talk.json");
    Terminal chat = open({"run", "thinker", "--threads", "1"}, width, folder_.string());
    for (const std::string& line : typed) {
      bool found = false;
      chat.until("\x1b[?2004h> ", found);
      ASSERT_TRUE(found) << chat.text();
      chat.type(line + "\r");
    }
    EXPECT_EQ(chat.finish(), 0) << chat.text();
    expect_screen("chat", width, screen_of(chat.text()), true);
  }
}

TEST_F(ScreensTest, RunTellsReasoningFromTheAnswer) {
  write_scripted_model(folder_ / "thinker", kThinker);
  Strings run = {"run", "thinker", "--chat", "-p", "2+2?", "--threads", "1"};
  for (const unsigned short width : kWidths) {
    expect_screen("run", width, shown({"", run}, width, folder_.string()), true);
    Strings hidden = run;
    hidden.insert(hidden.end(), {"--hide-reasoning", "--quiet"});
    expect_screen("run-hidden", width, shown({"", hidden}, width, folder_.string()), true);
  }
}

}  // namespace
}  // namespace moracle::test
