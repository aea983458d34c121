// Sends UDP packets of one size at a set rate, in UDP_SEGMENT batches. Every packet is a SPEAD
// packet (64-48, heaps of about 1 MiB), so that receivers that understand SPEAD and those that do
// not get the same bytes.
//
// usage: peers_udp_send HOST PORT SIZE [SOURCE_PORT]; then a line `PACKETS_PER_SECOND SECONDS` a
// trial, 0: as fast as it can; answers with what was sent, and when (ns, CLOCK_MONOTONIC).

#include <netinet/udp.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

namespace {

constexpr std::size_t HEAP_BYTES = 1 << 20;
constexpr std::size_t MAX_UDP = 65507;
constexpr std::size_t MAX_SEGMENTS = 64;
/// After a longer delay, the sender does not catch up.
constexpr std::uint64_t MAX_BEHIND_NS = 1'000'000;

void put64(std::uint8_t* at, std::uint64_t value) {
  for (int i = 7; i >= 0; --i, value >>= 8U) at[i] = static_cast<std::uint8_t>(value);
}

/// The packets of one heap, contiguous.
class Heap {
 public:
  explicit Heap(std::size_t size)
      : size_(size), packets_(std::max<std::size_t>(1, HEAP_BYTES / size)), data_(packets_ * size) {
    constexpr std::size_t HEADER = 8 + 5 * 8;
    const std::size_t payload = size - HEADER;
    const auto item = [](std::uint64_t immediate, std::uint64_t id, std::uint64_t value) {
      return immediate << 63U | id << 48U | value;
    };
    for (std::size_t i = 0; i < packets_; ++i) {
      std::uint8_t* packet = &data_[i * size];
      put64(packet, 0x5304'0206'0000'0005U);  // SPEAD 4, 64-48, 5 items
      put64(packet + 16, item(1, 2, packets_ * payload));
      put64(packet + 24, item(1, 3, i * payload));
      put64(packet + 32, item(1, 4, payload));
      put64(packet + 40, item(0, 0x1600, 0));
      std::fill_n(packet + HEADER, payload, static_cast<std::uint8_t>(i));
    }
  }
  void number(std::uint64_t heap) {
    for (std::size_t i = 0; i < packets_; ++i)
      put64(&data_[i * size_ + 8], 1ULL << 63U | 1ULL << 48U | heap);
  }
  [[nodiscard]] std::size_t packets() const { return packets_; }
  [[nodiscard]] std::uint8_t* packet(std::size_t i) { return &data_[i * size_]; }

 private:
  std::size_t size_;
  std::size_t packets_;
  std::vector<std::uint8_t> data_;
};

class Sender {
 public:
  Sender(const char* host, std::uint16_t port, std::size_t size, std::uint16_t source_port)
      : size_(size), batch_(std::clamp<std::size_t>(MAX_UDP / size, 1, MAX_SEGMENTS)), heap_(size) {
    fd_ = bench::check(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), "socket");
    if (source_port != 0) {
      const sockaddr_in source = bench::address_of("0.0.0.0", source_port);
      bench::check(bind(fd_, reinterpret_cast<const sockaddr*>(&source), sizeof source), "bind");
    }
    bench::connect_to(fd_, host, port);
    bench::set_option(fd_, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(size), "UDP_SEGMENT");
  }

  /// Complete heaps only.
  std::string run(double rate, double seconds) {
    const std::uint64_t begun = bench::now_ns();
    const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t sent = 0, refused = 0, due = begun, now = begun;
    while ((now = bench::now_ns()) < end) {
      heap_.number(next_heap_++);
      for (std::size_t i = 0; i < heap_.packets();) {
        const std::size_t n = std::min(batch_, heap_.packets() - i);
        if (rate > 0) {
          while ((now = bench::now_ns()) < due) {
          }
          if (now > due + MAX_BEHIND_NS) due = now;
          due += static_cast<std::uint64_t>(static_cast<double>(n) * 1e9 / rate);
        }
        if (send(fd_, heap_.packet(i), n * size_, 0) < 0) {
          // The receiver has ended, or memory is short: the packets are lost.
          refused += n;
        } else {
          sent += n;
        }
        i += n;
      }
    }
    std::ostringstream line;
    line << R"({"sent": )" << sent << R"(, "refused": )" << refused << R"(, "begun": )" << begun
         << R"(, "ended": )" << bench::now_ns() << "}";
    return line.str();
  }

 private:
  int fd_;
  std::size_t size_;
  std::size_t batch_;
  Heap heap_;
  std::uint64_t next_heap_{1};
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) {
    std::fputs("usage: peers_udp_send HOST PORT SIZE [SOURCE_PORT]\n", stderr);
    return 2;
  }
  Sender sender(argv[1], bench::number<std::uint16_t>(argv[2]), bench::number<std::size_t>(argv[3]),
                argc == 5 ? bench::number<std::uint16_t>(argv[4]) : std::uint16_t{0});
  bench::print_line("{}");
  double rate = 0, seconds = 0;
  while (std::cin >> rate >> seconds) bench::print_line(sender.run(rate, seconds));
  return 0;
}
