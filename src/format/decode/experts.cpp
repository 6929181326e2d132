// Finds and opens the routed experts of one layer.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <set>

#include "format/decode/row_view.h"
#include "format/faults.h"
#include "format/format.h"
#include "format/rules/spelling.h"

namespace moracle {
namespace {

constexpr std::string_view kPlaceholder = "{e}";
constexpr std::size_t kMaxListed = 20;
constexpr const ProjectionNames& kUsual = kProjectionNames.front();

bool per_expert(std::string_view name) {
  return name.find(kPlaceholder) != std::string_view::npos;
}

std::string expert_path(std::string_view pattern, std::int64_t expert) {
  const std::size_t at = pattern.find(kPlaceholder);
  if (at == std::string_view::npos) return std::string(pattern);
  return fmt::format("{}{}{}", pattern.substr(0, at), expert, pattern.substr(at + kPlaceholder.size()));
}

// Numbers of the experts that are stored, "<prefix><number><suffix>" and a part behind it, until `visit` returns false.
template <class Visit>
void visit_stored(std::string_view pattern, const TensorClaims& claims, const Visit& visit) {
  const std::size_t at = pattern.find(kPlaceholder);
  const std::string_view prefix = pattern.substr(0, at);
  const std::string_view suffix = pattern.substr(at + kPlaceholder.size());
  const auto& tensors = claims.checkpoint()->tensors();
  for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix); ++it) {
    const char* const begin = it->first.data() + prefix.size();
    const char* const end = it->first.data() + it->first.size();
    std::int64_t number = 0;
    const auto [rest, error] = std::from_chars(begin, end, number);
    if (error != std::errc{} || number < 0) continue;
    const std::string_view tail(rest, static_cast<std::size_t>(end - rest));
    if (tail.starts_with(suffix) && is_part_suffix(tail.substr(suffix.size())) && !visit(number)) return;
  }
}

std::set<std::int64_t> stored_experts(std::string_view pattern, const TensorClaims& claims) {
  std::set<std::int64_t> numbers;
  visit_stored(pattern, claims, [&](std::int64_t number) {
    numbers.insert(number);
    return true;
  });
  return numbers;
}

bool any_expert(std::string_view pattern, const TensorClaims& claims) {
  bool found = false;
  visit_stored(pattern, claims, [&](std::int64_t) {
    found = true;
    return false;
  });
  return found;
}

bool is_ungated(const ExpertsLayout& layout) {
  return layout.gate.empty() && layout.gate_up.empty();
}

// The names of a layout: two when gate and up are one matrix or there is no gate, else three.
std::vector<std::string> names_in(const ExpertsLayout& layout) {
  if (!layout.gate_up.empty()) return {layout.gate_up, layout.stacked_down};
  if (is_ungated(layout)) return {layout.up, layout.down};
  return {layout.gate, layout.up, layout.down};
}

// How many of a layout's names are stored: for any expert, or, as is soon told, for the first.
std::size_t count_stored(const std::vector<std::string>& names, const TensorClaims& claims, bool any) {
  return static_cast<std::size_t>(std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return any && per_expert(name) ? any_expert(name, claims) : has_parts(claims, expert_path(name, 0));
  }));
}

// The first layout of which every name is stored, else the one of which most are, for the messages that follow from
// what it lacks.
const ExpertsLayout* choose(const ExpertsRef& ref, const TensorClaims& claims) {
  for (const ExpertsLayout& layout : ref.layouts) {
    const std::vector<std::string> names = names_in(layout);
    if (count_stored(names, claims, false) == names.size()) return &layout;
  }
  const ExpertsLayout* best = nullptr;
  std::size_t most = 0;
  for (const ExpertsLayout& layout : ref.layouts) {
    const std::vector<std::string> names = names_in(layout);
    const std::size_t found = count_stored(names, claims, true);
    if (found == names.size()) return &layout;
    if (found > most) best = &layout;
    most = std::max(most, found);
  }
  return best;
}

// Stacks that one publisher stores column by column another stores row by row: the shape tells, where the two differ.
bool lies_by_rows(const ExpertsRef& ref, const ExpertsLayout& layout, const TensorClaims& claims) {
  struct Stack {
    const std::string& name;
    std::int64_t rows, cols;
  };
  const std::int64_t n = ref.intermediate;
  for (const Stack& stack : {Stack{layout.gate_up, 2 * n, ref.hidden}, Stack{layout.stacked_down, ref.hidden, n},
                             Stack{layout.gate, n, ref.hidden}, Stack{layout.down, ref.hidden, n}}) {
    if (stack.name.empty() || stack.rows == stack.cols) continue;
    const TensorView* const tensor = find_part(claims, stack.name, "weight");
    if (tensor == nullptr || tensor->shape.size() != 3) continue;
    return tensor->shape[1] == stack.rows && tensor->shape[2] == stack.cols;
  }
  return false;
}

