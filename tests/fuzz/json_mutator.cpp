#include "json_mutator.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace moracle::fuzz {

namespace {

using Json = nlohmann::ordered_json;  // the order of keys decides in some formats
constexpr int kMostDepth = 80;        // of what is taken apart: deeper texts change as bytes

// Inputs hold strings that are no UTF-8.
std::string dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

class Mutator {
 public:
  Mutator(const JsonVocabulary& vocabulary, std::mt19937& rng) : vocabulary_(vocabulary), rng_(rng) {}

  void change(Json& root) {
    std::vector<Json*> nodes;
    collect(root, nodes);
    Json& node = *nodes[below(nodes.size())];
    switch (below(11)) {
      case 0:
        return drop(node);
      case 1:
        node = nullptr;
        return;
      case 2:
        node = extreme();
        return;
      case 3:
        return retype(node);
      case 4:
        return nudge(node);
      case 5:
        return add(node);
      case 6:
        return rename(node);
      case 7:
        return repeat(node);
      case 8:
        node = Json(*nodes[below(nodes.size())]);
        return;
      case 9:
        return exchange(node);
      default:
        return respell(node);
    }
  }

  void change_some(Json& root) {
    for (std::size_t changes = 1 + below(4); changes > 0; --changes) change(root);
  }

  std::string bytes(std::string text) {
    const std::size_t size = text.size();
    text.resize(size + 64);
    text.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(text.data()), size, text.size()));
    return text;
  }

  // A key of some object a second time, spelled as it is or with an escape.
  std::string duplicate_key(const std::string& text) {
    std::vector<std::size_t> objects;
    for (std::size_t i = 0; i + 1 < text.size(); ++i)
      if (text[i] == '{' && text[i + 1] == '"') objects.push_back(i + 1);
    if (objects.empty()) return text;
    const std::size_t at = objects[below(objects.size())];
    const std::size_t end = text.find('"', at + 1);
    if (end == std::string::npos || end == at + 1) return text;
    std::string key = text.substr(at + 1, end - at - 1);
    if (below(2) == 0 && static_cast<unsigned char>(key[0]) < 0x80 && key[0] != '\\') {
      static constexpr char kHex[] = "0123456789abcdef";
      key = std::string("\\u00") + kHex[static_cast<unsigned char>(key[0]) >> 4U] + kHex[key[0] & 15] + key.substr(1);
    }
    return text.substr(0, at) + "\"" + key + "\":" + dump(extreme()) + "," + text.substr(at);
  }

  std::size_t below(std::size_t count) { return count == 0 ? 0 : rng_() % count; }

  void collect(Json& node, std::vector<Json*>& nodes) {
    nodes.push_back(&node);
    if (node.is_structured())
      for (auto& [key, value] : node.items()) collect(value, nodes);
  }

 private:
  static Json::iterator nth(Json& node, std::size_t n) {
    auto it = node.begin();
    std::advance(it, static_cast<std::ptrdiff_t>(n));
    return it;
  }

  void drop(Json& node) {
    if (node.is_structured() && !node.empty()) {
      node.erase(nth(node, below(node.size())));
    } else {
      node = Json();
    }
  }

  void exchange(Json& node) {
    if (!node.is_structured() || node.size() < 2) return retype(node);
    const auto one = nth(node, below(node.size()));
    const auto other = nth(node, below(node.size()));
    if (one != other) std::swap(*one, *other);
  }

  Json extreme() {
    static const std::vector<Json> kValues{0,
                                           1,
                                           -1,
                                           2,
                                           3,
                                           7,
                                           8,
                                           16,
                                           32,
                                           64,
                                           127,
                                           128,
                                           255,
                                           256,
                                           65535,
                                           1 << 20,
                                           1 << 24,
                                           INT32_MAX,
                                           INT32_MIN,
                                           UINT32_MAX,
                                           std::int64_t{1} << 32,
                                           std::int64_t{1} << 40,
                                           INT64_MAX,
                                           INT64_MIN,
                                           UINT64_MAX,
                                           0.5,
                                           -0.0,
                                           1e-300,
                                           1e300,
                                           -1e300,
                                           1e15,
                                           9.007199254740993e15,
                                           std::numeric_limits<double>::denorm_min(),
                                           true,
                                           false,
                                           "",
                                           "a",
                                           "\xc3\xa9",
                                           std::string(3, '\0'),
                                           "\x1b[31m",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({0}),
                                           Json::array({nullptr}),
                                           Json::array({Json::array()}),
                                           Json::object({{"", nullptr}}),
                                           std::string(300, 'x')};
    return kValues[below(kValues.size())];
  }

  void retype(Json& node) {
    switch (below(6)) {
      case 0:
        node = node.is_string() ? Json(Json::parse(node.get<std::string>(), nullptr, false)) : Json(dump(node));
        if (node.is_discarded()) node = 0;
        return;
      case 1:
        node = Json::array({node});
        return;
      case 2:
        node = Json::object({{word(vocabulary_.keys), node}});
        return;
      case 3:
        if (node.is_structured() && !node.empty()) node = Json(*nth(node, below(node.size())));
        return;
      case 4:
        if (node.is_number()) node = node.get<double>();
        return;
      default:
        node = below(2) == 0;
        return;
    }
  }

  void nudge(Json& node) {
    if (node.is_number_float()) {
      node = node.get<double>() * std::vector<double>{-1, 0.5, 2, 1e10, 1 + 1e-9}[below(5)];
    } else if (node.is_number()) {
      const auto value = node.get<std::int64_t>();
      if (value > INT64_MIN / 4 && value < INT64_MAX / 4) {
        const std::int64_t near[] = {value - 1, value + 1, value * 2, value / 2,
                                     -value,    value * 3, value / 4, value + 8};
        node = near[below(8)];
      }
    } else if (node.is_string()) {
      node = bytes(node.get<std::string>());
    } else if (node.is_array() && node.size() > 1) {
      std::swap(node[below(node.size())], node[below(node.size())]);
    } else {
      node = extreme();
    }
  }

  void add(Json& node) {
    if (node.is_object()) {
      node[word(vocabulary_.keys)] = value();
    } else if (node.is_array() && node.size() < 100'000) {
      node.insert(nth(node, below(node.size() + 1)), value());
    } else {
      node = value();
    }
  }

  void rename(Json& node) {
    if (!node.is_object() || node.empty()) return respell(node);
    const auto it = nth(node, below(node.size()));
    Json moved = *it;
    const std::string key = below(4) == 0 ? bytes(it.key()) : word(vocabulary_.keys);
    node.erase(it);
    node[key] = std::move(moved);
  }

  // An element many times: what is quadratic shows.
  void repeat(Json& node) {
    if (node.is_array() && !node.empty() && node.size() < 20'000) {
      const Json one = node[below(node.size())];
      for (std::size_t count = std::size_t{1} << below(10); count > 0; --count) node.push_back(one);
    } else if (node.is_string() && node.get_ref<const std::string&>().size() < 4096) {
      const std::string once = node;
      std::string text;
      for (std::size_t count = std::size_t{1} << below(8); count > 0; --count) text += once;
      node = text;
    } else {
      node = Json::array({node, node});
    }
  }

  void respell(Json& node) {
    if (node.is_structured()) return add(node);
    node = word(vocabulary_.strings);
  }

  Json value() { return below(2) == 0 ? extreme() : Json(word(vocabulary_.strings)); }

  std::string word(const std::vector<std::string>& words) { return words.empty() ? "x" : words[below(words.size())]; }

  const JsonVocabulary& vocabulary_;
  std::mt19937& rng_;
};

