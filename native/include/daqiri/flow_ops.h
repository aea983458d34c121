/// Operations on flows that are added and deleted while the engine runs.
#pragma once

#include <cstdint>
#include <vector>

#include "daqiri/flows.h"
#include "daqiri/status.h"

namespace daqiri {

/// \addtogroup flows
/// \{

/// Number of an operation, from 1.
using FlowOpId = std::uint64_t;

/// Types of operations.
enum class FlowOpType { ADD_RX, ADD_RX_BATCH, DELETE };

/// A completed operation.
struct FlowOpResult {
  /// Number that the call which started the operation returned.
  FlowOpId op_id_{0};
  /// Type of the operation.
  FlowOpType type_{FlowOpType::ADD_RX};
  /// Result of the operation; NOT_READY: no operation has completed.
  Status status_{Status::NOT_READY};
  /// ADD_RX and DELETE: the flow.
  FlowId flow_id_{0};
  /// ADD_RX_BATCH: the flows in input order; 0: not installed.
  std::vector<FlowId> flow_ids_;
};

/// \}

}  // namespace daqiri
