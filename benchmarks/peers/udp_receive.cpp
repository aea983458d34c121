// The bare loop of a UDP receiver: counts packets in a ring of memory and looks at none. `gro`:
// recvmmsg of UDP_GRO batches; `recvmmsg`: of single packets.
//
// usage: peers_udp_receive gro|recvmmsg SIZE RECEIVE_BUFFER RING_BYTES; answers each line with its
// counters.

#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <sstream>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

namespace {

constexpr std::size_t MAX_CALL = 64;

std::atomic<std::uint64_t> packets{0};
std::atomic<std::uint64_t> bytes{0};
/// Time when the latest packet was counted, in ns.
std::atomic<std::uint64_t> latest{0};

/// The size of the packets that the kernel merged; 0 for a single packet.
std::uint32_t segment_size(msghdr& header) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != IPPROTO_UDP || c->cmsg_type != UDP_GRO) continue;
    int size = 0;
    std::memcpy(&size, CMSG_DATA(c), sizeof size);
    return static_cast<std::uint32_t>(size);
  }
  return 0;
}

void receive(int fd, std::size_t slot, std::size_t call, std::size_t ring_bytes) {
  struct alignas(cmsghdr) Control {
    std::byte bytes[CMSG_SPACE(sizeof(int))];
  };
  std::vector<std::uint8_t> ring(std::max(ring_bytes / slot, call) * slot, 1);
  std::array<mmsghdr, MAX_CALL> messages{};
  std::array<iovec, MAX_CALL> vectors{};
  std::array<Control, MAX_CALL> controls{};
  std::uint64_t at = 0, count = 0, size = 0;
  while (true) {
    for (std::size_t i = 0; i < call; ++i) {
      if (at + slot > ring.size()) at = 0;
      vectors[i] = {&ring[at], slot};
      at += slot;
      msghdr& header = messages[i].msg_hdr;
      header.msg_iov = &vectors[i];
      header.msg_iovlen = 1;
      header.msg_control = &controls[i];
      header.msg_controllen = sizeof(Control);
    }
    const int n =
        recvmmsg(fd, messages.data(), static_cast<unsigned>(call), MSG_WAITFORONE, nullptr);
    if (n < 0) {
      if (errno == EINTR) continue;
      bench::fail("recvmmsg");
    }
    for (std::size_t i = 0; i < static_cast<std::size_t>(n); ++i) {
      const std::uint32_t segment = segment_size(messages[i].msg_hdr);
      count += segment == 0 ? 1 : (messages[i].msg_len + segment - 1) / segment;
      size += messages[i].msg_len;
    }
    packets.store(count, std::memory_order_relaxed);
    bytes.store(size, std::memory_order_relaxed);
    latest.store(bench::now_ns(), std::memory_order_relaxed);
  }
}

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
    line << R"({"packets": )" << packets << R"(, "bytes": )" << bytes << R"(, "latest": )" << latest
         << R"(, "cpu": )" << bench::cpu_seconds() << "}";
    return line.str();
  });
  std::ostringstream ready;
  ready << R"({"port": )" << bench::port_of(fd) << R"(, "receive_buffer": )" << granted << "}";
  bench::print_line(ready.str());
  receive(fd, gro ? std::size_t{1} << 16U : size, gro ? 16 : MAX_CALL,
          bench::number<std::size_t>(argv[4]));
}
