/// A compiled reorder config: computes the positions of packets in frames.
#pragma once

#include <endian.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "daqiri/reorder.h"
#include "memory/streaming_copy.h"
#include "net/headers.h"
#include "reorder/convert.h"

namespace daqiri::reorder {

/// Batches that are open at once, unless configured.
inline constexpr std::uint32_t DEFAULT_WINDOW = 2;

/// A number in a packet.
class Field {
 public:
  Field() = default;
  explicit Field(const ReorderBitFieldConfig& config) noexcept;

  [[nodiscard]] bool of_payload() const noexcept { return of_payload_; }
  /// Bytes that a packet needs to contain the field, where the payload begins at `base` (ignored if
  /// the field counts from the packet).
  [[nodiscard]] std::uint32_t end(std::uint32_t base) const noexcept {
    return end_ + (of_payload_ ? base : 0);
  }
  /// Read the field from a packet that contains it. `base`: begin of the UDP payload.
  [[nodiscard]] std::uint32_t read(const std::uint8_t* packet, std::uint32_t base) const noexcept;

 private:
  std::uint32_t first_{0};
  std::uint32_t end_{0};
  std::uint32_t mask_{0};
  /// Bits after the field in its last byte.
  std::uint8_t tail_{0};
  bool little_{false};
  bool of_payload_{false};
};

/// Position of a packet.
struct Place {
  /// Number in the packet; wraps. Of plans that divide: the sequence number, until `divide`.
  std::uint32_t batch;
  /// Slot in the batch; for plans by byte offsets: the first input byte. Of plans that divide: the
  /// first one of the flow, until `divide`.
  std::uint32_t slot;
  /// The payload, relative to the begin of the packet.
  std::uint32_t payload_at;
  std::uint32_t payload_bytes;
};

/// Kind of packets on a session's port.
enum class PacketKind : std::uint8_t {
  /// Ethernet frames.
  FRAMES,
  /// Payloads of datagrams.
  PAYLOADS,
};

class Plan {
 public:
  /// For a validated config. `buffer_bytes`: size of the buffers for frames; used as the size of
  /// frames if the config does not specify it.
  Plan(const ReorderConfig& config, PacketKind kind, std::uint64_t buffer_bytes = 0,
       std::uint32_t usual_window = DEFAULT_WINDOW);

  /// Compute the position of a packet of flow `flow_ids()[flow]`. Returns false if it is malformed:
  /// too short for its fields, no payload, no whole number of elements, a number beyond the batch;
  /// or not UDP although an offset counts from the UDP payload.
  [[nodiscard]] bool locate(const std::uint8_t* packet, std::uint32_t length, std::uint32_t flow,
                            Place& place) const noexcept;

  [[nodiscard]] const std::vector<FlowId>& flow_ids() const noexcept { return flow_ids_; }
  /// Whether batches have a number of packets that does not divide the sequence numbers, so that
  /// the position of a packet depends on how often these have wrapped.
  [[nodiscard]] bool divides() const noexcept { return divisor_ != 0; }
  /// Numbers of a batch, of plans that divide.
  [[nodiscard]] std::uint32_t divisor() const noexcept { return divisor_; }
  /// Complete a place, with the sequence number as if it had not wrapped.
  void divide(std::uint64_t sequence, Place& place) const noexcept {
    place.batch = static_cast<std::uint32_t>(sequence / divisor_);
    place.slot += static_cast<std::uint32_t>(sequence % divisor_);
  }
  /// Number of different batch numbers.
  [[nodiscard]] std::uint64_t batch_numbers() const noexcept { return batch_numbers_; }
  /// Number of batches that are open at once.
  [[nodiscard]] std::uint32_t window() const noexcept { return window_; }
  /// 0: none.
  [[nodiscard]] std::uint64_t timeout_ns() const noexcept { return timeout_ns_; }
  /// Whether packets contain their byte offset in the batch; their lengths can differ.
  [[nodiscard]] bool by_bytes() const noexcept {
    return method_ == ReorderMethod::BATCH_BYTE_OFFSET;
  }
  /// Number of validity bits: slots, or for plans by byte offsets runs of `unit_bytes` input bytes.
  [[nodiscard]] std::uint32_t units() const noexcept { return units_; }
  [[nodiscard]] std::uint32_t unit_bytes() const noexcept { return unit_bytes_; }
  /// Payload bytes of every packet; 0: determined by the first packet of a batch.
  [[nodiscard]] std::uint32_t payload_bytes() const noexcept { return payload_bytes_; }
  /// Output bytes for this many payload bytes.
  [[nodiscard]] std::uint64_t output_bytes(std::uint64_t payload) const noexcept {
    return payload << widening_ >> narrowing_;
  }
  void move(std::byte* to, const std::byte* from, std::size_t bytes) const noexcept {
    move_(to, from, bytes);
  }
  /// Call after moves, before other threads are notified.
  void settle() const noexcept {
    if (streams_) memory::settle_stores();
  }
  /// Fill a range of the output, a whole number of elements.
  void fill(std::byte* to, std::size_t bytes) const noexcept;
  [[nodiscard]] std::span<const std::byte> fill_value() const noexcept {
    return {fill_.data(), fill_bytes_};
  }

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
  /// The batch number, or the number from which it is computed.
  Field batch_;
  /// Position in the batch; not used if both come from one sequence number.
  Field position_;
  std::uint32_t first_position_{0};
  /// Sequence numbers contain slot and batch; shift and mask separate them, or the divisor.
  std::uint32_t sequence_shift_{0};
  std::uint32_t slot_mask_{0};
  std::uint32_t divisor_{0};
  /// Number of slots per flow.
  std::uint32_t stride_{0};
  bool flows_apart_{false};
  bool needs_payload_{false};
  bool payload_based_{false};
  std::uint32_t payload_offset_{0};
  /// A power of two.
  std::uint32_t element_bytes_{1};
  /// Binary logarithms of the factors by which the output is larger, and smaller.
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

// In the header, because a call for each field of each packet would take as long as the rest.

inline std::uint32_t Field::read(const std::uint8_t* packet, std::uint32_t base) const noexcept {
  const std::uint32_t to = end(base);
  std::uint64_t bits = 0;
  if (to >= sizeof bits) {
    // The packet contains the eight bytes that end with the field.
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
  // Fast path for IPv4 without options and tags, which is the usual case.
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
      at &= slot_mask_;
      break;
    case ReorderMethod::SEQ_BATCH_NUMBER:
      at = position_.read(packet, udp.begin) & slot_mask_;
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

/// Number of batches that can be open at once with this many batch numbers.
[[nodiscard]] constexpr std::uint32_t most_open(std::uint64_t batch_numbers) noexcept {
  constexpr std::uint64_t MOST = 64;
  const std::uint64_t half = batch_numbers / 2;
  return static_cast<std::uint32_t>(half == 0 ? 1 : half < MOST ? half : MOST);
}
/// Number of batch numbers of a config with valid fields; slots per batch.
[[nodiscard]] std::uint64_t batch_numbers_of(const ReorderConfig& config) noexcept;
[[nodiscard]] std::uint32_t slots_of(const ReorderConfig& config) noexcept;
/// Output bytes of a config's frame; 0: none, or too many.
[[nodiscard]] std::uint64_t frame_bytes_of(const ReorderConfig& config) noexcept;
[[nodiscard]] std::uint32_t stride_of(const ReorderConfig& config) noexcept;

}  // namespace daqiri::reorder
