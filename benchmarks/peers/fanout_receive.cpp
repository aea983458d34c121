// The bare loops of several receivers of one device: a ring each, among which the kernel
// distributes frames by their UDP port (PACKET_FANOUT). Frames are only counted.
//
// usage: peers_fanout_receive DEVICE SIZE RING_BYTES PORT THREADS FIRST_CORE: ports from PORT on,
// cores from FIRST_CORE on; answers each line with its counters. `others` are frames of another
// size.

#include <linux/filter.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/packet_ring.h"

namespace {

struct alignas(64) Counters {
  std::atomic<std::uint64_t> packets{0};
  std::atomic<std::uint64_t> others{0};
  /// Time when the latest packet was counted, in ns.
  std::atomic<std::uint64_t> latest{0};
};

void distribute(const std::vector<bench::PacketRing>& rings, std::uint32_t port) {
  // Without options in the IPv4 header.
  const auto at_port = static_cast<std::uint32_t>(SKF_NET_OFF) + 22;
  sock_filter code[]{{BPF_LD | BPF_H | BPF_ABS, 0, 0, at_port},
                     {BPF_ALU | BPF_SUB | BPF_K, 0, 0, port},
                     {BPF_RET | BPF_A, 0, 0, 0}};
  const sock_fprog program{3, code};
  const std::uint32_t group = PACKET_FANOUT_CBPF << 16U | 1;
  for (const bench::PacketRing& ring : rings)
    bench::check(setsockopt(ring.fd(), SOL_PACKET, PACKET_FANOUT, &group, sizeof group),
                 "PACKET_FANOUT");
  bench::check(setsockopt(rings[0].fd(), SOL_PACKET, PACKET_FANOUT_DATA, &program, sizeof program),
               "PACKET_FANOUT_DATA");
}

[[noreturn]] void read(bench::PacketRing& ring, std::uint32_t size, unsigned core,
                       Counters& counters) {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(core, &cores);
  bench::check(sched_setaffinity(0, sizeof cores, &cores), "sched_setaffinity");
  std::uint64_t count = 0, strange = 0;
  for (;;) {
    ring.read_block([&](const tpacket3_hdr& frame) { ++(frame.tp_len == size ? count : strange); });
    counters.packets.store(count, std::memory_order_relaxed);
    counters.others.store(strange, std::memory_order_relaxed);
    counters.latest.store(bench::now_ns(), std::memory_order_relaxed);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 7) {
    std::fputs("usage: peers_fanout_receive DEVICE SIZE RING_BYTES PORT THREADS FIRST_CORE\n",
               stderr);
    return 2;
  }
  const auto size = bench::number<std::uint32_t>(argv[2]);
  const auto threads = bench::number<unsigned>(argv[5]);
  const auto core = bench::number<unsigned>(argv[6]);
  std::vector<bench::PacketRing> rings;
  for (unsigned i = 0; i < threads; ++i)
    rings.emplace_back(argv[1], bench::number<std::size_t>(argv[3]) / threads);
  if (threads > 1) distribute(rings, bench::number<std::uint32_t>(argv[4]));
  std::vector<Counters> counters(threads);
  std::vector<std::thread> readers;
  for (unsigned i = 0; i < threads; ++i)
    readers.emplace_back([&, i] { read(rings[i], size, core + i, counters[i]); });
  bench::answer_lines([&] {
    std::uint64_t packets = 0, others = 0, latest = 0;
    for (const Counters& each : counters) {
      packets += each.packets;
      others += each.others;
      latest = std::max(latest, each.latest.load());
    }
    std::ostringstream line;
    line << R"({"packets": )" << packets << R"(, "others": )" << others << R"(, "latest": )"
         << latest << R"(, "cpu": )" << bench::cpu_seconds() << "}";
    return line.str();
  });
  bench::print_line("{}");
  for (std::thread& reader : readers) reader.join();
}
