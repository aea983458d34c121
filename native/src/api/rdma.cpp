#include "api/held_burst.h"
#include "api/unavailable.h"
#include "daqiri/daqiri.h"

namespace daqiri {

namespace {
constexpr std::string_view NO_RDMA =
    "this build has no RDMA engine: it needs rdma-core (Debian: libibverbs-dev, librdmacm-dev)";
}

Status rdma_connect_to_server(const std::string&, std::uint16_t, std::uintptr_t*) {
  return api::unavailable("rdma_connect_to_server", NO_RDMA);
}

Status rdma_connect_to_server(const std::string&, std::uint16_t, const std::string&,
                              std::uintptr_t*) {
  return api::unavailable("rdma_connect_to_server", NO_RDMA);
}

Status rdma_get_port_queue(std::uintptr_t, std::uint16_t*, std::uint16_t*) {
  return api::unavailable("rdma_get_port_queue", NO_RDMA);
}

Status rdma_get_server_conn_id(const std::string&, std::uint16_t, std::uintptr_t*) {
  return api::unavailable("rdma_get_server_conn_id", NO_RDMA);
}

Status rdma_set_header(BurstParams* params, RDMAOpCode, std::uintptr_t, bool, int, std::uint64_t,
                       const std::string&) {
  constexpr std::string_view CALL = "rdma_set_header";
  if (api::held(CALL, params) == nullptr) return api::not_held(params);
  return api::unavailable(CALL, NO_RDMA);
}

RDMAOpCode rdma_get_opcode(const BurstParams* params) {
  constexpr std::string_view CALL = "rdma_get_opcode";
  if (api::held(CALL, params) != nullptr) api::refuse(Status::NOT_SUPPORTED, CALL, NO_RDMA);
  return RDMAOpCode::INVALID;
}

}  // namespace daqiri
