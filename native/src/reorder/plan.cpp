#include "reorder/plan.h"

#include <endian.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstring>
#include <numeric>

#include "net/headers.h"
#include "net/link_layer.h"

namespace daqiri::reorder {

namespace {

constexpr std::uint32_t DEFAULT_WINDOW = 2;

}  // namespace

Field::Field(const ReorderBitFieldConfig& config) noexcept
    : first_(config.bit_offset_ / 8),
      end_((config.bit_offset_ + config.bit_width_ + 7) / 8),
      mask_(config.bit_width_ >= 32 ? 0xFFFFFFFFU : (1U << config.bit_width_) - 1),
      tail_(static_cast<std::uint8_t>(end_ * 8 - config.bit_offset_ - config.bit_width_)),
      little_(config.byte_order_ == ReorderByteOrder::LITTLE),
      of_payload_(config.base_ == ReorderBase::UDP_PAYLOAD) {}

std::uint32_t Field::read(const std::uint8_t* packet, std::uint32_t base) const noexcept {
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

std::uint64_t batch_numbers_of(const ReorderConfig& config) noexcept {
  const auto numbers = [](const ReorderBitFieldConfig& field) {
    return std::uint64_t{1} << std::min(field.bit_width_, 32U);
  };
  switch (config.method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return numbers(config.seq_batch_number_.batch_number_);
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
      return numbers(config.seq_packets_per_batch_.sequence_number_) /
             std::max(stride_of(config), 1U);
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
  // numpy's names of types end with their bits.
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

Plan::Plan(const ReorderConfig& config, PacketKind kind, std::uint64_t timeout_us)
    : method_(config.method_),
      stride_(stride_of(config)),
      flows_apart_(config.flow_stride_ != 0),
      payload_based_(config.payload_base_ == ReorderBase::UDP_PAYLOAD),
      payload_offset_(config.payload_byte_offset_),
      units_(slots_of(config)),
      batch_numbers_(batch_numbers_of(config)),
      window_(std::min(config.window_ != 0 ? config.window_ : DEFAULT_WINDOW,
                       most_open(batch_numbers_))),
      timeout_ns_(
          (config.timeout_us_ >= 0 ? static_cast<std::uint64_t>(config.timeout_us_) : timeout_us) *
          1000U),
      move_(move_for(config.data_types_)),
      flow_ids_(config.flow_ids_) {
  switch (method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      batch_ = Field(config.seq_batch_number_.batch_number_);
      position_ = Field(config.seq_batch_number_.sequence_number_);
      break;
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
      batch_ = position_ = Field(config.seq_packets_per_batch_.sequence_number_);
      sequence_shift_ = static_cast<std::uint32_t>(std::countr_zero(stride_));
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
    const std::uint32_t common = std::gcd(bits, bits_of(types.output_type_));
    input_scale_ = bits / common;
    output_scale_ = bits_of(types.output_type_) / common;
    fill_bytes_ = std::max(bits_of(types.output_type_) / 8, 1U);
  }
  // Validation has seen to it that the type has the value.
  static_cast<void>(encode(config.fill_, types.output_type_, fill_.data()));
  const std::uint64_t frame = frame_bytes_of(config);
  if (by_bytes()) {
    unit_bytes_ = element_bytes_;
    units_ = config.batch_byte_offset_.batch_bytes_ / unit_bytes_;
  } else if (units_ != 0 && frame != 0) {
    payload_bytes_ = static_cast<std::uint32_t>(frame / units_ * input_scale_ / output_scale_);
  }
}

bool Plan::find_payload(const std::uint8_t* packet, std::uint32_t length,
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
  const PacketFields fields = parse_packet(packet, length, LINKTYPE_ETHERNET);
  if (fields.transport != PROTOCOL_UDP || fields.udp_length != fields.payload_length + UDP_SIZE)
    return false;
  payload = {fields.payload_at, fields.payload_at + fields.payload_length};
  return true;
}

bool Plan::locate(const std::uint8_t* packet, std::uint32_t length, std::uint32_t flow,
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
  if (place.payload_bytes % element_bytes_ != 0 ||
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
      if (at % element_bytes_ != 0 || at + std::uint64_t{place.payload_bytes} > batch_bytes)
        return false;
    }
  }
  place.slot = flows_apart_ ? at + flow * stride_ : at;
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
