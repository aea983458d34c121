#include "reorder/plan.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "net/link_layer.h"

namespace daqiri::reorder {

const ReorderBitFieldConfig& position_of(const ReorderConfig& config) noexcept {
  switch (config.method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return config.seq_batch_number_.sequence_number_;
    case ReorderMethod::BATCH_PACKET_NUMBER:
      return config.batch_packet_number_.packet_number_;
    case ReorderMethod::BATCH_BYTE_OFFSET:
      return config.batch_byte_offset_.byte_offset_;
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
    case ReorderMethod::INVALID:
      break;
  }
  return config.seq_packets_per_batch_.sequence_number_;
}

const ReorderBitFieldConfig* batch_number_of(const ReorderConfig& config) noexcept {
  switch (config.method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return &config.seq_batch_number_.batch_number_;
    case ReorderMethod::BATCH_PACKET_NUMBER:
      return &config.batch_packet_number_.batch_number_;
    case ReorderMethod::BATCH_BYTE_OFFSET:
      return &config.batch_byte_offset_.batch_number_;
    case ReorderMethod::SEQ_PACKETS_PER_BATCH:
    case ReorderMethod::INVALID:
      break;
  }
  return nullptr;
}

std::uint32_t batch_bits_of(const ReorderConfig& config) noexcept {
  if (const ReorderBitFieldConfig* batch = batch_number_of(config)) return batch->bit_width_;
  if (config.method_ == ReorderMethod::INVALID) return 0;
  const ReorderBitFieldConfig& sequence = position_of(config);
  const std::uint32_t stride = stride_of(config);
  // Numbers that a batch does not divide go on after the last one.
  if (!std::has_single_bit(stride)) return 64;
  const int used = std::countr_zero(stride) + std::bit_width(sequence.step_) - 1;
  return sequence.bit_width_ - std::min(sequence.bit_width_, static_cast<std::uint32_t>(used));
}

std::uint64_t batch_numbers_of(const ReorderConfig& config) noexcept {
  const ReorderBitFieldConfig* const batch = batch_number_of(config);
  const std::uint64_t step = batch == nullptr ? 1 : std::max<std::uint64_t>(batch->step_, 1);
  return numbers_of(batch_bits_of(config)) / step;
}

bool divides(const ReorderConfig& config) noexcept {
  return config.method_ == ReorderMethod::SEQ_PACKETS_PER_BATCH &&
         !std::has_single_bit(stride_of(config)) && position_of(config).bit_width_ < 64;
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

namespace {

/// 0: more than a frame may have.
std::uint64_t product(std::uint64_t bytes, const std::vector<std::uint32_t>& shape) noexcept {
  for (const std::uint32_t extent : shape) {
    bytes *= extent;
    if (bytes > UINT32_MAX) return 0;
  }
  return bytes;
}

}  // namespace

std::uint64_t frame_bytes_of(const ReorderConfig& config) noexcept {
  return config.frame_.shape_.empty() ? 0 : product(element_bytes_of(config), config.frame_.shape_);
}

std::uint64_t sent_bytes_of(const ReorderConfig& config) noexcept {
  const ReorderModulesConfig& modules = config.frame_.modules_;
  if (modules.shape_.empty()) return frame_bytes_of(config);
  return product(element_bytes_of(config) * modules.positions_.size(), modules.shape_);
}

Groups groups_of(const ReorderConfig& config) noexcept {
  // Pixels of a module are placed one by one.
  return Groups(config.data_types_,
                config.frame_.modules_.shape_.empty() ? 1 : element_bytes_of(config));
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
      offset_field_(config.payload_offset_field_),
      offset_unit_(config.payload_offset_field_.bit_width_ != 0 ? config.payload_offset_field_.unit_
                                                                : 0),
      units_(slots_of(config)),
      batch_mask_(numbers_of(batch_bits_of(config)) - (batch_bits_of(config) < 64 ? 1 : 0)),
      window_(std::min(config.window_ != 0 ? config.window_ : usual_window,
                       most_open(batch_numbers_of(config)))),
      timeout_ns_(config.timeout_us_ * 1000U),
      flow_ids_(config.flow_ids_) {
  const ReorderBitFieldConfig& position = position_of(config);
  const ReorderBitFieldConfig* const batch = batch_number_of(config);
  batch_ = Field(batch != nullptr ? *batch : position);
  batch_step_ = batch != nullptr ? batch->step_ : 1;
  position_ = Field(position);
  step_ = position.step_;
  position_unit_ = position.unit_;
  running_ = config.batch_packet_number_.running_;
  if (method_ == ReorderMethod::SEQ_PACKETS_PER_BATCH) {
    // Numbers of 64 bits never wrap.
    sequence_numbers_ =
        position.bit_width_ == 64 ? UINT64_MAX : numbers_of(position.bit_width_) / step_;
    divides_ = reorder::divides(config);
    if (std::has_single_bit(stride_)) {
      sequence_shift_ = static_cast<std::uint32_t>(std::countr_zero(stride_));
    } else {
      divisor_ = stride_;
      slot_mask_ = 0;
    }
  }
  firsts_ = config.first_packet_;
  columns_ = Columns(config.columns_, units_);
  bool of_payload = batch_.of_payload() || position_.of_payload() || payload_based_ ||
                    columns_.of_payload() || (offset_unit_ != 0 && offset_field_.of_payload());
  for (const ReorderConditionConfig& each : config.conditions_) {
    conditions_.push_back({Field(each.field_), each.mask_, each.at_least_, each.at_most_});
    of_payload = of_payload || conditions_.back().field.of_payload();
  }
  needs_payload_ = kind == PacketKind::FRAMES && of_payload;
  const ReorderDataTypesConfig& types = config.data_types_;
  groups_ = groups_of(config);
  layout_ = ModuleLayout(config.frame_);
  element_bytes_ = element_bytes_of(config);
  fill_bytes_ = std::max(bits_of(types.output_type_) / 8, 1U);
  // Validation has checked that the type can hold the value.
  static_cast<void>(encode(config.fill_, types.output_type_, fill_.data()));
  frame_bytes_ = frame_bytes_of(config);
  const std::uint64_t frame = sent_bytes_of(config);
  payload_bytes_ = config.payload_bytes_;
  cuts_ = payload_bytes_ != 0;
  if (by_bytes()) {
    unit_bytes_ = groups_.bytes();
    units_ = config.batch_byte_offset_.batch_bytes_ / unit_bytes_;
  } else if (units_ != 0 && frame != 0) {
    const auto input_of = [this](std::uint64_t bytes) {
      return static_cast<std::uint32_t>(groups_.input_of(bytes));
    };
    if (payload_bytes_ == 0) payload_bytes_ = input_of(frame / units_);
    part_ = flows_apart_ ? stride_ : units_;
    splits_ = !groups_.fill(payload_bytes_);
    const std::uint64_t of_part = frame / (units_ / part_);
    payload_lack_ = part_ * payload_bytes_ - input_of(of_part);
    if (!splits_)
      part_lack_ = static_cast<std::uint32_t>(part_ * output_bytes(payload_bytes_) - of_part);
  }
  // The rows of modules are short.
  streams_ = layout_.none() &&
             worth_streaming(frame != 0   ? frame
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

namespace {

/// Copies elements to places of equal distance, in elements.
template <typename Element>
void scatter(std::byte* to, std::ptrdiff_t step, const std::byte* from,
             std::size_t elements) noexcept {
  for (std::size_t i = 0; i < elements; ++i)
    std::memcpy(
        to + static_cast<std::ptrdiff_t>(i) * step * static_cast<std::ptrdiff_t>(sizeof(Element)),
        from + i * sizeof(Element), sizeof(Element));
}

using Scatter = void (*)(std::byte* to, std::ptrdiff_t step, const std::byte* from,
                         std::size_t elements) noexcept;

Scatter scatter_of(std::uint32_t bytes) noexcept {
  if (bytes == 1) return scatter<std::uint8_t>;
  if (bytes == 2) return scatter<std::uint16_t>;
  if (bytes == 4) return scatter<std::uint32_t>;
  return scatter<std::uint64_t>;
}

}  // namespace

void Plan::place_in_modules(std::byte* frame, std::uint64_t at, const std::byte* from,
                            std::size_t bytes) const noexcept {
  // A multiple of the elements of all groups.
  constexpr std::size_t CHUNK = 512;
  alignas(64) std::byte converted[CHUNK * sizeof(std::uint64_t)];
  const auto input_of = [this](std::uint64_t elements) {
    return groups_.input_of(elements * element_bytes_);
  };
  const auto size = static_cast<std::int64_t>(element_bytes_);
  const Scatter scatter = scatter_of(element_bytes_);
  const std::uint64_t elements = groups_.output_of(bytes) / element_bytes_;
  layout_.for_rectangles(at / element_bytes_, elements, [&](const ModuleLayout::Rectangle& part) {
    const std::byte* in = from + input_of(part.from);
    std::byte* to = frame + part.to * size;
    const std::uint64_t pitch = input_of(part.from_next_row);
    for (std::uint64_t row = 0; row < part.rows; ++row) {
      if (part.to_next_column == 1) {
        move_(to, in, input_of(part.columns));
      } else {
        for (std::uint64_t done = 0; done < part.columns; done += CHUNK) {
          const std::uint64_t n = std::min<std::uint64_t>(CHUNK, part.columns - done);
          move_(converted, in + input_of(done), input_of(n));
          scatter(to + static_cast<std::int64_t>(done) * part.to_next_column * size,
                  part.to_next_column, converted, n);
        }
      }
      in += pitch;
      to += part.to_next_row * size;
    }
  });
}

void Plan::fill(std::byte* frame, std::uint64_t at, std::size_t bytes) const noexcept {
  if (layout_.none()) return fill_run(frame + at, bytes);
  layout_.for_rectangles(at / element_bytes_, bytes / element_bytes_,
                         [&](const ModuleLayout::Rectangle& part) { fill(frame, part); });
}

void Plan::fill_gaps(std::byte* frame) const noexcept {
  for (const ModuleLayout::Rectangle& part : layout_.gaps()) fill(frame, part);
}

void Plan::fill(const Filling& filling) const noexcept {
  for_missing(filling,
              [&](std::uint64_t begin, std::uint64_t bytes) { fill(filling.data, begin, bytes); });
  fill_gaps(filling.data);
}

void Plan::fill(std::byte* frame, const ModuleLayout::Rectangle& part) const noexcept {
  const auto size = static_cast<std::int64_t>(element_bytes_);
  std::byte* to = frame + part.to * size;
  for (std::uint64_t row = 0; row < part.rows; ++row, to += part.to_next_row * size) {
    if (part.to_next_column == 1) {
      fill_run(to, part.columns * element_bytes_);
      continue;
    }
    for (std::uint64_t column = 0; column < part.columns; ++column)
      fill_run(to + static_cast<std::int64_t>(column) * part.to_next_column * size, element_bytes_);
  }
}

void Plan::fill_run(std::byte* to, std::size_t bytes) const noexcept {
  const auto same = [this](std::byte each) { return each == fill_[0]; };
  if (std::all_of(fill_.begin(), fill_.begin() + fill_bytes_, same)) {
    std::memset(to, static_cast<int>(fill_[0]), bytes);
    return;
  }
  for (std::size_t at = 0; at < bytes; at += fill_bytes_)
    std::memcpy(to + at, fill_.data(), fill_bytes_);
}

}  // namespace daqiri::reorder
