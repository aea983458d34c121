/// What an io engine says of itself before it runs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace daqiri {

/// What an engine can do, and what it asks of a configuration. Validation, the refusals at start
/// and the sizes of rings follow from it.
struct EngineTraits {
  /// As `engine` of a configuration names it.
  std::string_view name;
  /// Its pollers never sleep: each wants a core of its own.
  bool polls_without_pause{false};
  /// Descriptors of a receive queue that hold a buffer each; 0: its batch size, at least 64.
  std::uint32_t rx_descriptors{0};
  /// It keeps receive rings at all; false: sockets, whose buffers the kernel has.
  bool rx_ring{true};
  /// Its queues have sources of their own (peers), in any number.
  bool many_sources{false};
  /// It delivers to memory, and sends from memory, that the CPU cannot read (GPU memory).
  bool device_memory{false};
  /// Receive times are the network card's.
  bool hardware_timestamps{false};
  /// It, or the kernel or card behind it, may keep launch times (tx.accurate_send).
  bool timed_send{false};
  /// RSS over several queues; flow transforms (VLAN, tunnels); flows at run time; flex items and
  /// eCPRI.
  bool rss{false};
  bool transforms{false};
  bool dynamic_flows{false};
  bool byte_matches{false};
  /// Queues without a thread, polled by the application (poll_mode direct).
  bool direct_mode{false};
  /// Keys of an interface that it reads and that change nothing here; paths below `interfaces[i]`,
  /// queues as "rx.queues" and "tx.queues".
  std::span<const std::string_view> unused_keys{};
};

}  // namespace daqiri
