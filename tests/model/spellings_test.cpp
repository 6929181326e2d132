// Experts and text models under every name of the table (src/format/spelling.h), in tensors and in patterns: the same
// bits come out.
#include <gtest/gtest.h>

#include <map>

#include "format/spelling.h"
#include "support/model_fixture.h"
#include "support/mutable_checkpoint.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

using Tensor = MutableCheckpoint::Tensor;
using Bytes = std::vector<std::uint8_t>;

enum class Numbering : std::uint8_t { first, last, stacked };

struct Spelling {
  ProjectionNames names = kProjectionNames.front();
  Numbering numbering = Numbering::first;
  bool fused = false;   // gate and up are one
  bool joined = false;  // "_part"
  bool bare = false;    // without "weight_"

  [[nodiscard]] std::string text() const {
    return std::string(names.gate) +
           (numbering == Numbering::first  ? " first"
            : numbering == Numbering::last ? " last"
                                           : " stacked") +
           (fused ? " fused" : "") + (joined ? " joined" : "") + (bare ? " bare" : "");
  }
};

std::vector<Spelling> all_spellings() {
  std::vector<Spelling> all;
  for (const ProjectionNames& names : kProjectionNames)
    for (const Numbering numbering : {Numbering::first, Numbering::last, Numbering::stacked})
      for (const int flags : {0, 1, 2, 3, 4, 5, 6, 7})
        all.push_back({names, numbering, (flags & 1) != 0, (flags & 2) != 0, (flags & 4) != 0});
  return all;
}

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

Tensor fused(const std::string& part, const Tensor& gate, const Tensor& up) {
  if (part == "g_idx") return gate;
  if (part == "weight_shape") {
    Tensor both = gate;
    std::int64_t rows = 0;
    std::memcpy(&rows, gate.bytes.data(), sizeof rows);
    rows *= 2;
    std::memcpy(both.bytes.data(), &rows, sizeof rows);
    return both;
  }
  const bool along_in = part == "qweight" || part == "scales" || part == "qzeros";
  return concatenated(gate, up, along_in);
}

const std::string kExperts = "model.layers.0.mlp.experts";

std::string path_of(const Spelling& s, std::string_view projection, std::size_t expert) {
  const std::string number = std::to_string(expert);
  const std::string name(projection);
  if (s.numbering == Numbering::stacked) return kExperts + "." + name;
  return kExperts + "." + (s.numbering == Numbering::first ? number + "." + name : name + "." + number);
}

// The experts, numbered first under the usual names, under others.
void respell(MutableCheckpoint& copy, const Spelling& s) {
  std::map<std::string, std::map<std::string, std::vector<Tensor>>> parts;  // part, projection, expert
  for (std::size_t e = 0; copy.has(kExperts + "." + std::to_string(e) + ".up_proj.weight") ||
                          copy.has(kExperts + "." + std::to_string(e) + ".up_proj.weight_packed") ||
                          copy.has(kExperts + "." + std::to_string(e) + ".up_proj.qweight");
       ++e) {
    const std::string prefix = kExperts + "." + std::to_string(e) + ".";
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
      for (std::size_t e = 0; e < gates.size(); ++e) named[s.names.gate_up].push_back(fused(part, gates[e], ups[e]));
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
        add(path_of(s, projection, 0) + suffix, stacked(tensors));
        continue;
      }
      for (std::size_t e = 0; e < tensors.size(); ++e) add(path_of(s, projection, e) + suffix, tensors[e]);
    }
  }
}

std::vector<float> logits_of(const MutableCheckpoint& copy) {
  const TemporaryFolder folder;
  copy.write(folder.path());
  const Loaded loaded = load(folder.path(), pinned("ref"), 1);
  if (loaded.model == nullptr) return {};
  const auto state = new_state(*loaded.model);
  return run(*loaded.model, *state, {72, 101, 108, 44, 3});
}

MutableCheckpoint field_case(const std::string& name) {
  return MutableCheckpoint::read(data_dir() / "field" / name);
}

// Experts that are stacked and fused, FP8 under blocks of 128, as those of other cases lie.
MutableCheckpoint numbered_fp8() {
  MutableCheckpoint copy = field_case("08-fp8-stacked-scale-inv");
  for (const auto& [stored, part] : {std::pair{"", "weight"}, {"_scale_inv", "weight_scale_inv"}})
    for (const char* projection : {"gate_up_proj", "down_proj"}) {
      const std::string name = kExperts + "." + projection + stored;
      const Tensor stack = copy.at(name);
      copy.drop(name);
      const auto experts = static_cast<std::size_t>(dim(stack, 0));
      const bool pair = std::string(projection) == "gate_up_proj";
      const std::size_t pieces = experts * (pair ? 2 : 1);
      const std::size_t size = stack.bytes.size() / pieces;
      for (std::size_t i = 0; i < pieces; ++i) {
        const char* one = !pair ? "down_proj" : i % 2 == 0 ? "gate_proj" : "up_proj";
        const auto begin = stack.bytes.begin() + static_cast<std::ptrdiff_t>(i * size);
        copy.add(kExperts + "." + std::to_string(i / (pair ? 2 : 1)) + "." + one + "." + part, stack.dtype,
                 {dim(stack, 1) / (pair ? 2 : 1), dim(stack, 2)},
                 Bytes(begin, begin + static_cast<std::ptrdiff_t>(size)));
      }
    }
  return copy;
}

std::map<std::string, MutableCheckpoint> originals() {
  return {{"plain", field_case("00-base")},
          {"compressed-tensors", field_case("07b-reference")},
          {"fp8", numbered_fp8()},
          {"gptq", field_case("10-autoround-packing-auto_round")},
          {"quark", field_case("11-quark-excluded-keeps-fp8-blocks")}};
}

