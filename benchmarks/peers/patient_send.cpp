// The bare loop of a sender that loses no frame: 64 frames a call, past the queueing discipline;
// where the device is full, it sleeps 50 us and tries again.
//
// usage: peers_patient_send DEVICE SIZE PORT; sends as many frames as a line says, then answers
// with the time at which it began (ns, CLOCK_MONOTONIC).

#include <algorithm>
#include <array>

#include "arguments.h"
#include "peers/frames.h"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: peers_patient_send DEVICE SIZE PORT\n", stderr);
    return 2;
  }
  auto frame =
      bench::udp_frame(bench::number<std::size_t>(argv[2]), bench::number<std::uint16_t>(argv[3]));
  iovec vector{frame.data(), frame.size()};
  std::array<mmsghdr, 64> messages{};
  for (mmsghdr& message : messages) {
    message.msg_hdr.msg_iov = &vector;
    message.msg_hdr.msg_iovlen = 1;
  }
  const int fd = bench::check(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "socket");
  const int bypass = 1;
  bench::check(setsockopt(fd, SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof bypass),
               "PACKET_QDISC_BYPASS");
  bench::bind_to_device(fd, argv[1], 0);
  bench::print_line("{}");
  for (std::string line; std::getline(std::cin, line);) {
    const auto count = bench::number<std::size_t>(line.c_str());
    const std::uint64_t begun = bench::now_ns();
    for (std::size_t done = 0; done < count;) {
      const auto n = static_cast<unsigned>(std::min(count - done, messages.size()));
      const int sent = sendmmsg(fd, messages.data(), n, MSG_DONTWAIT);
      if (sent > 0) {
        done += static_cast<std::size_t>(sent);
      } else if (errno == ENOBUFS || errno == EAGAIN) {
        const timespec pause{0, 50'000};
        nanosleep(&pause, nullptr);
      } else if (errno != EINTR) {
        bench::fail("sendmmsg");
      }
    }
    bench::print_line(R"({"begun": )" + std::to_string(begun) + "}");
  }
  return 0;
}
