/// What keeps launch times behind a socket: the queueing discipline of the network interface.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>

#include "net/socket_address.h"

namespace daqiri::sockets {

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

}  // namespace daqiri::sockets
