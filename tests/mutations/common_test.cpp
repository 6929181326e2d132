// What every format must refuse, tried on a real checkpoint of each: broken files, incomplete modules, values that no
// tool writes, configs that contradict what is stored.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/mutations.h"

namespace moracle::test {
namespace {

// One expert's projection and what its format calls the parts.
struct Profile {
  const char* folder;
  std::string layer;       // of experts: "model.layers.1.mlp.experts."
  std::string expert;      // below it: "3.gate_proj"; its rows are no multiple of its columns
  std::string codes;       // "qweight"
  std::string scales;      // "scales"
  const char* no_plain;    // error where codes are replaced by an unquantized weight
  const char* no_config;   // error without any quantization section
  const char* wide_scale;  // error where the scales have twice as many rows
};
void PrintTo(const Profile& profile, std::ostream* out) {
  *out << profile.folder;
}

const Profile kProfiles[] = {
    {"qwen3moe-gptq-w4g128-sym", "model.layers.1.mlp.experts.", "3.gate_proj", "qweight", "scales", "experts.scheme",
     "tensor.missing", "quant.group"},
    {"qwen3moe-gptq-w4g32-actorder-cut", "model.layers.0.mlp.experts.", "15.down_proj", "qweight", "scales",
     "experts.scheme", "tensor.missing", "quant.group"},
    {"qwen3moe-gptq-w4g128-asym-v2", "model.layers.0.mlp.experts.", "7.up_proj", "qweight", "scales", "experts.scheme",
     "tensor.missing", "quant.group"},
    {"mixtral-awq-w4g32", "model.layers.3.block_sparse_moe.experts.", "2.w1", "qweight", "scales", "experts.scheme",
     "tensor.missing", "quant.group"},
    {"qwen3moe-ct-w4a16-g128-asym", "model.layers.1.mlp.experts.", "3.gate_proj", "weight_packed", "weight_scale",
     "quant.incomplete", "tensor.missing", "tensor.shape"},
    {"glm4moe-ct-w4a16-g128", "model.layers.1.mlp.experts.", "3.gate_proj", "weight_packed", "weight_scale",
     "quant.incomplete", "tensor.missing", "tensor.shape"},
    {"qwen35moe-ct-w4a16-g128", "model.layers.1.mlp.experts.", "3.gate_proj", "weight_packed", "weight_scale",
     "quant.incomplete", "tensor.missing", "tensor.shape"},
    {"qwen3moe-ct-w8a8-int8", "model.layers.1.mlp.experts.", "3.gate_proj", "weight", "weight_scale",
     "quant.incomplete", "config.contradiction", "tensor.shape"},
    {"dsv3-ct-fp8-block", "model.layers.1.mlp.experts.", "3.gate_proj", "weight", "weight_scale", "quant.incomplete",
     "config.contradiction", "tensor.shape"},
    {"qwen3moe-ct-nvfp4-w4a4", "model.layers.1.mlp.experts.", "3.gate_proj", "weight_packed", "weight_scale",
     "quant.incomplete", "tensor.missing", "tensor.shape"},
    {"quark-int8-ptpc-step3p5", "model.layers.1.moe.experts.", "3.gate_proj", "weight", "weight_scale",
     "quant.incomplete", "config.contradiction", "tensor.shape"},
    {"quark-mxfp4-a8fp8-qwen3_moe", "model.layers.1.mlp.experts.", "3.gate_proj", "weight", "weight_scale",
     "quant.incomplete", "config.contradiction", "tensor.shape"},
    {"quark-mxfp4-a4-gpt_oss", "model.layers.1.mlp.experts.", "3.gate_up_proj", "weight", "weight_scale",
     "quant.incomplete", "config.contradiction", "tensor.shape"},
    {"modelopt-w4a16nvfp4-qwen3_moe", "model.layers.1.mlp.experts.", "3.gate_proj", "weight", "weight_scale",
     "quant.incomplete", "config.contradiction", "tensor.shape"},
};

// A NaN of the type, in the first bytes.
std::vector<std::uint8_t> nan_of(const std::string& dtype) {
  if (dtype == "F32") return {0, 0, 0xC0, 0x7F};
  if (dtype == "F16") return {0, 0x7E};
  if (dtype == "BF16") return {0xC0, 0x7F};
  return {static_cast<std::uint8_t>(dtype == "F8_E4M3" ? 0x7F : 0xFF)};  // else an exponent byte
}

// Another type of as many bytes that means something else.
std::string other_type(const std::string& dtype) {
  if (dtype == "F32") return "I32";
  if (dtype == "F16" || dtype == "BF16") return "I16";
  if (dtype == "I32") return "F32";
  if (dtype == "F8_E4M3") return "F8_E5M2";
  return dtype == "U8" ? "F8_E5M2" : "U8";
}

void set_first(MutableCheckpoint& c, const std::string& name, std::size_t element,
               const std::vector<std::uint8_t>& bytes) {
  auto& tensor = c.at(name);
  std::copy(bytes.begin(), bytes.end(),
            tensor.bytes.begin() + static_cast<std::ptrdiff_t>(element * dtype_bytes(tensor.dtype)));
}

void double_rows(MutableCheckpoint& c, const std::string& name) {
  auto& tensor = c.at(name);
  tensor.shape[0] = tensor.shape[0].get<std::int64_t>() * 2;
  const auto once = tensor.bytes;
  tensor.bytes.insert(tensor.bytes.end(), once.begin(), once.end());
}

// As many elements, in another shape.
void halve_columns(MutableCheckpoint& c, const std::string& name) {
  auto& shape = c.at(name).shape;
  shape[0] = shape[0].get<std::int64_t>() * 2;
  shape[1] = shape[1].get<std::int64_t>() / 2;
}

// Every part of a module goes, and an unquantized weight comes.
void make_plain(MutableCheckpoint& c, const std::string& module, std::int64_t rows, std::int64_t cols) {
  const bool bias = c.has(module + ".bias");
  const auto kept = bias ? c.at(module + ".bias") : MutableCheckpoint::Tensor{};
  c.drop_all(module + ".");
  c.add(module + ".weight", "BF16", {rows, cols},
        std::vector<std::uint8_t>(static_cast<std::size_t>(rows * cols * 2), 0x3C));
  if (bias) c.add(module + ".bias", kept.dtype, kept.shape.get<std::vector<std::int64_t>>(), kept.bytes);
}

std::vector<Mutation> of_modules(const Profile& p) {
  const std::string module = p.layer + p.expert;
  const std::string number = p.expert.substr(0, p.expert.find('.'));
  const std::string codes = module + "." + p.codes;
  const std::string scales = module + "." + p.scales;
  const bool down = p.expert.ends_with("down_proj");
  const std::int64_t rows = down || p.expert.ends_with("gate_up_proj") ? 256 : 128;
  const std::int64_t cols = down ? 128 : 256;
  const bool same_name = p.codes == "weight";
  std::vector<Mutation> all{
      {"scales absent", [=](auto& c) { c.drop(scales); }, "quant.incomplete", {scales}},
      {"scales under another name", [=](auto& c) { c.rename(scales, scales + "_"); }, "quant.incomplete", {scales}},
      {"codes absent", [=](auto& c) { c.drop(codes); }, "quant.incomplete", {codes}},
      {"a scale is NaN",
       [=](auto& c) { set_first(c, scales, 1, nan_of(c.at(scales).dtype)); },
       "value.nan",
       {scales, "element 1", "NaN", ".safetensors"}},
      {"all scales zero",
       [=](auto& c) {
         auto& bytes = c.at(scales).bytes;
         std::fill(bytes.begin(), bytes.end(), std::uint8_t{0});
       },
       "value.zero_scales",
       {scales, "never written"}},
      {"scales of another type",
       [=](auto& c) { c.at(scales).dtype = other_type(c.at(scales).dtype); },
       "tensor.dtype",
       {scales}},
      {"scales of twice as many rows", [=](auto& c) { double_rows(c, scales); }, p.wide_scale, {scales}},
      {"codes of another type",
       [=](auto& c) { c.at(codes).dtype = other_type(c.at(codes).dtype); },
       "tensor.dtype",
       {codes}},
      {"codes of another shape", [=](auto& c) { halve_columns(c, codes); }, "tensor.shape", {codes, "["}},
      {"an unquantized weight instead", [=](auto& c) { make_plain(c, module, rows, cols); }, p.no_plain, {module}},
      {"an expert absent",
       [=](auto& c) { c.drop_all(p.layer + number + "."); },
       "experts.count",
       {"missing: " + number}},
      {"an expert too many", [=](auto& c) { c.copy_all(p.layer + "0.", p.layer + "99."); }, "experts.count", {"99"}},
      {"a scale that nobody uses",
       [=](auto& c) { c.add_zeros(scales + "_9", "F32", {1}); },
       "tensor.unused",
       {scales + "_9", "1 unused"}},
      {"more experts in the config",  // than the router has rows; one in each group, where they are grouped
       [](auto& c) {
         const int more = c.config.value("n_group", 1);
         for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"})
           if (c.config.contains(key)) c.config[key] = c.config[key].template get<int>() + more;
       },
       "tensor.shape",
       {}},
      {"an unknown method",
       [](auto& c) { c.quant("/quant_method", "hqq"); },
       "config.unsupported",
       {"quant_method", "one of", "hqq"}},
      {"no section",
       [](auto& c) {
         c.config.erase("quantization_config");
         c.side_files.clear();
       },
       p.no_config,
       {}},
      {"NaN in a norm",
       [](auto& c) {
         const std::string norm = "model.norm.weight";
         set_first(c, norm, 5, nan_of(c.at(norm).dtype));
       },
       "value.nan",
       {"model.norm.weight", "element 5"}},
  };
  if (!same_name)
    all.push_back({"an unquantized weight beside the codes",
                   [=](auto& c) { c.add_zeros(module + ".weight", "BF16", {rows, cols}); },
                   "quant.ambiguous",
                   {module}});
  return all;
}

class CommonMutations : public ::testing::TestWithParam<Profile> {};

TEST_P(CommonMutations, AreRefused) {
  try_mutations(GetParam().folder, of_modules(GetParam()));
}

std::string name_of(const ::testing::TestParamInfo<Profile>& info) {
  std::string name = info.param.folder;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Checkpoints, CommonMutations, ::testing::ValuesIn(kProfiles), name_of);

// --- Files ---------------------------------------------------------------------------------------------------------

using Change = std::function<void(const std::filesystem::path&)>;

std::function<void(MutableCheckpoint&)> written(Change change) {
  return [change](MutableCheckpoint& c) { c.after(change); };
}
void overwrite(const std::filesystem::path& file, std::size_t at, const std::string& bytes) {
  std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(static_cast<std::streamoff>(at));
  stream.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}
// Replaces the first place of `from` in the header by as many bytes.
Change edit_header(const std::string& file, const std::string& from, const std::string& to) {
  return [=](const std::filesystem::path& folder) {
    ASSERT_EQ(from.size(), to.size());
    std::ifstream stream(folder / file, std::ios::binary);
    std::string text(200'000, '\0');
    stream.read(text.data(), static_cast<std::streamsize>(text.size()));
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from;
    overwrite(folder / file, at, to);
  };
}

// `file`: a shard; `tensor`: one in it, of at least two dimensions.
std::vector<Mutation> of_files(const std::string& file, const std::string& tensor) {
  return {
      {"the file ends early",
       written(
           [=](const auto& f) { std::filesystem::resize_file(f / file, std::filesystem::file_size(f / file) - 1000); }),
       "file.truncated",
       {file}},
      {"bytes behind the tensors",
       written([=](const auto& f) { std::ofstream(f / file, std::ios::app) << "tail"; }),
       "offset.trailing",
       {file}},
      {"an empty file",
       written([=](const auto& f) { std::filesystem::resize_file(f / file, 0); }),
       "header.too_small",
       {file}},
      {"a header longer than the file",
       written([=](const auto& f) { overwrite(f / file, 5, "\x01"); }),
       "header.length",
       {file}},
      {"a header that is no JSON",
       written([=](const auto& f) { overwrite(f / file, 9, "\x01\x02"); }),
       "header.syntax",
       {file}},
      {"a pointer to large-file storage",
       written([=](const auto& f) {
         std::ofstream(f / file) << "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 7187864\n";
       }),
       "lfs.pointer",
       {"7187864"}},
      {"pickled weights only",
       written([=](const auto& f) {
         for (const auto& entry : std::filesystem::directory_iterator(f))
           if (entry.path().filename().string().starts_with("model")) std::filesystem::remove(entry.path());
         std::ofstream(f / "pytorch_model.bin") << "\x80\x02";
       }),
       "pickle.refused",
       {"pytorch_model.bin"}},
      {"an unknown type", [=](auto& c) { c.at(tensor).dtype = "F12"; }, "dtype.unknown", {tensor, "F12"}},
      {"a negative size", [=](auto& c) { c.at(tensor).shape[0] = -1; }, "number.range", {"-1"}},
      {"a fractional size", [=](auto& c) { c.at(tensor).shape[0] = 2.5; }, "number.range", {"2.5"}},
      {"a size of 10^30", [=](auto& c) { c.at(tensor).shape[0] = 1e30; }, "number.range", {}},
      {"a shape whose product wraps",
       [=](auto& c) { c.at(tensor).shape = {1LL << 32, 1LL << 32}; },
       "shape.overflow",
       {tensor}},
      {"a shape larger than the bytes",
       [=](auto& c) {
         auto& shape = c.at(tensor).shape;
         shape[0] = shape[0].template get<std::int64_t>() + 1;
       },
       "tensor.size",
       {tensor}},
      {"a hole between tensors",
       [=](auto& c) { c.at(tensor).bytes.resize(c.at(tensor).bytes.size() + 8); },
       "tensor.size",
       {tensor}},
      {"a key twice",
       written(edit_header(file, "\"model.norm.weight\"", "\"model.norm.weighs\"")),
       "tensor.missing",
       {"model.norm.weight"}},
      {"config.json is no JSON",
       written([](const auto& f) { std::ofstream(f / "config.json") << "{\"a\": "; }),
       "json.syntax",
       {"config.json"}},
      {"no config.json",
       written([](const auto& f) { std::filesystem::remove(f / "config.json"); }),
       "file.open",
       {"config.json"}},
  };
}

TEST(FileMutations, OneFile) {
  try_mutations("qwen3moe-gptq-w4g128-sym", of_files("model.safetensors", "model.layers.0.self_attn.q_proj.qweight"));
  try_mutations("mixtral-awq-w4g32", of_files("model.safetensors", "model.layers.0.self_attn.q_proj.qweight"));
}

TEST(FileMutations, Shards) {
  const std::string first = "model-00001-of-00002.safetensors";
  const std::string second = "model-00002-of-00002.safetensors";
  const std::string tensor = "model.layers.0.mlp.experts.3.gate_proj.weight";
  std::vector<Mutation> all = of_files(second, "model.layers.2.mlp.experts.3.gate_proj.weight");
  std::erase_if(all, [](const Mutation& m) { return m.name == "a key twice"; });
  const std::vector<Mutation> shards{
      {"a shard absent",
       written([=](const auto& f) { std::filesystem::remove(f / second); }),
       "shard.missing",
       {second}},
      {"a shard outside of the folder",
       [=](auto& c) {
         c.keep_index = true;
         c.index["weight_map"][tensor] = "../" + first;
       },
       "shard.path",
       {"../" + first}},
      {"a tensor in another shard than the index says",
       [=](auto& c) {
         c.keep_index = true;
         c.index["weight_map"][c.shard_of(tensor) == first ? tensor : "lm_head.weight"] = second;
       },
       "shard.missing",
       {second}},
      {"a tensor that only the index knows",
       [=](auto& c) {
         c.keep_index = true;
         c.index["weight_map"]["model.layers.9.nothing"] = first;
       },
       "shard.missing",
       {"model.layers.9.nothing"}},
      {"a tensor in both shards",
       [=](auto& c) { c.shards[second]["lm_head.weight"] = c.shards[first]["lm_head.weight"]; },
       "tensor.duplicate",
       {"lm_head.weight"}},
      {"an index that is no JSON",
       written([](const auto& f) { std::ofstream(f / "model.safetensors.index.json") << "[1,"; }),
       "json.syntax",
       {"index.json"}},
  };
  all.insert(all.end(), shards.begin(), shards.end());
  try_mutations("quark-mxfp4-a8fp8-qwen3_moe", all);
  try_mutations("modelopt-w4a16nvfp4-qwen3_moe", shards);
}

}  // namespace
}  // namespace moracle::test
