#include "api/call.h"
#include "daqiri/daqiri.h"

namespace daqiri {

using api::Held;

namespace {

BurstParams* take_burst(const api::Call& call) {
  BurstParams* burst = nullptr;
  api::with_session(call, [&](Session& session) {
    burst = session.take_tx_burst();
    if (burst != nullptr) return Status::SUCCESS;
    return api::fail(
        Status::NO_FREE_BURST_BUFFERS, call,
        "all transmit bursts are in use (tx_meta_buffers: ", session.config().tx_meta_buffers_,
        "); wait for some to be sent, or free some");
  });
  return burst;
}

void free_burst(const Held& burst) {
  if (!burst) return;
  // Of two threads that free the same burst, one does.
  auto state = BurstState::APPLICATION;
  if (burst->state.compare_exchange_strong(state, BurstState::ENGINE, std::memory_order_acq_rel))
    burst->release();
}

}  // namespace

BurstParams* create_burst_params() { return take_burst(api::often("create_burst_params")); }
BurstParams* create_tx_burst_params() { return take_burst(api::often("create_tx_burst_params")); }

void set_header(BurstParams* params, std::uint16_t port, std::uint16_t queue, std::int64_t num,
                int segs) {
  Held burst = Held("set_header", params).alone();
  if (!burst) return;
  if (burst->owned > 0) {
    burst.refuse(Status::INVALID_PARAMETER,
                 "the burst has packets already; set its header before get_tx_packet_burst");
    return;
  }
  BurstHeaderParams& header = burst->hdr.hdr;
  header.port_id = port;
  header.q_id = queue;
  header.num_pkts = num > 0 ? static_cast<std::size_t>(num) : 0;
  header.num_segs = segs > 0 && segs <= MAX_NUM_SEGS ? segs : 0;
  header.nbytes = 0;
}

void set_num_packets(BurstParams* params, std::int64_t num) {
  Held burst = Held("set_num_packets", params).alone();
  if (!burst) return;
  const std::int64_t limit = burst->owned > 0 ? burst->owned : burst->capacity;
  if (num < 0 || num > limit) {
    burst.refuse(Status::INVALID_PARAMETER, num, " packets; the burst holds 0 to ", limit);
    return;
  }
  burst->hdr.hdr.num_pkts = static_cast<std::size_t>(num);
}

std::int64_t get_num_packets(const BurstParams* params) {
  const Held burst("get_num_packets", params);
  return burst ? static_cast<std::int64_t>(burst->hdr.hdr.num_pkts) : 0;
}

std::int64_t get_q_id(const BurstParams* params) {
  const Held burst("get_q_id", params);
  return burst ? burst->hdr.hdr.q_id : -1;
}

std::uint64_t get_burst_tot_byte(const BurstParams* params) {
  const Held burst("get_burst_tot_byte", params);
  return burst ? burst->hdr.hdr.nbytes : 0;
}

void* get_packet_ptr(BurstParams* params, int idx) {
  const Held burst = Held("get_packet_ptr", params).packet(idx);
  return burst ? burst->pkts[0][idx] : nullptr;
}

void* get_segment_packet_ptr(BurstParams* params, int seg, int idx) {
  const Held burst = Held("get_segment_packet_ptr", params).segment(seg).packet(idx);
  return burst ? burst->pkts[seg][idx] : nullptr;
}

std::uint32_t get_packet_length(const BurstParams* params, int idx) {
  const Held burst = Held("get_packet_length", params).packet(idx);
  if (!burst) return 0;
  std::uint32_t length = 0;
  for (int s = 0, n = burst.num_segments(); s < n; ++s) length += burst->pkt_lens[s][idx];
  return length;
}

std::uint32_t get_segment_packet_length(const BurstParams* params, int seg, int idx) {
  const Held burst = Held("get_segment_packet_length", params).segment(seg).packet(idx);
  return burst ? burst->pkt_lens[seg][idx] : 0;
}

FlowId get_packet_flow_id(const BurstParams* params, int idx) {
  const Held burst = Held("get_packet_flow_id", params).packet(idx);
  return burst ? burst->flow_ids[idx] : 0;
}

Status get_packet_rx_timestamp(const BurstParams* params, int idx, std::uint64_t* timestamp_ns) {
  Held burst = Held("get_packet_rx_timestamp", params)
                   .require(timestamp_ns != nullptr, Status::NULL_PTR, "timestamp_ns is null")
                   .packet(idx);
  if (!burst) return burst.status();
  if (burst->transmit) {
    return burst.refuse(Status::INVALID_PARAMETER,
                        "a transmit burst has launch times, not arrivals");
  }
  if (burst->timestamps[idx] == 0)
    return burst.refuse(Status::NOT_SUPPORTED, "packet ", idx, " came without a timestamp");
  *timestamp_ns = burst->timestamps[idx];
  return Status::SUCCESS;
}

std::uintptr_t get_connection_id(const BurstParams* params) {
  const Held burst("get_connection_id", params);
  return burst ? burst->connection_id : 0;
}

void set_connection_id(BurstParams* params, std::uintptr_t conn_id) {
  const Held burst = Held("set_connection_id", params).alone();
  if (burst) burst->connection_id = conn_id;
}

void free_packet(BurstParams* params, int idx) {
  const Held burst = Held("free_packet", params).alone().packet(idx);
  if (burst) burst->free_packet(static_cast<std::uint32_t>(idx));
}

void free_packet_segment(BurstParams* params, int seg, int idx) {
  const Held burst = Held("free_packet_segment", params).alone().segment(seg).packet(idx);
  if (burst) burst->free_packet_segment(seg, static_cast<std::uint32_t>(idx));
}

void free_all_segment_packets(BurstParams* params, int seg) {
  const Held burst = Held("free_all_segment_packets", params).alone().segment(seg);
  if (burst) burst->free_segment(seg);
}

void free_segment_packets_and_burst(BurstParams* params, int seg) {
  free_burst(Held("free_segment_packets_and_burst", params).segment(seg));
}
void free_all_packets_and_burst_rx(BurstParams* params) {
  free_burst(Held("free_all_packets_and_burst_rx", params));
}
void free_all_packets_and_burst_tx(BurstParams* params) {
  free_burst(Held("free_all_packets_and_burst_tx", params));
}
void free_rx_burst(BurstParams* params) { free_burst(Held("free_rx_burst", params)); }
void free_tx_burst(BurstParams* params) { free_burst(Held("free_tx_burst", params)); }
void free_rx_metadata(BurstParams* params) { free_burst(Held("free_rx_metadata", params)); }
void free_tx_metadata(BurstParams* params) { free_burst(Held("free_tx_metadata", params)); }

}  // namespace daqiri
