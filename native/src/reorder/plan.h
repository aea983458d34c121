/// A compiled reorder config: computes the positions of packets in frames.
#pragma once

#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "daqiri/reorder.h"
#include "memory/streaming_copy.h"
#include "net/headers.h"
#include "reorder/convert.h"

namespace daqiri::reorder {

/// A number in a packet.
class Field {
 public:
  Field() = default;
  explicit Field(const ReorderBitFieldConfig& config) noexcept;

  [[nodiscard]] bool of_payload() const noexcept { return of_payload_; }
  /// Bytes that a packet has up to the field's end, from `base` on (0 where it counts from the
  /// packet).
  [[nodiscard]] std::uint32_t end(std::uint32_t base) const noexcept {
    return end_ + (of_payload_ ? base : 0);
  }
  /// Of a packet that has the field. `base`: where the UDP payload begins.
  [[nodiscard]] std::uint32_t read(const std::uint8_t* packet, std::uint32_t base) const noexcept;

 private:
  std::uint32_t first_{0};
  std::uint32_t end_{0};
  std::uint32_t mask_{0};
  /// Bits behind the field in its last byte.
  std::uint8_t tail_{0};
  bool little_{false};
  bool of_payload_{false};
};

/// What one packet is.
struct Place {
  /// As the packet says; wraps.
  std::uint32_t batch;
  /// Slot of the batch; of a plan by byte offsets: the first input byte.
  std::uint32_t slot;
  /// The payload, from the packet's beginning.
  std::uint32_t payload_at;
  std::uint32_t payload_bytes;
};

/// What the packets of a session's port are.
enum class PacketKind : std::uint8_t {
  /// Ethernet frames.
  FRAMES,
  /// Payloads of datagrams.
  PAYLOADS,
};

class Plan {
 public:
  /// Of a validated config. `timeout_us`: that of its queue. `buffer_bytes`: of the buffers that
  /// frames are made in; decides how large they are taken to be where the config does not say it.
  Plan(const ReorderConfig& config, PacketKind kind, std::uint64_t timeout_us,
       std::uint64_t buffer_bytes = 0);

  /// Where a packet of flow `flow_ids()[flow]` belongs. False: it is malformed: too short for its
  /// fields, no payload, no whole number of elements, a number beyond the batch; or no UDP packet
  /// where an offset counts from the UDP payload.
  [[nodiscard]] bool locate(const std::uint8_t* packet, std::uint32_t length, std::uint32_t flow,
                            Place& place) const noexcept;

  [[nodiscard]] const std::vector<FlowId>& flow_ids() const noexcept { return flow_ids_; }
  /// Batch numbers that there are.
  [[nodiscard]] std::uint64_t batch_numbers() const noexcept { return batch_numbers_; }
  /// Batches that are open at once.
  [[nodiscard]] std::uint32_t window() const noexcept { return window_; }
  /// 0: none.
  [[nodiscard]] std::uint64_t timeout_ns() const noexcept { return timeout_ns_; }
  /// Packets say at which byte of their batch they begin; they need not be of the same length.
  [[nodiscard]] bool by_bytes() const noexcept {
    return method_ == ReorderMethod::BATCH_BYTE_OFFSET;
  }
  /// What validity is told of: slots, or of a plan by byte offsets runs of `unit_bytes` input
  /// bytes.
  [[nodiscard]] std::uint32_t units() const noexcept { return units_; }
  [[nodiscard]] std::uint32_t unit_bytes() const noexcept { return unit_bytes_; }
  /// Payload bytes of every packet; 0: the first packet of a batch says.
  [[nodiscard]] std::uint32_t payload_bytes() const noexcept { return payload_bytes_; }
  /// Output bytes of so many payload bytes.
  [[nodiscard]] std::uint64_t output_bytes(std::uint64_t payload) const noexcept {
    return payload << widening_ >> narrowing_;
  }
  void move(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
    move_(to, from, bytes);
  }
  /// After moves, before others are told of them.
  void settle() const noexcept {
    if (streams_) memory::settle_stores();
  }
  /// Fill a stretch of the output, a whole number of elements.
  void fill(std::byte* to, std::size_t bytes) const noexcept;

 private:
  /// Beginning and end of the UDP payload.
  struct Payload {
    std::uint32_t begin;
    std::uint32_t end;
  };
  [[nodiscard]] bool find_payload(const std::uint8_t* packet, std::uint32_t length,
                                  Payload& payload) const noexcept;
  [[nodiscard]] static bool find_any_payload(const std::uint8_t* packet, std::uint32_t length,
                                             Payload& payload) noexcept;

