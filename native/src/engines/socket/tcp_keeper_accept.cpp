// How connections begin: their queue, their place in the table, and the peers of a server.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <utility>

#include "daqiri/error.h"
#include "engines/socket/peer_table.h"
#include "engines/socket/tcp_keeper.h"
#include "engines/socket/tcp_reader.h"
#include "engines/socket/tcp_sender.h"
#include "system/log.h"
#include "timing/clock.h"

namespace daqiri::sockets {

namespace {

/// While there is no room or no descriptor for another peer.
constexpr std::uint64_t ACCEPT_PAUSE_NS = 100'000'000;
constexpr int ACCEPTS_PER_EVENT = 64;

}  // namespace

// --- Beginnings

bool TcpKeeper::assign(TcpConnection& connection) {
  if (readers_.empty()) return true;
  std::size_t position = 0;
  connection.flow = 0;
  if (steered_) {
    // Rules name ports as those of UDP; for a stream they are its TCP ports.
    steering::PacketKey key;
    key.udp_src = connection.peer.port();
    key.udp_dst = connection.local.port();
    if (connection.peer.ipv6()) {
      key.ipv6_udp = true;
    } else {
      key.ipv4_udp = true;
      key.ipv4_src = connection.peer.ipv4();
      key.ipv4_dst = connection.local.ipv4();
    }
    const steering::Verdict verdict = classifier_->classify(key);
    if (isolated_ && !verdict.matched) return false;
    while (readers_[position]->queue().id() != verdict.queue) ++position;
    connection.flow = verdict.flow;
  } else if (connection.reader != nullptr) {
    while (readers_[position] != connection.reader) ++position;
  } else {
    position = next_reader_++ % readers_.size();
  }
  connection.reader = readers_[position];
  connection.channels.resize(readers_.size());
  Channel*& channel = connection.channels[position];
  if (channel == nullptr) channel = readers_[position]->queue().add_channel(0);
  if (channel == nullptr) {
    throw Error(Status::NO_SPACE_AVAILABLE, "no channel left on the queue");
  }
  for (Channel* each : connection.channels) {
    if (each != nullptr)
      each->connection_id.store(connection.id.load(std::memory_order_relaxed),
                                std::memory_order_release);
  }
  connection.channel = channel;
  return true;
}

void TcpKeeper::established(TcpConnection& connection, int fd) noexcept {
  prepare_connected(fd);
  connection.local = SocketAddress::local_of(fd);
  for (const SocketOption& each : connection.options) {
    setsockopt(fd, each.level, each.option, each.value.data(),
               static_cast<socklen_t>(each.value.size()));
  }
  const std::uintptr_t id = connection.id.load(std::memory_order_relaxed);
  {
    const std::lock_guard lock(connection.sending);
    connection.fd = fd;
    ++connection.generation;
    connection.unfinished = nullptr;
    connection.send_failed.store(false, std::memory_order_relaxed);
  }
  connection.phase = Phase::CONNECTED;
  connection.error = 0;
  connection.read_fd = fd;
  connection.read_error = 0;
  connection.listed = false;
  connection.stale = 0;
  connection.bytes_seen = connection.bytes_sent.load(std::memory_order_relaxed);
  const StreamPosition stream{streams_.begin(id, {connection.local, connection.peer}), 0};
  int error = 0;
  try {
    if (!assign(connection)) error = ECONNABORTED;
  } catch (const std::exception&) {
    error = ENOMEM;
  }
  if (error == 0 && connection.reader != nullptr) {
    connection.channel->stream = stream;
    if (client_) epoll_ctl(events_, EPOLL_CTL_DEL, fd, nullptr);
    error = connection.reader->add(connection);
  } else if (error == 0) {
    connection.ended.store(false, std::memory_order_relaxed);
    watch(fd, EPOLLRDHUP, &connection);
  }
  if (error != 0) return lose(connection, error, monotonic_ns());
  const TcpConnection* heard = table_.last_heard.load(std::memory_order_relaxed);
  if (heard == nullptr || heard->phase == Phase::CLOSED)
    table_.last_heard.store(&connection, std::memory_order_relaxed);
  log(LogLevel::INFO, named(connection) + " is up", {.interface = config_.interface, .queue = {}});
  for (TcpSender* sender : senders_) sender->wake();
  changed_.notify_all();
}

// --- Server

bool TcpKeeper::drained(const TcpConnection& connection) noexcept {
  return std::all_of(connection.channels.begin(), connection.channels.end(),
                     [](const Channel* c) { return c == nullptr || c->ring.size() == 0; });
}

TcpConnection* TcpKeeper::forgettable() noexcept {
  TcpConnection* oldest = nullptr;
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    TcpConnection& each = table_[i];
    if (each.phase == Phase::CLOSED && drained(each) &&
        (oldest == nullptr || each.closed_ns < oldest->closed_ns)) {
      oldest = &each;
    }
  }
  return oldest;
}

TcpConnection* TcpKeeper::place_for(const SocketAddress& peer) noexcept {
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    if (table_[i].phase == Phase::CLOSED && table_[i].peer.key() == peer.key()) return &table_[i];
  }
  TcpConnection* place = table_.full() ? forgettable() : &table_.add();
  if (place == nullptr) return nullptr;
  place->peer = peer;
  place->reader = nullptr;
  place->options.clear();
  place->id.store(next_connection_id(), std::memory_order_release);
  return place;
}

bool TcpKeeper::admit(int fd, const SocketAddress& peer) noexcept {
  const std::uint64_t now = monotonic_ns();
  for (std::uint32_t i = 0; i < table_.size(); ++i) {
    TcpConnection& each = table_[i];
    if (each.phase == Phase::CLOSED || each.peer.key() != peer.key()) continue;
    // The kernel has given up the old socket, or this one could not be.
    if (each.phase != Phase::PEER_FINISHED) return false;
    lose(each, 0, now);
  }
  TcpConnection* place = place_for(peer);
  if (place == nullptr) return false;
  established(*place, fd);
  return true;
}

void TcpKeeper::admit_waiting() noexcept {
  std::erase_if(waiting_, [this](const Waiting& each) { return admit(each.fd, each.peer); });
}

void TcpKeeper::accept_peers(std::uint64_t now) noexcept {
  const auto pause = [&](const std::string& why) {
    epoll_ctl(events_, EPOLL_CTL_DEL, listener_, nullptr);
    accept_at_ns_ = now + ACCEPT_PAUSE_NS;
    if (!std::exchange(shortage_logged_, true))
      log(LogLevel::WARN, "interface '" + config_.interface + "': peers wait: " + why,
          {.interface = config_.interface, .queue = {}});
  };
  for (int i = 0; i < ACCEPTS_PER_EVENT; ++i) {
    if ((table_.full() && forgettable() == nullptr) || waiting_.size() >= MAX_CONNECTIONS)
      return pause("there are " + std::to_string(table_.size()) + " connections already");
    SocketAddress peer;
    socklen_t length = SocketAddress::CAPACITY;
    const int fd = accept4(listener_, peer.data(), &length, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) {
      if (!admit(fd, peer)) waiting_.push_back({fd, peer});
      shortage_logged_ = false;
    } else if (errno == EAGAIN) {
      return;
    } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return pause(std::string(std::strerror(errno)) + "; `ulimit -n` raises the limit on files");
    }
  }
}

}  // namespace daqiri::sockets
