/// Every key of a configuration: its name, type, range, and where it is kept.
#pragma once

#include <string>
#include <vector>

#include "config/fields.h"
#include "config/findings.h"

namespace daqiri::config {

/// The whole configuration.
void walk_config(Fields& fields, NetworkConfig& config);

void walk_rx_flow(Fields& fields, FlowConfig& flow);
void walk_tx_flow(Fields& fields, TxFlowConfig& flow);

/// Reads a document into structs; everything that has the wrong form is reported.
void read_config(const Node& root, UnknownKeys unknown, Findings& findings, NetworkConfig& config);

/// The structs as a document, every default included.
Node write_config(const NetworkConfig& config);

/// A document with every key there is, at its default; lists of maps have one element.
Node default_config();

/// Paths of all keys, lists as `interfaces[].rx.queues[].id`.
std::vector<std::string> known_keys();

}  // namespace daqiri::config
