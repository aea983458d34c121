#include <algorithm>
#include <memory>
#include <string>

#include "api/held_burst.h"
#include "daqiri/daqiri.h"
#include "net/headers.h"
#include "session/session.h"

namespace daqiri {

using api::held_alone;
using api::refuse;
using std::string_view;

namespace {

/// The queue that the header of a transmit burst names. Throws Error.
TxQueue& queue_of(const Session& session, const Burst& burst) {
  if (!burst.transmit)
    throw Error(Status::INVALID_PARAMETER, "a receive burst cannot be transmitted");
  return session.tx_queue(burst.hdr.hdr.port_id, burst.hdr.hdr.q_id);
}

/// Run `action` with a transmit burst and its queue; what it throws becomes a status.
template <typename Action>
Status with_queue(string_view call, BurstParams* handle, Action&& action) noexcept {
  Status status{};
  Burst* burst = held_alone(call, handle, &status);
  if (burst == nullptr) return status;
  // Its own session, whatever the thread selected.
  const std::shared_ptr<const Session> session = burst->keep->session.lock();
  if (session == nullptr || session->closed()) {
    return refuse(Status::NOT_READY, call,
                  string_view("the burst is of a session that was shut down; free it"));
  }
  try {
    return action(queue_of(*session, *burst), *burst);
  } catch (const Error& error) {
    return refuse(error.status(), call, string_view(error.what()));
  } catch (const std::exception& error) {
    return refuse(Status::GENERIC_FAILURE, call, string_view(error.what()));
  }
}

/// Whether packets of the burst's port are Ethernet frames.
bool has_headers(const Burst& burst) noexcept {
  const auto& layers = burst.keep->link_layers;
  const std::uint16_t port = burst.hdr.hdr.port_id;
  return port >= layers.size() || !layers[port]->reconstructs_headers();
}

/// What was asked of a burst that has no packets yet, against its queue. Throws Error.
void require_fillable(const TxQueue& queue, const Burst& burst) {
  const auto fail = [&](const std::string& what) {
    throw Error(Status::INVALID_PARAMETER,
                "transmit queue '" + queue.config().name_ + "': " + what);
  };
  const BurstHeaderParams& header = burst.hdr.hdr;
  if (burst.owned > 0) fail("the burst has packets already; send or free it");
  if (header.num_pkts == 0 || header.num_pkts > queue.batch_size()) {
    fail(std::to_string(header.num_pkts) + " packets; a burst has 1 to " +
         std::to_string(queue.batch_size()) + " (batch_size)");
  }
  if (header.num_segs != queue.num_segments()) {
    fail(std::to_string(header.num_segs) + " segments; the queue has " +
         std::to_string(queue.num_segments()) + " (memory_regions)");
  }
}

/// Every packet to send is there and has a length. Throws Error.
void require_sendable(const TxQueue& queue, const Burst& burst) {
  const auto fail = [&](const std::string& what) {
    throw Error(Status::INVALID_PARAMETER,
                "transmit queue '" + queue.config().name_ + "': " + what);
  };
  const std::uint32_t n = burst.num_packets();
  if (n == 0 || n > burst.owned) {
    fail(std::to_string(burst.hdr.hdr.num_pkts) + " packets to send of a burst that has " +
         std::to_string(burst.owned) +
         (burst.owned == 0 ? "; call get_tx_packet_burst first" : ""));
  }
  for (int s = 0; s < queue.num_segments(); ++s) {
    if (burst.owners[s] != &queue.region(s)) fail("the burst was filled for another queue");
    const std::uint32_t* freed = std::find(burst.buffers[s], burst.buffers[s] + n, NO_BUFFER);
    if (freed != burst.buffers[s] + n)
      fail("packet " + std::to_string(freed - burst.buffers[s]) + " was freed");
  }
  // A datagram may be empty, a frame may not.
  const std::uint32_t frames = has_headers(burst) ? n : 0;
  for (std::uint32_t i = 0; i < frames; ++i) {
    std::uint32_t length = 0;
    for (int s = 0; s < queue.num_segments(); ++s) length += burst.pkt_lens[s][i];
    if (length == 0)
      fail("packet " + std::to_string(i) + " has no length; call set_packet_lengths");
  }
}

/// A packet that may be written to, or null after refusing with `status`.
Burst* writable(string_view call, BurstParams* handle, int idx, Status* status) noexcept {
  Burst* burst = held_alone(call, handle, status);
  if (burst == nullptr) return nullptr;
  *status = Status::INVALID_PARAMETER;
  if (!burst->transmit) {
    refuse(*status, call, string_view("a receive burst is read only"));
    return nullptr;
  }
  if (!api::has_packet(call, *burst, idx)) return nullptr;
  for (int s = 0; s < MAX_NUM_SEGS && burst->owners[s] != nullptr; ++s) {
    if (burst->buffers[s][idx] != NO_BUFFER) continue;
    refuse(*status, call, string_view("packet "), idx, string_view(" was freed"));
    return nullptr;
  }
  return burst;
}

/// As above, of which the CPU can write the bytes.
Burst* host_writable(string_view call, BurstParams* handle, int idx, Status* status) noexcept {
  Burst* burst = writable(call, handle, idx, status);
  if (burst == nullptr) return nullptr;
  const int segment = burst->unreadable_segment();
  if (segment < 0) [[likely]]
    return burst;
  *status = refuse(Status::NOT_SUPPORTED, call, string_view("segment "), segment,
                   string_view(" of the packets lies in memory that the CPU cannot write; write it "
                               "with the device, or use a memory region of kind 'host'"));
  return nullptr;
}

/// As above, for headers.
Burst* frame(string_view call, BurstParams* handle, int idx, Status* status) noexcept {
  Burst* burst = host_writable(call, handle, idx, status);
  if (burst == nullptr || has_headers(*burst)) return burst;
  *status = refuse(
      Status::NOT_SUPPORTED, call,
      string_view("packets of a socket stream are payload only; the kernel writes the headers"));
  return nullptr;
}

Status too_long(string_view call, int idx, const PacketBytes& packet,
                std::int64_t length) noexcept {
  return refuse(Status::INVALID_PARAMETER, call, string_view("packet "), idx, string_view(": "),
                length,
                string_view(" bytes behind the header do not fit; the packet's buffers hold "),
                packet.capacity(), string_view(" in all"));
}

bool lengths_fit(string_view call, const Burst& burst, const std::int64_t* lengths,
                 std::size_t count) noexcept {
  const int segments = api::num_segments(burst);
  if (count != static_cast<std::size_t>(segments)) {
    refuse(Status::INVALID_PARAMETER, call, count, string_view(" lengths for packets of "),
           segments, string_view(" segments"));
    return false;
  }
  for (int s = 0; s < segments; ++s) {
    if (lengths[s] >= 0 && lengths[s] <= burst.owners[s]->buf_size()) continue;
    refuse(Status::INVALID_PARAMETER, call, string_view("length "), lengths[s],
           string_view(" of segment "), s, string_view("; its buffers hold "),
           burst.owners[s]->buf_size());
    return false;
  }
  return true;
}

void store_lengths(Burst& burst, std::uint32_t packet, const std::int64_t* lengths,
                   std::size_t count) noexcept {
  for (std::size_t s = 0; s < count; ++s) {
    burst.hdr.hdr.nbytes -= burst.pkt_lens[s][packet];
    burst.pkt_lens[s][packet] = static_cast<std::uint32_t>(lengths[s]);
    burst.hdr.hdr.nbytes += burst.pkt_lens[s][packet];
  }
}

}  // namespace

bool is_tx_burst_available(const BurstParams* params) {
  const Status status = with_queue("is_tx_burst_available", const_cast<BurstParams*>(params),
                                   [](TxQueue& queue, Burst& burst) {
                                     require_fillable(queue, burst);
                                     for (int s = 0; s < queue.num_segments(); ++s) {
                                       if (queue.region(s).available() < burst.num_packets())
                                         return Status::NO_FREE_PACKET_BUFFERS;
                                     }
                                     return Status::SUCCESS;
                                   });
  return status == Status::SUCCESS;
}

Status get_tx_packet_burst(BurstParams* params) {
  static constexpr string_view CALL = "get_tx_packet_burst";
  return with_queue(CALL, params, [](TxQueue& queue, Burst& burst) {
    require_fillable(queue, burst);
    const Status status = queue.fill(burst, burst.num_packets());
    if (status == Status::SUCCESS) return status;
    return refuse(
        status, CALL, string_view("transmit queue '"), string_view(queue.config().name_),
        string_view("': fewer than "), burst.num_packets(),
        string_view(" packet buffers are free; wait for packets to be sent (or raise num_bufs)"));
  });
}

Status set_eth_header(BurstParams* params, int idx, const char* dst_mac) {
  static constexpr string_view CALL = "set_eth_header";
  Status status{};
  Burst* burst = frame(CALL, params, idx, &status);
  if (burst == nullptr) return status;
  if (dst_mac == nullptr) return refuse(Status::NULL_PTR, CALL, string_view("dst_mac is null"));
  const auto& addresses = burst->keep->mac_addresses;
  const std::uint16_t port = burst->hdr.hdr.port_id;
  MacAddress destination;
  std::copy_n(reinterpret_cast<const std::uint8_t*>(dst_mac), destination.size(),
              destination.begin());
  PacketBytes packet(*burst, static_cast<std::uint32_t>(idx));
  const auto source = port < addresses.size() ? addresses[port] : MacAddress{};
  return write_ethernet(packet, destination, source) ? Status::SUCCESS
                                                     : too_long(CALL, idx, packet, 0);
}

Status set_ipv4_header(BurstParams* params, int idx, int ip_len, std::uint8_t proto,
                       std::uint32_t src_host, std::uint32_t dst_host) {
  static constexpr string_view CALL = "set_ipv4_header";
  // Differs from packet to packet, as a receiver that reassembles expects; nothing is ever
  // fragmented here.
  static thread_local std::uint16_t identification = 0;
  Status status{};
  Burst* burst = frame(CALL, params, idx, &status);
  if (burst == nullptr) return status;
  PacketBytes packet(*burst, static_cast<std::uint32_t>(idx));
  const Ipv4Fields fields{static_cast<std::uint32_t>(ip_len), proto, src_host, dst_host,
                          identification++};
  return ip_len >= 0 && write_ipv4(packet, fields) ? Status::SUCCESS
                                                   : too_long(CALL, idx, packet, ip_len);
}

Status set_udp_header(BurstParams* params, int idx, int udp_len, std::uint16_t src_port,
                      std::uint16_t dst_port) {
  static constexpr string_view CALL = "set_udp_header";
  Status status{};
  Burst* burst = frame(CALL, params, idx, &status);
  if (burst == nullptr) return status;
  PacketBytes packet(*burst, static_cast<std::uint32_t>(idx));
  const UdpFields fields{static_cast<std::uint32_t>(udp_len), src_port, dst_port};
  return udp_len >= 0 && write_udp(packet, fields) ? Status::SUCCESS
                                                   : too_long(CALL, idx, packet, udp_len);
}

Status set_udp_payload(BurstParams* params, int idx, const void* data, int len) {
  static constexpr string_view CALL = "set_udp_payload";
  Status status{};
  Burst* burst = host_writable(CALL, params, idx, &status);
  if (burst == nullptr) return status;
  if (data == nullptr && len != 0)
    return refuse(Status::NULL_PTR, CALL, string_view("data is null"));
  PacketBytes packet(*burst, static_cast<std::uint32_t>(idx));
  const auto size = static_cast<std::uint32_t>(len);
  const bool written = len >= 0 && (has_headers(*burst) ? write_udp_payload(packet, data, size)
                                                        : write_bare_payload(packet, data, size));
  return written ? Status::SUCCESS : too_long(CALL, idx, packet, len);
}

Status detail::set_lengths(BurstParams* params, int idx, const std::int64_t* lengths,
                           std::size_t count) {
  static constexpr string_view CALL = "set_packet_lengths";
  Status status{};
  Burst* burst = writable(CALL, params, idx, &status);
  if (burst == nullptr) return status;
  if (!lengths_fit(CALL, *burst, lengths, count)) return Status::INVALID_PARAMETER;
  store_lengths(*burst, static_cast<std::uint32_t>(idx), lengths, count);
  return Status::SUCCESS;
}

Status detail::set_all_lengths(BurstParams* params, const std::int64_t* lengths,
                               std::size_t count) {
  static constexpr string_view CALL = "set_all_packet_lengths";
  Status status{};
  Burst* burst = writable(CALL, params, 0, &status);
  if (burst == nullptr) return status;
  if (!lengths_fit(CALL, *burst, lengths, count)) return Status::INVALID_PARAMETER;
  for (std::uint32_t i = 0; i < burst->owned; ++i) store_lengths(*burst, i, lengths, count);
  return Status::SUCCESS;
}

Status set_packet_tx_time(BurstParams* params, int idx, std::uint64_t time_ns) {
  Status status{};
  Burst* burst = writable("set_packet_tx_time", params, idx, &status);
  if (burst == nullptr) return status;
  burst->timestamps[idx] = time_ns;
  return Status::SUCCESS;
}

Status send_tx_burst(BurstParams* params) {
  static constexpr string_view CALL = "send_tx_burst";
  return with_queue(CALL, params, [](TxQueue& queue, Burst& burst) {
    require_sendable(queue, burst);
    burst.hdr.hdr.num_segs = queue.num_segments();
    const Status status = queue.send(&burst);
    if (status == Status::SUCCESS) return status;
    return refuse(status, CALL, string_view("transmit queue '"), string_view(queue.config().name_),
                  status == Status::NO_SPACE_AVAILABLE
                      ? string_view("': its ring is full; the burst was freed, send slower")
                      : string_view("': the engine is shutting down"));
  });
}

}  // namespace daqiri
