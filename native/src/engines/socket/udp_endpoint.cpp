#include "engines/socket/udp_endpoint.h"

#include <algorithm>

#include "daqiri/error.h"
#include "engines/socket/socket_errors.h"
#include "engines/socket/udp_link_layer.h"
#include "net/interfaces.h"
#include "system/log.h"

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

std::vector<RxQueue*> queues_of(const Port& port) {
  std::vector<RxQueue*> queues;
  queues.reserve(port.rx.size());
  for (const auto& queue : port.rx) queues.push_back(queue.get());
  return queues;
}

/// Launch times in the kernel, where they are asked for; what is found on the way to the peer is
/// logged. Throws Error NOT_SUPPORTED.
std::unique_ptr<UdpLaunch> find_launch(const UdpSocket& socket, const InterfaceConfig& interface) {
  if (interface.tx_.queues_.empty()) return nullptr;
  const bool wanted = interface.tx_.accurate_send_;
  if (!socket.client()) {
    if (!wanted) return nullptr;
    throw Error(Status::NOT_SUPPORTED,
                "interface '" + interface.name_ +
                    "': tx.accurate_send is true, and the peers of a server, and with them the "
                    "network interface that would keep launch times, are not known at the start; "
                    "send from a client (socket_config.mode client), or set it to false");
  }
  const LaunchQdisc qdisc =
      find_launch_qdisc(socket.local(), socket.remote(), socket.multicast_egress());
  const std::string at = "interface '" + interface.name_ + "': network interface '" +
                         qdisc.interface + "' has the queueing discipline '" + qdisc.found + "'";
  const LogOrigin origin{.interface = interface.name_, .queue = {}};
  if (wanted) {
    auto launch = std::make_unique<UdpLaunch>(socket, qdisc, interface);
    log(LogLevel::INFO, at + ", which keeps launch times", origin);
    return launch;
  }
  if (qdisc.drops_untimed) {
    log(LogLevel::WARN,
        at + ", which drops packets without a launch time; set tx.accurate_send to true", origin);
  } else {
    log(LogLevel::DEBUG,
        at + "; launch times are kept by the worker" +
            (qdisc.keeps() ? ", tx.accurate_send leaves them to it" : ""),
        origin);
  }
  return nullptr;
}

/// Whether each queue has a socket of its own.
bool spreads(const InterfaceConfig& interface) noexcept {
  const auto& queues = interface.rx_.queues_;
  const bool one_core = std::all_of(queues.begin(), queues.end(), [&](const RxQueueConfig& queue) {
    return queue.cpu_core_ == queues.front().cpu_core_;
  });
  return !one_core && interface.rx_.flows_.empty() && interface.socket_.mode_ == SocketMode::SERVER;
}

/// Queues that share a socket get their buffers before their datagrams are known.
void require_sharing(const InterfaceConfig& interface) {
  const auto& queues = interface.rx_.queues_;
  const RxQueueConfig& first = queues.front();
  for (const RxQueueConfig& queue : queues) {
    const auto refuse = [&](const char* what, const std::string& more) {
      std::string text = "interface '" + interface.name_ + "': rx queues '";
      text.append(first.name_).append("' and '").append(queue.name_);
      text.append("' read one socket and must have the same ").append(what).append(more);
      throw Error(Status::INVALID_PARAMETER, text);
    };
    if (queue.cpu_core_ != first.cpu_core_) {
      std::string more = "; found '" + first.cpu_core_ + "' and '" + queue.cpu_core_;
      more += interface.socket_.mode_ == SocketMode::CLIENT
                  ? "'. A client has one peer, which one core serves; use that core for both"
                  : "'. Flows choose a queue after the datagram is read: use one core for the "
                    "queues, or remove the flows, and the kernel spreads the peers over them";
      refuse("cpu_core", more);
    }
    if (queue.mrs_ != first.mrs_) refuse("memory_regions, in the same order", "");
    if (queue.split_boundary_ != first.split_boundary_) refuse("split_boundary", "");
  }
}

/// `claim` then holds an address that several sockets share.
std::vector<std::unique_ptr<UdpSocket>> open_sockets(const InterfaceConfig& interface,
                                                     File& claim) {
  const std::size_t count = spreads(interface) ? interface.rx_.queues_.size() : 1;
  if (count == 1 && !interface.rx_.queues_.empty()) require_sharing(interface);
  if (count > 1) {
    const SocketAddress local = addresses_of(interface, Transport::UDP).local;
    if (local.multicast()) {
      throw Error(Status::INVALID_PARAMETER,
                  "interface '" + interface.name_ + "': " + std::to_string(count) +
                      " rx queues on different cores would each get all that is sent to the "
                      "group " +
                      local.text() + "; use one cpu_core for them");
    }
    claim = claim_address(interface.name_, local);
  }
  std::vector<std::unique_ptr<UdpSocket>> sockets;
  sockets.reserve(count);
  for (std::size_t i = 0; i < count; ++i)
    sockets.push_back(std::make_unique<UdpSocket>(interface, count > 1));
  return sockets;
}

}  // namespace

