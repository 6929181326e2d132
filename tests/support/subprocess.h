// Runs a program and collects what it says.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace moracle::test {

struct RunOptions {
  std::string input{};            // what standard input holds
  std::string stdout_path{};      // open this file for standard output instead of a pipe
  bool close_stdout = false;      // start without a standard output
  std::size_t hang_up_after = 0;  // close the reading end of standard output after so many bytes
  std::string signal_on{};        // send `signal` once standard error or output contains this text
  int signal = SIGINT;
  double signal_after_s = 0;  // or send it after this time
  double limit_s = 300;
  std::uint64_t address_space = 0;  // bytes of memory the program may map; 0: as many as this process
  std::uint64_t most_tasks = 0;     // processes and threads its user may have, who is another one than root; 0: any
};

struct RunOutcome {
  int code = -1;  // exit code; 128 + n when a signal ended it
  bool signalled = false;
  bool timed_out = false;
  double cpu_s = 0;  // user and system time
  std::string out;
  std::string err;
};

// A user number that nobody has, not even a test beside this one.
inline uid_t user_without_processes() {
  return 20000U + static_cast<uid_t>(getpid()) % 40000U;
}

inline RunOutcome run_process(const std::vector<std::string>& arguments, const RunOptions& options = {}) {
  std::array<int, 2> out{};
  std::array<int, 2> err{};
  RunOutcome outcome;
  if (pipe2(out.data(), O_CLOEXEC) != 0 || pipe2(err.data(), O_CLOEXEC) != 0) return outcome;
  const pid_t child = fork();
  if (child == 0) {
    if (options.address_space > 0) {
      const rlimit limit{options.address_space, options.address_space};
      setrlimit(RLIMIT_AS, &limit);
    }
    if (options.most_tasks > 0) {
      const uid_t user = user_without_processes();  // root is held to no such limit
      const rlimit limit{options.most_tasks, options.most_tasks};
      if (geteuid() == 0 && setresuid(user, user, user) != 0) _exit(127);
      setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // its search for leaks is a task more
      setrlimit(RLIMIT_NPROC, &limit);
    }
    const int input = memfd_create("input", 0);
    if (write(input, options.input.data(), options.input.size()) < 0) _exit(127);
    lseek(input, 0, SEEK_SET);
    dup2(input, 0);
    if (options.close_stdout) {
      close(1);
    } else {
      dup2(options.stdout_path.empty() ? out[1] : open(options.stdout_path.c_str(), O_WRONLY), 1);
    }
    dup2(err[1], 2);
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(out[1]);
  close(err[1]);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(options.limit_s);
  const auto started = std::chrono::steady_clock::now();
  bool sent = options.signal_on.empty() && options.signal_after_s <= 0;
  std::array<pollfd, 2> polls = {pollfd{out[0], POLLIN, 0}, pollfd{err[0], POLLIN, 0}};
  while (polls[0].fd >= 0 || polls[1].fd >= 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      outcome.timed_out = true;
      kill(child, SIGKILL);
      break;
    }
    poll(polls.data(), polls.size(), 20);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - started;
    if (!sent && options.signal_after_s > 0 && elapsed.count() > options.signal_after_s) {
      sent = true;
      kill(child, options.signal);
    }
    for (std::size_t i = 0; i < 2; ++i) {
      if (polls[i].fd < 0 || (polls[i].revents & (POLLIN | POLLHUP)) == 0) continue;
      std::array<char, 4096> buffer{};
      const ssize_t count = read(polls[i].fd, buffer.data(), buffer.size());
      std::string& text = i == 0 ? outcome.out : outcome.err;
      if (count > 0) text.append(buffer.data(), static_cast<std::size_t>(count));
      const bool hang_up = i == 0 && options.hang_up_after > 0 && text.size() >= options.hang_up_after;
      if (count <= 0 || hang_up) {
        close(polls[i].fd);
        polls[i].fd = -1;
      }
      if (!sent && !options.signal_on.empty() && text.find(options.signal_on) != std::string::npos) {
        sent = true;
        kill(child, options.signal);
      }
    }
  }
  for (const pollfd& one : polls) {
    if (one.fd >= 0) close(one.fd);
  }
  int status = 0;
  rusage usage{};
  while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR) {
  }
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  outcome.cpu_s = seconds(usage.ru_utime) + seconds(usage.ru_stime);
  outcome.signalled = WIFSIGNALED(status);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return outcome;
}

}  // namespace moracle::test
