/// One interface on a UDP socket.
#include <algorithm>
#include <mutex>

#include "engines/socket/endpoint.h"
#include "engines/socket/link_layers.h"
#include "engines/socket/udp_cores.h"
#include "engines/socket/udp_queues.h"
#include "system/socket_events.h"

namespace daqiri::sockets {

namespace {

/// How long packets may wait in sockets, whose buffers are small.
constexpr std::uint64_t GATHERS_NS = 50'000;

std::uint64_t receive_buffer_for(const RxQueue& queue) {
  std::vector<const MemoryRegionConfig*> regions;
  regions.reserve(static_cast<std::size_t>(queue.num_segments()));
  for (int s = 0; s < queue.num_segments(); ++s) regions.push_back(&queue.region(s).config());
  return sockets::receive_buffer_for(regions);
}

/// How packets pass the queueing discipline on the path to the peer.
struct Egress {
  /// Null: launch times in software, by the worker.
  std::unique_ptr<UdpLaunch> launch;
  /// Whether several packets may be one message.
  bool segments;
};

/// Sets up launch times in the kernel, if configured; logs the queueing discipline on the path to
/// the peer. Throws Error NOT_SUPPORTED.
Egress find_egress(const UdpSocket& socket, const InterfaceConfig& interface) {
  // Its peers are unknown at the start; find_rejected has seen to it that it asks for no launch
  // times.
  if (!socket.client()) return {nullptr, !any_qdisc_splits()};
  const bool wanted = interface.tx_.accurate_send_;
  const LaunchQdisc qdisc =
      find_launch_qdisc(socket.local(), socket.remote(), socket.multicast_egress());
  const auto tell = [&](LogLevel level, const std::string& more) {
    log_about(interface.name_, level,
              "network interface '" + qdisc.interface + "' has the queueing discipline '" +
                  qdisc.found + "'" + more);
  };
  if (wanted) {
    auto launch = std::make_unique<UdpLaunch>(socket, qdisc, interface);
    tell(LogLevel::INFO, ", which keeps launch times");
    const bool segments = !launch->reports_drops() && !qdisc.splits;
    return {std::move(launch), segments};
  }
  if (qdisc.drops_untimed) {
    tell(LogLevel::WARN,
         ", which drops packets without a launch time; set tx.accurate_send to true");
  } else {
    tell(LogLevel::DEBUG,
         std::string("; the worker keeps launch times") +
             (qdisc.keeps() ? "; with tx.accurate_send the queueing discipline keeps them" : ""));
  }
  return {nullptr, !qdisc.splits};
}

/// The socket with its receiver, one sender per transmit queue, and its connections.
///
/// If the receive queues of a server have different cores, there are several sockets and receivers;
/// see open_sockets.
class UdpEndpoint final : public Endpoint {
 public:
  explicit UdpEndpoint(const Port& port)
      : Endpoint(port, Transport::UDP),
        socket_of_(sockets_of(port.config)),
        sockets_(open_sockets(port.config, claim_)),
        peers_(std::make_shared<UdpPeers>(socket().local(), sockets_.size())) {
    addresses_.local = socket().local();
    if (client()) connection_ = peers_->enter(remote().key()).connection;
    link_layer_ = std::make_shared<UdpLinkLayer>(peers_, local(), client() ? connection_ : 0);
    while (!port.rx.empty() && receivers_.size() < sockets_.size()) {
      const std::size_t i = receivers_.size();
      receivers_.push_back(
          std::make_unique<UdpReceiver>(port, *sockets_[i], *peers_, socket_of_, i));
      sockets_[i]->prepare_receive(receive_buffer_for(receivers_[i]->first_queue()));
    }
    for (const auto& to : receivers_)
      for (const auto& from : receivers_) to->take_from(*from);
    if (!port.tx.empty()) prepare_transmit();
  }

