/// What an RDMA burst does.
#pragma once

namespace daqiri {

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

}  // namespace daqiri
