// Continues several prompts at once:  batch MODEL MAX_TOKENS PROMPT [PROMPT ...]
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <moracle/moracle.hpp>
#include <string>

namespace {

int fail(const moracle::Error& error) {
  std::cerr << "batch: " << error.message << "\n";
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::cerr << "usage: batch MODEL MAX_TOKENS PROMPT [PROMPT ...]\n";
    return 2;
  }
  auto engine = moracle::Engine::open(argv[1]);
  if (!engine) return fail(engine.error());
  auto scheduler = moracle::Scheduler::open(*engine);
  if (!scheduler) return fail(scheduler.error());
  std::map<std::uint64_t, std::string> answers;
  for (int i = 3; i < argc; ++i) {
    const auto prompt = engine->tokenize(argv[i]);
    if (!prompt) return fail(prompt.error());
    const auto request = scheduler->submit(prompt->ids, {.generate = {.max_tokens = std::atol(argv[2])}});
    if (!request) return fail(request.error());
    answers[*request] = argv[i];
  }
  bool failed = false;
  for (bool more = true; more;) {
    const auto step = scheduler->step([&](const moracle_event& event) {
      answers[event.request].append(event.text, event.bytes);
      if (event.kind != MORACLE_EVENT_END) return;
      std::cout << answers[event.request] << "\n";
      if (event.error != nullptr) {
        std::cerr << "batch: " << event.error->message << "\n";
        failed = true;
      }
    });
    if (!step) return fail(step.error());
    more = *step;
  }
  return failed ? 1 : 0;
}