  std::uint32_t receive(RxQueue& queue) noexcept override {
    UdpReceiver& receiver = receiver_of(queue);
    if (&receiver.first_queue() != &queue) return 0;
    if (arrivals_ != nullptr) {
      // Take the event before reading: datagrams that arrive later trigger a new event.
      std::array<epoll_event, 2> events;
      arrivals_->take(events);
    }
    return receiver.receive();
  }
  [[nodiscard]] ReceiveTraits receive_traits(const RxQueue& queue) const noexcept override {
    const int fd = sockets_[socket_of_[position(port_.rx, queue)]]->fd();
    return {.ready = arrivals_ != nullptr ? Readiness(*arrivals_) : Readiness::of_arrivals(fd),
            .gathers_ns = GATHERS_NS};
  }
  void finish_receiving(RxQueue& queue) noexcept override {
    if (&receiver_of(queue).first_queue() == &queue) receiver_of(queue).finish();
  }
  [[nodiscard]] bool expects_more(const RxQueue& queue) const noexcept override {
    return receiver_of(queue).expects_more();
  }
  TransmitResult transmit(TxQueue& queue, Burst& burst, std::uint32_t first,
                          std::uint32_t count) noexcept override {
    return senders_[position(port_.tx, queue)]->send(burst, first, count);
  }
  [[nodiscard]] const char* unreachable(std::uintptr_t connection) const noexcept override {
    const bool own = connection == 0 || connection == connection_;
    if (own && (client() || peers_->latest().given())) return nullptr;
    if (own) return "no client has sent to the server yet";
    return !client() && peers_->find(connection) ? nullptr : "the interface has no such connection";
  }
  TransmitCompletion completed(TxQueue&, bool last) noexcept override {
    return launch_->completed(last);
  }
  [[nodiscard]] TransmitTraits transmit_traits(const TxQueue& queue) const noexcept override {
    return {.most_packets = UdpSender::BATCH,
            .overhead_bytes = packet_overhead(),
            .launch_lead = launch_ == nullptr ? 0 : launch_->lead(),
            .ready = senders_[position(port_.tx, queue)]->ready()};
  }
  [[nodiscard]] std::string launch_times(const TxQueue& queue) const override {
    return launch_ == nullptr ? Endpoint::launch_times(queue) : launch_->kept_by();
  }
  void close() noexcept override {
    for (const auto& receiver : receivers_) receiver->close();
    const std::lock_guard lock(options_);
    for (const auto& socket : sockets_) socket->close();
    claim_.close();
  }

  [[nodiscard]] bool has_connection(std::uintptr_t connection) const noexcept override {
    return connection == connection_ || peers_->find(connection).has_value();
  }
  [[nodiscard]] std::uint16_t queue_of(std::uintptr_t connection) const override {
    const auto peer = peers_->find(connection);
    return peer.has_value() && !port_.rx.empty() ? port_.rx[peer->position]->id() : first_queue();
  }
  /// A server's socket can send to any peer.
  [[nodiscard]] bool can_connect(const SocketAddress& peer,
                                 const SocketAddress& source) const noexcept override {
    return !client() && local().family() == peer.family() &&
           (!source.given() || source.same_host(local()));
  }
  /// The peer need not have sent anything.
  std::uintptr_t connect(const SocketAddress& peer, const SocketAddress& /*source*/) override {
    return peers_->enter(peer.key()).connection;
  }
  void for_sockets(std::uintptr_t /*connection*/, const std::function<void(int fd)>& use) override {
    const std::lock_guard lock(options_);
    for (const auto& socket : sockets_) use(socket->fd());
  }
  [[nodiscard]] std::vector<ConnectionInfo> connections() const override {
    std::vector<ConnectionInfo> all;
    const std::lock_guard lock(options_);
    const bool open = socket().fd() >= 0;
    if (!client()) all.push_back(listening(open));
    for (const UdpPeers::Peer& peer : peers_->all()) {
      all.push_back({peer.connection, SocketAddress(peer.address).text(),
                     SocketAddress(peer.local).text(),
                     open ? ConnectionState::CONNECTED : ConnectionState::CLOSED, ""});
    }
    return all;
  }

 private:
  /// The first socket, which also sends.
  [[nodiscard]] const UdpSocket& socket() const noexcept { return *sockets_.front(); }
  [[nodiscard]] UdpReceiver& receiver_of(const RxQueue& queue) const noexcept {
    return *receivers_[socket_of_[position(port_.rx, queue)]];
  }
  void prepare_transmit() {
    Egress egress = find_egress(socket(), port_.config);
    launch_ = std::move(egress.launch);
    if (launch_ != nullptr && launch_->reports_drops()) {
      // Its reports would keep the socket readable for poll(2) until the worker has read them.
      arrivals_ = std::make_unique<SocketEvents>("interface '" + name() + "'");
      arrivals_->watch(socket().fd(), EPOLLIN | EPOLLET);
    } else {
      sockets_.front()->report_refusals();
    }
    const std::uint32_t max_payload = port_.config.socket_.max_payload_size_;
    while (senders_.size() < port_.tx.size()) {
      senders_.push_back(std::make_unique<UdpSender>(socket(), *peers_, max_payload, connection_,
                                                     launch_.get(), egress.segments));
    }
  }

  /// Prevents that a socket is closed while an option is set on it.
  mutable std::mutex options_;
  /// Holds the address of several sockets.
  File claim_;
  /// By position of the receive queue.
  std::vector<std::size_t> socket_of_;
  std::vector<std::unique_ptr<UdpSocket>> sockets_;
  /// With etf: each report is one event here.
  std::unique_ptr<SocketEvents> arrivals_;
  std::shared_ptr<UdpPeers> peers_;
  /// One for each socket, which the poller of its first queue uses for all of its queues.
  std::vector<std::unique_ptr<UdpReceiver>> receivers_;
  /// Null: launch times in software, by the worker.
  std::unique_ptr<UdpLaunch> launch_;
  /// In the order of the port's queues.
  std::vector<std::unique_ptr<UdpSender>> senders_;
};

}  // namespace

std::unique_ptr<Endpoint> make_udp_endpoint(const Port& port) {
  return std::make_unique<UdpEndpoint>(port);
}

}  // namespace daqiri::sockets
