#include "oracle/explain.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/printable.h"

namespace moracle {
namespace {

// A name without its first numeric component: "model.layers." + 3 + ".mlp.experts".
struct Numbered {
  std::string before;
  std::int64_t number = -1;  // -1: the name has no such component
  std::string after;
};

Numbered split_number(std::string_view name) {
  std::size_t begin = 0;
  while (begin <= name.size()) {
    const std::size_t end = std::min(name.find('.', begin), name.size());
    const std::string_view part = name.substr(begin, end - begin);
    std::int64_t value = 0;
    const auto [stop, code] = std::from_chars(part.data(), part.data() + part.size(), value);
    // A component such as "007" would not come back from its number.
    const bool plain = part.size() == 1 || !part.starts_with('0');
    if (code == std::errc() && !part.empty() && stop == part.data() + part.size() && value >= 0 && plain)
      return {std::string(name.substr(0, begin)), value, std::string(name.substr(end))};
    begin = end + 1;
  }
  return {std::string(name), -1, ""};
}

std::string ranges_of(std::vector<std::int64_t> numbers) {
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  std::string text;
  for (std::size_t i = 0; i < numbers.size();) {
    std::size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[i]);
    if (last > i) text += '-' + std::to_string(numbers[last]);
    i = last + 1;
  }
  return text;
}

class Painter {
 public:
  explicit Painter(bool color) : color_(color) {}
  [[nodiscard]] std::string good(const std::string& text) const { return paint("32", text); }
  [[nodiscard]] std::string bad(const std::string& text) const { return paint("31", text); }
  [[nodiscard]] std::string warning(const std::string& text) const { return paint("33", text); }
  [[nodiscard]] std::string faint(const std::string& text) const { return text.empty() ? text : paint("2", text); }
  [[nodiscard]] std::string strong(const std::string& text) const { return paint("1", text); }

 private:
  [[nodiscard]] std::string paint(const char* code, const std::string& text) const {
    return color_ ? "\x1b[" + std::string(code) + "m" + text + "\x1b[0m" : text;
  }
  bool color_;
};

constexpr std::size_t kStandingWidth = 8;

std::string padded(std::string_view text, std::size_t width) {
  std::string out(text);
  out.resize(std::max(width, out.size()), ' ');
  return out;
}

enum class Standing : std::uint8_t { cannot, if_built, can, chosen };

Standing standing_of(const Candidate& candidate, const Decision& decision) {
  if (candidate.card != nullptr && candidate.card == decision.winner) return Standing::chosen;
  if (candidate.supported) return Standing::can;
  const auto place = static_cast<std::size_t>(&candidate - decision.trace.data());
  return decision.best_candidate == place ? Standing::if_built : Standing::cannot;
}

std::string painted_standing(Standing standing, const Painter& paint) {
  switch (standing) {
    case Standing::chosen:
      return paint.good(padded("chosen", kStandingWidth));
    case Standing::can:
      return padded("can", kStandingWidth);
    case Standing::if_built:
      return paint.warning(padded("if built", kStandingWidth));
    case Standing::cannot:
      return paint.bad(padded("cannot", kStandingWidth));
  }
  return "";
}

bool runs_elsewhere(const Candidate& candidate) {
  return candidate.kind != CardKind::own;
}

std::string mark_of(const Candidate& candidate) {
  return runs_elsewhere(candidate) ? "[" + std::string(to_string(candidate.kind)) + "] " : "";
}

// Rows that a short answer shows: everything ranked above the winner, and the winner.
std::size_t rows_shown(const Decision& decision, bool all) {
  if (all || decision.winner == nullptr) return decision.trace.size();
  for (std::size_t i = 0; i < decision.trace.size(); ++i) {
    if (decision.trace[i].card == decision.winner) return i + 1;
  }
  return decision.trace.size();
}

void render_candidate(const Candidate& candidate, const Decision& decision, std::size_t width, bool all,
                      const Painter& paint, std::string& out) {
  const Standing standing = standing_of(candidate, decision);
  out += standing == Standing::chosen ? "  * " : "    ";
  out += padded(printable(candidate.backend), width) + "  " + painted_standing(standing, paint);
  const std::string indent(4 + width + 2 + kStandingWidth + 2, ' ');
  std::string text = paint.faint(mark_of(candidate));
  if (candidate.supported) text += candidate.why;
  const std::size_t shown = all ? candidate.reasons.size() : std::min<std::size_t>(1, candidate.reasons.size());
  for (std::size_t i = 0; i < shown; ++i) {
    if (i > 0) text += "\n" + indent;
    text += printable(reason_text(candidate.reasons[i]), kShownLineBytes);
  }
  if (shown < candidate.reasons.size()) text += " (+" + std::to_string(candidate.reasons.size() - shown) + " more)";
  out += (text.empty() ? "" : "  " + text) + "\n";
}

// What the marks mean, once.
std::string legend(std::span<const ExplainedGroup> groups, const Painter& paint) {
  bool decision_only = false;
  bool foreign = false;
  for (const ExplainedGroup& group : groups) {
    for (const Candidate& candidate : group.decision.trace) {
      decision_only = decision_only || candidate.kind == CardKind::decision_only;
      foreign = foreign || candidate.kind == CardKind::foreign;
    }
  }
  std::string text;
  if (foreign) text += paint.faint("[foreign]: its layout is known, its device is not here") + "\n";
  if (decision_only) text += paint.faint("[decision_only]: what it can do is known, nothing here runs it") + "\n";
  return text.empty() ? text : "\n" + text;
}

}  // namespace

