#include "cli/plan_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/generic/quantity.h"
#include "base/printable.h"

namespace moracle::cli {

namespace {

bool pays_somewhere(const NodesAnswer& answer) {
  return answer.rank &&
         std::any_of(answer.steps.begin(), answer.steps.end(), [](const NodesStep& step) { return step.pays(); });
}

std::string verdict(const NodesAnswer& answer, const NodesStep& step) {
  if (!answer.rank) return "forbidden";
  if (step.pays()) return fmt::format("tp: {:.1f} times as fast", step.one_ms / step.tp_ms);
  return step.tp_ms < step.one_ms ? "do not: it hardly pays" : "do not: slower than one";
}

}  // namespace

std::string nodes_text(const NodesAnswer& answer, std::size_t width, const Paint& paint) {
  const NodesQuestion& question = answer.question;
  const int nodes = question.nodes;
  std::string text = paragraph(
      "",
      fmt::format(
          "{} nodes, each of which reads {:.1f} GB/s ({}), linked by {} ({:g} us and {:.2f} GB/s a sum); a decode "
          "step by bytes read and sent:",
          nodes, question.read_gb_s, answer.measured ? "measured here" : "as stated", printable(question.link.name),
          question.link.latency_us, question.link.gb_s),
      width, 0);
  TextTable table({{.title = "sequences", .right = true},
                   {.title = "one node", .right = true},
                   {.title = fmt::format("tp {}", nodes), .right = true},
                   {.title = "of it sums", .right = true, .narrow = Narrow::drop, .rank = 1},
                   {.title = fmt::format("pp {}", nodes), .right = true, .narrow = Narrow::drop, .rank = 2},
                   {.title = "tensor parallelism"}});
  const auto ms = [](double value) { return fmt::format("{:.2f} ms", value); };
  for (const NodesStep& step : answer.steps) {
    table.row({std::to_string(step.sequences), ms(step.one_ms), ms(step.tp_ms), ms(step.tp_link_ms), ms(step.pp_ms),
               verdict(answer, step)});
  }
  text += "\n" + table.text(width, paint) + "\n";
  const auto fact = [&](const std::string& name, const std::string& about) {
    text += paragraph(name + ": ", about, width, name.size() + 2);
  };
  fact(fmt::format("tp {}", nodes), answer.rank ? fmt::format("{} of weights a rank", human_bytes(*answer.rank))
                                                : "forbidden: " + printable(answer.forbidden, kShownLineBytes));
  fact(fmt::format("pp {}", nodes), fmt::format("about {} of weights a rank, for models that one node does not hold",
                                                human_bytes(answer.alone / static_cast<std::uint64_t>(nodes))));
  fact(fmt::format("{} replicas", nodes), answer.fits
                                              ? fmt::format("{} times the requests at the pace of one node", nodes)
                                              : "one node does not hold the model");
  if (!pays_somewhere(answer)) text += paragraph("", "do not cut this model over this link", width, 0);
  return text;
}

Json nodes_json(const NodesAnswer& answer) {
  Json steps = Json::array();
  for (const NodesStep& step : answer.steps) {
    steps.push_back({{"sequences", step.sequences},
                     {"one_ms", step.one_ms},
                     {"tp_ms", step.tp_ms},
                     {"tp_link_ms", step.tp_link_ms},
                     {"pp_ms", step.pp_ms},
                     {"tp_pays", answer.rank && step.pays()}});
  }
  const NodesQuestion& question = answer.question;
  return {
      {"nodes", question.nodes},
      {"link", {{"name", question.link.name}, {"latency_us", question.link.latency_us}, {"gb_s", question.link.gb_s}}},
      {"read_gb_s", question.read_gb_s},
      {"steps", std::move(steps)},
      {"tp_rank_bytes", answer.rank ? Json(*answer.rank) : Json(nullptr)},
      {"tp_rule", answer.rank ? Json(nullptr) : Json(answer.forbidden)},
      {"replicas_fit", answer.fits},
      {"pays", pays_somewhere(answer)}};
}

}  // namespace moracle::cli
