#include <algorithm>
#include <cstring>
#include <memory>
#include <string>

#include "api/call.h"
#include "daqiri/daqiri.h"
#include "net/headers.h"

namespace daqiri {

using api::Held;

namespace {

/// Run `action` with a transmit burst and its queue; exceptions become a status.
template <typename Action>
Status with_queue(const char* call, const BurstParams* params, Action&& action) noexcept {
  Held burst(call, params);
  if (!burst.alone()) return burst.status();
  // The burst's session, independent of the selected one.
  const std::shared_ptr<const Session> session = burst->keep->session.lock();
  if (session == nullptr || session->closed()) {
    return burst.refuse(Status::NOT_READY, "the burst is of a session that was shut down; free it");
  }
  return api::guarded(burst.about(), [&] {
    if (!burst->transmit)
      throw Error(Status::INVALID_PARAMETER, "a receive burst cannot be transmitted");
    return action(session->tx_queue(burst->hdr.hdr.port_id, burst->hdr.hdr.q_id), burst);
  });
}

/// Whether packets of the burst's port are Ethernet frames.
bool has_headers(const Burst& burst) noexcept {
  const auto& layers = burst.keep->link_layers;
  const std::uint16_t port = burst.hdr.hdr.port_id;
  return port >= layers.size() || !layers[port]->reconstructs_headers();
}

[[noreturn]] void refuse(const TxQueue& queue, const std::string& what) {
  throw Error(Status::INVALID_PARAMETER,
              "transmit queue '" + queue.config().common_.name_ + "': " + what);
}

/// Number of packets to allocate for a burst.
std::uint32_t wanted(const TxQueue& queue, const Burst& burst) noexcept {
  return burst.hdr.hdr.num_pkts == 0 ? queue.batch_size() : burst.num_packets();
}

/// Checks the header of a burst without packets against its queue. Throws Error.
void require_fillable(const TxQueue& queue, const Burst& burst) {
  const BurstHeaderParams& header = burst.hdr.hdr;
  if (burst.owned > 0) refuse(queue, "the burst has packets already; send or free it");
  if (header.num_pkts > queue.most_packets() || wanted(queue, burst) > queue.most_packets()) {
    const bool whole = header.num_pkts == 0;
    refuse(queue, (whole ? "batch_size, " + std::to_string(queue.batch_size())
                         : std::to_string(static_cast<std::int64_t>(header.num_pkts))) +
                      " packets; a burst has 1 to " + std::to_string(queue.most_packets()) +
                      " (num_bufs of its memory regions)" + (whole ? "" : ", or 0 for batch_size"));
  }
  if (header.num_segs != queue.num_segments()) {
    refuse(queue, std::to_string(header.num_segs) + " segments; the queue has " +
                      std::to_string(queue.num_segments()) + " (memory_regions)");
  }
}

/// Checks that every packet to send exists and has a length. Throws Error.
void require_sendable(const TxQueue& queue, const Burst& burst) {
  const std::uint32_t n = burst.num_packets();
  if (n == 0 || n > burst.owned) {
    refuse(queue, std::to_string(static_cast<std::int64_t>(burst.hdr.hdr.num_pkts)) +
                      " packets to send of a burst that has " + std::to_string(burst.owned) +
                      (burst.owned == 0 ? "; call get_tx_packet_burst first" : ""));
  }
  for (int s = 0; s < queue.num_segments(); ++s) {
    if (burst.owners[s] != &queue.region(s))
      refuse(queue, "the burst was filled for another queue");
    const std::uint32_t* freed = std::find(burst.buffers[s], burst.buffers[s] + n, NO_BUFFER);
    if (freed != burst.buffers[s] + n)
      refuse(queue, "packet " + std::to_string(freed - burst.buffers[s]) + " was freed");
  }
  // A datagram may be empty, but not a frame.
  const std::uint32_t frames = has_headers(burst) ? n : 0;
  for (std::uint32_t i = 0; i < frames; ++i) {
    std::uint32_t length = 0;
    for (int s = 0; s < queue.num_segments(); ++s) length += burst.pkt_lens[s][i];
    if (length == 0)
      refuse(queue, "packet " + std::to_string(i) + " has no length; call set_packet_lengths");
  }
}

/// Returns a burst whose packet `idx` may be changed.
Held writable(const char* call, BurstParams* params, int idx) noexcept {
  Held burst(call, params);
  burst.alone()
      .require(!burst || burst->transmit, Status::INVALID_PARAMETER, "a receive burst is read only")
      .packet(idx);
  for (int s = 0; s < burst.num_segments(); ++s) {
    if (burst->buffers[s][idx] == NO_BUFFER)
      burst.refuse(Status::INVALID_PARAMETER, "packet ", idx, " was freed");
  }
  return burst;
}

/// `segment`: one that the CPU cannot write; -1: none.
void require_host_writable(Held& burst, int segment) noexcept {
  if (segment < 0) [[likely]]
    return;
  burst.refuse(Status::NOT_SUPPORTED, "segment ", segment,
               " of the packets is in memory that the CPU cannot write; write it with the "
               "device, or use a memory region of kind 'host'");
}

/// Like `writable`, and the CPU can write the packet's bytes.
Held host_writable(const char* call, BurstParams* params, int idx) noexcept {
  Held burst = writable(call, params, idx);
  require_host_writable(burst, burst ? burst->unreadable_segment() : -1);
  return burst;
}

/// Like `writable`, for headers: the payload may be in GPU memory.
Held frame(const char* call, BurstParams* params, int idx) noexcept {
  Held burst = writable(call, params, idx);
  require_host_writable(burst, burst && !burst->host_readable(0) ? 0 : -1);
  burst.require(!burst || has_headers(*burst), Status::NOT_SUPPORTED,
                "packets of a socket stream are payload only; the kernel writes the headers");
  return burst;
}

/// Call `write` for packet `idx`; it returns false if `length` bytes after the header do not fit.
template <typename Write>
Status write_packet(Held& burst, int idx, int length, Write&& write) noexcept {
  if (!burst) return burst.status();
  PacketBytes packet(*burst, static_cast<std::uint32_t>(idx));
  if (length >= 0 && write(packet, static_cast<std::uint32_t>(length))) [[likely]]
    return Status::SUCCESS;
  const bool cut = !packet.reaches(packet.capacity());
  return burst.refuse(Status::INVALID_PARAMETER, "packet ", idx, ": ", length,
                      " bytes after the header do not fit; the packet's ",
                      cut ? "segments, with the lengths that are set, hold " : "buffers hold ",
                      packet.reach(), " in total");
}

/// Set the lengths of packets [first, end).
Status store_lengths(Held& burst, std::uint32_t first, std::uint32_t end,
                     const std::int64_t* lengths, std::size_t count) noexcept {
  const int segments = burst.num_segments();
  if (count != static_cast<std::size_t>(segments)) {
    return burst.refuse(Status::INVALID_PARAMETER, count, " lengths for packets of ", segments,
                        " segments");
  }
  for (int s = 0; s < segments; ++s) {
    const auto size = burst->owners[s]->buf_size();
    if (lengths[s] >= 0 && lengths[s] <= size) continue;
    return burst.refuse(Status::INVALID_PARAMETER, "length ", lengths[s], " of segment ", s,
                        "; its buffers hold ", size);
  }
  for (std::uint32_t i = first; i < end; ++i) {
    for (int s = 0; s < segments; ++s) {
      burst->hdr.hdr.nbytes -= burst->pkt_lens[s][i];
      burst->pkt_lens[s][i] = static_cast<std::uint32_t>(lengths[s]);
      burst->hdr.hdr.nbytes += burst->pkt_lens[s][i];
    }
  }
  return Status::SUCCESS;
}

}  // namespace

bool is_tx_burst_available(const BurstParams* params) {
  const auto look = [](TxQueue& queue, const Held& burst) {
    require_fillable(queue, *burst);
    return queue.has_buffers(wanted(queue, *burst)) ? Status::SUCCESS
                                                    : Status::NO_FREE_PACKET_BUFFERS;
  };
  return with_queue(__func__, params, look) == Status::SUCCESS;
}

Status get_tx_packet_burst(BurstParams* params) {
  return with_queue(__func__, params, [](TxQueue& queue, Held& burst) {
    require_fillable(queue, *burst);
    const std::uint32_t n = wanted(queue, *burst);
    const Status status = queue.fill(*burst, n);
    if (status == Status::SUCCESS) {
      burst->move_to_device(false);
      return status;
    }
    const bool memory = status == Status::NO_FREE_BURST_BUFFERS;
    return api::decline(
        status, burst.about(), "transmit queue '", queue.config().common_.name_,
        memory ? "': there is no memory for a burst of " : "': fewer than ", n,
        memory ? " packets"
               : " packet buffers are free; wait for packets to be sent (or raise num_bufs)",
        memory ? std::string() : queue.held_up_by());
  });
}

Status set_eth_header(BurstParams* params, int idx, const char* dst_mac) {
  Held burst = frame(__func__, params, idx);
  burst.require(dst_mac != nullptr, Status::NULL_PTR, "dst_mac is null");
  return write_packet(burst, idx, 0, [&](PacketBytes& packet, std::uint32_t) {
    const auto& addresses = burst->keep->mac_addresses;
    const std::uint16_t port = burst->hdr.hdr.port_id;
    MacAddress destination;
    std::memcpy(destination.data(), dst_mac, destination.size());
    return write_ethernet(packet, destination,
                          port < addresses.size() ? addresses[port] : MacAddress{});
  });
}

Status set_ipv4_header(BurstParams* params, int idx, int ip_len, std::uint8_t proto,
                       std::uint32_t src_host, std::uint32_t dst_host) {
  // A different value for each packet, as required for reassembly, although packets are never
  // fragmented here.
  static thread_local std::uint16_t identification = 0;
  Held burst = frame(__func__, params, idx);
  return write_packet(burst, idx, ip_len, [=](PacketBytes& packet, std::uint32_t payload) {
    return write_ipv4(packet, {payload, proto, src_host, dst_host, identification++});
  });
}

Status set_udp_header(BurstParams* params, int idx, int udp_len, std::uint16_t src_port,
                      std::uint16_t dst_port) {
  Held burst = frame(__func__, params, idx);
  return write_packet(burst, idx, udp_len, [=](PacketBytes& packet, std::uint32_t payload) {
    return write_udp(packet, {payload, src_port, dst_port});
  });
}

Status set_udp_payload(BurstParams* params, int idx, const void* data, int len) {
  Held burst = host_writable(__func__, params, idx);
  burst.require(data != nullptr || len == 0, Status::NULL_PTR, "data is null");
  return write_packet(burst, idx, len, [&](PacketBytes& packet, std::uint32_t size) {
    return has_headers(*burst) ? write_udp_payload(packet, data, size)
                               : write_bare_payload(packet, data, size);
  });
}

Status detail::set_lengths(BurstParams* params, int idx, const std::int64_t* lengths,
                           std::size_t count) {
  Held burst = writable("set_packet_lengths", params, idx);
  const auto packet = static_cast<std::uint32_t>(idx);
  return burst ? store_lengths(burst, packet, packet + 1, lengths, count) : burst.status();
}

Status detail::set_all_lengths(BurstParams* params, const std::int64_t* lengths,
                               std::size_t count) {
  Held burst = writable("set_all_packet_lengths", params, 0);
  return burst ? store_lengths(burst, 0, burst->owned, lengths, count) : burst.status();
}

Status set_packet_tx_time(BurstParams* params, int idx, std::uint64_t time_ns) {
  const Held burst = writable(__func__, params, idx);
  if (burst) burst->timestamps[idx] = time_ns;
  return burst.status();
}

Status send_tx_burst(BurstParams* params) {
  return with_queue(__func__, params, [](TxQueue& queue, Held& burst) {
    require_sendable(queue, *burst);
    // Read before sending, because another thread may own the burst afterwards.
    const api::Call call = burst.about();
    const std::uintptr_t connection = burst->connection_id;
    if (const char* why = queue.unreachable(connection); why != nullptr) {
      burst->release();
      return api::fail(Status::CONNECT_FAILURE, call, "transmit queue '",
                       queue.config().common_.name_, "', connection ", connection, ": ", why,
                       "; the burst was freed");
    }
    burst->hdr.hdr.num_segs = queue.num_segments();
    burst->move_to_host();
    const Status status = queue.send(&*burst);
    if (status == Status::SUCCESS) return status;
    const bool full = status == Status::NO_SPACE_AVAILABLE;
    return api::fail(status, call, "transmit queue '", queue.config().common_.name_,
                     full ? "': its ring is full; the burst was freed, send slower"
                          : "': the engine is shutting down",
                     full ? queue.held_up_by() : std::string());
  });
}

}  // namespace daqiri
