#include <catch2/catch.hpp>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "system/file.h"

using namespace daqiri;

namespace {

struct Named {
  Named() {
    const int fd = mkstemp(path.data());
    REQUIRE(fd >= 0);
    file = File(fd);
  }
  Named(const Named&) = delete;
  Named& operator=(const Named&) = delete;
  ~Named() { unlink(path.c_str()); }
  [[nodiscard]] bool locked() const {
    const File other(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return flock(other.fd(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  }
  std::string path{std::string(P_tmpdir) + "/daqiri-file-XXXXXX"};
  File file;
};

/// A child that lives until it is ended here.
class Child {
 public:
  Child() : pid_(fork()) {
    if (pid_ > 0) return;
    for (;;) pause();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  pid_t pid_;
};

}  // namespace

TEST_CASE("A forked child does not keep the lock of a file that is kept from it", "[file]") {
  const bool kept = GENERATE(true, false);
  Named sample;
  REQUIRE(flock(sample.file.fd(), LOCK_EX | LOCK_NB) == 0);
  if (kept) sample.file.keep_from_children();
  // Owners may move.
  File moved = std::move(sample.file);
  const Child child;
  CHECK(sample.locked());
  moved.close();
  // Wait for the child to have closed its copy.
  for (int i = 0; kept && i < 20'000 && sample.locked(); ++i) usleep(1000);
  CHECK(sample.locked() == !kept);
}

TEST_CASE("A number that was kept from children is free again once it is closed", "[file]") {
  Named sample;
  sample.file.keep_from_children();
  const int number = sample.file.fd();
  sample.file.close();
  const File other(open("/dev/null", O_RDONLY | O_CLOEXEC));
  REQUIRE(other.fd() == number);
  const pid_t child = fork();
  if (child == 0) _exit((fcntl(number, F_GETFL) & O_ACCMODE) == O_RDONLY ? 0 : 1);
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0));
}
