/// A compiled reorder config: computes the positions of packets in frames.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "daqiri/reorder.h"
#include "memory/streaming_copy.h"
#include "net/headers.h"
#include "reorder/columns.h"
#include "reorder/convert.h"
#include "reorder/field.h"
#include "reorder/module_layout.h"

namespace daqiri::reorder {

/// Batches that are open at once, unless configured.
inline constexpr std::uint32_t DEFAULT_WINDOW = 2;

/// Position of a packet.
struct Place {
  /// Number in the packet; wraps. Of plans that divide: the sequence number, until `divide`.
  std::uint64_t batch;
  /// Slot in the batch; for plans by byte offsets: the first input byte. Of plans that divide: the
  /// first one of the flow, until `divide`.
  std::uint32_t slot;
  /// The payload, relative to the begin of the packet.
  std::uint32_t payload_at;
  std::uint32_t payload_bytes;
  /// Begin of the UDP payload, for Columns::take.
  std::uint32_t udp_at;
};

/// LEFT_OUT: it does not fulfil the plan's conditions.
enum class Located : std::uint8_t { IN_BATCH, MALFORMED, LEFT_OUT };

/// A closed frame that has no data where packets are missing, or between modules.
struct Filling {
  std::byte* data;
  /// A bit for each unit of the plan.
  const std::uint64_t* valid;
  /// Output bytes of one packet.
  std::uint32_t slot_bytes;
  /// Whether packets are missing.
  bool lacks;
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

  /// Compute the position of a packet of flow `flow_ids()[flow]`. It is malformed if it is too
  /// short for its fields, has no payload, or no whole groups of elements, or a number beyond the
  /// batch; or if it is not UDP although an offset counts from the UDP payload.
  [[nodiscard]] Located locate(const std::uint8_t* packet, std::uint32_t length, std::uint32_t flow,
                               Place& place) const noexcept;
  /// Cut the payload of a packet whose slot is known to its length in the batch. Returns false if
  /// it is too short.
  [[nodiscard]] bool cut(Place& place) const noexcept;

  [[nodiscard]] const std::vector<FlowId>& flow_ids() const noexcept { return flow_ids_; }
  /// Whether batches have a number of packets that does not divide the sequence numbers, so that
  /// the position of a packet depends on how often these have wrapped.
  [[nodiscard]] bool divides() const noexcept { return divides_; }
  /// Numbers of a batch, and how many different ones there are, of plans that divide.
  [[nodiscard]] std::uint32_t divisor() const noexcept { return divisor_; }
  [[nodiscard]] std::uint64_t sequence_numbers() const noexcept { return sequence_numbers_; }
  /// Complete a place, with the sequence number as if it had not wrapped.
  void divide(std::uint64_t sequence, Place& place) const noexcept {
    place.batch = sequence / divisor_;
    place.slot += static_cast<std::uint32_t>(sequence % divisor_);
  }
  /// All bits of batch numbers.
  [[nodiscard]] std::uint64_t batch_mask() const noexcept { return batch_mask_; }
  /// Difference of the numbers of consecutive batches; 0: unknown.
  [[nodiscard]] std::uint64_t batch_step() const noexcept { return batch_step_; }
  /// Number of batches that are open at once.
  [[nodiscard]] std::uint32_t window() const noexcept { return window_; }
  /// 0: none.
  [[nodiscard]] std::uint64_t timeout_ns() const noexcept { return timeout_ns_; }
  /// Whether packets contain their byte offset in the batch; their lengths can differ.
  [[nodiscard]] bool by_bytes() const noexcept {
    return method_ == ReorderMethod::BATCH_BYTE_OFFSET;
  }
  /// Groups of elements, of which a payload has a whole number.
  [[nodiscard]] const Groups& groups() const noexcept { return groups_; }
  /// Number of validity bits: slots, or for plans by byte offsets groups, of `unit_bytes` input
  /// bytes.
  [[nodiscard]] std::uint32_t units() const noexcept { return units_; }
  [[nodiscard]] std::uint32_t unit_bytes() const noexcept { return unit_bytes_; }
  /// Numbers that go with a frame.
  [[nodiscard]] const Columns& columns() const noexcept { return columns_; }
  /// Payload bytes of every packet, except that the last one of a part of the batch may have fewer;
  /// 0: determined by the first packet of a batch.
  [[nodiscard]] std::uint32_t payload_bytes() const noexcept { return payload_bytes_; }
  /// Whether a group of elements may go on in the next packet. Parts of the batch have whole ones.
  [[nodiscard]] bool splits() const noexcept { return splits_; }
  /// Where a slot begins in the output, if packets have `slot_bytes` there; a group that goes on in
  /// it is before it, and after it, too.
  [[nodiscard]] std::uint64_t begin_of(std::uint32_t slot,
                                       std::uint32_t slot_bytes) const noexcept {
    if (splits_) return output_bytes(input_begin(slot) - split_before(slot));
    const std::uint64_t begin = std::uint64_t{slot} * slot_bytes;
    // Parts of the batch that end with a short packet.
    return part_lack_ == 0 ? begin : begin - std::uint64_t{slot / part_} * part_lack_;
  }
  /// As `begin_of`, of the end of the slot before.
  [[nodiscard]] std::uint64_t end_before(std::uint32_t slot,
                                         std::uint32_t slot_bytes) const noexcept {
    const std::uint64_t end = begin_of(slot, slot_bytes);
    return splits_ && split_before(slot) != 0 ? end + groups_.output_bytes() : end;
  }
  /// Bytes that the group of which a slot has the rest has before it, of plans that split groups.
  [[nodiscard]] std::uint32_t split_before(std::uint32_t slot) const noexcept {
    return static_cast<std::uint32_t>(input_begin(slot) % groups_.bytes());
  }
  /// Output bytes for this many payload bytes.
  [[nodiscard]] std::uint64_t output_bytes(std::uint64_t payload) const noexcept {
    return groups_.output_of(payload);
  }
  /// Bytes of a frame, if the plan knows them; 0: they follow from the first packet.
  [[nodiscard]] std::uint64_t frame_bytes() const noexcept { return frame_bytes_; }
  /// Modules of the image; their pixels have `element_bytes`.
  [[nodiscard]] const ModuleLayout& layout() const noexcept { return layout_; }
  [[nodiscard]] std::uint32_t element_bytes() const noexcept { return element_bytes_; }

