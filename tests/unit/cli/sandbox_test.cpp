// What is given up is refused, and what serving needs goes on. Each test's filter is that of a process of its own.
#include "cli/sandbox.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <functional>
#include <string>
#include <thread>

#include "support/temporary_folder.h"

namespace moracle::cli {
namespace {

// Exit codes of the process that tries.
constexpr int kHeld = 0;
constexpr int kUnavailable = 77;

bool refused(long result) {
  return result == -1 && errno == EPERM;
}

// The number of the first expectation that fails, counted from 1; `attempts` run behind the filter.
int in_sandbox(const SandboxOptions& options, const std::function<int()>& attempts) {
  const pid_t child = fork();
  if (child == 0) _exit(enter_sandbox(options).ok() ? attempts() : kUnavailable);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

int first_false(std::initializer_list<bool> expectations) {
  int number = 0;
  for (const bool held : expectations) {
    ++number;
    if (!held) return number;
  }
  return kHeld;
}

class Sandbox : public testing::Test {
 protected:
  void SetUp() override {
    if (!has_sandbox()) GTEST_SKIP() << "built without libseccomp, or with a sanitizer";
    if (in_sandbox({}, [] { return kHeld; }) == kUnavailable) GTEST_SKIP() << "this kernel filters no calls";
    folder_.write("file", "text");
    path_ = (folder_.path() / "file").string();
    fresh_ = (folder_.path() / "fresh").string();
  }
  test::TemporaryFolder folder_;
  std::string path_, fresh_;
};

TEST_F(Sandbox, OpensNoConnection) {
  const int earlier = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_GE(earlier, 0);
  EXPECT_EQ(in_sandbox({},
                       [earlier] {
                         sockaddr_in to{};
                         to.sin_family = AF_INET;
                         to.sin_port = htons(9);
                         to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                         const auto* const address = reinterpret_cast<const sockaddr*>(&to);
                         return first_false({refused(socket(AF_INET, SOCK_STREAM, 0)),
                                             refused(socket(AF_UNIX, SOCK_DGRAM, 0)),
                                             refused(connect(earlier, address, sizeof to)),
                                             refused(bind(earlier, address, sizeof to))});
                       }),
            kHeld);
  close(earlier);
}

TEST_F(Sandbox, RunsNoProgramAndReadsNoProcess) {
  EXPECT_EQ(
      in_sandbox({},
                 [] {
                   std::array<char*, 1> none{nullptr};
                   return first_false({refused(execve("/bin/true", none.data(), none.data())),
                                       refused(syscall(SYS_execveat, AT_FDCWD, "/bin/true", nullptr, nullptr, 0)),
                                       refused(ptrace(PTRACE_TRACEME, 0, nullptr, nullptr)),
                                       refused(syscall(SYS_process_vm_readv, getppid(), nullptr, 0, nullptr, 0, 0)),
                                       refused(syscall(SYS_io_uring_setup, 1, nullptr))});
                 }),
      kHeld);
}

TEST_F(Sandbox, OpensNoFileForWriting) {
  EXPECT_EQ(in_sandbox({},
                       [this] {
                         const char* const path = path_.c_str();
                         const int reading = open(path, O_RDONLY | O_CLOEXEC);
                         char byte = 0;
                         return first_false({refused(open(path, O_WRONLY)), refused(open(path, O_RDWR)),
                                             refused(open(path, O_RDONLY | O_TRUNC)),
                                             refused(open(fresh_.c_str(), O_RDONLY | O_CREAT, 0600)),
                                             refused(syscall(SYS_openat2, AT_FDCWD, path, nullptr, 0)),
                                             refused(truncate(path, 0)), refused(rename(path, fresh_.c_str())),
                                             reading >= 0, read(reading, &byte, 1) == 1});
                       }),
            kHeld);
  EXPECT_EQ(access(fresh_.c_str(), F_OK), -1);
}

TEST_F(Sandbox, DeviceFilesOpenForReadingAndWritingWhereADriverNeedsThem) {
  EXPECT_EQ(in_sandbox({.opens_devices = true},
                       [this] {
                         const char* const path = path_.c_str();
                         return first_false({open("/dev/null", O_RDWR | O_CLOEXEC) >= 0, refused(open(path, O_WRONLY)),
                                             refused(open(path, O_RDWR | O_TRUNC)),
                                             refused(open(fresh_.c_str(), O_RDWR | O_CREAT, 0600)),
                                             refused(socket(AF_INET, SOCK_STREAM, 0))});
                       }),
            kHeld);
}

TEST_F(Sandbox, HoldsThreadsThatRunAlready) {
  EXPECT_EQ(in_sandbox({}, [] { return kHeld; }), kHeld);
  const pid_t child = fork();
  if (child == 0) {
    std::atomic<int> turn{0};
    std::atomic<bool> held{false};
    std::thread earlier([&] {
      while (turn == 0) std::this_thread::yield();
      held = refused(socket(AF_INET, SOCK_STREAM, 0));
    });
    const bool entered = enter_sandbox({}).ok();
    turn = 1;
    earlier.join();
    bool later = false;
    std::thread([&] { later = refused(socket(AF_INET, SOCK_STREAM, 0)); }).join();
    _exit(first_false({entered, held, later}));
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), kHeld);
}

TEST_F(Sandbox, ListeningSocketsGoOnAccepting) {
  const int listening = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in here{};
  here.sin_family = AF_INET;
  here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listening, reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
  ASSERT_EQ(listen(listening, 1), 0);
  socklen_t size = sizeof here;
  ASSERT_EQ(getsockname(listening, reinterpret_cast<sockaddr*>(&here), &size), 0);
  const int client = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(client, reinterpret_cast<const sockaddr*>(&here), sizeof here), 0);
  EXPECT_EQ(in_sandbox({},
                       [listening] {
                         const int accepted = accept(listening, nullptr, nullptr);
                         return first_false({accepted >= 0, write(accepted, "x", 1) == 1});
                       }),
            kHeld);
  char byte = 0;
  EXPECT_EQ(read(client, &byte, 1), 1);
  close(client);
  close(listening);
}

}  // namespace
}  // namespace moracle::cli