std::string list_numbers(const std::vector<std::int64_t>& numbers) {
  std::string text;
  for (std::size_t i = 0; i < numbers.size() && i < kMaxListed; ++i)
    text += (i == 0 ? "" : ", ") + std::to_string(numbers[i]);
  if (numbers.size() > kMaxListed) text += ", ...";
  return text;
}

Error count_error(const ExpertsRef& ref, const TensorClaims& claims, std::string where, std::string found) {
  return Error{.code = "experts.count",
               .file = claims.checkpoint()->folder().string(),
               .where = std::move(where),
               .wanted = fmt::format("experts 0 to {}", ref.experts - 1),
               .found = std::move(found)};
}

// Every projection of every expert, no gap and no extra.
Result<> check_numbers(const ExpertsRef& ref, const ExpertsLayout& layout, const TensorClaims& claims) {
  for (const std::string& name : names_in(layout)) {
    if (!per_expert(name)) continue;
    const std::set<std::int64_t> numbers = stored_experts(name, claims);
    // No more gaps than can be listed, so that a config of a billion experts costs nothing.
    std::vector<std::int64_t> gaps;
    for (std::int64_t e = 0; e < ref.experts && gaps.size() <= kMaxListed; ++e)
      if (!numbers.contains(e)) gaps.push_back(e);
    if (!gaps.empty())
      return count_error(ref, claims, name, fmt::format("{} experts; missing: {}", numbers.size(), list_numbers(gaps)));
    const std::vector<std::int64_t> extra(numbers.lower_bound(ref.experts), numbers.end());
    if (!extra.empty())
      return count_error(
          ref, claims, name,
          fmt::format("{} experts; beyond the config's number: {}", numbers.size(), list_numbers(extra)));
  }
  return Ok{};
}

bool alternates(const ExpertsLayout& layout) {
  return layout.interleaved && !fault(Fault::interleaved_read_as_split);
}

struct ExpertModules {
  ModuleRef gate, up, down;
};

// One matrix: its own tensor per expert, or a slice of a tensor that stacks those of all experts. `usual` is what
// patterns may call it (expert_names).
ModuleRef projection(const ExpertsRef& ref, const std::string& pattern, std::int64_t expert, std::int64_t out,
                     std::int64_t in, std::initializer_list<std::string_view> usual) {
  ModuleRef module{
      .path = expert_path(pattern, expert), .fused = expert_names(ref.name, expert, usual), .out = out, .in = in};
  if (!per_expert(pattern))
    module.slice = ModuleRef::Slice{.expert = expert, .experts = ref.experts, .total_rows = out};
  return module;
}

// Gate and up in one matrix, stacked over the experts.
ExpertModules stacked_modules(const ExpertsRef& ref, const ExpertsLayout& layout, std::int64_t expert) {
  const std::int64_t n = ref.intermediate;
  ExpertModules modules;
  modules.gate = projection(ref, layout.gate_up, expert, n, ref.hidden, {kUsual.gate, kUsual.gate_up});
  modules.gate.slice->total_rows = 2 * n;
  modules.gate.slice->row_stride = alternates(layout) ? 2 : 1;
  modules.gate.slice->transposed = layout.transposed;
  modules.up = modules.gate;
  modules.up.fused = expert_names(ref.name, expert, {kUsual.up, kUsual.gate_up});
  modules.up.slice->row_begin = alternates(layout) ? 1 : n;
  modules.down = projection(ref, layout.stacked_down, expert, ref.hidden, n, {kUsual.down});
  if (modules.down.slice) modules.down.slice->transposed = layout.transposed;
  return modules;
}

ExpertModules modules_of(const ExpertsRef& ref, const ExpertsLayout& layout, std::int64_t expert) {
  if (!layout.gate_up.empty()) return stacked_modules(ref, layout, expert);
  const std::int64_t n = ref.intermediate;
  ExpertModules modules{.gate = projection(ref, layout.gate, expert, n, ref.hidden, {kUsual.gate, kUsual.gate_up}),
                        .up = projection(ref, layout.up, expert, n, ref.hidden, {kUsual.up, kUsual.gate_up}),
                        .down = projection(ref, layout.down, expert, ref.hidden, n, {kUsual.down})};
  for (ModuleRef* module : {&modules.gate, &modules.up, &modules.down})
    if (module->slice) module->slice->transposed = layout.transposed;
  return modules;
}

