// Writes a number of bytes to a file with write(2) calls of 1 MiB from a ring of memory, and waits
// until they are on the disk.
//
// usage: peers_plain_write FILE BYTES

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "arguments.h"
#include "peers/program.h"

namespace {

constexpr std::size_t CALL = 1 << 20;
constexpr std::size_t RING = 64 * CALL;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: peers_plain_write FILE BYTES\n", stderr);
    return 2;
  }
  const std::vector<char> ring(RING, 1);
  const auto total = bench::number<std::size_t>(argv[2]);
  const std::uint64_t begun = bench::now_ns();
  const int fd =
      bench::check(open(argv[1], O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644), argv[1]);
  for (std::size_t done = 0; done < total;) {
    const std::size_t n = std::min(CALL, total - done);
    done += static_cast<std::size_t>(
        bench::check(write(fd, &ring[done % RING / CALL * CALL], n), argv[1]));
  }
  bench::check(fdatasync(fd), argv[1]);
  bench::check(close(fd), argv[1]);
  bench::print_line(R"({"ns": )" + std::to_string(bench::now_ns() - begun) + "}");
  return 0;
}
