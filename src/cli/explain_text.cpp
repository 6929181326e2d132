#include "cli/explain_text.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/printable.h"
#include "cli/console.h"
#include "kernels/cuda/host/described_gpu.h"
#include "oracle/backends.h"

namespace moracle::cli {

namespace {

std::string_view verdict_text(BackendVerdict verdict) {
  switch (verdict) {
    case BackendVerdict::chosen:
      return "chosen";
    case BackendVerdict::can:
      return "can";
    case BackendVerdict::if_built:
      return "if built";
    case BackendVerdict::cannot:
      return "cannot";
  }
  return "";
}

std::string painted(BackendVerdict verdict, const std::string& text, const Paint& paint) {
  switch (verdict) {
    case BackendVerdict::chosen:
      return paint.good(text);
    case BackendVerdict::if_built:
      return paint.warning(text);
    case BackendVerdict::cannot:
      return paint.bad(text);
    case BackendVerdict::can:
      break;
  }
  return text;
}

std::string listed(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : ", ").append(name);
  return printable(text);
}

// "marlin (layout known; this build has no kernel for it)", "avx2", "sm90 (needs the CUDA object ...)".
std::string with_knowledge(const Candidate& candidate) {
  std::string text(candidate.backend);
  if (!candidate.kind.known.empty())
    text.append(" (").append(candidate.kind.known).append(" known; this build has no kernel for it)");
  if (candidate.kind == CardKind::native && !candidate.supported) text += " (" + printable(needs_of(candidate)) + ")";
  return text;
}

class Renderer {
 public:
  Renderer(const Machine& machine, const ExplainStyle& style, std::size_t backend_width)
      : machine_(machine), style_(style), backend_width_(backend_width) {}

  std::string group(const ExplainedGroup& group) {
    const Problem& problem = group.problem;
    for (const std::string& name : compress_names(group.names)) {
      for (const std::string& line : wrapped(printable(name), style_.width)) out_ += style_.paint.strong(line) + "\n";
    }
    const std::string kind = problem.kind == ProblemKind::experts ? "experts" : "linear";
    line("  ", kind + (group.names.size() > 1 ? " x" + std::to_string(group.names.size()) : "") + " " +
                   shape_text(problem) + ": " + scheme_text(problem.scheme));
    line("  ", sentence(group.decision));
    for (const std::string& warning : group.decision.warnings) {
      // The sentence has said what the reference kernel's warning says of a machine elsewhere.
      if (!style_.here && group.decision.winner != nullptr && group.decision.winner->any_device_of_host) continue;
      for (const std::string& part : wrapped("warning: " + printable(warning, kShownLineBytes), style_.width - 2))
        out_ += "  " + style_.paint.warning(part) + "\n";
    }
    rows(group.decision);
    return std::exchange(out_, {});
  }

 private:
  void line(const std::string& lead, const std::string& text) {
    out_ += paragraph(lead, printable(text, kShownLineBytes), style_.width, lead.size());
  }

  [[nodiscard]] bool is_cpu() const { return machine_.device == DeviceKind::cpu; }

  [[nodiscard]] std::string sentence(const Decision& decision) const {
    const std::optional<std::size_t> used = used_candidate(decision);
    const std::string who = style_.here ? "this machine" : machine_.name;
    const std::string verb = style_.here ? " uses " : " would use ";
    if (!used && !decision.if_built.empty()) return who + verb + std::string(decision.if_built) + ", unchecked";
    const Candidate* const candidate = used ? &decision.trace[*used] : nullptr;
    const bool host_only = candidate != nullptr && candidate->card != nullptr && candidate->card->any_device_of_host;
    if (candidate == nullptr || (host_only && !is_cpu())) return "no kernel that is known here serves this on " + who;
    std::string text = who + verb + with_knowledge(*candidate);
    if (candidate->kind == CardKind::native && candidate->card->device == DeviceKind::cuda &&
        !has_machine_code(machine_.capability))
      text += "; the driver compiles it at the first run";
    if (candidate->card == decision.winner && decision.best_candidate && decision.best_candidate != used) {
      const Candidate& best = decision.trace[*decision.best_candidate];
      text += "; " + with_knowledge(best) + " would come before it";
    }
    return text;
  }

