// What `explain` shows to people: on a terminal and into a pipe, and vLLM asked in several ways.
#include <algorithm>
#include <sstream>

#include "cli/cli_fixture.h"
#include "cli/terminal.h"

namespace moracle::test {
namespace {

using Strings = std::vector<std::string>;

// What the program writes to a terminal; `environment` is set for it.
std::string on_terminal(const Strings& arguments, const Terminal::Environment& environment) {
  Terminal terminal(arguments, environment);
  EXPECT_EQ(terminal.finish(), 0) << terminal.text();
  return terminal.text();
}

std::string without_colours(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      i = std::min(text.find('m', i), text.size());
    } else if (text[i] != '\r') {
      out += text[i];
    }
  }
  return out;
}

TEST_F(CliTest, ExplainIsColouredOnATerminalAndPlainInAPipe) {
  const Strings arguments = {"explain", model_path(), "--device", "zen3"};
  const RunOutcome piped = moracle_run(arguments);
  EXPECT_EQ(piped.code, 0);
  EXPECT_EQ(piped.out.find('\x1b'), std::string::npos);
  const std::string coloured = on_terminal(arguments, {{"TERM", "xterm"}});
  EXPECT_NE(coloured.find("\x1b[32mchosen"), std::string::npos) << coloured;
  EXPECT_NE(coloured.find("\x1b[31mcannot"), std::string::npos) << coloured;
  EXPECT_EQ(without_colours(coloured), piped.out);
  EXPECT_EQ(on_terminal(arguments, {{"TERM", "dumb"}}).find('\x1b'), std::string::npos);
  EXPECT_EQ(on_terminal(arguments, {{"TERM", "xterm"}, {"NO_COLOR", "1"}}).find('\x1b'), std::string::npos);
  EXPECT_NE(on_terminal(arguments, {{"TERM", "xterm"}, {"NO_COLOR", ""}}).find('\x1b'), std::string::npos);
}

TEST_F(CliTest, ExplainTellsEachBackendOnceTheOneThatServesFirst) {
  const RunOutcome run = moracle_run({"explain", model_path(), "--device", "zen4", "--all"});
  ASSERT_EQ(run.code, 0) << run.err;
  std::istringstream groups(run.out);
  std::size_t seen = 0;
  Strings backends;
  for (std::string line; std::getline(groups, line);) {
    if (line.find("zen4 would use ") != std::string::npos) {
      backends.clear();
      ++seen;
    }
    if (line.size() < 5 || line[4] == ' ' || (line[2] != '*' && line.compare(0, 4, "    ") != 0)) continue;
    const std::string backend = line.substr(4, line.find(' ', 4) - 4);
    EXPECT_EQ(line[2] == '*', backends.empty()) << "the chosen one is the first: " << line;
    EXPECT_EQ(std::count(backends.begin(), backends.end(), backend), 0) << backend;
    backends.push_back(backend);
  }
  EXPECT_GE(seen, 3U);
  EXPECT_NE(run.out.find("amx                 cannot    needs amx_tile, amx_int8, amx_bf16\n"), std::string::npos)
      << run.out;
}

TEST_F(CliTest, ExplainSaysWhatAnotherMachineWouldUse) {
  const RunOutcome run = moracle_run({"explain", model_path(), "--device", "h200"});
  EXPECT_NE(run.out.find("  h200 would use sm90-stream (needs the CUDA object libmoracle_cuda.so)\n"),
            std::string::npos)
      << run.out;
  const RunOutcome older = moracle_run({"explain", model_path(), "--device", "a100"});
  EXPECT_NE(older.out.find("  a100 would use portable (needs the CUDA object libmoracle_cuda.so)\n"), std::string::npos)
      << older.out;
  const RunOutcome oldest = moracle_run({"explain", model_path(), "--device", "t4"});
  EXPECT_NE(oldest.out.find("  t4 would use marlin (layout known; this build has no kernel for it)\n"),
            std::string::npos)
      << oldest.out;
  const RunOutcome vllm = moracle_run({"explain", model_path(), "--engine", "vllm", "--device", "h200"});
  EXPECT_NE(vllm.out.find("  h200 would use HUMMING (capabilities known; this build has no kernel for it)\n"),
            std::string::npos)
      << vllm.out;
}

