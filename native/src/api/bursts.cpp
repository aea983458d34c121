// Bursts and their packets; receiving bursts.
#include <algorithm>
#include <string>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "system/text.h"
#include "timing/clock.h"

namespace daqiri {

using api::Held;

namespace {

BurstParams* take_burst(api::Call call) {
  BurstParams* burst = nullptr;
  api::with_session(call, [&](Session& session) {
    burst = session.take_tx_burst();
    if (burst != nullptr) return Status::SUCCESS;
    return api::decline(
        Status::NO_FREE_BURST_BUFFERS, call,
        "all transmit bursts are in use (tx_meta_buffers: ", session.config().tx_meta_buffers_,
        "); wait for some to be sent, or free some");
  });
  return burst;
}

void free_burst(const Held& burst) {
  if (!burst) return;
  // If two threads free the same burst, only one succeeds.
  auto state = BurstState::APPLICATION;
  if (burst->state.compare_exchange_strong(state, BurstState::ENGINE, std::memory_order_acq_rel))
    burst->release();
}

/// Throws Error INVALID_PARAMETER with the existing names.
reorder::RunningPlan& reorder_plan(Session& session, const std::string& interface,
                                   const std::string& name) {
  const auto find = [&](int port, const std::string& owner) -> reorder::RunningPlan& {
    std::string plans;
    for (reorder::RunningPlan& plan : session.reorder_plans(port)) {
      if (plan.name() == name) return plan;
      plans.append(plans.empty() ? "" : ", ").append(plan.name());
    }
    throw Error(Status::INVALID_PARAMETER, std::string(owner)
                                               .append(" has no reorder config ")
                                               .append(quoted(name))
                                               .append("; it has ")
                                               .append(plans.empty() ? "none" : plans));
  };
  if (interface.empty()) return find(Session::NO_PORT, "the configuration");
  std::string known;
  for (const InterfaceConfig& each : session.config().ifs_) {
    known.append(known.empty() ? "" : ", ").append(each.name_);
    if (each.name_ == interface) return find(each.port_id_, "interface '" + interface + "'");
  }
  throw Error(Status::INVALID_PARAMETER,
              "no interface is named " + quoted(interface) + "; there are " + known);
}

constexpr int ANY_QUEUE = -1;

/// Limit of a wait, so that a closed session is noticed.
constexpr std::uint64_t SLICE_NS = 100'000'000;
/// Longer than any useful wait, and small enough for sums of ns.
constexpr std::int64_t LONGEST_US = 1'000'000'000'000'000;

/// Run `next`, which returns a burst of the running session or null. "No burst yet" is not a
/// failure: it sets no reason and has no further cost.
template <typename Next>
Status receive(api::Call call, BurstParams** out, Next&& next) noexcept {
  // Not NULL_PTR, because programs interpret that as "no burst yet".
  if (out == nullptr) return api::fail(Status::INVALID_PARAMETER, call, "burst is null");
  *out = nullptr;
  return api::with_session(call, [&](Session& session) {
    *out = next(session);
    return *out == nullptr ? Status::NULL_PTR : Status::SUCCESS;
  });
}

}  // namespace

BurstParams* create_burst_params() { return take_burst(api::often(__func__)); }
BurstParams* create_tx_burst_params() { return take_burst(api::often(__func__)); }

void set_header(BurstParams* params, std::uint16_t port, std::uint16_t queue, std::int64_t num,
                int segs) {
  Held burst(__func__, params);
  burst.alone().require(!burst || burst->owned == 0, Status::INVALID_PARAMETER,
                        "the burst has packets already; set its header before get_tx_packet_burst");
  if (!burst) return;
  BurstHeaderParams& header = burst->hdr.hdr;
  header.port_id = port;
  header.q_id = queue;
  header.num_pkts = static_cast<std::size_t>(num);
  header.num_segs = segs > 0 && segs <= MAX_NUM_SEGS ? segs : 0;
  header.nbytes = 0;
}

void set_num_packets(BurstParams* params, std::int64_t num) {
  Held burst(__func__, params);
  if (!burst.alone()) return;
  // Before the burst has packets, the number is checked by get_tx_packet_burst.
  if (burst->owned > 0 && (num < 0 || num > burst->owned)) {
    burst.refuse(Status::INVALID_PARAMETER, num, " packets; the burst holds 0 to ", burst->owned);
    return;
  }
  burst->hdr.hdr.num_pkts = static_cast<std::size_t>(num);
}

std::int64_t get_num_packets(const BurstParams* params) {
  const Held burst(__func__, params);
  return burst ? static_cast<std::int64_t>(burst->hdr.hdr.num_pkts) : 0;
}

std::int64_t get_q_id(const BurstParams* params) {
  const Held burst(__func__, params);
  return burst ? burst->hdr.hdr.q_id : -1;
}

std::uint64_t get_burst_tot_byte(const BurstParams* params) {
  const Held burst(__func__, params);
  return burst ? burst->hdr.hdr.nbytes : 0;
}

void* get_packet_ptr(BurstParams* params, int idx) {
  Held burst(__func__, params);
  return burst.packet(idx) ? burst->pkts[0][idx] : nullptr;
}

void* get_segment_packet_ptr(BurstParams* params, int seg, int idx) {
  Held burst(__func__, params);
  return burst.segment(seg).packet(idx) ? burst->pkts[seg][idx] : nullptr;
}

std::uint32_t get_packet_length(const BurstParams* params, int idx) {
  Held burst(__func__, params);
  if (!burst.packet(idx)) return 0;
  std::uint32_t length = 0;
  for (int s = 0, n = burst.num_segments(); s < n; ++s) length += burst->pkt_lens[s][idx];
  return length;
}

std::uint32_t get_segment_packet_length(const BurstParams* params, int seg, int idx) {
  Held burst(__func__, params);
  return burst.segment(seg).packet(idx) ? burst->pkt_lens[seg][idx] : 0;
}

FlowId get_packet_flow_id(const BurstParams* params, int idx) {
  Held burst(__func__, params);
  return burst.packet(idx) ? burst->flow_ids[idx] : 0;
}

Status get_packet_rx_timestamp(const BurstParams* params, int idx, std::uint64_t* timestamp_ns) {
  Held burst(__func__, params);
  burst.require(timestamp_ns != nullptr, Status::NULL_PTR, "timestamp_ns is null").packet(idx);
  if (!burst) return burst.status();
  if (burst->transmit) {
    return burst.refuse(Status::INVALID_PARAMETER,
                        "a transmit burst has launch times, not arrivals");
  }
  if (burst->timestamps[idx] == 0)
    return api::decline(Status::NOT_SUPPORTED, __func__, "packet ", idx, " has no timestamp");
  *timestamp_ns = burst->timestamps[idx];
  return Status::SUCCESS;
}

Status set_reorder_cuda_stream(const std::string& interface_name, const std::string& reorder_name,
                               cudaStream_t stream) {
  return api::with_session(__func__, [&](Session& session) {
    reorder_plan(session, interface_name, reorder_name).set_stream(stream);
  });
}

Status set_reorder_mode(const std::string& interface_name, const std::string& reorder_name,
                        const std::string& mode) {
  return api::with_session(__func__, [&](Session& session) {
    reorder_plan(session, interface_name, reorder_name).set_mode(mode);
  });
}

Status get_reorder_burst_info(const BurstParams* params, ReorderBurstInfo* info) {
  Held burst(__func__, params);
  burst.require(info != nullptr, Status::NULL_PTR, "info is null");
  if (!burst) return burst.status();
  if (burst->valid == nullptr) {
    return burst.refuse(Status::NOT_SUPPORTED,
                        "the burst is not an aggregate of a reorder config (its burst_flags lack "
                        "DAQIRI_BURST_FLAG_REORDERED)");
  }
  *info = burst->reorder;
  return Status::SUCCESS;
}

std::uintptr_t get_connection_id(const BurstParams* params) {
  const Held burst(__func__, params);
  return burst ? burst->connection_id : 0;
}

void set_connection_id(BurstParams* params, std::uintptr_t conn_id) {
  Held burst(__func__, params);
  if (burst.alone()) burst->connection_id = conn_id;
}

void free_packet(BurstParams* params, int idx) {
  Held burst(__func__, params);
  if (burst.alone().packet(idx)) burst->free_packet(static_cast<std::uint32_t>(idx));
}

void free_packet_segment(BurstParams* params, int seg, int idx) {
  Held burst(__func__, params);
  if (burst.alone().segment(seg).packet(idx))
    burst->free_packet_segment(seg, static_cast<std::uint32_t>(idx));
}

void free_all_segment_packets(BurstParams* params, int seg) {
  Held burst(__func__, params);
  if (burst.alone().segment(seg)) burst->free_segment(seg);
}

void free_segment_packets_and_burst(BurstParams* params, int seg) {
  free_burst(Held(__func__, params).segment(seg));
}
void free_all_packets_and_burst_rx(BurstParams* params) { free_burst(Held(__func__, params)); }
void free_all_packets_and_burst_tx(BurstParams* params) { free_burst(Held(__func__, params)); }
void free_rx_burst(BurstParams* params) { free_burst(Held(__func__, params)); }
void free_tx_burst(BurstParams* params) { free_burst(Held(__func__, params)); }
void free_rx_metadata(BurstParams* params) { free_burst(Held(__func__, params)); }
void free_tx_metadata(BurstParams* params) { free_burst(Held(__func__, params)); }

Status get_rx_burst(BurstParams** burst, int port, int queue) {
  return receive(api::often(__func__, port, queue), burst,
                 [=](const Session& session) { return session.rx_queue(port, queue).receive(); });
}

Status get_rx_burst(BurstParams** burst, int port) {
  return receive(api::often(__func__, port, ANY_QUEUE), burst,
                 [=](Session& session) { return session.any_rx_queue(port).receive(); });
}

Status get_rx_burst(BurstParams** burst) {
  return receive(api::often(__func__), burst,
                 [](Session& session) { return session.any_rx_queue().receive(); });
}

Status wait_rx_burst(BurstParams** burst, int port, int queue, std::int64_t timeout_us) {
  return receive(api::often(__func__, port, queue), burst, [=](const Session& session) -> Burst* {
    if (timeout_us < 0) {
      throw Error(Status::INVALID_PARAMETER,
                  "timeout_us is " + std::to_string(timeout_us) + "; accepted is 0 or more");
    }
    RxQueue& rx = session.rx_queue(port, queue);
    const std::uint64_t end =
        monotonic_ns() + static_cast<std::uint64_t>(std::min(timeout_us, LONGEST_US)) * 1000;
    for (;;) {
      // In this order, so that bursts delivered before the queue closed are received.
      const bool closed = rx.closed();
      if (Burst* next = rx.receive()) return next;
      const std::uint64_t now = monotonic_ns();
      if (closed || now >= end) return nullptr;
      // Return after a signal, so that the program can handle it.
      if (!rx.wait(static_cast<std::int64_t>(std::min(end - now, SLICE_NS)))) return nullptr;
    }
  });
}

Status get_rx_burst(BurstParams** burst, std::uintptr_t conn_id, bool server) {
  return receive(api::often(__func__), burst, [=](Session& session) -> Burst* {
    const Connections& connections = session.connections();
    const Port& port = session.port(connections.queue_of(conn_id).first);
    const bool is_server = port.config.socket_.mode_ == SocketMode::SERVER;
    if (is_server != server) {
      throw Error(Status::INVALID_PARAMETER, "connection " + std::to_string(conn_id) +
                                                 " is on the " +
                                                 (is_server ? "server's" : "client's") + " side");
    }
    if (port.rx.empty()) {
      throw Error(Status::INVALID_PARAMETER,
                  "interface '" + port.config.name_ + "' has no receive queues");
    }
    if (connections.is_server(conn_id)) return session.any_rx_queue(port.id).receive();
    // A peer may be received on several queues.
    for (const auto& queue : port.rx) {
      if (Burst* next = queue->receive_from(conn_id)) return next;
    }
    return nullptr;
  });
}

}  // namespace daqiri
