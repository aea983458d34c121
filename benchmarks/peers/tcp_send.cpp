// The bare loop of a TCP sender: one send call per message.
//
// usage: peers_tcp_send PORT SIZE; then a line `SECONDS` a trial; answers with when it began.

#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: peers_tcp_send PORT SIZE\n", stderr);
    return 2;
  }
  const int fd = bench::check(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket");
  bench::connect_to(fd, "127.0.0.1", bench::number<std::uint16_t>(argv[1]));
  const std::vector<char> message(bench::number<std::size_t>(argv[2]), 1);
  bench::print_line("{}");
  double seconds = 0;
  while (std::cin >> seconds) {
    const std::uint64_t begun = bench::now_ns();
    const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
    while (bench::now_ns() < end) {
      for (std::size_t sent = 0; sent < message.size();) {
        sent += static_cast<std::size_t>(
            bench::check(send(fd, message.data() + sent, message.size() - sent, 0), "send"));
      }
    }
    bench::print_line(R"({"begun": )" + std::to_string(begun) + "}");
  }
  return 0;
}
