// The bare loops of several receivers of one UDP port: a socket each, among which the kernel
// distributes packets by their source port (SO_ATTACH_REUSEPORT_CBPF); recvmmsg of UDP_GRO batches
// into a ring of memory. Packets are only counted.
//
// usage: peers_reuseport_receive SIZE RECEIVE_BUFFER PORT SOURCE_PORT THREADS FIRST_CORE: source
// ports from SOURCE_PORT on, cores from FIRST_CORE on; answers each line with its counters.

#include <linux/filter.h>
#include <sched.h>

#include <algorithm>
#include <sstream>
#include <thread>
#include <vector>

#include "arguments.h"
#include "peers/counting_loop.h"

namespace {

int shared_socket(std::uint16_t port) {
  const int fd = bench::check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
  bench::set_option(fd, SOL_SOCKET, SO_REUSEPORT, 1, "SO_REUSEPORT");
  const sockaddr_in address = bench::address_of("127.0.0.1", port);
  bench::check(bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), "bind");
  return fd;
}

void distribute(int fd, std::uint32_t source_port) {
  // Without options in the IPv4 header.
  const auto at_port = static_cast<std::uint32_t>(SKF_NET_OFF) + 20;
  sock_filter code[]{{BPF_LD | BPF_H | BPF_ABS, 0, 0, at_port},
                     {BPF_ALU | BPF_SUB | BPF_K, 0, 0, source_port},
                     {BPF_RET | BPF_A, 0, 0, 0}};
  const sock_fprog program{3, code};
  bench::check(setsockopt(fd, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program),
               "SO_ATTACH_REUSEPORT_CBPF");
}

[[noreturn]] void read(int fd, unsigned core, bench::Counted& counted) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  bench::check(sched_setaffinity(0, sizeof cores, &cores), "sched_setaffinity");
  bench::count_packets(fd, std::size_t{1} << 16U, 16, std::size_t{64} << 20U, counted);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs(
        "usage: peers_reuseport_receive SIZE RECEIVE_BUFFER PORT SOURCE_PORT THREADS FIRST_CORE\n",
        stderr);
    return 2;
  }
  const auto threads = bench::number<unsigned>(argv[5]);
  const auto core = bench::number<unsigned>(argv[6]);
  std::vector<int> sockets;
  for (unsigned i = 0; i < threads; ++i) {
    sockets.push_back(shared_socket(bench::number<std::uint16_t>(argv[3])));
    bench::set_option(sockets.back(), IPPROTO_UDP, UDP_GRO, 1, "UDP_GRO");
    bench::ask_receive_buffer(sockets.back(), bench::number<int>(argv[2]));
  }
  distribute(sockets.front(), bench::number<std::uint32_t>(argv[4]));
  std::vector<bench::Counted> counted(threads);
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < threads; ++i)
    readers.emplace_back([&, i] { read(sockets[i], core + i, counted[i]); });
  bench::answer_lines([&] {
    std::uint64_t packets = 0, latest = 0;
    for (const bench::Counted& each : counted) {
      packets += each.packets;
      latest = std::max(latest, each.latest.load());
    }
    std::ostringstream line;
    line << R"({"packets": )" << packets << R"(, "latest": )" << latest << R"(, "cpu": )"
         << bench::cpu_seconds() << "}";
    return line.str();
  });
  bench::print_line("{}");
  for (std::thread& reader : readers) reader.join();
}
