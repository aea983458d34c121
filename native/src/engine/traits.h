/// Features that an I/O engine declares before it runs, and values derived from them.
#pragma once

#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daqiri/config.h"
#include "daqiri/error.h"

namespace daqiri {

/// A key that an engine accepts, but that has no effect on it.
struct UnusedKey {
  /// As in "interfaces[].socket_config.min_ipg_ns".
  std::string_view path;
  /// What to do instead, for the warning.
  std::string_view instead;
  /// The interfaces on which it has no effect; null: all of them.
  bool (*when)(const InterfaceConfig& interface){nullptr};
};

/// For engines that allocate memory themselves and send frames immediately; the last key has an
/// effect on engine packet.
inline constexpr UnusedKey UNUSED_BY_RAW_ENGINES[] = {
    {"debug", "use log_level: debug"},
    {"memory_regions[].owned", "the engine allocates all regions; remove the key"},
    {"memory_regions[].access", "it is for RDMA; remove the key"},
    {"interfaces[].tx.queues[].timeout_us", "bursts are sent as they come; remove the key"},
    {"interfaces[].rx.receive_path", "it is for engine 'packet'; remove the key"}};
inline constexpr std::span<const UnusedKey> UNUSED_BY_PACKET =
    std::span(UNUSED_BY_RAW_ENGINES).first(std::size(UNUSED_BY_RAW_ENGINES) - 1);

/// Form of `interfaces[].address`, which validation checks.
enum class AddressForm : std::uint8_t {
  /// The engine checks addresses and endpoints itself.
  OWN,
  /// A label: there is no network interface, or the endpoints of sockets choose it.
  LABEL,
  /// A PCI address, or a virtual device of DPDK with its arguments: "net_tap0,iface=dtap0".
  PCI_OR_VIRTUAL_DEVICE,
  INTERFACE_NAME,
  PCI_OR_INTERFACE_NAME
};

/// A capability of the process (capabilities(7)) that an engine uses.
struct Privilege {
  std::string_view capability;
  /// Its purpose, in a few words.
  std::string_view use;
  /// False: the engine also opens without it, with reduced function.
  bool required{true};
  /// The interfaces that use it; null: all of them.
  bool (*when)(const InterfaceConfig& interface){nullptr};
};

/// Bytes that an interface requests from the kernel, apart from memory regions; 0: none.
struct KernelMemory {
  /// SO_RCVBUF and SO_SNDBUF of a socket, as counted by setsockopt(2).
  std::uint64_t receive_buffer{0};
  std::uint64_t send_buffer{0};
  /// Bytes that count towards RLIMIT_MEMLOCK.
  std::uint64_t locked{0};
  /// Rings, as they are mapped.
  std::uint64_t mapped{0};
};

/// Features of an engine, and its requirements for a configuration. They determine validation,
/// errors at start, and the sizes of rings.
struct EngineTraits {
  /// Name in `engine` of a configuration.
  std::string_view name;
  /// Whether it has raw streams.
  bool raw{true};
  /// Transports of socket streams that it has.
  std::span<const SocketProtocol> transports{};
  AddressForm addresses{AddressForm::OWN};
  /// Whether packets stay in the memory of this process (loopback: sw).
  bool in_memory{false};
  /// Whether it drives the network card itself.
  bool kernel_bypass{false};
  /// Whether it drives network cards of NVIDIA only, by way of their RDMA driver.
  bool rdma_cards{false};
  /// Its pollers never sleep: each needs a dedicated core.
  bool polls_without_pause{false};
  /// Descriptors of a receive queue that hold a buffer each; 0: its batch size, at least 64.
  std::uint32_t rx_descriptors{0};
  /// Whether it has receive rings; false: sockets, whose buffers belong to the kernel.
  bool rx_ring{true};
  /// Whether its queues have any number of separate sources (peers).
  bool many_sources{false};
  /// Whether it receives to GPU memory and sends from there; false: packets are copied.
  bool device_memory{false};
  /// Whether receive times come from the network card.
  bool hardware_timestamps{false};
  /// Whether it, the kernel or the card may wait for launch times (tx.accurate_send).
  bool timed_send{false};
  /// RSS over several queues; flow transforms (VLAN, tunnels); flows at run time; flex items;
  /// eCPRI.
  bool rss{false};
  bool transforms{false};
  bool dynamic_flows{false};
  bool flex_items{false};
  bool ecpri{false};
  /// Filter expressions (rx.filter).
  bool packet_filter{false};
  /// Queues without a thread, polled by the application (poll_mode direct).
  bool direct_mode{false};
  /// It reads all queues of an interface together: all of them are direct, or none.
  bool reads_together{false};
  /// A value other than the default causes a warning.
  std::span<const UnusedKey> unused_keys{};
  std::span<const Privilege> privileges{};
  /// What its library is and finds on this host, by name. Null: nothing to tell.
  std::vector<std::pair<std::string, std::string>> (*facts)(){nullptr};
  /// Types of network interfaces (ARPHRD_ of linux/if_arp.h) that it accepts; none: any.
  std::span<const std::uint16_t> link_types{};
  /// Whether it makes the device of an interface itself; null: it never does.
  bool (*virtual_device)(const InterfaceConfig& interface){nullptr};
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

/// One Error with all problems, of which there must be one, a line each.
[[nodiscard]] Error joined(const std::vector<Error>& found);
/// Throws `joined`, unless there is none.
void refuse(const std::vector<Error>& found);

/// What the engine cannot do, what it rejects, and plans without a GPU. Each names the interface,
/// the item, the value and what to do. `config` is validated.
[[nodiscard]] std::vector<Error> find_unsupported(const NetworkConfig& config,
                                                  const EngineTraits& traits);

/// Bytes of host memory for regions and bursts.
[[nodiscard]] std::uint64_t memory_needed(const NetworkConfig& config);
/// Bytes of address space that an engine takes: with its rings and the stacks of threads.
[[nodiscard]] std::uint64_t address_space_needed(const NetworkConfig& config,
                                                 const EngineTraits& traits);

/// Adds an Error NO_FREE_PACKET_BUFFERS or NO_FREE_BURST_BUFFERS if memory regions and bursts need
/// more than `memory` bytes (0: this machine's main memory), with the keys and their values.
void find_oversized(const NetworkConfig& config, std::uint64_t memory, std::vector<Error>& found);
/// Adds an Error NO_FREE_PACKET_BUFFERS when this process may not map as much as the engine takes.
void find_unmappable(const NetworkConfig& config, const EngineTraits& traits,
                     std::vector<Error>& found);

}  // namespace daqiri