  /// Copies a payload to a frame. `at`: output bytes of the batch before it, as `begin_of`.
  void place(std::byte* frame, std::uint64_t at, const std::byte* from,
             std::size_t bytes) const noexcept {
    if (layout_.none()) return move_(frame + at, from, bytes);
    place_in_modules(frame, at, from, bytes);
  }
  /// Call after moves, before other threads are notified.
  void settle() const noexcept {
    if (streams_) memory::settle_stores();
  }
  /// Fill a range of the batch, a whole number of elements.
  void fill(std::byte* frame, std::uint64_t at, std::size_t bytes) const noexcept;
  /// Fill what is of no module.
  void fill_gaps(std::byte* frame) const noexcept;
  /// Fill a frame where it has no data.
  void fill(const Filling& filling) const noexcept;
  /// Calls `each(begin, bytes)` for the output bytes of missing packets.
  template <typename Each>
  void for_missing(const Filling& filling, Each each) const noexcept;
  [[nodiscard]] std::span<const std::byte> fill_value() const noexcept {
    return {fill_.data(), fill_bytes_};
  }

 private:
  /// Payload bytes of the batch before a slot, of plans that split groups.
  [[nodiscard]] std::uint64_t input_begin(std::uint32_t slot) const noexcept {
    return std::uint64_t{slot} * payload_bytes_ - std::uint64_t{slot / part_} * payload_lack_;
  }
  /// Beginning and end of the UDP payload.
  struct Payload {
    std::uint32_t begin;
    std::uint32_t end;
  };
  [[nodiscard]] bool find_payload(const std::uint8_t* packet, std::uint32_t length,
                                  Payload& payload) const noexcept;
  [[nodiscard]] static bool find_any_payload(const std::uint8_t* packet, std::uint32_t length,
                                             Payload& payload) noexcept;

  struct Condition {
    Field field;
    std::uint64_t mask;
    std::uint64_t least;
    std::uint64_t most;
  };
  [[nodiscard]] bool fulfils(const std::uint8_t* packet, std::uint32_t length,
                             const Payload& udp) const noexcept;
  void place_in_modules(std::byte* frame, std::uint64_t at, const std::byte* from,
                        std::size_t bytes) const noexcept;
  void fill(std::byte* frame, const ModuleLayout::Rectangle& part) const noexcept;
  void fill_run(std::byte* to, std::size_t bytes) const noexcept;

  /// A packet's number, from the first one of the batch on. Returns false if it is not in steps.
  [[nodiscard]] bool count(std::uint64_t number, std::uint32_t flow,
                           std::uint64_t& count) const noexcept {
    const std::uint64_t first = firsts_.empty() ? 0 : firsts_[firsts_.size() == 1 ? 0 : flow];
    count = (number - first) & position_.mask();
    if (step_ == 1) return true;
    const std::uint64_t steps = count / step_;
    const bool whole = steps * step_ == count;
    count = steps;
    return whole;
  }

