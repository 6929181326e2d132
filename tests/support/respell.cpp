#include "support/respell.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace moracle::test {

namespace {

using Tensor = MutableCheckpoint::Tensor;
using Bytes = std::vector<std::uint8_t>;

std::int64_t dim(const Tensor& tensor, std::size_t axis) {
  return tensor.shape[axis].get<std::int64_t>();
}

// Two tensors behind each other along their first dimension, or along their last.
Tensor concatenated(const Tensor& a, const Tensor& b, bool last) {
  Tensor both = a;
  const std::size_t axis = last ? a.shape.size() - 1 : 0;
  both.shape[axis] = dim(a, axis) + dim(b, axis);
  const auto rows = static_cast<std::size_t>(last ? dim(a, 0) : 1);
  both.bytes.clear();
  for (std::size_t r = 0; r < rows; ++r)
    for (const Tensor* part : {&a, &b}) {
      const auto width = static_cast<std::ptrdiff_t>(part->bytes.size() / rows);
      const auto begin = part->bytes.begin() + static_cast<std::ptrdiff_t>(r) * width;
      both.bytes.insert(both.bytes.end(), begin, begin + width);
    }
  return both;
}

Tensor stacked(const std::vector<Tensor>& parts) {
  Tensor stack = parts.front();
  stack.bytes.clear();
  stack.shape.insert(stack.shape.begin(), parts.size());
  for (const Tensor& part : parts) stack.bytes.insert(stack.bytes.end(), part.bytes.begin(), part.bytes.end());
  return stack;
}

Tensor fused(const std::string& part, const Tensor& gate, const Tensor& up, bool words_along_out) {
  if (part == "g_idx" || gate.shape.empty() || (gate.shape.size() == 1 && dim(gate, 0) == 1)) return gate;
  if (part == "weight_shape") {
    Tensor both = gate;
    std::int64_t rows = 0;
    std::memcpy(&rows, gate.bytes.data(), sizeof rows);
    rows *= 2;
    std::memcpy(both.bytes.data(), &rows, sizeof rows);
    return both;
  }
  const bool along_in = words_along_out || part == "qweight" || part == "scales" || part == "qzeros";
  return concatenated(gate, up, along_in);
}

}  // namespace

std::string Spelling::text() const {
  return std::string(names.gate) +
         (numbering == Numbering::first  ? " first"
          : numbering == Numbering::last ? " last"
                                         : " stacked") +
         (fused ? " fused" : "") + (joined ? " joined" : "") + (bare ? " bare" : "");
}

std::vector<Spelling> all_spellings() {
  std::vector<Spelling> all;
  for (const ProjectionNames& names : kProjectionNames)
    for (const Numbering numbering : {Numbering::first, Numbering::last, Numbering::stacked})
      for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7})
        all.push_back({names, numbering, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0});
  return all;
}

std::string spelled(const std::string& experts, const Spelling& spelling, std::string_view projection,
                    std::size_t expert) {
  const std::string number = std::to_string(expert);
  const std::string name(projection);
  if (spelling.numbering == Numbering::stacked) return experts + "." + name;
  return experts + "." + (spelling.numbering == Numbering::first ? number + "." + name : name + "." + number);
}

void respell(MutableCheckpoint& copy, const std::string& path, const Spelling& s, bool words_along_out) {
  std::map<std::string, std::map<std::string, std::vector<Tensor>>> parts;  // part, projection, expert
  for (std::size_t e = 0; copy.has(path + "." + std::to_string(e) + ".up_proj.weight") ||
                          copy.has(path + "." + std::to_string(e) + ".up_proj.weight_packed") ||
                          copy.has(path + "." + std::to_string(e) + ".up_proj.qweight");
       ++e) {
    const std::string prefix = path + "." + std::to_string(e) + ".";
    for (const std::string& name : copy.names()) {
      if (!name.starts_with(prefix)) continue;
      const std::size_t dot = name.find('.', prefix.size());
      parts[name.substr(dot + 1)][name.substr(prefix.size(), dot - prefix.size())].push_back(copy.at(name));
    }
    copy.drop_all(prefix);
  }
  ASSERT_FALSE(parts.empty());
  for (auto& [part, projections] : parts) {
    std::map<std::string_view, std::vector<Tensor>> named{{s.names.down, projections.at("down_proj")}};
    const std::vector<Tensor>& gates = projections.at("gate_proj");
    const std::vector<Tensor>& ups = projections.at("up_proj");
    if (s.fused) {
      for (std::size_t e = 0; e < gates.size(); ++e)
        named[s.names.gate_up].push_back(fused(part, gates[e], ups[e], words_along_out));
    } else {
      named[s.names.gate] = gates;
      named[s.names.up] = ups;
    }
    constexpr std::string_view kWeight = "weight_";
    const std::string stored = s.bare && part.starts_with(kWeight) ? part.substr(kWeight.size()) : part;
    const std::string suffix = s.bare && part == "weight" ? "" : (s.joined ? "_" : ".") + stored;
    for (const auto& [projection, tensors] : named) {
      const auto add = [&](const std::string& name, const Tensor& tensor) {
        copy.add(name, tensor.dtype, tensor.shape.get<std::vector<std::int64_t>>(), tensor.bytes);
      };
      if (s.numbering == Numbering::stacked) {
        add(spelled(path, s, projection, 0) + suffix, stacked(tensors));
        continue;
      }
      for (std::size_t e = 0; e < tensors.size(); ++e) add(spelled(path, s, projection, e) + suffix, tensors[e]);
    }
  }
}

}  // namespace moracle::test
