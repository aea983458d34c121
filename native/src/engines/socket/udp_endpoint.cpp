#include "engines/socket/udp_endpoint.h"

#include <algorithm>

#include "daqiri/error.h"
#include "engines/socket/udp_link_layer.h"
#include "metrics/log.h"

namespace daqiri::sockets {

namespace {

/// The kernel may hold as much as the region does, within reason: it accounts twice this, and more
/// memory only hides a consumer that is too slow.
constexpr std::uint64_t MAX_RECEIVE_BUFFER = 64U << 20U;

std::uint64_t receive_buffer_for(const RxQueue& queue) noexcept {
  std::uint64_t bytes = 0;
  for (int s = 0; s < queue.num_segments(); ++s) {
    const MemoryRegionConfig& region = queue.region(s).config();
    bytes += std::min(region.num_bufs_ * region.buf_size_, MAX_RECEIVE_BUFFER);
  }
  return std::min(bytes, MAX_RECEIVE_BUFFER);
}

void warn_of_unused(const InterfaceConfig& interface) {
  const auto unused = [&](const char* key, std::uint32_t value, const char* instead) {
    if (value == 0) return;
    log(LogLevel::WARN, "interface '" + interface.name_ + "': socket_config." + key + " is " +
                            std::to_string(value) +
                            " and has no effect on UDP in this build; use " + instead);
  };
  unused("min_ipg_ns", interface.socket_.min_ipg_ns_,
         "pacing_mbps of the tx queue, or launch times");
  unused("max_burst_interval_ms", interface.socket_.max_burst_interval_ms_,
         "timeout_us of the rx queue");
}

std::vector<RxQueue*> queues_of(const Port& port) {
  std::vector<RxQueue*> queues;
  queues.reserve(port.rx.size());
  for (const auto& queue : port.rx) queues.push_back(queue.get());
  return queues;
}

}  // namespace

UdpEndpoint::UdpEndpoint(const Port& port)
    : Endpoint(port),
      socket_(port.config),
      peers_(socket_, queues_of(port)),
      connection_(socket_.client() ? (*peers_.table())[0].connection : next_connection_id()),
      link_layer_(
          std::make_shared<UdpLinkLayer>(peers_.table(), socket_.local(), socket_.client())),
      mac_(mac_of(socket_.local())) {
  warn_of_unused(port.config);
  if (!port.rx.empty()) {
    receiver_ = std::make_unique<UdpReceiver>(port, socket_, peers_);
    socket_.prepare_receive(receive_buffer_for(receiver_->first_queue()));
  }
  const std::uint32_t max_payload = port.config.socket_.max_payload_size_;
  for (const auto& queue : port.tx) {
    senders_.push_back({queue->id(), std::make_unique<UdpSender>(socket_, *peers_.table(),
                                                                 max_payload, connection_)});
  }
}

std::uint32_t UdpEndpoint::receive(RxQueue& queue) noexcept {
  // The other queues get their packets while the first reads the socket.
  return &queue == &receiver_->first_queue() ? receiver_->receive() : 0;
}

TransmitResult UdpEndpoint::transmit(TxQueue& queue, const Burst& burst, std::uint32_t first,
                                     std::uint32_t count) noexcept {
  const auto it = std::find_if(senders_.begin(), senders_.end(),
                               [&](const QueueSender& s) { return s.queue == queue.id(); });
  return it->sender->send(burst, first, count);
}

void UdpEndpoint::close() noexcept {
  const std::lock_guard lock(options_);
  if (receiver_ != nullptr) receiver_->close();
  socket_.close();
}

bool UdpEndpoint::has_connection(std::uintptr_t connection) const noexcept {
  return connection == connection_ || peers_.table()->find(connection) != PeerTable::NONE;
}

std::uintptr_t UdpEndpoint::connect(const SocketAddress& peer, const SocketAddress& /*source*/) {
  const std::uint32_t number = peers_.learn(peer.key());
  if (number == PeerTable::NONE) {
    throw Error(Status::NO_SPACE_AVAILABLE,
                "interface '" + name() + "': no connection left for udp://" + peer.text() +
                    "; its socket has " + std::to_string(peers_.table()->size()) +
                    " peers. Reopen the session, or add an interface");
  }
  return (*peers_.table())[number].connection;
}

void UdpEndpoint::set_option(std::uintptr_t /*connection*/, int level, int option,
                             const void* value, std::size_t length) {
  const std::lock_guard lock(options_);
  set_option_of(socket_.fd(), level, option, value, length);
}

std::vector<ConnectionInfo> UdpEndpoint::connections() const {
  std::vector<ConnectionInfo> all;
  const std::lock_guard lock(options_);
  const bool open = socket_.fd() >= 0;
  if (!client()) {
    all.push_back({connection_, "", local().text(),
                   open ? ConnectionState::LISTENING : ConnectionState::CLOSED, ""});
  }
  const PeerTable& table = *peers_.table();
  for (std::uint32_t i = 0; i < table.size(); ++i) {
    const Peer& peer = table[i];
    all.push_back({peer.connection, peer.address.text(), peer.local.text(),
                   open ? ConnectionState::CONNECTED : ConnectionState::CLOSED, ""});
  }
  return all;
}

}  // namespace daqiri::sockets
