// Whether the readers of JSON take time in proportion to the text: shapes that once took its square, at n and at 4n
// values. Exit code 1 where 4n takes more than 8 times as long.
//   cmake --build build/release --target json_bench && build/release/bench/json_bench
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "base/json.h"
#include "checkpoint/safetensors_header.h"
#include "checkpoint/shard_index.h"

namespace {

using Text = std::function<std::string(int count)>;

std::string joined(const char* open, int count, const char* close, const std::function<std::string(int)>& item) {
  std::string text = open;
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ",") + item(i);
  return text + close;
}

std::string member(int i, const std::string& value) {
  return "\"key" + std::to_string(i) + "\":" + value;
}

std::string header(int tensors) {
  const std::string json = joined("{", tensors, "}", [](int i) {
    return member(i, "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[" + std::to_string(i) + "," +
                         std::to_string(i + 1) + "]}");
  });
  std::string text;
  for (int byte = 0; byte < 8; ++byte) text += static_cast<char>(json.size() >> (8 * byte) & 0xFFU);
  return text + json;
}

struct Row {
  const char* name;
  int count;
  Text text;
  std::function<bool(const std::string&, int)> read;
};

bool read_document(const std::string& text, int) {
  return moracle::parse_json(text, "bench").ok();
}

std::vector<Row> rows() {
  const auto document = [](const char* name, int count, Text text) {
    return Row{name, count, std::move(text), read_document};
  };
  return {
      document("members of one object", 100000,
               [](int n) { return joined("{", n, "}", [](int i) { return member(i, "0"); }); }),
      document("members, keys falling", 100000,
               [](int n) { return joined("{", n, "}", [n](int i) { return member(9999999 + n - i, "0"); }); }),
      document("small objects in a list", 100000,
               [](int n) { return joined("[", n, "]", [](int) { return "{\"a\":0,\"b\":{}}"; }); }),
      document("small objects as members", 50000,
               [](int n) { return joined("{", n, "}", [](int i) { return member(i, "{\"a\":{\"b\":1}}"); }); }),
      document("numbers in a list", 200000,
               [](int n) { return joined("[", n, "]", [](int i) { return std::to_string(i) + ".5"; }); }),
      document("lists in a list", 100000, [](int n) { return joined("[", n, "]", [](int) { return "[[]]"; }); }),
      document("one long string", 2000000,
               [](int n) { return "\"" + std::string(static_cast<std::size_t>(n), 'x') + "\""; }),
      document("escapes", 300000, [](int n) { return joined("[\"", n, "\"]", [](int) { return "\\u00e4\\n"; }); }),
      {"tensors of a header", 50000, header,
       [](const std::string& text, int n) {
         return moracle::parse_header(std::as_bytes(std::span(text)), text.size() + static_cast<std::size_t>(n),
                                      "bench")
             .ok();
       }},
      {"tensors of an index", 50000,
       [](int n) {
         return "{\"weight_map\":" + joined("{", n, "}", [](int i) { return member(i, "\"a.safetensors\""); }) + "}";
       },
       [](const std::string& text, int) { return moracle::parse_shard_index(text, "bench").ok(); }},
  };
}

// Best of several, in seconds; negative where the text is refused.
double best_of(const Row& row, int count) {
  const std::string text = row.text(count);
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    if (!row.read(text, count)) return -1;
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return best;
}

}  // namespace

int main() {
  bool good = true;
  for (const Row& row : rows()) {
    const double once = best_of(row, row.count);
    const double four = best_of(row, 4 * row.count);
    const double ratio = four / once;
    const bool linear = once > 0 && four > 0 && ratio < 8;
    good = good && linear;
    std::printf("%-26s %8d: %8.2f ms, 4 times as many: %8.2f ms, x%.2f%s\n", row.name, row.count, once * 1e3,
                four * 1e3, ratio, linear ? "" : "  NOT LINEAR");
  }
  return good ? 0 : 1;
}
