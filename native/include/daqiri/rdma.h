/// RDMA: what a burst does, and how an interface takes part.
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

/// Which side of a connection a completion is of.
enum class RDMACompletionType { RX, TX, INVALID };
/// Side of a connection.
enum class RDMAMode { CLIENT, SERVER, INVALID };
/// `transport_mode`: reliable connection, unreliable connection, unreliable datagrams.
enum class RDMATransportMode { RC, UC, UD, INVALID };

/// RDMA of an interface. Set by validation for `roce://` endpoints.
struct RDMAConfig {
  /// `mode` of `socket_config`.
  RDMAMode mode_{RDMAMode::INVALID};
  /// `transport_mode` of `roce_config`.
  RDMATransportMode xmode_{RDMATransportMode::INVALID};
  /// Where a server listens; 0: not given.
  std::uint16_t port_{0};
  DAQIRI_EQUALITY(RDMAConfig)
};

/// What an RDMA burst does, and, once it has completed, how it ended.
struct TransportHeader {
  /// What is done.
  RDMAOpCode opcode{RDMAOpCode::INVALID};
  /// INVALID until it has completed.
  RDMACompletionType completion{RDMACompletionType::INVALID};
  /// How it ended.
  Status status{Status::SUCCESS};
  /// The program is the server.
  bool server{false};
  /// Connection of the operation; 0: none.
  std::uintptr_t conn_id{0};
  /// The program's number of the operation.
  std::uint64_t wr_id{0};
  /// Packets of the operation.
  std::uint32_t num_pkts{0};
  /// Region that it reads from or writes to, terminated by 0.
  std::array<char, 64> local_mr_name{};
};

/// \}

}  // namespace daqiri
