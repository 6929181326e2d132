// Moracle's public C++ interface: open a quantized mixture-of-experts model as published, learn which kernels serve it
// and why, generate text.
//
//   moracle::Options options;
//   options.model = "./Qwen3-30B-A3B-GPTQ-Int4";
//   auto opened = moracle::Engine::open(options);
//   if (!opened.engine) { std::cerr << opened.error << "\n"; return 1; }
//   opened.engine->generate("The purpose of a package manager is to", {.max_tokens = 64},
//                           [](std::string_view piece) { std::cout << piece; return true; });
//
// Nothing here throws on bad input; errors are texts that name the file, the rule, what was wanted and what was found.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace moracle {

// What to open, and how kernels are chosen.
struct Options {
  std::string model;             // folder in Hugging Face layout, untouched
  std::string backend;           // pins a backend; empty: the oracle's choice
  bool fast = false;             // kernels may quantize activations further than published
  bool batch_invariant = false;  // only kernels with one accumulation order for every batch
  int threads = 0;               // 0: the cores of this machine
};

// How tokens are chosen. The defaults are greedy.
struct GenerateRequest {
  std::int64_t max_tokens = 512;
  double temperature = 0.0;  // 0: greedy
  std::int64_t top_k = 0;    // 0: all
  double top_p = 1.0;        // (0, 1]
  double min_p = 0.0;        // [0, 1]
  std::uint64_t seed = 0;
  bool chat = false;  // apply the model's chat template, the prompt being one message of the user
};

struct GenerateReply {
  std::string error;  // empty: it worked, or was stopped by the callback
  std::string text;
  std::vector<std::int32_t> prompt_ids;
  std::vector<std::int32_t> ids;  // generated, an end-of-sequence token included
  std::string finish_reason;      // "stop", "length", "interrupted"
};

// One loaded model. Not thread-safe: one call at a time.
class Engine {
 public:
  struct Opened {
    std::unique_ptr<Engine> engine;  // null when `error` is not empty
    std::string error;
  };
  // Validates the whole folder, decides, packs. On error nothing stays behind.
  static Opened open(const Options& options);

  // The oracle's decision for the layers of a checkpoint on a machine, from headers alone, as the JSON document of
  // `moracle explain --json`. `device` is "cpu", a known name, or a JSON file. On error the text goes to `error` and
  // the result is empty.
  static std::string explain(const Options& options, const std::string& device, std::string& error);

  // Streams text as it is settled; never half a UTF-8 character. The callback returns false to stop; it may be empty.
  GenerateReply generate(std::string_view prompt, const GenerateRequest& request,
                         const std::function<bool(std::string_view piece)>& on_text);

  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;
  ~Engine();

 private:
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace moracle
