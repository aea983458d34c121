// A server of objects that keeps none: answers each PUT as S3 does, without looking at signatures,
// and has nothing to GET.
//
// usage: peers_discard_objects; prints its port, and answers each line with its counters.

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdint>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "peers/sockets.h"

#include <netinet/tcp.h>

namespace {

std::atomic<std::uint64_t> objects{0};
std::atomic<std::uint64_t> bytes{0};

constexpr std::string_view CONTINUE = "HTTP/1.1 100 Continue\r\n\r\n";
constexpr std::string_view NOTHING = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
// That of a multipart upload, whose parts are objects here.
constexpr std::string_view BEGUN =
    "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: 115\r\n\r\n"
    "<InitiateMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><UploadId>1</UploadId>"
    "</InitiateMultipartUploadResult>";
constexpr std::string_view COMPLETED =
    "HTTP/1.1 200 OK\r\nContent-Type: application/xml\r\nContent-Length: 107\r\n\r\n"
    "<CompleteMultipartUploadResult><Bucket>b</Bucket><Key>k</Key><ETag>1</ETag>"
    "</CompleteMultipartUploadResult>";
constexpr std::string_view STORED =
    "HTTP/1.1 200 OK\r\nETag: \"d41d8cd98f00b204e9800998ecf8427e\"\r\nContent-Length: 0\r\n\r\n";

struct Connection {
  /// Of a head that is not complete.
  std::string head{};
  /// Of the body, still to come.
  std::uint64_t left{0};
  bool in_body{false};
  std::string_view answer{STORED};
};

void send_all(int fd, std::string_view text) {
  // Short, and the client waits for it.
  if (send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0 && errno != EPIPE && errno != ECONNRESET)
    bench::fail("send");
}

/// The answer to a request with a head in lower case.
std::string_view answer_to(std::string_view head) {
  if (head.starts_with("get ") || head.starts_with("head ")) return NOTHING;
  if (!head.starts_with("post ")) return STORED;
  const std::string_view target = head.substr(0, head.find('\r'));
  return target.find("uploadid=") == std::string_view::npos ? BEGUN : COMPLETED;
}

/// The value of a header of `head`, which is in lower case.
std::string_view header(std::string_view head, std::string_view name) {
  const std::size_t at = head.find(name);
  if (at == std::string_view::npos) return {};
  const std::size_t begin = head.find_first_not_of(' ', at + name.size());
  return head.substr(begin, head.find('\r', begin) - begin);
}

void take(int fd, Connection& connection, std::string_view data) {
  while (!data.empty() || (connection.in_body && connection.left == 0)) {
    if (!connection.in_body) {
      const std::size_t before = connection.head.size();
      connection.head += data;
      const std::size_t end = connection.head.find("\r\n\r\n");
      if (end == std::string::npos) return;
      data.remove_prefix(end + 4 - before);
      connection.head.resize(end + 2);
      std::ranges::transform(connection.head, connection.head.begin(),
                             [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      const std::string length(header(connection.head, "\r\ncontent-length:"));
      connection.left = length.empty() ? 0 : std::stoull(length);
      if (!header(connection.head, "\r\nexpect:").empty()) send_all(fd, CONTINUE);
      connection.answer = answer_to(connection.head);
      connection.head.clear();
      connection.in_body = true;
    }
    const std::size_t taken = std::min<std::uint64_t>(connection.left, data.size());
    connection.left -= taken;
    data.remove_prefix(taken);
    bytes.fetch_add(taken, std::memory_order_relaxed);
    if (connection.left > 0) return;
    connection.in_body = false;
    if (connection.answer == STORED) objects.fetch_add(1, std::memory_order_relaxed);
    send_all(fd, connection.answer);
  }
}

}  // namespace

int main() {
  const int listener = bench::bound_socket(SOCK_STREAM, 0);
  bench::check(listen(listener, 64), "listen");
  bench::answer_lines([] {
    std::ostringstream line;
    line << R"({"objects": )" << objects << R"(, "bytes": )" << bytes << R"(, "cpu": )"
         << bench::cpu_seconds() << "}";
    return line.str();
  });
  bench::print_line(R"({"port": )" + std::to_string(bench::port_of(listener)) + "}");
  const int poll = bench::check(epoll_create1(EPOLL_CLOEXEC), "epoll_create1");
  const auto watch = [poll](int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    bench::check(epoll_ctl(poll, EPOLL_CTL_ADD, fd, &event), "epoll_ctl");
  };
  watch(listener);
  std::map<int, Connection> connections;
  std::vector<char> buffer(1 << 18);
  std::array<epoll_event, 64> events{};
  while (true) {
    const int n = epoll_wait(poll, events.data(), events.size(), -1);
    for (int i = 0; i < n; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == listener) {
        const int accepted = bench::check(accept(listener, nullptr, nullptr), "accept");
        bench::set_option(accepted, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
        watch(accepted);
        connections[accepted] = {};
        continue;
      }
      const ssize_t got = recv(fd, buffer.data(), buffer.size(), 0);
      if (got <= 0) {
        connections.erase(fd);
        close(fd);
        continue;
      }
      take(fd, connections[fd], {buffer.data(), static_cast<std::size_t>(got)});
    }
  }
}
