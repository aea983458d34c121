/// A server for tests of HTTP clients.
#pragma once

#include <catch2/catch.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "system/file.h"

namespace daqiri::test {

/// Answers one request a connection.
class HttpServer {
 public:
  HttpServer() : listening_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    REQUIRE(bind(listening_.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(listen(listening_.fd(), 8) == 0);
    socklen_t size = sizeof address;
    getsockname(listening_.fd(), reinterpret_cast<sockaddr*>(&address), &size);
    url_ = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
    thread_ = std::thread([this] { run(); });
  }
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;
  ~HttpServer() {
    shutdown(listening_.fd(), SHUT_RDWR);
    thread_.join();
  }

  [[nodiscard]] const std::string& url() const { return url_; }
  /// `request`: method and path. Others are answered with 404.
  void answer(const std::string& request, const std::string& body,
              const std::string& status = "200 OK") {
    const std::lock_guard lock(mutex_);
    answers_[request] = {status, body};
  }
  /// Requests with their headers and bodies.
  std::vector<std::string> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

 private:
  /// Status and body.
  using Answer = std::pair<std::string, std::string>;

  void run() {
    for (;;) {
      const File connection(accept(listening_.fd(), nullptr, nullptr));
      if (!connection.is_open()) return;
      const std::string request = read_request(connection.fd());
      const std::lock_guard lock(mutex_);
      requests_.push_back(request);
      const auto it = answers_.find(request.substr(0, request.find(" HTTP")));
      const auto [status, body] = it == answers_.end() ? Answer{"404 Not Found", ""} : it->second;
      const std::string answer =
          "HTTP/1.1 " + status +
          "\r\nConnection: close\r\nETag: \"1\"\r\nContent-Length: " + std::to_string(body.size()) +
          "\r\n\r\n" + body;
      CHECK(write(connection.fd(), answer.data(), answer.size()) ==
            static_cast<ssize_t>(answer.size()));
    }
  }

  static std::string read_request(int fd) {
    std::string request;
    std::array<char, 4096> part{};
    std::size_t wanted = std::string::npos;
    while (request.size() < wanted) {
      const ssize_t n = read(fd, part.data(), part.size());
      if (n <= 0) break;
      request.append(part.data(), static_cast<std::size_t>(n));
      const std::size_t end = request.find("\r\n\r\n");
      if (wanted != std::string::npos || end == std::string::npos) continue;
      const std::size_t length = request.find("\r\nContent-Length: ");
      wanted = end + 4 + (length < end ? std::stoul(request.substr(length + 18)) : 0);
    }
    return request;
  }

  File listening_;
  std::string url_;
  std::mutex mutex_;
  std::map<std::string, Answer> answers_;
  std::vector<std::string> requests_;
  std::thread thread_;
};

}  // namespace daqiri::test
