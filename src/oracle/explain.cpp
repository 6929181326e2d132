#include "oracle/explain.h"

#include <algorithm>
#include <charconv>
#include <cstdint>

#include "base/json.h"
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

}  // namespace

std::vector<ExplainedGroup> group_layers(std::span<const ExplainedLayer> layers) {
  std::vector<ExplainedGroup> groups;
  for (const ExplainedLayer& layer : layers) {
    const auto same = std::find_if(groups.begin(), groups.end(), [&layer](const ExplainedGroup& group) {
      return group.problem == layer.problem && group.also == layer.also &&
             group.decision.winner == layer.decision.winner;
    });
    if (same != groups.end()) {
      same->names.push_back(layer.name);
    } else {
      groups.push_back({{layer.name}, layer.problem, layer.decision, layer.also});
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
