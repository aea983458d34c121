// Calls that this build declares but does not implement: RDMA.
#include "api/call.h"
#include "daqiri/daqiri.h"

namespace daqiri {

namespace {

constexpr const char* NO_RDMA = "this build has no RDMA engine";

/// Returns NOT_SUPPORTED with `missing`; without a session, NOT_READY.
Status unavailable(const char* call, const char* missing) noexcept {
  return api::with_session(
      call, [=](const Session&) { return api::fail(Status::NOT_SUPPORTED, call, missing); });
}

Status no_rdma(const char* call) noexcept { return unavailable(call, NO_RDMA); }

}  // namespace

Status rdma_connect_to_server(const std::string&, std::uint16_t, std::uintptr_t*) {
  return no_rdma(__func__);
}
Status rdma_connect_to_server(const std::string&, std::uint16_t, const std::string&,
                              std::uintptr_t*) {
  return no_rdma(__func__);
}
Status rdma_get_port_queue(std::uintptr_t, std::uint16_t*, std::uint16_t*) {
  return no_rdma(__func__);
}
Status rdma_get_server_conn_id(const std::string&, std::uint16_t, std::uintptr_t*) {
  return no_rdma(__func__);
}
Status rdma_set_header(BurstParams* params, RDMAOpCode, std::uintptr_t, bool, int, std::uint64_t,
                       const std::string&) {
  const api::Held burst(__func__, params);
  return burst ? no_rdma(__func__) : burst.status();
}
RDMAOpCode rdma_get_opcode(const BurstParams* params) {
  api::Held(__func__, params).require(false, Status::NOT_SUPPORTED, NO_RDMA);
  return RDMAOpCode::INVALID;
}

}  // namespace daqiri