TEST(Spellings, ExpertsUnderEveryName) {
  for (const auto& [format, original] : originals()) {
    const std::vector<float> want = logits_of(original);
    ASSERT_FALSE(want.empty()) << format;
    for (const Spelling& spelling : all_spellings()) {
      SCOPED_TRACE(format + " " + spelling.text());
      MutableCheckpoint copy = original;
      respell(copy, spelling);
      EXPECT_EQ(logits_of(copy), want);
    }
  }
}

TEST(Spellings, ExpertsOfMixtralInBothContainers) {
  const auto original = MutableCheckpoint::read(data_dir() / "families" / "mixtral-stacked");
  const std::vector<float> want = logits_of(original);
  ASSERT_FALSE(want.empty());
  MutableCheckpoint copy = original;
  for (const std::string& name : copy.names()) {
    const std::size_t at = name.find(".mlp.");
    if (at != std::string::npos) copy.rename(name, name.substr(0, at) + ".block_sparse_moe." + name.substr(at + 5));
  }
  EXPECT_EQ(logits_of(copy), want);
}

// Targets that name experts in one spelling, tensors that are stored in another.
TEST(Spellings, TargetsUnderEveryName) {
  const MutableCheckpoint original = field_case("07b-reference");
  const std::vector<float> want = logits_of(original);
  for (const Spelling& stored : all_spellings()) {
    if (stored.joined || stored.bare) continue;
    for (const Spelling& said : all_spellings()) {
      if (said.joined || said.bare) continue;
      SCOPED_TRACE("stored " + stored.text() + ", said " + said.text());
      MutableCheckpoint copy = original;
      respell(copy, stored);
      Json targets = Json::array();
      for (std::size_t e = 0; e < 4; ++e)
        for (const std::string_view projection : {said.fused ? said.names.gate_up : said.names.gate,
                                                  said.fused ? said.names.gate_up : said.names.up, said.names.down})
          targets.push_back(path_of(said, projection, e));
      copy.config["quantization_config"]["config_groups"]["group_0"]["targets"] = targets;
      copy.config["quantization_config"]["ignore"] = Json::array();
      EXPECT_EQ(logits_of(copy), want);
    }
  }
}

TEST(Spellings, TargetsByRegularExpressions) {
  const MutableCheckpoint original = field_case("07b-reference");
  const std::vector<float> want = logits_of(original);
  const std::vector<Json> lists{
      {"re:.*mlp\\.experts\\.\\d+\\.(gate|up|down)_proj$"},
      {"re:.*experts.*"},
      {"re:.*\\.w1$", "re:.*\\.w2$", "re:.*\\.w3$"},
      {"re:.*w[123]"},
      {"re:.*experts\\.gate_up_proj", "re:.*experts\\.down_proj"},
      {"re:model\\.language_model\\.layers\\.0\\.mlp\\.experts.*"},
      {"re:language_model\\.model\\.layers\\.\\d+\\.block_sparse_moe\\.experts.*"},
      {"re:layers\\.0\\.mlp\\.experts\\..*"},
  };
  for (const Spelling& stored : all_spellings()) {
    if (stored.joined || stored.bare) continue;
    for (const Json& targets : lists) {
      SCOPED_TRACE("stored " + stored.text() + ", said " + targets.dump());
      MutableCheckpoint copy = original;
      respell(copy, stored);
      copy.config["quantization_config"]["config_groups"]["group_0"]["targets"] = targets;
      EXPECT_EQ(logits_of(copy), want);
    }
  }
}

void move_root(MutableCheckpoint& copy, std::string_view root) {
  for (const std::string& name : copy.names())
    if (name.starts_with("model.")) copy.rename(name, std::string(root) + name.substr(6));
}

// Exclude lists written for one wrapper, tensors stored below another.
TEST(Spellings, WrappersInTensorsAndExcludes) {
  const std::vector<std::string> excluded{"layers.0.self_attn.q_proj", "layers.0.self_attn.k_proj",
                                          "layers.0.self_attn.v_proj", "layers.0.self_attn.o_proj"};
  const MutableCheckpoint ct = field_case("07b-reference");
  const MutableCheckpoint quark = field_case("11-quark-excluded-keeps-fp8-blocks");
  const MutableCheckpoint fp8 = numbered_fp8();
  const std::vector<float> want_ct = logits_of(ct);
  const std::vector<float> want_quark = logits_of(quark);
  const std::vector<float> want_fp8 = logits_of(fp8);
  for (const std::string_view stored : kRoots)
    for (const std::string_view said : kRoots) {
      SCOPED_TRACE("stored \"" + std::string(stored) + "\", said \"" + std::string(said) + "\"");
      Json exact = Json::array({"lm_head"});
      Json patterns = Json::array({"lm_head"});
      for (const std::string& name : excluded) {
        exact.push_back(std::string(said) + name);
        std::string pattern = "re:";
        for (const char c : std::string(said) + name) pattern += c == '.' ? "\\." : std::string(1, c);
        patterns.push_back(pattern + "$");
      }
      for (const Json& list : {exact, patterns}) {
        MutableCheckpoint copy = ct;
        move_root(copy, stored);
        copy.config["quantization_config"]["ignore"] = list;
        EXPECT_EQ(logits_of(copy), want_ct) << list;
        copy = quark;
        move_root(copy, stored);
        copy.config["quantization_config"]["exclude"] = list;
        EXPECT_EQ(logits_of(copy), want_quark) << list;
      }
      MutableCheckpoint copy = fp8;
      move_root(copy, stored);
      copy.config["quantization_config"]["modules_to_not_convert"] = exact;
      EXPECT_EQ(logits_of(copy), want_fp8);
    }
}

}  // namespace
}  // namespace moracle::test
