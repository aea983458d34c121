// A network device of which frames are taken at a set rate: a full network card.
//
// usage: peers_slow_tap DEVICE QUEUE RATE: makes the device, whose queue holds QUEUE frames; takes
// RATE frames a second. Answers each line with its counters.

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <sstream>

#include "arguments.h"
#include "peers/program.h"

namespace {

std::atomic<std::uint64_t> packets{0};
/// Time when the latest packet was taken, in ns.
std::atomic<std::uint64_t> latest{0};

int make_tap(const char* device, int queue) {
  const int tap = bench::check(open("/dev/net/tun", O_RDWR | O_CLOEXEC), "/dev/net/tun");
  ifreq request{};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  bench::check(ioctl(tap, TUNSETIFF, &request), "TUNSETIFF");
  const int any = bench::check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
  request.ifr_qlen = queue;
  bench::check(ioctl(any, SIOCSIFTXQLEN, &request), "SIOCSIFTXQLEN");
  bench::check(ioctl(any, SIOCGIFFLAGS, &request), "SIOCGIFFLAGS");
  request.ifr_flags |= IFF_UP;
  bench::check(ioctl(any, SIOCSIFFLAGS, &request), "SIOCSIFFLAGS");
  close(any);
  return tap;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: peers_slow_tap DEVICE QUEUE RATE\n", stderr);
    return 2;
  }
  const int tap = make_tap(argv[1], bench::number<int>(argv[2]));
  const double step = 1e9 / bench::number<double>(argv[3]);
  bench::answer_lines([] {
    std::ostringstream line;
    line << R"({"packets": )" << packets << R"(, "latest": )" << latest << "}";
    return line.str();
  });
  bench::print_line("{}");
  std::array<char, 65536> frame{};
  // It spins: a core of the card is never busy with something else.
  for (double due = static_cast<double>(bench::now_ns());; due += step) {
    while (static_cast<double>(bench::now_ns()) < due) {
    }
    if (read(tap, frame.data(), frame.size()) <= 0) bench::fail("read");
    const std::uint64_t now = bench::now_ns();
    packets.fetch_add(1, std::memory_order_relaxed);
    latest.store(now, std::memory_order_relaxed);
    // After a pause it does not catch up.
    due = std::max(due, static_cast<double>(now) - 1e6);
  }
}
