/// Packets in two or more pieces, and those whose second piece a card writes to a GPU.
#pragma once

#include <rte_ethdev.h>

#include <cstdint>
#include <string>

#include "daqiri/config.h"

namespace daqiri::dpdk {

/// Most bytes of a received packet in its first piece. The queue has several memory regions.
[[nodiscard]] std::uint32_t first_piece(const NetworkConfig& config, const RxQueueConfig& queue);

/// Of devices that split packets (RTE_ETH_RX_OFFLOAD_BUFFER_SPLIT): why this one does not for the
/// interface, whose queues have packets in pieces; empty: it does.
[[nodiscard]] std::string why_not_split(const NetworkConfig& config,
                                        const InterfaceConfig& interface,
                                        const rte_eth_dev_info& info);

/// Why packets of a receive flow may not have their second pieces where the CPU cannot read them;
/// empty: they may. `first`: most bytes of the first piece.
[[nodiscard]] std::string why_not_on_gpu(const FlowConfig& flow, const InterfaceConfig& interface,
                                         std::uint32_t first);
/// The same for a memory region, and all that use it.
[[nodiscard]] std::string why_not_on_gpu(const NetworkConfig& config, const std::string& region);

}  // namespace daqiri::dpdk