// Gate and up in one matrix an expert: opened whole, whichever way its format packs rows, then divided.
Result<StoredExperts::Expert> open_pair(const Format& format, const ExpertsRef& ref, const ExpertsLayout& layout,
                                        std::int64_t e, TensorClaims& claims) {
  const std::int64_t n = ref.intermediate;
  MORACLE_ASSIGN(const StoredLinear both, format.open(projection(ref, layout.gate_up, e, 2 * n, ref.hidden,
                                                                 {kUsual.gate_up, kUsual.gate, kUsual.up}),
                                                      claims));
  StoredExperts::Expert expert;
  expert.gate = select_rows(both, 0, alternates(layout) ? 2 : 1, n);
  expert.up = select_rows(both, alternates(layout) ? 1 : n, alternates(layout) ? 2 : 1, n);
  MORACLE_ASSIGN(expert.down,
                 format.open(projection(ref, layout.stacked_down, e, ref.hidden, n, {kUsual.down}), claims));
  return expert;
}

Result<StoredExperts::Expert> open_expert(const Format& format, const ExpertsRef& ref, const ExpertsLayout& layout,
                                          std::int64_t e, TensorClaims& claims) {
  if (per_expert(layout.gate_up)) return open_pair(format, ref, layout, e, claims);
  const ExpertModules modules = modules_of(ref, layout, e);
  StoredExperts::Expert expert;
  MORACLE_ASSIGN(expert.gate, format.open(is_ungated(layout) ? modules.up : modules.gate, claims));
  if (!is_ungated(layout)) {
    MORACLE_ASSIGN(expert.up, format.open(modules.up, claims));
  }
  MORACLE_ASSIGN(expert.down, format.open(modules.down, claims));
  return expert;
}

// One expert kernel serves a layer, so all projections of all experts share one scheme.
Result<> check_alike(const StoredExperts& experts, const StoredLinear& first, const StoredLinear& other,
                     const TensorClaims& claims) {
  const auto describe = [](const StoredLinear& linear) {
    return fmt::format("{} {}{}", linear.spec.name, to_string(linear.scheme()), linear.bias ? " with bias" : "");
  };
  if (first.scheme() == other.scheme() && first.bias.has_value() == other.bias.has_value()) return Ok{};
  return Error{.code = "experts.scheme",
               .file = claims.checkpoint()->folder().string(),
               .where = experts.name,
               .wanted = "the same scheme for every expert and projection: " + describe(first),
               .found = describe(other)};
}

}  // namespace

Result<StoredExperts> open_experts(const Format& format, const ExpertsRef& ref, TensorClaims& claims) {
  const ExpertsLayout* const chosen = choose(ref, claims);
  if (chosen == nullptr) return count_error(ref, claims, ref.name, "none");
  constexpr std::int64_t kMaxSize = std::int64_t{1} << 31;
  for (const std::int64_t size : {ref.experts, ref.hidden, ref.intermediate})
    if (size < 1 || size > kMaxSize)
      return Error{.code = "config.range",
                   .where = ref.name,
                   .wanted = "numbers of experts, hidden and intermediate columns from 1 to 2^31",
                   .found = std::to_string(size)};
  ExpertsLayout layout = *chosen;
  layout.transposed = layout.transposed && !lies_by_rows(ref, layout, claims);
  MORACLE_TRY(check_numbers(ref, layout, claims));

  StoredExperts experts;
  experts.name = ref.name;
  experts.hidden = ref.hidden;
  experts.intermediate = ref.intermediate;
  experts.interleaved = alternates(layout);
  for (std::int64_t e = 0; e < ref.experts; ++e) {
    MORACLE_ASSIGN(StoredExperts::Expert expert, open_expert(format, ref, layout, e, claims));
    if (fault(Fault::gate_and_up_swapped) && expert.gated()) std::swap(expert.gate, expert.up);
    experts.experts.push_back(std::move(expert));
    for (const StoredLinear* linear : matrices_of(experts.experts.back())) {
      MORACLE_TRY(check_alike(experts, experts.experts.front().gate, *linear, claims));
      experts.act_order = experts.act_order || linear->act_order;
    }
  }
  const StoredLinear& first = experts.experts.front().gate;
  experts.scheme = first.scheme();
  experts.zero_points = !first.spec.key.symmetric;
  experts.bias = first.bias.has_value();
  return experts;
}

}  // namespace moracle
