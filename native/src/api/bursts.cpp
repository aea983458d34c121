#include <algorithm>

#include "api/held_burst.h"
#include "api/sessions.h"
#include "daqiri/daqiri.h"

namespace daqiri {

using api::has_packet;
using api::has_segment;
using api::held;
using api::held_alone;
using api::not_held;
using api::refuse;

namespace {

BurstParams* take_burst(std::string_view call) {
  const auto running = api::running();
  if (running == nullptr) {
    refuse(Status::NOT_READY, call, api::not_running());
    return nullptr;
  }
  Burst* burst = running->session->take_tx_burst();
  if (burst == nullptr) {
    refuse(Status::NO_FREE_BURST_BUFFERS, call,
           std::string_view("all transmit bursts are in use (tx_meta_buffers: "),
           running->session->config().tx_meta_buffers_,
           std::string_view("); wait for some to be sent, or free some"));
  }
  return burst;
}

void free_burst(std::string_view call, BurstParams* handle) {
  Burst* burst = held(call, handle);
  if (burst == nullptr) return;
  // Of two threads that free the same burst, one does.
  auto state = BurstState::APPLICATION;
  if (burst->state.compare_exchange_strong(state, BurstState::ENGINE, std::memory_order_acq_rel))
    burst->release();
}

}  // namespace

BurstParams* create_burst_params() { return take_burst("create_burst_params"); }
BurstParams* create_tx_burst_params() { return take_burst("create_tx_burst_params"); }

void set_header(BurstParams* params, std::uint16_t port, std::uint16_t queue, std::int64_t num,
                int segs) {
  constexpr std::string_view CALL = "set_header";
  Burst* burst = held_alone(CALL, params);
  if (burst == nullptr) return;
  if (burst->owned > 0) {
    refuse(Status::INVALID_PARAMETER, CALL,
           std::string_view(
               "the burst has packets already; set its header before get_tx_packet_burst"));
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
  constexpr std::string_view CALL = "set_num_packets";
  Burst* burst = held_alone(CALL, params);
  if (burst == nullptr) return;
  const std::int64_t limit = burst->owned > 0 ? burst->owned : burst->capacity;
  if (num < 0 || num > limit) {
    refuse(Status::INVALID_PARAMETER, CALL, num,
           std::string_view(" packets; the burst holds 0 to "), limit);
    return;
  }
  burst->hdr.hdr.num_pkts = static_cast<std::size_t>(num);
}

std::int64_t get_num_packets(const BurstParams* params) {
  const Burst* burst = held("get_num_packets", params);
  return burst == nullptr ? 0 : static_cast<std::int64_t>(burst->hdr.hdr.num_pkts);
}

std::int64_t get_q_id(const BurstParams* params) {
  const Burst* burst = held("get_q_id", params);
  return burst == nullptr ? -1 : burst->hdr.hdr.q_id;
}

std::uint64_t get_burst_tot_byte(const BurstParams* params) {
  const Burst* burst = held("get_burst_tot_byte", params);
  return burst == nullptr ? 0 : burst->hdr.hdr.nbytes;
}

void* get_packet_ptr(BurstParams* params, int idx) {
  constexpr std::string_view CALL = "get_packet_ptr";
  const Burst* burst = held(CALL, params);
  return burst != nullptr && has_packet(CALL, *burst, idx) ? burst->pkts[0][idx] : nullptr;
}

void* get_segment_packet_ptr(BurstParams* params, int seg, int idx) {
  constexpr std::string_view CALL = "get_segment_packet_ptr";
  const Burst* burst = held(CALL, params);
  return burst != nullptr && has_segment(CALL, *burst, seg) && has_packet(CALL, *burst, idx)
             ? burst->pkts[seg][idx]
             : nullptr;
}

std::uint32_t get_packet_length(const BurstParams* params, int idx) {
  constexpr std::string_view CALL = "get_packet_length";
  const Burst* burst = held(CALL, params);
  if (burst == nullptr || !has_packet(CALL, *burst, idx)) return 0;
  std::uint32_t length = 0;
  for (int s = 0; s < MAX_NUM_SEGS && burst->owners[s] != nullptr; ++s)
    length += burst->pkt_lens[s][idx];
  return length;
}

std::uint32_t get_segment_packet_length(const BurstParams* params, int seg, int idx) {
  constexpr std::string_view CALL = "get_segment_packet_length";
  const Burst* burst = held(CALL, params);
  return burst != nullptr && has_segment(CALL, *burst, seg) && has_packet(CALL, *burst, idx)
             ? burst->pkt_lens[seg][idx]
             : 0;
}

FlowId get_packet_flow_id(const BurstParams* params, int idx) {
  constexpr std::string_view CALL = "get_packet_flow_id";
  const Burst* burst = held(CALL, params);
  return burst != nullptr && has_packet(CALL, *burst, idx) ? burst->flow_ids[idx] : 0;
}

Status get_packet_rx_timestamp(const BurstParams* params, int idx, std::uint64_t* timestamp_ns) {
  constexpr std::string_view CALL = "get_packet_rx_timestamp";
  const Burst* burst = held(CALL, params);
  if (burst == nullptr) return not_held(params);
  if (timestamp_ns == nullptr)
    return refuse(Status::NULL_PTR, CALL, std::string_view("timestamp_ns is null"));
  if (!has_packet(CALL, *burst, idx)) return Status::INVALID_PARAMETER;
  if (burst->transmit) {
    return refuse(Status::INVALID_PARAMETER, CALL,
                  std::string_view("a transmit burst has launch times, not arrivals"));
  }
  if (burst->timestamps[idx] == 0) {
    return refuse(Status::NOT_SUPPORTED, CALL, std::string_view("packet "), idx,
                  std::string_view(" came without a timestamp"));
  }
  *timestamp_ns = burst->timestamps[idx];
  return Status::SUCCESS;
}

std::uintptr_t get_connection_id(const BurstParams* params) {
  const Burst* burst = held("get_connection_id", params);
  return burst == nullptr ? 0 : burst->connection_id;
}

void set_connection_id(BurstParams* params, std::uintptr_t conn_id) {
  Burst* burst = held_alone("set_connection_id", params);
  if (burst != nullptr) burst->connection_id = conn_id;
}

void free_packet(BurstParams* params, int idx) {
  constexpr std::string_view CALL = "free_packet";
  Burst* burst = held_alone(CALL, params);
  if (burst == nullptr || !has_packet(CALL, *burst, idx)) return;
  burst->free_packet(static_cast<std::uint32_t>(idx));
}

void free_packet_segment(BurstParams* params, int seg, int idx) {
  constexpr std::string_view CALL = "free_packet_segment";
  Burst* burst = held_alone(CALL, params);
  if (burst == nullptr || !has_segment(CALL, *burst, seg) || !has_packet(CALL, *burst, idx)) return;
  burst->free_packet_segment(seg, static_cast<std::uint32_t>(idx));
}

void free_all_segment_packets(BurstParams* params, int seg) {
  constexpr std::string_view CALL = "free_all_segment_packets";
  Burst* burst = held_alone(CALL, params);
  if (burst != nullptr && has_segment(CALL, *burst, seg)) burst->free_segment(seg);
}

void free_segment_packets_and_burst(BurstParams* params, int seg) {
  constexpr std::string_view CALL = "free_segment_packets_and_burst";
  const Burst* burst = held(CALL, params);
  if (burst != nullptr && has_segment(CALL, *burst, seg)) free_burst(CALL, params);
}

void free_all_packets_and_burst_rx(BurstParams* params) {
  free_burst("free_all_packets_and_burst_rx", params);
}
void free_all_packets_and_burst_tx(BurstParams* params) {
  free_burst("free_all_packets_and_burst_tx", params);
}
void free_rx_burst(BurstParams* params) { free_burst("free_rx_burst", params); }
void free_tx_burst(BurstParams* params) { free_burst("free_tx_burst", params); }
void free_rx_metadata(BurstParams* params) { free_burst("free_rx_metadata", params); }
void free_tx_metadata(BurstParams* params) { free_burst("free_tx_metadata", params); }

}  // namespace daqiri
