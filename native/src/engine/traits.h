/// Features that an I/O engine declares before it runs, and values derived from them.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"

namespace daqiri {

/// A key that an engine reads and that changes nothing on it.
struct UnusedKey {
  /// As in "interfaces[].socket_config.min_ipg_ns".
  std::string_view path;
  /// What to do instead, for the warning.
  std::string_view instead;
  /// The interfaces on which it is unused; null: all of them.
  bool (*when)(const InterfaceConfig& interface){nullptr};
};

/// Of engines that make memory themselves and send frames as they come; the last has a meaning on
/// engine packet.
inline constexpr UnusedKey UNUSED_BY_RAW_ENGINES[] = {
    {"debug", "use log_level: debug"},
    {"memory_regions[].owned", "the engine allocates all regions; remove the key"},
    {"memory_regions[].access", "it is for RDMA; remove the key"},
    {"interfaces[].tx.queues[].timeout_us", "bursts are sent as they come; remove the key"},
    {"interfaces[].rx.receive_path", "it is for engine 'packet'; remove the key"}};
inline constexpr std::span<const UnusedKey> UNUSED_BY_PACKET =
    std::span(UNUSED_BY_RAW_ENGINES).first(std::size(UNUSED_BY_RAW_ENGINES) - 1);

/// A capability of the process (capabilities(7)) that an engine uses.
struct Privilege {
  std::string_view capability;
  /// What for, in a few words.
  std::string_view use;
  /// False: without it the engine opens, and does less.
  bool required{true};
  /// The interfaces that use it; null: all of them.
  bool (*when)(const InterfaceConfig& interface){nullptr};
};

/// Bytes that an interface asks the kernel for, apart from memory regions; 0: none.
struct KernelMemory {
  /// SO_RCVBUF and SO_SNDBUF of a socket, as setsockopt(2) counts them.
  std::uint64_t receive_buffer{0};
  std::uint64_t send_buffer{0};
  /// What counts against RLIMIT_MEMLOCK.
  std::uint64_t locked{0};
  /// Rings, as they are mapped.
  std::uint64_t mapped{0};
};

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
  /// It delivers to the memory of a GPU, and sends from there; false: packets are copied.
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
  /// Filter expressions (rx.filter).
  bool packet_filter{false};
  /// Queues without a thread, polled by the application (poll_mode direct).
  bool direct_mode{false};
  /// A value other than the default is a warning.
  std::span<const UnusedKey> unused_keys{};
  std::span<const Privilege> privileges{};
  /// Types of network interfaces (ARPHRD_ of linux/if_arp.h) that it accepts; none: any.
  std::span<const std::uint16_t> link_types{};
  /// Whether it opens only while the network interface is up; null: it does not.
  bool (*requires_up)(const InterfaceConfig& interface){nullptr};
  /// Null: none.
  KernelMemory (*kernel_memory)(const NetworkConfig& config,
                                const InterfaceConfig& interface){nullptr};
  /// Adds what the engine rejects by the configuration alone, in addition to features that it does
  /// not have. Null: nothing.
  void (*find_rejected)(const NetworkConfig& config, std::vector<Error>& found){nullptr};
  /// Adds what it rejects on this host as it is now, where that is found without opening anything.
  /// Null: nothing.
  void (*find_rejected_here)(const NetworkConfig& config, std::vector<Error>& found){nullptr};
};

/// Whether queues have packets in a memory region.
[[nodiscard]] bool holds_packets(const NetworkConfig& config, const std::string& region);

/// Throws Error for what the engine cannot do and for what it rejects: it names the interface, the
/// item, the value and what to do. `config` is validated.
void refuse_unsupported(const NetworkConfig& config, const EngineTraits& traits);

/// Bytes of the host's memory that regions and bursts take.
[[nodiscard]] std::uint64_t memory_needed(const NetworkConfig& config);
/// Bytes of address space that an engine takes: with its rings and the stacks of threads.
[[nodiscard]] std::uint64_t address_space_needed(const NetworkConfig& config,
                                                 const EngineTraits& traits);

/// Throws Error NO_FREE_PACKET_BUFFERS or NO_FREE_BURST_BUFFERS when memory regions and bursts need
/// more than `memory` bytes (0: this machine's main memory): it names the keys and their values.
void refuse_oversized(const NetworkConfig& config, std::uint64_t memory = 0);
/// Throws Error NO_FREE_PACKET_BUFFERS when this process may not map as much as the engine takes.
void refuse_unmappable(const NetworkConfig& config, const EngineTraits& traits);

}  // namespace daqiri
