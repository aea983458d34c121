/// RDMA operations of bursts, and RDMA settings of an interface.
#pragma once

#include <array>
#include <cstdint>

#include "daqiri/language.h"
#include "daqiri/status.h"

namespace daqiri {

/// \addtogroup rdma
/// \{

/// Operation of a burst.
enum class RDMAOpCode {
  CONNECT,
  SEND,
  RECEIVE,
  RDMA_WRITE,
  RDMA_WRITE_IMM,
  RDMA_READ,
  RDMA_READ_IMM,
  INVALID
};

/// Side of a connection that a completion belongs to.
enum class RDMACompletionType { RX, TX, INVALID };
/// Side of a connection.
enum class RDMAMode { CLIENT, SERVER, INVALID };
/// `transport_mode`: reliable connection, unreliable connection, unreliable datagrams.
enum class RDMATransportMode { RC, UC, UD, INVALID };

/// RDMA settings of an interface. Validation sets them for `roce://` endpoints.
struct RDMAConfig {
  /// `mode` of `socket_config`.
  RDMAMode mode_{RDMAMode::INVALID};
  /// `transport_mode` of `roce_config`.
  RDMATransportMode xmode_{RDMATransportMode::INVALID};
  /// Port where a server listens; 0: not set.
  std::uint16_t port_{0};
  DAQIRI_EQUALITY(RDMAConfig)
};

/// Operation of an RDMA burst and, after completion, its result.
struct TransportHeader {
  /// Operation.
  RDMAOpCode opcode{RDMAOpCode::INVALID};
  /// Side of the completion; INVALID before the operation has completed.
  RDMACompletionType completion{RDMACompletionType::INVALID};
  /// Result of the operation.
  Status status{Status::SUCCESS};
  /// Whether the program is the server.
  bool server{false};
  /// Connection of the operation; 0: none.
  std::uintptr_t conn_id{0};
  /// Number that the program gave the operation.
  std::uint64_t wr_id{0};
  /// Number of packets of the operation.
  std::uint32_t num_pkts{0};
  /// Name of the memory region that the operation reads from or writes to, terminated by 0.
  std::array<char, 64> local_mr_name{};
};

/// \}

}  // namespace daqiri
