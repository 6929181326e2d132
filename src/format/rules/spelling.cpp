#include "format/rules/spelling.h"

#include <fmt/format.h>

#include <algorithm>

namespace moracle {
namespace {

constexpr std::string_view kSparse = "block_sparse_moe";  // Mixtral's; transformers 5 writes "mlp"
constexpr std::string_view kMlp = "mlp";
constexpr std::string_view kExperts = "experts";
constexpr std::string_view kWeight = "weight_";
// What roots are made of, and what wrappers put before them.
constexpr std::array<std::string_view, 7> kWrappers{"model.",   "language_model.", "language.", "llm.",
                                                    "thinker.", "module.",         "backbone."};

// Every part that a format asks for; those with kWeight may be stored without it.
constexpr std::array<std::string_view, 18> kParts{"weight",
                                                  "bias",
                                                  "qweight",
                                                  "qzeros",
                                                  "scales",
                                                  "g_idx",
                                                  "blocks",
                                                  "input_scale",
                                                  "input_scale_2",
                                                  "input_global_scale",
                                                  "input_zero_point",
                                                  "weight_packed",
                                                  "weight_scale",
                                                  "weight_scale_inv",
                                                  "weight_scale_2",
                                                  "weight_zero_point",
                                                  "weight_global_scale",
                                                  "weight_shape"};

std::vector<std::string_view> split(std::string_view name) {
  std::vector<std::string_view> parts;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    parts.push_back(name.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

std::string join(const std::vector<std::string_view>& parts) {
  std::string name;
  for (const std::string_view part : parts) name += (name.empty() ? "" : ".") + std::string(part);
  return name;
}

bool is_number(std::string_view text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string_view::npos;
}

// Of gate, up, down and gate_up the member that a word is in some row; null for other words.
std::string_view ProjectionNames::* member_of(std::string_view word) {
  for (const ProjectionNames& names : kProjectionNames)
    for (const auto member :
         {&ProjectionNames::gate, &ProjectionNames::up, &ProjectionNames::down, &ProjectionNames::gate_up})
      if (names.*member == word) return member;
  return nullptr;
}

// Words that say "w1" without a doubt, wherever they stand.
bool is_short(std::string_view word) {
  const ProjectionNames& names = kProjectionNames[1];
  return word == names.gate || word == names.up || word == names.down || word == names.gate_up;
}

void respell_projection(std::vector<std::string_view>& parts) {
  const auto experts = std::find(parts.begin(), parts.end(), kExperts);
  for (auto part = parts.begin(); part != parts.end(); ++part) {
    const auto member = member_of(*part);
    if (member == nullptr || (part < experts && !is_short(*part))) continue;
    *part = kProjectionNames.front().*member;
    if (part > experts && part + 1 != parts.end() && is_number(part[1])) std::swap(part[0], part[1]);
    return;
  }
}

const TensorView* find_joined(const TensorClaims& claims, std::string_view module, std::string_view part) {
  for (const char* joint : {".", "_"}) {
    const TensorView* tensor = claims.find(fmt::format("{}{}{}", module, joint, part));
    if (tensor != nullptr) return tensor;
  }
  return nullptr;
}

}  // namespace

std::string_view without_root(std::string_view name) {
  for (bool more = true; more;) {
    more = false;
    for (const std::string_view prefix : kWrappers) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      more = true;
    }
  }
  return name;
}

std::string usual_name(std::string_view name) {
  std::vector<std::string_view> parts = split(without_root(name));
  std::replace(parts.begin(), parts.end(), kSparse, kMlp);
  respell_projection(parts);
  return join(parts);
}

std::vector<std::string> other_spellings(std::string_view usual) {
  std::vector<std::vector<std::string_view>> spelled{split(usual)};
  const std::vector<std::string_view>& parts = spelled.front();
  const auto experts = std::find(parts.begin(), parts.end(), kExperts);
  const auto projection = std::find_if(parts.begin(), parts.end(), [](std::string_view part) {
    return member_of(part) != nullptr && part.ends_with("proj");
  });
  if (experts != parts.end() && projection > experts && projection != parts.end()) {
    const auto at = projection - parts.begin();
    const bool numbered = projection - experts == 2;
    const auto member = member_of(*projection);
    const std::vector<std::string_view> first = parts;
    for (const ProjectionNames& names : kProjectionNames) {
      std::vector<std::string_view> one = first;
      one[static_cast<std::size_t>(at)] = names.*member;
      spelled.push_back(one);
      if (!numbered) continue;
      std::swap(one[static_cast<std::size_t>(at)], one[static_cast<std::size_t>(at) - 1]);
      spelled.push_back(std::move(one));
    }
  }
  std::vector<std::string> names;
  for (std::vector<std::string_view>& one : spelled) {
    for (const std::string_view root : kRoots) names.push_back(std::string(root) + join(one));
    const auto mlp = std::find(one.begin(), one.end(), kMlp);
    if (mlp == one.end()) continue;
    *mlp = kSparse;
    for (const std::string_view root : kRoots) names.push_back(std::string(root) + join(one));
  }
  return names;
}

bool has_other_spelling(std::string_view pattern) {
  for (const std::string_view word :
       {std::string_view("language_model"), std::string_view("backbone"), kSparse, std::string_view("projs")}) {
    if (pattern.find(word) != std::string_view::npos) return true;
  }
  // A projection by a letter and a number, or a number at the end.
  for (std::size_t at = pattern.find('w'); at != std::string_view::npos; at = pattern.find('w', at + 1)) {
    const bool begins = at == 0 || std::string_view(".*\\(|^").find(pattern[at - 1]) != std::string_view::npos;
    const std::string_view next = pattern.substr(at + 1, 1);
    if (begins && !next.empty() && std::string_view("123[(\\").find(next.front()) != std::string_view::npos)
      return true;
  }
  return pattern.find("proj.") != std::string_view::npos || pattern.find("proj\\.") != std::string_view::npos;
}

const TensorView* find_part(const TensorClaims& claims, std::string_view module, std::string_view part) {
  const TensorView* tensor = find_joined(claims, module, part);
  if (tensor != nullptr) return tensor;
  if (part == "weight") return claims.find(module);
  return part.starts_with(kWeight) ? find_joined(claims, module, part.substr(kWeight.size())) : nullptr;
}

std::string part_name(const TensorClaims& claims, std::string_view module, std::string_view part) {
  const TensorView* tensor = find_part(claims, module, part);
  if (tensor != nullptr) return tensor->name;
  const bool joined = !claims.has_module(module) && has_parts(claims, module);
  return fmt::format("{}{}{}", module, joined ? "_" : ".", part);
}

bool has_weights(const TensorClaims& claims, std::string_view module) {
  return std::any_of(kCodeParts.begin(), kCodeParts.end(),
                     [&](std::string_view part) { return find_part(claims, module, part) != nullptr; });
}

bool is_part_suffix(std::string_view suffix) {
  if (suffix.empty() || suffix.front() == '.') return true;
  if (suffix.front() != '_') return false;
  suffix.remove_prefix(1);
  return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) {
    return suffix == part || (part.starts_with(kWeight) && suffix == part.substr(kWeight.size()));
  });
}

