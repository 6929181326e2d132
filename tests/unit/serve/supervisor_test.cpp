// What is sent to a supervisor, and when.
#include "serve/supervisor.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstring>
#include <thread>

#include "support/temporary_folder.h"

namespace moracle::serve {
namespace {

class Listener {
 public:
  explicit Listener(const std::string& path) : socket_(socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::memcpy(at.sun_path, path.data(), path.size());
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
  }

  // Empty: nothing is there.
  [[nodiscard]] std::string heard() const {
    std::array<char, 200> words{};
    const ssize_t size = recv(socket_.get(), words.data(), words.size(), 0);
    return size < 0 ? "" : std::string(words.data(), static_cast<std::size_t>(size));
  }

 private:
  FileDescriptor socket_;
};

TEST(Supervisor, HearsOfTheStartOfStepsAndOfTheEnd) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "notify").string();
  const Listener listener(path);
  Supervisor supervisor(path, std::chrono::milliseconds(60));
  supervisor.ready();
  EXPECT_TRUE(listener.heard().starts_with("READY=1\n"));
  supervisor.live(false);
  EXPECT_EQ(listener.heard(), "") << "an engine that stalls gives no sign";
  supervisor.live(true);
  EXPECT_EQ(listener.heard(), "WATCHDOG=1");
  supervisor.live(true);
  EXPECT_EQ(listener.heard(), "") << "it is too early for another";
  std::this_thread::sleep_for(std::chrono::milliseconds(31));
  supervisor.live(true);
  EXPECT_EQ(listener.heard(), "WATCHDOG=1");
  supervisor.stopping();
  EXPECT_TRUE(listener.heard().starts_with("STOPPING=1\n"));
}

TEST(Supervisor, NobodyIsToldWhereNobodyAsks) {
  const test::TemporaryFolder folder;
  const std::string path = (folder.path() / "notify").string();
  const Listener listener(path);
  Supervisor quiet(path, std::chrono::microseconds(0));
  quiet.live(true);
  EXPECT_EQ(listener.heard(), "");
  for (const std::string& address : {std::string(), std::string("name"), std::string(200, '/'), path + "-absent"}) {
    Supervisor nobody(address, std::chrono::microseconds(1));
    nobody.ready();
    nobody.live(true);
    nobody.stopping();
  }
}

}  // namespace
}  // namespace moracle::serve
