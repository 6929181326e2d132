#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "format/formats.h"
#include "format/plain.h"
#include "format/quant_config.h"

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

// In lower case, with dashes, and without the publisher's name that early AutoRound put before it.
std::string label_of(std::string method) {
  for (char& c : method) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    if (c == '_') c = '-';
  }
  constexpr std::string_view kPublisher = "intel/";
  if (method.starts_with(kPublisher)) method.erase(0, kPublisher.size());
  return method == "autoround" ? "auto-round" : method;
}

// GPTQ and AWQ share their tensors' names: how the words lie tells which of the two they are.
Maker by_words(Maker make, QuantConfig& config) {
  const bool swapped = (make == make_gptq && config.words == WordLayout::along_out) ||
                       (make == make_awq && config.words == WordLayout::along_in);
  if (!swapped) return make;
  config.notes.push_back(config.pointer + "/quant_method = " + config.method + ", and words lie as " +
                         (make == make_gptq ? "awq" : "gptq") + " packs them: they are read as stored");
  const auto rename = [&](const char* from, const char* to) {
    if (!config.values.contains(to) && config.values.contains(from)) config.values[to] = config.values[from];
  };
  rename("w_bit", "bits");
  rename("q_group_size", "group_size");
  config.values.erase("checkpoint_format");
  config.values.erase("format");
  if (make == make_gptq) return make_awq;
  const auto zeros = config.values.find("zero_point");
  if (zeros != config.values.end() && zeros->is_boolean() && !config.values.contains("sym"))
    config.values["sym"] = !zeros->get<bool>();
  return make_gptq;
}

}  // namespace

Result<std::unique_ptr<Format>> make_format(const Checkpoint& checkpoint) {
  MORACLE_ASSIGN(QuantConfig config, find_quant_config(checkpoint));
  if (config.method.empty()) return make_plain();
  const std::string label = label_of(config.method);
  std::string known;
  for (const Row& row : kFormats) {
    if (row.method == label) {
      const Maker make = by_words(row.make, config);
      MORACLE_ASSIGN(std::unique_ptr<Format> format, make(config));
      format->set_notes(std::move(config.notes));
      return format;
    }
    known += (known.empty() ? "" : ", ") + std::string(row.method);
  }
  return config.error("config.unsupported", "quant_method", "one of " + known, config.method);
}

}  // namespace moracle