  ReorderMethod method_;
  /// The batch number, or the number from which it is computed.
  Field batch_;
  /// Position in the batch; not used if both come from one sequence number.
  Field position_;
  std::vector<std::uint32_t> firsts_;
  std::uint64_t step_{1};
  bool running_{false};
  /// Bytes for which a byte offset counts one.
  std::uint32_t position_unit_{1};
  std::vector<Condition> conditions_;
  Columns columns_;
  /// Sequence numbers contain slot and batch; shift and mask separate them, or the divisor.
  std::uint32_t sequence_shift_{0};
  std::uint32_t slot_mask_{0};
  std::uint32_t divisor_{0};
  std::uint64_t sequence_numbers_{0};
  /// Number of slots per flow.
  std::uint32_t stride_{0};
  bool flows_apart_{false};
  bool needs_payload_{false};
  bool payload_based_{false};
  std::uint32_t payload_offset_{0};
  /// A number that moves the payload by as many units; 0 bytes: none.
  Field offset_field_;
  std::uint32_t offset_unit_{0};
  Groups groups_;
  std::uint32_t units_{0};
  std::uint32_t unit_bytes_{0};
  std::uint32_t payload_bytes_{0};
  bool splits_{false};
  bool divides_{false};
  /// Whether longer payloads are cut.
  bool cuts_{false};
  /// Slots of a part of the batch, whose last packet lacks so many output and payload bytes.
  std::uint32_t part_{0};
  std::uint32_t part_lack_{0};
  std::uint32_t payload_lack_{0};
  std::uint64_t batch_mask_{0};
  std::uint64_t batch_step_{1};
  std::uint32_t window_{1};
  std::uint64_t timeout_ns_{0};
  ModuleLayout layout_;
  std::uint64_t frame_bytes_{0};
  std::uint32_t element_bytes_{1};
  Move move_{nullptr};
  bool streams_{false};
  std::array<std::byte, 8> fill_{};
  std::uint32_t fill_bytes_{1};
  std::vector<FlowId> flow_ids_;
};

// In the header, because a call for each packet would take as long as the rest.

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

inline bool Plan::fulfils(const std::uint8_t* packet, std::uint32_t length,
                          const Payload& udp) const noexcept {
  for (const Condition& each : conditions_) {
    if (each.field.end(udp.begin) > (each.field.of_payload() ? udp.end : length)) return false;
    const std::uint64_t number = each.field.read(packet, udp.begin) & each.mask;
    if (number < each.least || number > each.most) return false;
  }
  return true;
}

template <typename Each>
void Plan::for_missing(const Filling& filling, Each each) const noexcept {
  if (!filling.lacks) return;
  constexpr std::uint32_t WORD = 64;
  const auto slot_bytes =
      by_bytes() ? static_cast<std::uint32_t>(output_bytes(unit_bytes_)) : filling.slot_bytes;
  std::uint32_t at = 0;
  /// Goes on to the next bit with this value, or to the end.
  const auto next = [&](bool value) {
    while (at < units_) {
      std::uint64_t word = filling.valid[at / WORD];
      if (!value) word = ~word;
      word >>= at % WORD;
      if (word != 0) {
        at = std::min(units_, at + static_cast<std::uint32_t>(std::countr_zero(word)));
        return;
      }
      at = (at / WORD + 1) * WORD;
    }
    at = units_;
  };
  for (;;) {
    next(false);
    if (at >= units_) return;
    const std::uint64_t begin = begin_of(at, slot_bytes);
    next(true);
    each(begin, end_before(at, slot_bytes) - begin);
  }
}

inline bool Plan::cut(Place& place) const noexcept {
  if (!cuts_) return true;
  std::uint32_t bytes = payload_bytes_;
  if (by_bytes()) {
    // The last packet of the batch.
    const std::uint64_t left = std::uint64_t{units_} * unit_bytes_ - place.slot;
    if (left < bytes) bytes = static_cast<std::uint32_t>(left);
  } else if (payload_lack_ != 0 && place.slot % part_ == part_ - 1) {
    bytes -= payload_lack_;
  }
  if (place.payload_bytes < bytes) return false;
  place.payload_bytes = bytes;
  return true;
}

inline Located Plan::locate(const std::uint8_t* packet, std::uint32_t length, std::uint32_t flow,
                            Place& place) const noexcept {
  Payload udp{};
  if (!find_payload(packet, length, udp)) return Located::MALFORMED;
  if (!conditions_.empty() && !fulfils(packet, length, udp)) return Located::LEFT_OUT;
  const auto has = [&](const Field& field) {
    return field.end(udp.begin) <= (field.of_payload() ? udp.end : length);
  };
  if (!has(batch_) || !has(position_) || !columns_.are_in(length, udp.begin, udp.end))
    return Located::MALFORMED;
  place.udp_at = udp.begin;
  std::uint64_t begin = std::uint64_t{payload_offset_} + (payload_based_ ? udp.begin : 0);
  const std::uint32_t end = payload_based_ ? udp.end : length;
  if (offset_unit_ != 0) {
    if (!has(offset_field_)) return Located::MALFORMED;
    const std::uint64_t units = offset_field_.read(packet, udp.begin);
    if (units > end) return Located::MALFORMED;
    begin += units * offset_unit_;
  }
  if (begin >= end) return Located::MALFORMED;
  place.payload_at = static_cast<std::uint32_t>(begin);
  place.payload_bytes = end - place.payload_at;
  // Of a length that all have, whatever their numbers; others are cut once the slot is known.
  if (!cuts_ && (payload_bytes_ != 0 ? place.payload_bytes != payload_bytes_
                                     : !groups_.fill(place.payload_bytes)))
    return Located::MALFORMED;

  place.batch = batch_.read(packet, udp.begin);
  std::uint64_t at = 0;
  switch (method_) {
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
      if (!count(place.batch, flow, at)) return Located::MALFORMED;
      if (divisor_ != 0 && !divides()) {
        place.batch = at / divisor_;
        at %= divisor_;
        break;
      }
      place.batch = at >> sequence_shift_;
      at &= slot_mask_;
      break;
    case ReorderMethod::SEQ_BATCH_NUMBER:
      if (!count(position_.read(packet, udp.begin), flow, at)) return Located::MALFORMED;
      at &= slot_mask_;
      break;
    case ReorderMethod::BATCH_PACKET_NUMBER:
      if (!count(position_.read(packet, udp.begin), flow, at)) return Located::MALFORMED;
      if (running_) at %= stride_;
      if (at >= stride_) return Located::MALFORMED;
      break;
    default: {
      if (!count(position_.read(packet, udp.begin), flow, at)) return Located::MALFORMED;
      const std::uint64_t batch_bytes = std::uint64_t{units_} * unit_bytes_;
      if (at >= batch_bytes) return Located::MALFORMED;
      at *= position_unit_;
      if (at >= batch_bytes || !groups_.fill(static_cast<std::uint32_t>(at)))
        return Located::MALFORMED;
      place.slot = static_cast<std::uint32_t>(at);
      const bool fits = cut(place) && at + place.payload_bytes <= batch_bytes;
      return fits ? Located::IN_BATCH : Located::MALFORMED;
    }
  }
  place.slot = static_cast<std::uint32_t>(at) + (flows_apart_ ? flow * stride_ : 0);
  return divides() || cut(place) ? Located::IN_BATCH : Located::MALFORMED;
}

/// Number of batches that can be open at once with this many batch numbers.
[[nodiscard]] constexpr std::uint32_t most_open(std::uint64_t batch_numbers) noexcept {
  constexpr std::uint64_t MOST = 64;
  const std::uint64_t half = batch_numbers / 2;
  return static_cast<std::uint32_t>(half == 0 ? 1 : half < MOST ? half : MOST);
}
/// The field with a packet's position; the one with its batch's number, null: there is only one.
[[nodiscard]] const ReorderBitFieldConfig& position_of(const ReorderConfig& config) noexcept;
[[nodiscard]] const ReorderBitFieldConfig* batch_number_of(const ReorderConfig& config) noexcept;
/// Bits of the batch numbers of a config with valid fields; slots per batch.
[[nodiscard]] std::uint32_t batch_bits_of(const ReorderConfig& config) noexcept;
/// How many batch numbers there are; of 64 bits, one less.
[[nodiscard]] constexpr std::uint64_t numbers_of(std::uint32_t bits) noexcept {
  return bits < 64 ? std::uint64_t{1} << bits : UINT64_MAX;
}
/// How many batches have different numbers.
[[nodiscard]] std::uint64_t batch_numbers_of(const ReorderConfig& config) noexcept;
[[nodiscard]] std::uint32_t slots_of(const ReorderConfig& config) noexcept;
/// Whether sequence numbers are counted as they wrap, because a batch's packets do not divide them;
/// see Plan::divides.
[[nodiscard]] bool divides(const ReorderConfig& config) noexcept;
/// Output bytes of a config's frame; 0: none, or too many.
[[nodiscard]] std::uint64_t frame_bytes_of(const ReorderConfig& config) noexcept;
/// Output bytes of all packets of a batch; fewer than those of a frame that has gaps. 0: as
/// frame_bytes_of.
[[nodiscard]] std::uint64_t sent_bytes_of(const ReorderConfig& config) noexcept;
[[nodiscard]] Groups groups_of(const ReorderConfig& config) noexcept;
[[nodiscard]] std::uint32_t stride_of(const ReorderConfig& config) noexcept;

}  // namespace daqiri::reorder