  void rows(const Decision& decision) {
    std::vector<std::string_view> can, if_built, cannot, elsewhere;
    const std::optional<std::size_t> used = used_candidate(decision);
    for (const BackendEntry& entry : fold_backends(decision)) {
      const std::size_t place = entry.variants.front();
      const Candidate& candidate = decision.trace[place];
      const bool lead = used == place;
      const bool host_only = candidate.card != nullptr && candidate.card->any_device_of_host && !is_cpu();
      const bool above = used && place < *used && entry.verdict == BackendVerdict::cannot && is_of_this_kind(candidate);
      if (style_.all || (lead ? entry.verdict == BackendVerdict::chosen : above)) {
        row(entry, decision, lead);
      } else if (lead || host_only) {
        continue;
      } else if (!is_of_this_kind(candidate)) {
        elsewhere.push_back(entry.backend);
      } else if (entry.verdict == BackendVerdict::cannot) {
        cannot.push_back(entry.backend);
      } else {
        (entry.verdict == BackendVerdict::if_built ? if_built : can).push_back(entry.backend);
      }
    }
    if (!can.empty()) line("    can too: ", listed(can));
    if (!if_built.empty()) line("    could if built: ", listed(if_built));
    if (!cannot.empty()) line("    cannot: ", listed(cannot));
    if (!elsewhere.empty()) line("    for other devices: ", listed(elsewhere));
  }

  // Whether the candidate is of machines such as this one: a GPU's kernels say nothing about a CPU's choice.
  [[nodiscard]] bool is_of_this_kind(const Candidate& candidate) const {
    if (candidate.card != nullptr && is_of_another_cpu(*candidate.card)) return false;
    return std::none_of(candidate.reasons.begin(), candidate.reasons.end(), [this](const Reason& reason) {
      return reason.rule == Rule::device && reason.wanted.find(to_string(machine_.device)) == std::string_view::npos;
    });
  }

  // Whether a card needs features that no CPU of this machine's architecture has.
  [[nodiscard]] bool is_of_another_cpu(const KernelCard& card) const {
    if (!is_cpu() || card.device != DeviceKind::cpu || card.cpu_features == 0 || machine_.arch.empty()) return false;
    return has(card.cpu_features, CpuFeature::neon) != (machine_.arch == "aarch64");
  }

  void row(const BackendEntry& entry, const Decision& decision, bool lead) {
    // Beside one that would be used elsewhere, the reference kernel is no choice.
    const bool shadowed = entry.verdict == BackendVerdict::chosen && !lead;
    const BackendVerdict shown = shadowed ? BackendVerdict::can : entry.verdict;
    std::string name = printable(entry.backend);
    name.resize(std::max(backend_width_, name.size()), ' ');
    std::string verdict(verdict_text(shown));
    verdict.resize(8, ' ');
    const std::string start = (lead ? "  * " : "    ") + name + "  " + painted(shown, verdict, style_.paint) + "  ";
    const std::size_t indent = 4 + backend_width_ + 2 + 8 + 2;
    out_ += paragraph(start, text_of(decision.trace[entry.variants.front()]), style_.width, indent);
    if (!style_.all) return;
    for (std::size_t i = 1; i < entry.variants.size(); ++i) {
      const Candidate& variant = decision.trace[entry.variants[i]];
      out_ +=
          paragraph(std::string(indent, ' '), printable(variant.id) + ": " + text_of(variant), style_.width, indent);
    }
  }

  [[nodiscard]] std::string text_of(const Candidate& candidate) const {
    if (candidate.supported) return std::string(candidate.why);
    if (style_.all) return printable(needs_of(candidate), kShownLineBytes);
    std::string text = reason_phrase(candidate.reasons.front(), candidate.kind);
    const auto others = std::count_if(candidate.reasons.begin() + 1, candidate.reasons.end(),
                                      [](const Reason& reason) { return reason.rule != Rule::not_built; });
    if (others > 0) text += " (and " + std::to_string(others) + " more)";
    return printable(text, kShownLineBytes);
  }

  const Machine& machine_;
  const ExplainStyle& style_;
  std::size_t backend_width_;
  std::string out_;
};

}  // namespace

ExplainStyle terminal_style(bool all, bool here) {
  return {.all = all, .here = here, .width = screen_width(STDOUT_FILENO), .paint = Paint(wants_color(STDOUT_FILENO))};
}

std::string explain_title(const std::string& model, const Machine& machine, const std::string& by,
                          const ExplainStyle& style) {
  return paragraph("", printable_path(model) + " on " + machine.name + by, style.width, 0) + "\n";
}

std::string explain_hint(const ExplainStyle& style) {
  return style.all ? "" : "\n" + style.paint.faint("--all tells every backend and all reasons") + "\n";
}

std::string explain_text(std::span<const ExplainedGroup> groups, const Machine& machine, const ExplainStyle& style) {
  std::size_t width = 0;
  for (const ExplainedGroup& group : groups) {
    for (const Candidate& candidate : group.decision.trace) width = std::max(width, candidate.backend.size());
  }
  Renderer renderer(machine, style, std::min(width, style.width / 3));
  std::string out;
  for (const ExplainedGroup& group : groups) out += (out.empty() ? "" : "\n") + renderer.group(group);
  return out;
}

}  // namespace moracle::cli
