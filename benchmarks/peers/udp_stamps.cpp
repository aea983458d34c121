// Receives UDP packets and writes the kernel's receive times to a file, ns in 64 bits each.
//
// usage: peers_udp_stamps PORT FILE; answers each line with the number of packets and writes those
// since the line before.

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

namespace {

std::mutex mutex;
std::vector<std::int64_t> stamps;

std::string write_stamps(const char* path) {
  const std::scoped_lock lock(mutex);
  const int fd = bench::check(open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), path);
  const auto* data = reinterpret_cast<const char*>(stamps.data());
  for (std::size_t left = stamps.size() * sizeof(std::int64_t); left > 0;) {
    const auto n = static_cast<std::size_t>(bench::check(write(fd, data, left), path));
    data += n;
    left -= n;
  }
  close(fd);
  const std::string answer = R"({"packets": )" + std::to_string(stamps.size()) + "}";
  stamps.clear();
  return answer;
}

std::int64_t received_at(msghdr& header) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
    timespec t{};
    std::memcpy(&t, CMSG_DATA(c), sizeof t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: peers_udp_stamps PORT FILE\n", stderr);
    return 2;
  }
  stamps.reserve(1 << 20);
  const int fd = bench::bound_socket(SOCK_DGRAM, bench::number<std::uint16_t>(argv[1]));
  bench::set_option(fd, SOL_SOCKET, SO_TIMESTAMPNS, 1, "SO_TIMESTAMPNS");
  bench::ask_receive_buffer(fd, 64 << 20);
  bench::answer_lines([path = argv[2]] { return write_stamps(path); });
  bench::print_line(R"({"port": )" + std::to_string(bench::port_of(fd)) + "}");
  std::array<char, 2048> data{};
  struct alignas(cmsghdr) {
    std::byte bytes[CMSG_SPACE(sizeof(timespec)) * 2];
  } control{};
  iovec vector{data.data(), data.size()};
  while (true) {
    msghdr header{};
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = &control;
    header.msg_controllen = sizeof control;
    if (recvmsg(fd, &header, 0) < 0) {
      if (errno == EINTR) continue;
      bench::fail("recvmsg");
    }
    const std::scoped_lock lock(mutex);
    stamps.push_back(received_at(header));
  }
}