std::vector<ExplainedGroup> group_layers(std::span<const ExplainedLayer> layers) {
  std::vector<ExplainedGroup> groups;
  for (const ExplainedLayer& layer : layers) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&layer](const ExplainedGroup& group) {
      return group.problem == layer.problem && group.decision.winner == layer.decision.winner;
    });
    if (same != groups.end()) {
      same->names.push_back(layer.name);
    } else {
      groups.push_back({{layer.name}, layer.problem, layer.decision});
    }
  }
  return groups;
}

std::vector<std::string> compress_names(std::span<const std::string> names) {
  struct Family {
    Numbered shape;
    std::vector<std::int64_t> numbers;
  };
  std::vector<Family> families;
  for (const std::string& name : names) {
    Numbered split = split_number(name);
    const auto same = std::find_if(families.begin(), families.end(), [&split](const Family& family) {
      return (family.shape.number < 0) == (split.number < 0) && family.shape.before == split.before &&
             family.shape.after == split.after;
    });
    const std::int64_t number = split.number;
    Family& family = same != families.end() ? *same : families.emplace_back(Family{std::move(split), {}});
    if (number >= 0) family.numbers.push_back(number);
  }
  std::vector<std::string> out;
  for (const Family& family : families) {
    const std::string range = ranges_of(family.numbers);
    const bool single = range.find_first_of(",-") == std::string::npos;
    out.push_back(family.shape.before + (single ? range : "{" + range + "}") + family.shape.after);
  }
  return out;
}

std::string render_explain(std::span<const ExplainedGroup> groups, const ExplainOptions& options) {
  const Painter paint(options.color);
  std::size_t width = 0;
  for (const ExplainedGroup& group : groups) {
    for (const Candidate& candidate : group.decision.trace) width = std::max(width, candidate.backend.size());
  }
  std::string out;
  for (const ExplainedGroup& group : groups) {
    if (!out.empty()) out += "\n";
    for (const std::string& name : compress_names(group.names))
      out += paint.strong(printable(name, kShownLineBytes)) + "\n";
    out += "  " + printable(explain_line(group.problem, group.decision, group.names.size()), kShownLineBytes) + "\n";
    for (const std::string& warning : group.decision.warnings)
      out += "  " + paint.warning("warning: " + printable(warning, kShownLineBytes)) + "\n";
    const std::size_t shown = rows_shown(group.decision, options.all);
    for (std::size_t i = 0; i < shown; ++i)
      render_candidate(group.decision.trace[i], group.decision, width, options.all, paint, out);
    if (shown < group.decision.trace.size())
      out += "    (" + std::to_string(group.decision.trace.size() - shown) + " ranked below; --all shows them)\n";
  }
  return out + legend(groups, paint);
}

Json explain_json(std::span<const ExplainedGroup> groups) {
  Json layers = Json::array();
  for (const ExplainedGroup& group : groups) {
    const Scheme& scheme = group.problem.scheme;
    const Decision& decision = group.decision;
    Json layer = {{"names", group.names},
                  {"scheme",
                   {{"weight", to_string(scheme.weight)},
                    {"activation", scheme.activation ? Json(to_string(*scheme.activation)) : Json()}}},
                  {"backend", decision.winner == nullptr ? Json() : Json(decision.winner->backend)},
                  {"if_built", decision.if_built.empty() ? Json() : Json(decision.if_built)},
                  {"trace", trace_json(group.decision)},
                  {"warnings", group.decision.warnings}};
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace moracle
