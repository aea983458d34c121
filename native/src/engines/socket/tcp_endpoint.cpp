#include "engines/socket/tcp_endpoint.h"

#include <algorithm>
#include <cerrno>

#include "daqiri/error.h"
#include "engines/socket/socket_errors.h"
#include "engines/socket/tcp_link_layer.h"
#include "engines/socket/udp_peers.h"
#include "net/interfaces.h"

namespace daqiri::sockets {

namespace {

/// A session whose server is there is connected when it is open.
constexpr std::uint64_t OPEN_WAIT_NS = 1'000'000'000U;
constexpr std::uint64_t CONNECT_WAIT_NS = 10'000'000'000U;

}  // namespace

TcpEndpoint::TcpEndpoint(const Port& port)
    : Endpoint(port),
      config_(port.config),
      own_(next_connection_id()),
      connections_(port, config_, *streams_),
      link_layer_(std::make_shared<TcpLinkLayer>(
          streams_, (config_.client ? config_.remote : config_.local).family())) {
  for (const auto& queue : port.rx)
    readers_.push_back(std::make_unique<TcpReader>(*queue, connections_));
  const std::uint32_t max_payload = port.config.socket_.max_payload_size_;
  for (const auto& queue : port.tx) {
    sender_ids_.push_back(queue->id());
    senders_.push_back(
        std::make_unique<TcpSender>(connections_, config_.client, max_payload, own_));
  }
}

void TcpEndpoint::start() {
  std::vector<TcpReader*> readers;
  std::vector<TcpSender*> senders;
  readers.reserve(readers_.size());
  senders.reserve(senders_.size());
  for (const auto& reader : readers_) readers.push_back(reader.get());
  for (const auto& sender : senders_) senders.push_back(sender.get());
  connections_.start(std::move(readers), std::move(senders));
  if (config_.client) connections_.keep_up(config_.remote, config_.local, OPEN_WAIT_NS, own_);
}

void TcpEndpoint::close() noexcept {
  connections_.close();
  for (const auto& reader : readers_) reader->close();
}

TcpReader& TcpEndpoint::reader_of(const RxQueue& queue) const noexcept {
  return **std::find_if(readers_.begin(), readers_.end(),
                        [&](const auto& reader) { return &reader->queue() == &queue; });
}

TcpSender& TcpEndpoint::sender_of(const TxQueue& queue) const noexcept {
  const auto it = std::find(sender_ids_.begin(), sender_ids_.end(), queue.id());
  return *senders_[static_cast<std::size_t>(it - sender_ids_.begin())];
}

std::uint32_t TcpEndpoint::receive(RxQueue& queue) noexcept { return reader_of(queue).receive(); }

TransmitResult TcpEndpoint::transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                                     std::uint32_t count) noexcept {
  return sender_of(queue).send(burst, first, count);
}

ReceiveTraits TcpEndpoint::receive_traits(const RxQueue& queue) const noexcept {
  return {.ready_fd = reader_of(queue).fd()};
}

TransmitTraits TcpEndpoint::transmit_traits(const TxQueue& queue) const noexcept {
  return {.most_packets = TcpSender::RUN,
          .overhead_bytes = packet_overhead(),
          .ready_fd = sender_of(queue).fd()};
}

std::array<std::uint8_t, 6> TcpEndpoint::mac_address() const noexcept {
  return mac_of(config_.local.given() ? config_.local : source_towards(config_.remote));
}

bool TcpEndpoint::has_connection(std::uintptr_t connection) const noexcept {
  return connection == own_ || connections_.find(connection) != nullptr;
}

std::pair<std::uint16_t, std::uint16_t> TcpEndpoint::port_queue(
    std::uintptr_t connection) const noexcept {
  const TcpConnection* found = connections_.find(connection);
  if (found == nullptr || readers_.empty()) return Endpoint::port_queue(connection);
  return {port_id(), readers_[connections_.position(*found)]->queue().id()};
}

bool TcpEndpoint::can_connect(const SocketAddress& peer,
                              const SocketAddress& source) const noexcept {
  return client() && config_.remote.family() == peer.family() &&
         (!source.given() || source.family() == peer.family());
}

std::uintptr_t TcpEndpoint::connect(const SocketAddress& peer, const SocketAddress& source) {
  std::uintptr_t id = 0;
  const int error = connections_.connect(peer, source, CONNECT_WAIT_NS, id);
  if (error == 0) return id;
  throw Error(
      Status::CONNECT_FAILURE,
      "interface '" + name() + "': cannot connect to tcp://" + peer.text() + ": " +
          socket_error_text(error == EINPROGRESS ? ETIMEDOUT : error, peer, Transport::TCP));
}

void TcpEndpoint::set_option(std::uintptr_t connection, int level, int option, const void* value,
                             std::size_t length) {
  connections_.set_option(connections_.find(connection),
                          [&](int fd) { set_option_of(fd, level, option, value, length); });
}

std::vector<ConnectionInfo> TcpEndpoint::connections() const { return connections_.list(own_); }

}  // namespace daqiri::sockets
