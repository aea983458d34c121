// The bare loop of a TCP receiver with one connection: reads into a ring of memory and does not use
// the data.
//
// usage: peers_tcp_receive SIZE RING_BYTES; answers each line with its counters.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

namespace {

std::atomic<std::uint64_t> bytes{0};
/// Time when the latest bytes were counted, in ns.
std::atomic<std::uint64_t> latest{0};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: peers_tcp_receive SIZE RING_BYTES\n", stderr);
    return 2;
  }
  const auto size = bench::number<std::size_t>(argv[1]);
  std::vector<char> ring(std::max(bench::number<std::size_t>(argv[2]), size), 1);
  const int listener = bench::bound_socket(SOCK_STREAM, 0);
  bench::check(listen(listener, 1), "listen");
  bench::answer_lines([] {
    std::ostringstream line;
    line << R"({"bytes": )" << bytes << R"(, "latest": )" << latest << R"(, "cpu": )"
         << bench::cpu_seconds() << "}";
    return line.str();
  });
  bench::print_line(R"({"port": )" + std::to_string(bench::port_of(listener)) + "}");
  const int fd = bench::check(accept(listener, nullptr, nullptr), "accept");
  std::size_t at = 0;
  while (true) {
    if (at + size > ring.size()) at = 0;
    const auto n = static_cast<std::size_t>(bench::check(recv(fd, &ring[at], size, 0), "recv"));
    if (n == 0) break;
    at += n;
    bytes.fetch_add(n, std::memory_order_relaxed);
    latest.store(bench::now_ns(), std::memory_order_relaxed);
  }
  while (true) pause();
}