  ReorderMethod method_;
  /// The batch number, or what it is computed from.
  Field batch_;
  /// Place in the batch; not by sequence numbers alone.
  Field position_;
  std::uint32_t first_position_{0};
  /// Sequence numbers: slot and batch in one.
  std::uint32_t sequence_shift_{0};
  /// Slots of one flow.
  std::uint32_t stride_{0};
  bool flows_apart_{false};
  bool needs_payload_{false};
  bool payload_based_{false};
  std::uint32_t payload_offset_{0};
  /// A power of two.
  std::uint32_t element_bytes_{1};
  /// Powers of two by which the output is larger, and smaller.
  std::uint32_t widening_{0};
  std::uint32_t narrowing_{0};
  std::uint32_t units_{0};
  std::uint32_t unit_bytes_{0};
  std::uint32_t payload_bytes_{0};
  std::uint64_t batch_numbers_{0};
  std::uint32_t window_{1};
  std::uint64_t timeout_ns_{0};
  Move move_{nullptr};
  bool streams_{false};
  std::array<std::byte, 8> fill_{};
  std::uint32_t fill_bytes_{1};
  std::vector<FlowId> flow_ids_;
};

// In the header: a call for each field of each packet takes as long as the rest.

inline std::uint32_t Field::read(const std::uint8_t* packet, std::uint32_t base) const noexcept {
  const std::uint32_t to = end(base);
  std::uint64_t bits = 0;
  if (to >= sizeof bits) {
    // The eight bytes that end with the field are the packet's.
    std::memcpy(&bits, packet + to - sizeof bits, sizeof bits);
    bits = little_ ? le64toh(bits) >> (64U - 8U * (end_ - first_)) : be64toh(bits) >> tail_;
  } else {
    for (std::uint32_t i = first_; i < end_; ++i) {
      const std::uint64_t byte = packet[to - end_ + i];
      bits = little_ ? bits | byte << (8U * (i - first_)) : bits << 8U | byte;
    }
    if (!little_) bits >>= tail_;
  }
  return static_cast<std::uint32_t>(bits) & mask_;
}

inline bool Plan::find_payload(const std::uint8_t* packet, std::uint32_t length,
                               Payload& payload) const noexcept {
  if (!needs_payload_) {
    payload = {0, length};
    return true;
  }
  // IPv4 without options and tags, which nearly all are.
  if (length >= HEADERS_SIZE && load_be16(packet + 12) == ETHERTYPE_IPV4 &&
      packet[IPV4_AT] == 0x45 && packet[IPV4_AT + 9] == PROTOCOL_UDP &&
      (load_be16(packet + IPV4_AT + 6) & 0x3FFFU) == 0) {
    const std::uint32_t announced = load_be16(packet + UDP_AT + 4);
    if (announced < UDP_SIZE || announced > length - UDP_AT) return false;
    payload = {HEADERS_SIZE, UDP_AT + announced};
    return true;
  }
  return find_any_payload(packet, length, payload);
}

inline bool Plan::locate(const std::uint8_t* packet, std::uint32_t length, std::uint32_t flow,
                         Place& place) const noexcept {
  Payload udp{};
  if (!find_payload(packet, length, udp)) return false;
  const auto has = [&](const Field& field) {
    return field.end(udp.begin) <= (field.of_payload() ? udp.end : length);
  };
  if (!has(batch_) || !has(position_)) return false;
  const std::uint64_t begin = std::uint64_t{payload_offset_} + (payload_based_ ? udp.begin : 0);
  const std::uint32_t end = payload_based_ ? udp.end : length;
  if (begin >= end) return false;
  place.payload_at = static_cast<std::uint32_t>(begin);
  place.payload_bytes = end - place.payload_at;
  if ((place.payload_bytes & (element_bytes_ - 1)) != 0 ||
      (payload_bytes_ != 0 && place.payload_bytes != payload_bytes_))
    return false;

  place.batch = batch_.read(packet, udp.begin);
  std::uint32_t at = place.batch;
  switch (method_) {
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
      place.batch >>= sequence_shift_;
      at &= stride_ - 1;
      break;
    case ReorderMethod::SEQ_BATCH_NUMBER:
      at = position_.read(packet, udp.begin) & (stride_ - 1);
      break;
    case ReorderMethod::BATCH_PACKET_NUMBER:
      at = position_.read(packet, udp.begin) - first_position_;
      if (at >= stride_) return false;
      break;
    default: {
      at = position_.read(packet, udp.begin);
      const std::uint64_t batch_bytes = std::uint64_t{units_} * unit_bytes_;
      if ((at & (element_bytes_ - 1)) != 0 || at + std::uint64_t{place.payload_bytes} > batch_bytes)
        return false;
    }
  }
  place.slot = flows_apart_ ? at + flow * stride_ : at;
  return true;
}

/// Batches that can be open at once: so many batch numbers tell them apart.
[[nodiscard]] constexpr std::uint32_t most_open(std::uint64_t batch_numbers) noexcept {
  constexpr std::uint64_t MOST = 64;
  const std::uint64_t half = batch_numbers / 2;
  return static_cast<std::uint32_t>(half == 0 ? 1 : half < MOST ? half : MOST);
}
/// Batch numbers of a config whose fields are good; slots of a batch; slots of one flow.
[[nodiscard]] std::uint64_t batch_numbers_of(const ReorderConfig& config) noexcept;
[[nodiscard]] std::uint32_t slots_of(const ReorderConfig& config) noexcept;
/// Output bytes of a config's frame; 0: none, or more than there can be.
[[nodiscard]] std::uint64_t frame_bytes_of(const ReorderConfig& config) noexcept;
[[nodiscard]] std::uint32_t stride_of(const ReorderConfig& config) noexcept;

}  // namespace daqiri::reorder
