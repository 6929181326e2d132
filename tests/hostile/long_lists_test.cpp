// Lists and names of a stranger's files that are too long to be worked through: refused or served, soon.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>

#include "base/json.h"
#include "hostile/hostile_run.h"
#include "support/temporary_folder.h"

namespace moracle::test {
namespace {

constexpr int kMany = 100'000;
constexpr const char* kGptq = "qwen3moe-gptq-w4g128-sym";
constexpr const char* kAwq = "mixtral-awq-w4g32";
constexpr const char* kCompressed = "field/07-ct-stacked-experts-param-names";
constexpr const char* kQuark = "field/11-quark-excluded-keeps-fp8-blocks";
constexpr const char* kFp8 = "field/08-fp8-stacked-scale-inv";
constexpr const char* kAutoRound = "field/10-autoround-packing-auto_round";
constexpr const char* kModelOpt = "families/gpt_oss-modelopt";

Json many_texts(const std::string& before, const std::string& behind = "", int count = kMany) {
  Json list = Json::array();
  for (int i = 0; i < count; ++i) list.push_back(before + std::to_string(i) + behind);
  return list;
}

Json many_members(const Json& value, const std::string& before = "x", int count = kMany) {
  Json object = Json::object();
  for (int i = 0; i < count; ++i) object[before + std::to_string(i)] = value;
  return object;
}

struct Case {
  const char* name;
  const char* base;
  std::function<void(Json& section, Json& config)> edit;
  const char* want;  // empty: it is served
};
void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

class LongLists : public testing::Test {
 protected:
  void copy(const std::string& base) {
    std::filesystem::copy(hostile_base(base), model_, std::filesystem::copy_options::recursive);
  }
  [[nodiscard]] Json read(const char* name) const {
    auto json = read_json(model_ / name);
    return json.ok() ? *std::move(json) : Json::object();
  }
  void write(const char* name, const Json& json) { std::ofstream(model_ / name) << json.dump(); }
  [[nodiscard]] std::vector<std::string> run() const {
    return {"run", model_.string(), "-p", "ab a", "-n", "2", "--temperature", "0", "--threads", "1"};
  }

