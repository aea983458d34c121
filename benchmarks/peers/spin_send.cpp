// A bare loop that spins on CLOCK_REALTIME and sends UDP packets at their times, a gap apart.
//
// usage: peers_spin_send PORT SIZE GAP_NS COUNT; prints how late its sends were, ns.

#include <algorithm>
#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: peers_spin_send PORT SIZE GAP_NS COUNT\n", stderr);
    return 2;
  }
  const int fd = bench::check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
  bench::connect_to(fd, "127.0.0.1", bench::number<std::uint16_t>(argv[1]));
  std::vector<char> packet(bench::number<std::size_t>(argv[2]), 1);
  const auto gap = bench::number<std::uint64_t>(argv[3]);
  const auto count = bench::number<std::size_t>(argv[4]);
  std::vector<std::uint64_t> late(count);
  std::uint64_t due = bench::now_ns(CLOCK_REALTIME) + 20'000'000;
  for (std::size_t i = 0; i < count; ++i, due += gap) {
    std::uint64_t now = 0;
    while ((now = bench::now_ns(CLOCK_REALTIME)) < due) {
    }
    late[i] = now - due;
    bench::check(send(fd, packet.data(), packet.size(), 0), "send");
  }
  std::sort(late.begin(), late.end());
  const auto quantile = [&](double q) {
    return late[std::min(count - 1, static_cast<std::size_t>(q * static_cast<double>(count)))];
  };
  std::ostringstream line;
  line << R"({"p50": )" << quantile(0.5) << R"(, "p99": )" << quantile(0.99) << R"(, "p999": )"
       << quantile(0.999) << "}";
  bench::print_line(line.str());
  return 0;
}
