// Calls that this build declares and does not do: flows at run time, reordering, RDMA and S3.
#include "api/call.h"
#include "daqiri/daqiri.h"

namespace daqiri {

namespace {

constexpr const char* NO_FLOWS =
    "this build cannot change flows while it runs; list the flow under rx.flows of the interface";
constexpr const char* NO_RDMA =
    "this build has no RDMA engine: it needs rdma-core (Debian: libibverbs-dev, librdmacm-dev)";

/// NOT_SUPPORTED with `missing`; NOT_READY first where there is no session.
Status unavailable(const char* call, const char* missing) noexcept {
  return api::with_session(
      call, [=](const Session&) { return api::fail(Status::NOT_SUPPORTED, call, missing); });
}

/// There is no writer and no handle that a program could have got.
Status no_s3(const char* call) noexcept {
  return api::fail(Status::NOT_SUPPORTED, call,
                   "this build has no S3 client; write files and upload them");
}

}  // namespace

Status add_rx_flow_async(int, const FlowRuleConfig&, FlowOpId*) {
  return unavailable("add_rx_flow_async", NO_FLOWS);
}
Status add_rx_flows_async(int, const std::vector<FlowRuleConfig>&, FlowOpId*) {
  return unavailable("add_rx_flows_async", NO_FLOWS);
}
Status delete_flow_async(FlowId, FlowOpId*) { return unavailable("delete_flow_async", NO_FLOWS); }
Status poll_flow_op(FlowOpResult*) { return unavailable("poll_flow_op", NO_FLOWS); }

Status set_reorder_cuda_stream(const std::string&, const std::string&, CUstream_st*) {
  return unavailable("set_reorder_cuda_stream",
                     "this build has no CUDA and no reorder stage; receive ordinary bursts");
}
Status get_reorder_burst_info(const BurstParams* params, ReorderBurstInfo* info) {
  return api::Held("get_reorder_burst_info", params)
      .require(info != nullptr, Status::NULL_PTR, "info is null")
      .require(false, Status::NOT_SUPPORTED,
               "this build has no reorder stage, so the burst is no aggregate (its burst_flags "
               "lack DAQIRI_BURST_FLAG_REORDERED)")
      .status();
}

Status rdma_connect_to_server(const std::string&, std::uint16_t, std::uintptr_t*) {
  return unavailable("rdma_connect_to_server", NO_RDMA);
}
Status rdma_connect_to_server(const std::string&, std::uint16_t, const std::string&,
                              std::uintptr_t*) {
  return unavailable("rdma_connect_to_server", NO_RDMA);
}
Status rdma_get_port_queue(std::uintptr_t, std::uint16_t*, std::uint16_t*) {
  return unavailable("rdma_get_port_queue", NO_RDMA);
}
Status rdma_get_server_conn_id(const std::string&, std::uint16_t, std::uintptr_t*) {
  return unavailable("rdma_get_server_conn_id", NO_RDMA);
}
Status rdma_set_header(BurstParams* params, RDMAOpCode, std::uintptr_t, bool, int, std::uint64_t,
                       const std::string&) {
  constexpr const char* CALL = "rdma_set_header";
  const api::Held burst(CALL, params);
  return burst ? unavailable(CALL, NO_RDMA) : burst.status();
}
RDMAOpCode rdma_get_opcode(const BurstParams* params) {
  api::Held("rdma_get_opcode", params).require(false, Status::NOT_SUPPORTED, NO_RDMA);
  return RDMAOpCode::INVALID;
}

Status daqiri_s3_writer_create(const S3WriterConfig&, S3Writer** writer) {
  if (writer != nullptr) *writer = nullptr;
  return no_s3("daqiri_s3_writer_create");
}
Status daqiri_s3_writer_destroy(S3Writer*) { return no_s3("daqiri_s3_writer_destroy"); }
Status daqiri_write_raw_to_s3_objects_async(S3Writer*, BurstParams*, const std::string&,
                                            std::uint64_t, S3WriteHandle** handle) {
  if (handle != nullptr) *handle = nullptr;
  return no_s3("daqiri_write_raw_to_s3_objects_async");
}
Status daqiri_s3_write_poll(S3WriteHandle*, S3WriteStatus*) {
  return no_s3("daqiri_s3_write_poll");
}
Status daqiri_s3_write_wait(S3WriteHandle*, S3WriteStatus*) {
  return no_s3("daqiri_s3_write_wait");
}
Status daqiri_s3_write_destroy(S3WriteHandle*) { return no_s3("daqiri_s3_write_destroy"); }

}  // namespace daqiri