  TemporaryFolder temporary_;
  std::filesystem::path model_ = temporary_.path() / "model";
};

class LongSections : public LongLists, public testing::WithParamInterface<Case> {};

TEST_P(LongSections, EndSoon) {
  copy(GetParam().base);
  Json config = read("config.json");
  Json section = config.at("quantization_config");
  GetParam().edit(section, config);
  config["quantization_config"] = section;
  write("config.json", config);
  expect_soon({"explain", model_.string()}, GetParam().want, std::string(GetParam().want).empty());
}

const std::vector<Case> kCases = {
    {"gptq_dynamic", kGptq, [](Json& s, Json&) { s["dynamic"] = many_members(Json::object()); }, "regular expressions"},
    {"gptq_members_beside", kGptq,
     [](Json& s, Json& config) {
       s["dynamic"] = {{"-:x", Json::object()}, {"-:y", Json::object()}};
       config["beside"] = many_members(0);
     },
     ""},
    {"awq_components", kAwq, [](Json& s, Json&) { s["modules_to_not_convert"] = many_texts("x"); }, "config.range"},
    {"ct_ignore", kCompressed, [](Json& s, Json&) { s["ignore"] = many_texts("x", "", 300'000); }, "config.range"},
    {"ct_groups", kCompressed,
     [](Json& s, Json&) { s["config_groups"] = many_members(s.at("config_groups").front(), "g", 20'000); },
     "config_groups"},
    {"ct_groups_in_a_long_section", kCompressed,
     [](Json& s, Json&) {
       s["config_groups"] = many_members(s.at("config_groups").front(), "g", 250);
       s["beside"] = many_members(0);
     },
     ""},
    {"ct_classes", kCompressed,
     [](Json& s, Json&) { s["config_groups"].front()["targets"] = many_texts("X", "", 300'000); }, "config.range"},
    {"quark_rules", kQuark,
     [](Json& s, Json&) { s["layer_quant_config"] = many_members(s.at("global_quant_config"), "*x", 20'000); },
     "layer_quant_config"},
    {"quark_exclude", kQuark, [](Json& s, Json&) { s["exclude"] = many_texts("*x", "*"); }, "config.range"},
    {"fp8_ignored", kFp8, [](Json& s, Json&) { s["ignored_layers"] = many_texts("x"); }, "config.range"},
    {"autoround_modules", kAutoRound, [](Json& s, Json&) { s["extra_config"] = many_members({{"bits", 4}}); }, ""},
    {"modelopt_wildcards", kModelOpt, [](Json& s, Json&) { s["exclude_modules"] = many_texts("*x", "*"); },
     "config.range"},
};
INSTANTIATE_TEST_SUITE_P(, LongSections, testing::ValuesIn(kCases), [](const auto& one) { return one.param.name; });

// Adds so many tensors of one byte to a file of weights; `name` tells what the n-th is called.
void add_tensors(const std::filesystem::path& path, int count, const std::function<std::string(int)>& name) {
  std::string bytes;
  {
    std::ifstream file(path, std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  std::uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  std::string header = bytes.substr(8, length);
  const std::uint64_t end = bytes.size() - 8 - length;
  header.erase(header.rfind('}'));
  for (int i = 0; i < count; ++i) {
    const std::uint64_t begin = end + static_cast<std::uint64_t>(i);
    header += ",\"" + name(i) + R"(":{"dtype":"U8","shape":[1],"data_offsets":[)" + std::to_string(begin) + "," +
              std::to_string(begin + 1) + "]}";
  }
  header += "}";
  const std::uint64_t size = header.size();
  std::ofstream(path, std::ios::binary) << std::string(reinterpret_cast<const char*>(&size), 8) << header
                                        << bytes.substr(8 + length)
                                        << std::string(static_cast<std::size_t>(count), '\0');
}

// Of a leaf with so many joints that any could end a module's name.
TEST_F(LongLists, OfJointsInANameEndSoon) {
  copy(kAwq);
  add_tensors(model_ / "model.safetensors", 1,
              [](int) { return "model.layers.0.block_sparse_moe." + std::string(kMany, '_'); });
  expect_soon({"explain", model_.string()}, "tensor.unused", false);
}

TEST_F(LongLists, OfStopTextsEndSoon) {
  copy(kAwq);
  write("generation_config.json", {{"stop_strings", many_texts("x")}});
  expect_soon(run(), "stop_strings", false);
  write("generation_config.json", {{"stop_strings", std::string(kMany, 'x')}});
  expect_soon(run(), "stop_strings", false);
}

// Keys in an order that no writer has, in the number that a long file holds.
std::string scattered_members(int count, const std::function<std::string(int)>& value) {
  constexpr std::int64_t kPrime = 8'000'009;
  std::string text;
  for (std::int64_t i = 0; i < count; ++i) {
    text += (i > 0 ? ",\"k" : "\"k") + std::to_string(i * 4'000'037 % kPrime) + "\":" + value(static_cast<int>(i));
  }
  return text;
}

TEST_F(LongLists, OfMembersInAConfigEndSoon) {
  copy(kAwq);
  const auto one = [](int) { return "1"; };
  const std::string config = read("config.json").dump();
  for (const int count : {500'000, 4'000'000}) {
    std::ofstream(model_ / "config.json")
        << config.substr(0, config.size() - 1) << R"(,"beside":{)" << scattered_members(count, one) << "}}";
    expect_soon(run(), "json.values", count == 500'000);
  }
}

TEST_F(LongLists, OfTokensEndSoon) {
  copy(kAwq);
  std::string tokenizer = read("tokenizer.json").dump();
  const std::string key = R"("vocab":{)";
  for (const int count : {500'000, 1'500'000}) {
    std::string longer = tokenizer;
    longer.insert(longer.find(key) + key.size(),
                  scattered_members(count, [](int i) { return std::to_string(5000 + i); }) + ",");
    std::ofstream(model_ / "tokenizer.json") << longer;
    expect_soon(run(), "json.values", count == 500'000);
  }
}

// Names in an order that no writer has: beside the model, where they belong to none of its modules, and where any of
// many joints could end a module's name.
TEST_F(LongLists, OfTensorsInAHeaderEndSoon) {
  const auto scattered = [](const std::string& before, const std::string& behind) {
    return [=](int i) { return before + std::to_string(std::int64_t{i} * 400'037 % 800'011) + behind; };
  };
  struct Header {
    int count;
    std::function<std::string(int)> name;
    const char* want;
  };
  for (const Header& header :
       {Header{250'000, scattered("beside.", ""), ""}, Header{400'000, scattered("beside.", ""), "header.entries"},
        Header{250'000, scattered("model.layers.0.block_sparse_moe.experts.s", ""), "tensor.unused"},
        Header{250'000, scattered("model.layers.0.a_b_c_d_e_f_g_h_i_j_k_l", "_k_scale"), "tensor.unused"}}) {
    SCOPED_TRACE(header.name(0));
    std::filesystem::remove_all(model_);
    copy(kAwq);
    add_tensors(model_ / "model.safetensors", header.count, header.name);
    expect_soon({"explain", model_.string()}, header.want, std::string(header.want).empty());
  }
}

TEST_F(LongLists, OfTensorsInAnIndexEndSoon) {
  copy(kAwq);
  for (const int count : {390'000, 4'000'000}) {
    std::ofstream(model_ / "model.safetensors.index.json")
        << R"({"metadata":{},"weight_map":{)" << scattered_members(count, [](int) { return "\"model.safetensors\""; })
        << "}}";
    expect_soon(run(), count == 390'000 ? "shard.missing" : "shard.index", false);
  }
}

}  // namespace
}  // namespace moracle::test