UdpEndpoint::UdpEndpoint(const Port& port)
    : Endpoint(port),
      sockets_(open_sockets(port.config, claim_)),
      peers_(std::make_shared<UdpPeers>(socket().local(), sockets_.size())),
      queues_(queues_of(port)),
      connection_(client() ? peers_->enter(remote().key()).connection : next_connection_id()),
      link_layer_(
          std::make_shared<UdpLinkLayer>(peers_, socket().local(), client() ? connection_ : 0)),
      mac_(mac_of(socket().local())) {
  if (!port.rx.empty()) {
    for (std::size_t i = 0; i < sockets_.size(); ++i) {
      receivers_.push_back(std::make_unique<UdpReceiver>(port, *sockets_[i], *peers_, queues_, i));
      sockets_[i]->prepare_receive(receive_buffer_for(receivers_[i]->first_queue()));
    }
  }
  launch_ = find_launch(socket(), port.config);
  if (launch_ != nullptr && !launch_->segments()) {
    arrivals_ = std::make_unique<SocketEvents>("interface '" + name() + "'");
    arrivals_->watch(socket().fd(), EPOLLIN | EPOLLET);
  }
  const std::uint32_t max_payload = port.config.socket_.max_payload_size_;
  for (const auto& queue : port.tx) {
    senders_.push_back({queue->id(), std::make_unique<UdpSender>(socket(), *peers_, max_payload,
                                                                 connection_, launch_.get())});
  }
}

UdpReceiver* UdpEndpoint::receiver_of(const RxQueue& queue) const noexcept {
  for (const auto& receiver : receivers_) {
    if (&receiver->first_queue() == &queue) return receiver.get();
  }
  return nullptr;
}

std::uint32_t UdpEndpoint::receive(RxQueue& queue) noexcept {
  UdpReceiver* receiver = receiver_of(queue);
  if (receiver == nullptr) return 0;
  if (arrivals_ != nullptr) {
    // Before reading: what comes later is another event.
    std::array<epoll_event, 2> events;
    arrivals_->take(events);
  }
  return receiver->receive();
}

ReceiveTraits UdpEndpoint::receive_traits(const RxQueue& queue) const noexcept {
  const UdpReceiver* receiver = receiver_of(queue);
  const int fd = receiver == nullptr ? socket().fd() : receiver->socket().fd();
  return {.ready_fd = arrivals_ != nullptr ? arrivals_->fd() : fd, .gathers = true};
}

UdpSender& UdpEndpoint::sender_of(const TxQueue& queue) const noexcept {
  return *std::find_if(senders_.begin(), senders_.end(), [&](const QueueSender& s) {
            return s.queue == queue.id();
          })->sender;
}

TransmitResult UdpEndpoint::transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                                     std::uint32_t count) noexcept {
  return sender_of(queue).send(burst, first, count);
}

TransmitTraits UdpEndpoint::transmit_traits(const TxQueue& queue) const noexcept {
  return {.most_packets = UdpSender::BATCH,
          .overhead_bytes = packet_overhead(),
          .launch_lead = launch_ == nullptr ? 0 : launch_->lead(),
          .ready_fd = sender_of(queue).fd()};
}

void UdpEndpoint::close() noexcept {
  const std::lock_guard lock(options_);
  for (const auto& receiver : receivers_) receiver->close();
  for (const auto& socket : sockets_) socket->close();
  claim_.close();
}

std::pair<std::uint16_t, std::uint16_t> UdpEndpoint::port_queue(
    std::uintptr_t connection) const noexcept {
  const auto peer = peers_->find(connection);
  if (!peer.has_value() || receivers_.empty()) return Endpoint::port_queue(connection);
  return {port_id(), queues_[peer->position]->id()};
}

bool UdpEndpoint::has_connection(std::uintptr_t connection) const noexcept {
  return connection == connection_ || peers_->find(connection).has_value();
}

std::uintptr_t UdpEndpoint::connect(const SocketAddress& peer, const SocketAddress& /*source*/) {
  return peers_->enter(peer.key()).connection;
}

void UdpEndpoint::set_option(std::uintptr_t /*connection*/, int level, int option,
                             const void* value, std::size_t length) {
  const std::lock_guard lock(options_);
  for (const auto& socket : sockets_) set_option_of(socket->fd(), level, option, value, length);
}

std::vector<ConnectionInfo> UdpEndpoint::connections() const {
  std::vector<ConnectionInfo> all;
  const std::lock_guard lock(options_);
  const bool open = socket().fd() >= 0;
  if (!client()) {
    all.push_back({connection_, "", local().text(),
                   open ? ConnectionState::LISTENING : ConnectionState::CLOSED, ""});
  }
  for (const UdpPeers::Peer& peer : peers_->all()) {
    all.push_back({peer.connection, SocketAddress(peer.address).text(),
                   SocketAddress(peer.local).text(),
                   open ? ConnectionState::CONNECTED : ConnectionState::CLOSED, ""});
  }
  return all;
}

}  // namespace daqiri::sockets
