/// Launch times of a UDP socket in the kernel (SO_TXTIME), by the queueing discipline of the
/// network interface.
#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <string>

#include "engines/socket/udp_socket.h"
#include "io/io_engine.h"

namespace daqiri::sockets {

/// Packets that wait in the kernel for their launch time count towards the socket's send buffer.
inline constexpr int LAUNCH_SEND_BUFFER = 32 << 20;

/// The queueing discipline on the path to a peer, at the time of the query.
struct LaunchQdisc {
  /// Network interface of the route to the peer.
  std::string interface;
  /// "fq", "mq with fq", "noqueue".
  std::string found;
  /// Why it does not keep launch times; empty: it does.
  std::string refusal;
  /// Whether it drops packets without a launch time, such as those of other sockets and of ARP.
  bool drops_untimed{false};
  /// Whether it cuts a message of several packets and may drop some of them without a word.
  bool splits{false};

  /// etf, which reports dropped packets; false: fq.
  bool etf{false};
  clockid_t clock{CLOCK_MONOTONIC};
  /// How long before its stamp it sends a packet, ns.
  std::uint64_t delta{0};
  /// Whether the network card waits for the stamp.
  bool offload{false};
  /// Stamps further in the future than this are not kept, ns.
  std::uint64_t horizon{0};
  /// Packets per flow that it holds; it drops further ones.
  std::uint32_t flow_limit{0};

  [[nodiscard]] bool keeps() const noexcept { return refusal.empty(); }
};

/// Queries the kernel for the route from `local` to `peer` and for the disciplines of its
/// interface. `egress`: index of the interface through which the socket is set to send; 0: the
/// route determines it. Does not throw: if a query fails, `refusal` contains the reason.
///
/// Every discipline in which packets wait (the only one, or each child of mq and similar ones) must
/// be fq, or each must be etf with the same settings, because it is not known in advance which one
/// a packet passes.
LaunchQdisc find_launch_qdisc(const SocketAddress& local, const SocketAddress& peer,
                              unsigned egress) noexcept;

/// Whether `LaunchQdisc::splits` holds for any network interface: for a server, whose routes to its
/// peers are not known when it opens.
bool any_qdisc_splits() noexcept;

/// Throws Error NOT_SUPPORTED naming the interface of the configuration and the fix, where the
/// discipline keeps no launch times.
void require_launch_times(const LaunchQdisc& qdisc, const SocketAddress& peer,
                          const InterfaceConfig& interface);

/// Gives packets the stamps by which the queueing discipline lets them go, and learns what became
/// of them.
///
/// Stamps never decrease, so that no packet overtakes another, unless the clock is set back; no
/// stamp is beyond the discipline's horizon, regardless of the launch time. With etf, each stamp is
/// used once, because it identifies the packet in etf's reports. etf in software sends a packet up
/// to `delta` before its stamp and drops it after the stamp. The stamp is therefore `delta` after
/// the launch time: no packet leaves before its launch time, and a late one has `delta` to leave.
///
/// Used by the transmit worker, except for the constructor.
class UdpLaunch {
 public:
  /// Throws Error NOT_SUPPORTED naming the interface of the configuration and the fix. It has one
  /// transmit queue, which is not paced: find_rejected.
  UdpLaunch(const UdpSocket& socket, LaunchQdisc qdisc, const InterfaceConfig& interface);

  /// See TransmitTraits::launch_lead.
  [[nodiscard]] std::uint64_t lead() const noexcept;
  /// See PortIo::launch_times.
  [[nodiscard]] std::string kept_by() const { return qdisc_.found + " on " + qdisc_.interface; }
  /// Whether the discipline reports each message that it drops or refuses (etf). Then a message is
  /// one packet.
  [[nodiscard]] bool reports_drops() const noexcept { return qdisc_.etf; }

  /// Read the clocks for the stamps of one call; stamps that were not used are discarded.
  void begin() noexcept;
  /// Number of messages that may be sent now.
  [[nodiscard]] std::uint32_t room() noexcept;
  /// If there is no room: ns until there may be.
  [[nodiscard]] std::uint64_t until_room() const noexcept;
  /// The next message's stamp on the discipline's clock; `launch` as in bursts.
  std::uint64_t stamp(std::uint64_t launch) noexcept;
  /// Whether a packet can be in the message with this stamp.
  [[nodiscard]] bool shares(std::uint64_t launch, std::uint64_t stamp) const noexcept {
    return !reports_drops() && on_qdisc_clock(launch) <= stamp;
  }
  /// The kernel has accepted the message.
  void handed(std::uint64_t stamp, std::uint32_t packets, std::uint32_t bytes) noexcept;
  /// See PortIo::completed.
  TransmitCompletion completed(bool last) noexcept;

 private:
  /// Most messages in the kernel; a power of two.
  static constexpr std::uint64_t CAPACITY = 4096;
  struct Message {
    std::uint64_t stamp;
    /// 0: dropped.
    std::uint32_t packets;
    std::uint32_t bytes;
  };

  /// The current time for a launch time in the past, or 0.
  [[nodiscard]] std::uint64_t on_qdisc_clock(std::uint64_t launch) const noexcept;
  [[nodiscard]] Message& at(std::uint64_t number) noexcept { return messages_[number % CAPACITY]; }
  /// Read the reports of etf.
  void read_reports() noexcept;
  void drop(std::uint64_t stamp) noexcept;

  const UdpSocket& socket_;
  LaunchQdisc qdisc_;
  /// Difference of stamp and launch time.
  std::uint64_t shift_;
  /// Launch times are limited to this far in the future, well within the horizon. The worker
  /// submits packets much later than that, unless the clock was set.
  std::uint64_t reach_;
  /// The current time, on the discipline's clock and on the port's.
  std::uint64_t now_{0};
  std::uint64_t port_now_{0};
  /// Stamps of the last message stamped, and of the last one sent.
  std::uint64_t stamped_{0};
  std::uint64_t handed_stamp_{0};
  /// Numbers of messages. Those from `decided_` on are in the kernel; those from `future_` on have
  /// a stamp in the future.
  std::uint64_t handed_{0};
  std::uint64_t decided_{0};
  std::uint64_t future_{0};
  /// Counts since the last call of `completed`.
  TransmitCompletion fresh_;
  std::array<Message, CAPACITY> messages_{};
};

}  // namespace daqiri::sockets
