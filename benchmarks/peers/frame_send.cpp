// Sends Ethernet frames of one size at a set rate, bypassing the queueing discipline.
//
// usage: peers_frame_send DEVICE SIZE PORT; then a line `FRAMES_PER_SECOND SECONDS [CLOSING]` a
// trial, 0: as fast as it can; answers with what was sent, and when (ns, CLOCK_MONOTONIC). CLOSING
// is a number of large frames that come behind and are not counted: they fill the block of a ring
// that the kernel would otherwise hand over much later.

#include <algorithm>
#include <array>
#include <sstream>

#include "arguments.h"
#include "peers/frames.h"

namespace {

constexpr std::size_t MOST_IN_CALL = 64;
constexpr std::size_t CLOSING_SIZE = 9000;
/// At a set rate, the frames of this time are sent together.
constexpr double BURST_SECONDS = 50e-6;
/// After a longer delay, the sender does not catch up.
constexpr std::uint64_t MAX_BEHIND_NS = 1'000'000;

class Sender {
 public:
  Sender(const char* device, std::size_t size, std::uint16_t port)
      : frame_(bench::udp_frame(size, port)), closing_(bench::udp_frame(CLOSING_SIZE, port)) {
    fd_ = bench::check(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0), "socket");
    const int bypass = 1;
    const int buffer = 8 << 20;
    bench::check(setsockopt(fd_, SOL_PACKET, PACKET_QDISC_BYPASS, &bypass, sizeof bypass),
                 "PACKET_QDISC_BYPASS");
    bench::check(setsockopt(fd_, SOL_SOCKET, SO_SNDBUFFORCE, &buffer, sizeof buffer),
                 "SO_SNDBUFFORCE");
    bench::bind_to_device(fd_, device, 0);
    for (mmsghdr& message : messages_) {
      message.msg_hdr.msg_iov = &vector_;
      message.msg_hdr.msg_iovlen = 1;
    }
  }

  std::string run(double rate, double seconds, std::size_t closing) {
    vector_ = {frame_.data(), frame_.size()};
    const std::size_t burst =
        rate > 0 ? std::clamp<std::size_t>(static_cast<std::size_t>(rate * BURST_SECONDS), 1,
                                           MOST_IN_CALL)
                 : MOST_IN_CALL;
    const auto step =
        rate > 0 ? static_cast<std::uint64_t>(static_cast<double>(burst) * 1e9 / rate) : 0;
    refused_ = 0;
    const std::uint64_t begun = bench::now_ns();
    const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t sent = 0, due = begun, now = begun;
    for (; (now = bench::now_ns()) < end; sent += burst) {
      while (now < due) now = bench::now_ns();
      if (now > due + MAX_BEHIND_NS) due = now;
      due += step;
      send(burst);
    }
    const std::uint64_t ended = bench::now_ns();
    const std::uint64_t refused = refused_;
    vector_ = {closing_.data(), closing_.size()};
    for (std::size_t i = 0; i < closing; ++i) send(1);
    std::ostringstream line;
    line << R"({"sent": )" << sent << R"(, "refused": )" << refused << R"(, "begun": )" << begun
         << R"(, "ended": )" << ended << "}";
    return line.str();
  }

 private:
  /// A frame that the device rejects (the other end has no free buffer) counts as sent, like one
  /// that is dropped after the device.
  void send(std::size_t count) {
    for (std::size_t done = 0; done < count;) {
      const int n = sendmmsg(fd_, &messages_[done], static_cast<unsigned>(count - done), 0);
      if (n > 0) {
        done += static_cast<std::size_t>(n);
      } else if (errno == ENOBUFS) {
        ++done;
        ++refused_;
      } else if (errno != EINTR) {
        bench::fail("sendmmsg");
      }
    }
  }

  int fd_{-1};
  std::vector<std::uint8_t> frame_;
  std::vector<std::uint8_t> closing_;
  iovec vector_{};
  std::array<mmsghdr, MOST_IN_CALL> messages_{};
  std::uint64_t refused_{0};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fputs("usage: peers_frame_send DEVICE SIZE PORT\n", stderr);
    return 2;
  }
  Sender sender(argv[1], bench::number<std::size_t>(argv[2]),
                bench::number<std::uint16_t>(argv[3]));
  bench::print_line("{}");
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    double rate = 0, seconds = 0;
    std::size_t closing = 0;
    words >> rate >> seconds >> closing;
    bench::print_line(sender.run(rate, seconds, closing));
  }
  return 0;
}