// As for a GPU of this machine, all of whose memory is free.
TEST_F(CliTest, PlansForAGpuThatIsNotHere) {
  const Json plan = json_of({"plan", model_path(), "--device", "rtx4090", "--vram", "1G", "--memory", "64G"});
  const Json& host = plan.at("machines").at(0);
  const Json& gpu = plan.at("machines").at(1);
  EXPECT_EQ(host.at("memory_bytes"), std::uint64_t{64} << 30U);
  EXPECT_EQ(host.at("token_bytes"), 0);
  EXPECT_EQ(gpu.at("name"), "rtx4090");
  EXPECT_EQ(gpu.at("free_bytes"), std::uint64_t{1} << 30U);
  EXPECT_GT(gpu.at("token_bytes"), 0);
  EXPECT_LT(gpu.at("token_bytes"), gpu.at("weight_bytes"));
  EXPECT_EQ(plan.at("layers").at(0).at("experts_kernel").at("card"), "cuda.portable.wna16");
  const RunOutcome told = moracle_run({"plan", model_path(), "--device", "rtx4090"});
  EXPECT_NE(told.out.find("of weights there, in no less than 0.00 ms at 1008 GB/s"), std::string::npos) << told.out;
  const RunOutcome older = moracle_run({"plan", model_path(), "--device", "t4", "--vram", "8G"});
  EXPECT_NE(older.err.find("found NVIDIA T4, of 7.5 [device.capability]"), std::string::npos) << older.err;
}

std::string if_built(const Strings& more) {
  Strings arguments = {"explain", model_path(), "--engine", "vllm"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Json layer = json_of(arguments).at("layers").at(0);
  return layer.at("if_built").is_null() ? "none" : layer.at("if_built").get<std::string>();
}

TEST_F(CliTest, ExplainAsksVllmForAUsualInstall) {
  EXPECT_EQ(if_built({"--device", "h200"}), "humming");
  EXPECT_EQ(if_built({"--device", "a100"}), "marlin");
  // The same machine without a library, as a file.
  Json bare = json_of({"explain", model_path(), "--device", "h200"}).at("device");
  EXPECT_FALSE(bare.at("libraries").empty());
  bare["libraries"] = Json::array();
  const auto file = folder_ / "bare.json";
  std::ofstream(file) << bare.dump();
  EXPECT_EQ(if_built({"--device", file.string()}), "marlin");
}

TEST_F(CliTest, ExplainPrintsWhereAStaticOrderDiffers) {
  const Strings arguments = {"explain", model_path(), "--engine", "vllm", "--device", "h200"};
  EXPECT_EQ(if_built({"--device", "h200", "--order", "static"}), "marlin");
  Strings order = arguments;
  order.insert(order.end(), {"--order", "static"});
  const RunOutcome told = moracle_run(order);
  EXPECT_NE(told.out.find("by the static order MARLIN; the walk that looks at zero points, bias and source chooses "
                          "HUMMING"),
            std::string::npos)
      << told.out;
  EXPECT_EQ(moracle_run(arguments).out.find("static order"), std::string::npos);
  order[5] = "a100";
  EXPECT_EQ(moracle_run(order).out.find("static order"), std::string::npos) << "both choose Marlin";
}

TEST_F(CliTest, ExplainTakesVariablesOfVllm) {
  const Strings arguments = {"explain", model_path(), "--engine", "vllm", "--device", "b200", "--all"};
  Strings set = arguments;
  set.insert(set.end(), {"--env", "OTHER=x=y", "--env", "VLLM_USE_FLASHINFER_MOE_INT4=1"});
  constexpr const char* kSwitch = "needs the switch that turns it on";
  EXPECT_NE(moracle_run(arguments).out.find(kSwitch), std::string::npos);
  EXPECT_EQ(moracle_run(set).out.find(kSwitch), std::string::npos);
  for (const Strings& wrong :
       {Strings{"--env", "=1"}, Strings{"--env", "NAME"}, Strings{"--order", "wild"}, Strings{"--order"}}) {
    Strings all = arguments;
    all.insert(all.end(), wrong.begin(), wrong.end());
    EXPECT_EQ(moracle_run(all).code, 2) << wrong.back();
  }
  for (const Strings& alone : {Strings{"--env", "A=1"}, Strings{"--order", "static"}}) {
    Strings all = {"explain", model_path()};
    all.insert(all.end(), alone.begin(), alone.end());
    const RunOutcome outcome = moracle_run(all);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_NE(outcome.err.find("--engine vllm"), std::string::npos) << outcome.err;
  }
}

}  // namespace
}  // namespace moracle::test