bool nested_too_deep(std::string_view text) {
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth > kMostDepth) return true;
  }
  return false;
}

Json parse(std::string_view text) {
  return nested_too_deep(text) ? Json(Json::value_t::discarded) : Json::parse(text, nullptr, false);
}

}  // namespace

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream stream{std::string(text)};
  return {std::istream_iterator<std::string>(stream), {}};
}

std::string mutate_json(std::string_view text, const JsonVocabulary& vocabulary, std::mt19937& rng) {
  Mutator mutator(vocabulary, rng);
  Json root = parse(text);
  if (root.is_discarded() || mutator.below(24) == 0) return mutator.bytes(std::string(text));
  mutator.change_some(root);
  const std::string changed = dump(root);
  return mutator.below(24) == 0 ? mutator.duplicate_key(changed) : changed;
}

std::string mutate_member(std::string_view text, const char* member, const JsonVocabulary& vocabulary,
                          std::mt19937& rng) {
  Mutator mutator(vocabulary, rng);
  Json root = parse(text);
  if (!root.is_object() || !root.contains(member) || mutator.below(24) == 0) return mutate_json(text, vocabulary, rng);
  mutator.change_some(root[member]);
  return dump(root);
}

std::string cross_json(std::string_view text, std::string_view other, std::mt19937& rng) {
  const JsonVocabulary none;
  Mutator mutator(none, rng);
  Json root = parse(text);
  Json from = parse(other);
  if (root.is_discarded() || from.is_discarded()) return std::string(text);
  std::vector<Json*> nodes;
  std::vector<Json*> gifts;
  mutator.collect(root, nodes);
  mutator.collect(from, gifts);
  Json& node = *nodes[mutator.below(nodes.size())];
  const Json& gift = *gifts[mutator.below(gifts.size())];
  if (node.is_object() && gift.is_object() && mutator.below(2) == 0) {
    node.update(gift);
  } else {
    node = gift;
  }
  return dump(root);
}

std::size_t mutate_bytes(unsigned char* data, std::size_t size, std::size_t most) {
  return LLVMFuzzerMutate(data, size, most);
}

std::size_t give_back(std::string_view text, unsigned char* data, std::size_t most) {
  const std::size_t size = std::min(text.size(), most);
  std::memcpy(data, text.data(), size);
  return size;
}

}  // namespace moracle::fuzz
