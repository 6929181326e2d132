#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "format/decode/plain.h"
#include "format/formats.h"
#include "format/rules/quant_config.h"

namespace moracle {
namespace {

using Maker = Result<std::unique_ptr<Format>> (*)(const QuantConfig&);

struct Row {
  std::string_view method;  // quant_method, as label_of writes it
  Maker make;
};

constexpr std::array kFormats{
    Row{"gptq", make_gptq},
    Row{"awq", make_awq},
    Row{"auto-round", make_auto_round},
    Row{"compressed-tensors", make_compressed_tensors},
    Row{"quark", make_quark},
    Row{"modelopt", make_modelopt},
    Row{"modelopt-fp4", make_modelopt},
    Row{"modelopt-mixed", make_modelopt},
    Row{"modelopt-mxfp8", make_modelopt},
    Row{"mxfp8", make_modelopt},
    Row{"fp8", make_fp8},
    Row{"mxfp4", make_mxfp4},
};

// What else tools and engines call the same layouts.
constexpr std::array<std::pair<std::string_view, std::string_view>, 17> kAliases{{{"autoround", "auto-round"},
                                                                                  {"inc", "auto-round"},
                                                                                  {"gptqmodel", "gptq"},
                                                                                  {"auto-gptq", "gptq"},
                                                                                  {"autogptq", "gptq"},
                                                                                  {"gptq-marlin", "gptq"},
                                                                                  {"auto-awq", "awq"},
                                                                                  {"autoawq", "awq"},
                                                                                  {"awq-marlin", "awq"},
                                                                                  {"fbgemm-fp8", "fp8"},
                                                                                  {"finegrained-fp8", "fp8"},
                                                                                  {"fine-grained-fp8", "fp8"},
                                                                                  {"deepseek-fp8", "fp8"},
                                                                                  {"block-fp8", "fp8"},
                                                                                  {"blockwise-fp8", "fp8"},
                                                                                  {"w8a8-fp8", "fp8"},
                                                                                  {"modelopt-fp8", "modelopt"}}};

// In lower case, with dashes, and without the publisher's name that early AutoRound put before it.
std::string label_of(std::string method) {
  for (char& c : method) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  constexpr std::string_view kPublisher = "intel/";
  if (method.starts_with(kPublisher)) method.erase(0, kPublisher.size());
  for (const auto& [alias, name] : kAliases)
    if (method == alias) return std::string(name);
  return method;
}

std::string_view name_of(Maker make) {
  return make == make_gptq ? "gptq" : "awq";
}

// 32-bit words are GPTQ's or AWQ's by the way they lie, whatever the label: null where there are none.
Maker by_words(const QuantConfig& config) {
  if (config.words == WordLayout::none) return nullptr;
  return config.words == WordLayout::along_in ? make_gptq : make_awq;
}

// The section of the one told as that of the other.
void respell(Maker make, QuantConfig& config) {
  config.notes.push_back(config.pointer + "/quant_method = " + config.method + ", and words lie as " +
                         std::string(name_of(make)) + " packs them: they are read as stored");
  const auto rename = [&](const char* from, const char* to) {
    if (!config.values.contains(to) && config.values.contains(from)) config.values[to] = config.values[from];
  };
  rename("w_bit", "bits");
  rename("q_group_size", "group_size");
  for (const char* key : {"checkpoint_format", "format"}) {
    const auto found = config.values.find(key);
    const bool own = make == make_gptq && found != config.values.end() && (*found == "gptq" || *found == "gptq_v2");
    if (found != config.values.end() && !own) config.values.erase(found);
  }
  const auto zeros = config.values.find("zero_point");
  if (zeros != config.values.end() && zeros->is_boolean() && !config.values.contains("sym"))
    config.values["sym"] = !zeros->get<bool>();
}

}  // namespace

Result<std::unique_ptr<Format>> make_format(const Checkpoint& checkpoint) {
  MORACLE_ASSIGN(QuantConfig config, find_quant_config(checkpoint));
  if (config.method.empty()) return make_plain();
  const std::string label = label_of(config.method);
  const auto* const row =
      std::find_if(kFormats.begin(), kFormats.end(), [&](const Row& each) { return each.method == label; });
  Maker make = row == kFormats.end() ? nullptr : row->make;
  const Maker stored = by_words(config);
  if ((make == make_gptq || make == make_awq) && stored != nullptr && stored != make) {
    respell(stored, config);
    make = stored;
  }
  if (make != nullptr) {
    MORACLE_ASSIGN(std::unique_ptr<Format> format, make(config));
    format->set_notes(std::move(config.notes));
    return format;
  }
  std::string known;
  for (const Row& each : kFormats) known += (known.empty() ? "" : ", ") + std::string(each.method);
  return config.error("config.unsupported", "quant_method", "one of " + known, config.method);
}

}  // namespace moracle
