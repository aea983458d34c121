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

/// What an operation does.
enum class FlowOpType { ADD_RX, ADD_RX_BATCH, DELETE };

/// A completed operation.
struct FlowOpResult {
  /// As the call that began it gave.
  FlowOpId op_id_{0};
  /// What it did.
  FlowOpType type_{FlowOpType::ADD_RX};
  /// How it ended; NOT_READY: nothing has.
  Status status_{Status::NOT_READY};
  /// ADD_RX, DELETE.
  FlowId flow_id_{0};
  /// ADD_RX_BATCH: in input order; 0: not installed.
  std::vector<FlowId> flow_ids_;
};

/// \}

}  // namespace daqiri
