/// Launch times of a UDP socket, kept by the kernel (SO_TXTIME) in the queueing discipline of the
/// network interface.
#pragma once

#include <array>
#include <cstdint>
#include <ctime>
#include <string>

#include "engines/socket/udp_socket.h"
#include "io/io_engine.h"

namespace daqiri::sockets {

/// Packets that wait in the kernel for their time are accounted to the socket.
inline constexpr int LAUNCH_SEND_BUFFER = 32 << 20;

/// The queueing discipline that packets to a peer pass, as found when it was looked for.
struct LaunchQdisc {
  /// Network interface by which the route to the peer leaves.
  std::string interface;
  /// "fq", "mq with fq", "noqueue".
  std::string found;
  /// Why it keeps no launch times; empty: it does.
  std::string refusal;
  /// It drops packets without a launch time: of other sockets, and those of ARP.
  bool drops_untimed{false};

  /// etf, which reports what it drops; else fq.
  bool etf{false};
  clockid_t clock{CLOCK_MONOTONIC};
  /// ns that it lets a packet go before its stamp.
  std::uint64_t delta{0};
  /// The network card keeps the stamp.
  bool offload{false};
  /// Stamps further ahead than this, ns, are not kept.
  std::uint64_t horizon{0};
  /// Packets of a flow that it holds; it drops more.
  std::uint32_t flow_limit{0};

  [[nodiscard]] bool keeps() const noexcept { return refusal.empty(); }
};

/// Asks the kernel for the route from `local` to `peer` and for the disciplines of its interface.
/// `egress`: index of the interface that the socket is set to send by; 0: the route says. Throws
/// nothing: what cannot be found out is a refusal.
///
/// Every discipline in which packets wait (the only one, or each child of mq and its like) must be
/// fq, or each must be etf with the same settings: which one a packet passes is not known before.
LaunchQdisc find_launch_qdisc(const SocketAddress& local, const SocketAddress& peer,
                              unsigned egress) noexcept;

/// Throws Error NOT_SUPPORTED naming the interface of the configuration and the fix, where the
/// discipline keeps no launch times.
void require_launch_times(const LaunchQdisc& qdisc, const SocketAddress& peer,
                          const InterfaceConfig& interface);

/// Gives packets the stamps by which the queueing discipline lets them go, and learns what became
/// of them.
///
/// Stamps never decrease, so that no packet overtakes another, unless the clock was set back; none
/// is beyond the discipline's horizon, whatever the launch time. With etf each is used once: it
/// tells which packet a report of etf is about. etf in software lets a packet go `delta` before its
/// stamp and drops it after: the stamp is `delta` behind the launch time, no packet leaves before
/// it, and one that is ready too late for it has `delta` to leave.
///
/// The transmit worker's, but for the constructor.
class UdpLaunch {
 public:
  /// Throws Error NOT_SUPPORTED naming the interface of the configuration and the fix. It has one
  /// transmit queue, which is not paced: find_rejected.
  UdpLaunch(const UdpSocket& socket, LaunchQdisc qdisc, const InterfaceConfig& interface);

  /// TransmitTraits::launch_lead.
  [[nodiscard]] std::uint64_t lead() const noexcept;
  /// PortIo::launch_times.
  [[nodiscard]] std::string kept_by() const { return qdisc_.found + " on " + qdisc_.interface; }
  /// Several packets may go as one message: nothing is reported about it.
  [[nodiscard]] bool segments() const noexcept { return !qdisc_.etf; }

  /// Read the clocks for the stamps of one call; what was stamped and not handed over is forgotten.
  void begin() noexcept;
  /// Messages that may be handed over now.
  [[nodiscard]] std::uint32_t room() noexcept;
  /// ns after which there may be, where there is no room.
  [[nodiscard]] std::uint64_t until_room() const noexcept;
  /// The next message's stamp on the discipline's clock; `launch` as in bursts.
  std::uint64_t stamp(std::uint64_t launch) noexcept;
  /// Whether a packet may go in the message that has this stamp.
  [[nodiscard]] bool shares(std::uint64_t launch, std::uint64_t stamp) const noexcept {
    return segments() && on_qdisc_clock(launch) <= stamp;
  }
  /// The message was taken by the kernel.
  void handed(std::uint64_t stamp, std::uint32_t packets, std::uint32_t bytes) noexcept;
  /// PortIo::completed.
  TransmitCompletion completed(bool last) noexcept;

 private:
  /// In the kernel at most; a power of two.
  static constexpr std::uint64_t CAPACITY = 4096;
  struct Message {
    std::uint64_t stamp;
    /// 0: dropped.
    std::uint32_t packets;
    std::uint32_t bytes;
  };

  /// The present for a launch time that has passed, or is none.
  [[nodiscard]] std::uint64_t on_qdisc_clock(std::uint64_t launch) const noexcept;
  [[nodiscard]] Message& at(std::uint64_t number) noexcept { return messages_[number % CAPACITY]; }
  /// Read what etf has reported.
  void read_reports() noexcept;
  void drop(std::uint64_t stamp) noexcept;

  const UdpSocket& socket_;
  LaunchQdisc qdisc_;
  /// Between launch time and stamp.
  std::uint64_t shift_;
  /// A stamp's launch time is taken for no further ahead than this: well within the horizon. The
  /// worker comes much later than that, unless the clock was set.
  std::uint64_t reach_;
  /// The time, on the discipline's clock and on the port's.
  std::uint64_t now_{0};
  std::uint64_t port_now_{0};
  /// Of the last message stamped, and of the last one handed over.
  std::uint64_t stamped_{0};
  std::uint64_t handed_stamp_{0};
  /// Messages are numbered. Those from `decided_` on are in the kernel; the stamps of those from
  /// `future_` on are still to come.
  std::uint64_t handed_{0};
  std::uint64_t decided_{0};
  std::uint64_t future_{0};
  /// Since the last `completed`.
  TransmitCompletion fresh_;
  std::array<Message, CAPACITY> messages_{};
};

}  // namespace daqiri::sockets
