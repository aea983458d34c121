// The bare loop of a UDP receiver: counts packets in a ring of memory and looks at none. `gro`:
// recvmmsg of UDP_GRO batches; `recvmmsg`: of single packets.
//
// usage: peers_udp_receive gro|recvmmsg SIZE RECEIVE_BUFFER RING_BYTES; answers each line with its
// counters.

#include <sstream>
#include <string_view>

#include "arguments.h"
#include "peers/counting_loop.h"

namespace {

bench::Counted counted;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fputs("usage: peers_udp_receive gro|recvmmsg SIZE RECEIVE_BUFFER RING_BYTES\n", stderr);
    return 2;
  }
  const bool gro = std::string_view(argv[1]) == "gro";
  const auto size = bench::number<std::size_t>(argv[2]);
  const int fd = bench::bound_socket(SOCK_DGRAM, 0);
  if (gro) bench::set_option(fd, IPPROTO_UDP, UDP_GRO, 1, "UDP_GRO");
  const int granted = bench::ask_receive_buffer(fd, bench::number<int>(argv[3]));
  bench::answer_lines([] {
    std::ostringstream line;
    line << R"({"packets": )" << counted.packets << R"(, "bytes": )" << counted.bytes
         << R"(, "latest": )" << counted.latest << R"(, "cpu": )" << bench::cpu_seconds() << "}";
    return line.str();
  });
  std::ostringstream ready;
  ready << R"({"port": )" << bench::port_of(fd) << R"(, "receive_buffer": )" << granted << "}";
  bench::print_line(ready.str());
  bench::count_packets(fd, gro ? std::size_t{1} << 16U : size, gro ? 16 : bench::MAX_CALL,
                       bench::number<std::size_t>(argv[4]), counted);
}
