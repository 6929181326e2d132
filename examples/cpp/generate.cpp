// Generates text, streaming:  generate MODEL PROMPT [MAX_TOKENS]
#include <cstdlib>
#include <iostream>
#include <moracle/moracle.hpp>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: generate MODEL PROMPT [MAX_TOKENS]\n";
    return 2;
  }
  auto engine = moracle::Engine::open(argv[1]);
  if (!engine) {
    std::cerr << "generate: " << engine.error().message << "\n";
    return 1;
  }
  const auto reply =
      engine->generate(argv[2], {.max_tokens = argc > 3 ? std::atol(argv[3]) : 64}, [](std::string_view piece) {
        std::cout << piece << std::flush;
        return true;
      });
  std::cout << "\n";
  if (reply) return 0;
  std::cerr << "generate: " << reply.error().message << "\n";
  return 1;
}