bool has_parts(const TensorClaims& claims, std::string_view module) {
  const auto& tensors = claims.checkpoint()->tensors();
  for (const char* joint : {".", "_"}) {
    const std::string prefix = std::string(module) + joint;
    for (auto it = tensors.lower_bound(prefix); it != tensors.end() && it->first.starts_with(prefix); ++it)
      if (is_part_suffix(std::string_view(it->first).substr(module.size()))) return true;
  }
  return claims.find(module) != nullptr;
}

std::vector<ExpertsLayout> expert_layouts(const std::vector<std::string>& containers, bool interleaved,
                                          bool transposed) {
  std::vector<ExpertsLayout> layouts;
  for (const std::string& container : containers)
    for (const ProjectionNames& names : kProjectionNames) {
      // Beside the router, "gate" is the router.
      if (names.gate == "gate" && !container.ends_with(kExperts)) continue;
      const auto add = [&](const char* pattern, bool fused) {
        const auto path = [&](std::string_view name) {
          return container + "." + fmt::format(fmt::runtime(pattern), fmt::arg("p", name), fmt::arg("e", "{e}"));
        };
        ExpertsLayout layout{};
        if (fused) {
          layout.gate_up = path(names.gate_up);
          layout.stacked_down = path(names.down);
        } else {
          layout.gate = path(names.gate);
          layout.up = path(names.up);
          layout.down = path(names.down);
        }
        layout.interleaved = fused && interleaved;
        layout.transposed = transposed && std::string_view(pattern) == "{p}";
        layouts.push_back(std::move(layout));
      };
      for (const bool fused : {false, true})
        for (const char* pattern : {"{e}.{p}", "{p}.{e}", "{p}"}) add(pattern, fused);
    }
  return layouts;
}

std::vector<std::string> expert_names(const std::string& experts, std::int64_t expert,
                                      std::initializer_list<std::string_view> projections) {
  std::vector<std::string> names{experts, fmt::format("{}.{}", experts, expert)};
  for (const std::string_view name : projections) {
    names.push_back(fmt::format("{}.{}.{}", experts, expert, name));
    names.push_back(fmt::format("{}.{}", experts, name));
  }
  return names;
}

}  // namespace moracle
