#include "reorder/plan.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>

#include "net/link_layer.h"

namespace daqiri::reorder {

Field::Field(const ReorderBitFieldConfig& config) noexcept
    : first_(config.bit_offset_ / 8),
      end_((config.bit_offset_ + config.bit_width_ + 7) / 8),
      mask_(config.bit_width_ >= 32 ? 0xFFFFFFFFU : (1U << config.bit_width_) - 1),
      tail_(static_cast<std::uint8_t>(end_ * 8 - config.bit_offset_ - config.bit_width_)),
      little_(config.byte_order_ == ReorderByteOrder::LITTLE),
      of_payload_(config.base_ == ReorderBase::UDP_PAYLOAD) {}

std::uint64_t batch_numbers_of(const ReorderConfig& config) noexcept {
  const auto numbers = [](const ReorderBitFieldConfig& field) {
    return std::uint64_t{1} << std::min(field.bit_width_, 32U);
  };
  switch (config.method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return numbers(config.seq_batch_number_.batch_number_);
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
      // After the last sequence number, batches that do not divide them get further numbers.
      return numbers(config.seq_packets_per_batch_.sequence_number_) /
             (std::has_single_bit(stride_of(config)) ? stride_of(config) : 1U);
    case ReorderMethod::BATCH_PACKET_NUMBER:
      return numbers(config.batch_packet_number_.batch_number_);
    case ReorderMethod::BATCH_BYTE_OFFSET:
      return numbers(config.batch_byte_offset_.batch_number_);
    case ReorderMethod::INVALID:
      break;
  }
  return 0;
}

std::uint32_t slots_of(const ReorderConfig& config) noexcept {
  switch (config.method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return config.seq_batch_number_.packets_per_batch_;
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
      return config.seq_packets_per_batch_.packets_per_batch_;
    case ReorderMethod::BATCH_PACKET_NUMBER:
      return config.batch_packet_number_.packets_per_batch_;
    case ReorderMethod::BATCH_BYTE_OFFSET:
    case ReorderMethod::INVALID:
      break;
  }
  return 0;
}

std::uint64_t frame_bytes_of(const ReorderConfig& config) noexcept {
  if (config.frame_.shape_.empty()) return 0;
  std::uint64_t bytes = std::max(bits_of(config.data_types_.output_type_), 8U) / 8;
  // numpy's type names end with the number of bits.
  const std::string& dtype = config.frame_.dtype_;
  const char* const digits =
      dtype.data() + std::min(dtype.find_first_of("0123456789"), dtype.size());
  std::uint32_t bits = 0;
  std::from_chars(digits, dtype.data() + dtype.size(), bits);
  if (bits != 0) bytes = bits / 8;
  for (const std::uint32_t extent : config.frame_.shape_) {
    bytes *= extent;
    if (bytes > UINT32_MAX) return 0;
  }
  return bytes;
}

std::uint32_t stride_of(const ReorderConfig& config) noexcept {
  return config.flow_stride_ != 0 ? config.flow_stride_ : slots_of(config);
}

Plan::Plan(const ReorderConfig& config, PacketKind kind, std::uint64_t buffer_bytes,
           std::uint32_t usual_window)
    : method_(config.method_),
      slot_mask_(stride_of(config) - 1),
      stride_(stride_of(config)),
      flows_apart_(config.flow_stride_ != 0),
      payload_based_(config.payload_base_ == ReorderBase::UDP_PAYLOAD),
      payload_offset_(config.payload_byte_offset_),
      units_(slots_of(config)),
      batch_numbers_(batch_numbers_of(config)),
      window_(
          std::min(config.window_ != 0 ? config.window_ : usual_window, most_open(batch_numbers_))),
      timeout_ns_(config.timeout_us_ * 1000U),
      flow_ids_(config.flow_ids_) {
  switch (method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      batch_ = Field(config.seq_batch_number_.batch_number_);
      position_ = Field(config.seq_batch_number_.sequence_number_);
      break;
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
      batch_ = position_ = Field(config.seq_packets_per_batch_.sequence_number_);
      if (std::has_single_bit(stride_)) {
        sequence_shift_ = static_cast<std::uint32_t>(std::countr_zero(stride_));
      } else {
        divisor_ = stride_;
        slot_mask_ = 0;
      }
      break;
    case ReorderMethod::BATCH_PACKET_NUMBER:
      batch_ = Field(config.batch_packet_number_.batch_number_);
      position_ = Field(config.batch_packet_number_.packet_number_);
      first_position_ = config.batch_packet_number_.first_packet_;
      break;
    case ReorderMethod::BATCH_BYTE_OFFSET:
      batch_ = Field(config.batch_byte_offset_.batch_number_);
      position_ = Field(config.batch_byte_offset_.byte_offset_);
      break;
    case ReorderMethod::INVALID:
      break;
  }
  needs_payload_ = kind == PacketKind::FRAMES &&
                   (batch_.of_payload() || position_.of_payload() || payload_based_);
  const ReorderDataTypesConfig& types = config.data_types_;
  if (const std::uint32_t bits = bits_of(types.input_type_); bits != 0) {
    element_bytes_ = std::max(bits / 8, 1U);
    const std::uint32_t output_bits = bits_of(types.output_type_);
    widening_ = static_cast<std::uint32_t>(std::countr_zero(std::max(output_bits / bits, 1U)));
    narrowing_ = static_cast<std::uint32_t>(std::countr_zero(std::max(bits / output_bits, 1U)));
    fill_bytes_ = std::max(output_bits / 8, 1U);
  }
  // Validation has checked that the type can hold the value.
  static_cast<void>(encode(config.fill_, types.output_type_, fill_.data()));
  const std::uint64_t frame = frame_bytes_of(config);
  if (by_bytes()) {
    unit_bytes_ = element_bytes_;
    units_ = config.batch_byte_offset_.batch_bytes_ / unit_bytes_;
  } else if (units_ != 0 && frame != 0) {
    payload_bytes_ = static_cast<std::uint32_t>(frame / units_ << narrowing_ >> widening_);
  }
  streams_ = worth_streaming(frame != 0   ? frame
                             : by_bytes() ? output_bytes(config.batch_byte_offset_.batch_bytes_)
                                          : buffer_bytes);
  move_ = move_for(types, best_move_set(), streams_ ? Stores::STREAMED : Stores::CACHED);
}

bool Plan::find_any_payload(const std::uint8_t* packet, std::uint32_t length,
                            Payload& payload) noexcept {
  const PacketFields fields = parse_packet(packet, length, LINKTYPE_ETHERNET);
  if (fields.transport != PROTOCOL_UDP || fields.udp_length != fields.payload_length + UDP_SIZE)
    return false;
  payload = {fields.payload_at, fields.payload_at + fields.payload_length};
  return true;
}

void Plan::fill(std::byte* to, std::size_t bytes) const noexcept {
  const auto same = [this](std::byte each) { return each == fill_[0]; };
  if (std::all_of(fill_.begin(), fill_.begin() + fill_bytes_, same)) {
    std::memset(to, static_cast<int>(fill_[0]), bytes);
    return;
  }
  for (std::size_t at = 0; at < bytes; at += fill_bytes_)
    std::memcpy(to + at, fill_.data(), fill_bytes_);
}

}  // namespace daqiri::reorder
