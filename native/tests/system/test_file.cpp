#include "system/file.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>

using namespace daqiri;

namespace {

File null_file() { return File(::open("/dev/null", O_RDWR | O_CLOEXEC)); }

/// Which files a forked child can write to, as bits of its exit code.
int seen_by_child(const File& shared, const File& kept, File& closed_later, int read_end) {
  const pid_t child = fork();
  if (child == 0) {
    int seen = 0;
    char byte = 0;
    const auto arrives = [&](int fd) {
      return write(fd, "x", 1) == 1 && read(read_end, &byte, 1) == 1;
    };
    if (arrives(shared.fd())) seen |= 1;
    if (arrives(kept.fd())) seen |= 2;
    // Its number is in use until then.
    const int before = ::open("/dev/null", O_RDONLY);
    if (before == closed_later.fd()) seen |= 4;
    if (closed_later.close() != 0) seen |= 8;
    _exit(seen);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("A private descriptor is the process's, not its children's", "[file]") {
  std::array<int, 2> ends{};
  REQUIRE(pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) == 0);
  const File read_end(ends[0]);
  const File shared(ends[1]);
  File kept = File::private_to_process([&] { return dup(shared.fd()); });
  File closed_later = File::private_to_process([&] { return dup(shared.fd()); });
  REQUIRE(kept.is_open());
  CHECK(seen_by_child(shared, kept, closed_later, read_end.fd()) == 1);

  // In this process the file stays open, and moving transfers it.
  File moved = std::move(kept);
  CHECK(!kept.is_open());
  CHECK(write(moved.fd(), "x", 1) == 1);
  char byte = 0;
  CHECK(read(read_end.fd(), &byte, 1) == 1);
  CHECK(seen_by_child(shared, moved, closed_later, read_end.fd()) == 1);

  // The number of a closed file may be reused.
  const int number = moved.fd();
  CHECK(moved.close() == 0);
  const File other(fcntl(shared.fd(), F_DUPFD_CLOEXEC, number));
  REQUIRE(other.fd() == number);
  CHECK(seen_by_child(shared, other, closed_later, read_end.fd()) == 3);

  // A released number belongs to its new owner.
  File lent = File::private_to_process([&] { return dup(shared.fd()); });
  const File owned(lent.release());
  CHECK(seen_by_child(shared, owned, closed_later, read_end.fd()) == 3);
}

TEST_CASE("What cannot be opened is not private", "[file]") {
  const File none = File::private_to_process([] { return ::open("/no/such/file", O_RDONLY); });
  CHECK(errno == ENOENT);
  CHECK(!none.is_open());
  CHECK(null_file().is_open());
}
