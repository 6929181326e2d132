// What the system lists of this process: its files, its threads.
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <string>
#include <thread>

namespace moracle::test {

inline std::size_t entries_of(const char* folder) {
  const std::filesystem::directory_iterator all(folder);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// Of this process now. A sanitizer's own thread begins with the first of a program, so one comes and goes before.
inline std::size_t threads_now() {
  pid_t first = 0;
  std::thread([&first] { first = gettid(); }).join();
  while (std::filesystem::exists("/proc/self/task/" + std::to_string(first)))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return entries_of("/proc/self/task");
}

// Once `most` are left, or after 10 seconds: a thread that was joined is listed for a moment more.
inline std::size_t threads_left(std::size_t most) {
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::seconds(10);
  while (entries_of("/proc/self/task") > most && steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return entries_of("/proc/self/task");
}

}  // namespace moracle::test
