/// Every key of a configuration: its name, type, range, and where it is kept.
#pragma once

#include <string>
#include <vector>

#include "config/fields.h"
#include "daqiri/config.h"

namespace daqiri::config {

/// The whole configuration.
void walk_config(Fields& fields, NetworkConfig& config);

// Parts of it, each the keys of one map.
void walk_memory_region(Fields& fields, MemoryRegionConfig& region);
void walk_interface(Fields& fields, InterfaceConfig& interface);
void walk_socket(Fields& fields, SocketConfig& socket);
void walk_rx(Fields& fields, RxConfig& rx);
void walk_tx(Fields& fields, TxConfig& tx);
void walk_rx_flow(Fields& fields, FlowConfig& flow);
void walk_tx_flow(Fields& fields, TxFlowConfig& flow);
void walk_reorder(Fields& fields, ReorderConfig& reorder);

/// A list of integers kept in a narrower type.
template <std::integral T>
void walk_integers(Fields& fields, Key key, std::vector<T>& values, const Range& range) {
  std::vector<std::int64_t> wide(values.begin(), values.end());
  fields.integers(key, wide, range);
  values.assign(wide.begin(), wide.end());
}

/// Paths of all keys, lists as `interfaces[].rx.queues[].id`.
std::vector<std::string> known_keys();

}  // namespace daqiri::config
