// Rules for the numbers of packets: which frame one is of, and its place there.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "config/rules.h"
#include "reorder/plan.h"

namespace daqiri::config {

std::vector<std::pair<std::string_view, const ReorderBitFieldConfig*>> fields_of(
    const ReorderConfig& plan) {
  switch (plan.method_) {
    case ReorderMethod::SEQ_BATCH_NUMBER:
      return {{"sequence_number", &plan.seq_batch_number_.sequence_number_},
              {"batch_number", &plan.seq_batch_number_.batch_number_}};
    case ReorderMethod::BATCH_PACKET_NUMBER:
      return {{"batch_number", &plan.batch_packet_number_.batch_number_},
              {"packet_number", &plan.batch_packet_number_.packet_number_}};
    case ReorderMethod::BATCH_BYTE_OFFSET:
      return {{"batch_number", &plan.batch_byte_offset_.batch_number_},
              {"byte_offset", &plan.batch_byte_offset_.byte_offset_}};
    default:
      return {{"sequence_number", &plan.seq_packets_per_batch_.sequence_number_}};
  }
}

namespace {

constexpr std::uint64_t USUAL_TIMEOUT_US = 10'000;
/// Packets of a batch, of numbers that it does not divide: open batches are few of the numbers.
constexpr std::uint32_t MOST_ANY_PACKETS = 1U << 17;

struct Numbers {
  ReorderConfig& plan;
  const Place& place;
  /// The key with the plan's flows.
  const std::string_view flows_key;
  const Place method = place["method"][key_of(plan.method_)];

  /// Derives slots and batches from the fields.
  bool check_method() {
    for (const auto& [name, field] : fields_of(plan)) {
      const Place at = method[name];
      if (at["bit_width"].bad() || at["step"].bad() || at["unit"].bad()) return false;
    }
    return check_first_packets() && check_numbers();
  }

  bool check_first_packets() const {
    const Place at = method["first_packet"];
    if (at.bad() || place[flows_key].bad()) return false;
    const std::size_t given = plan.first_packet_.size();
    if (given > 1 && given != plan.flow_ids_.size())
      at.error("found ", given, " numbers for ", plan.flow_ids_.size(),
               " flows; accepts one number, or one for each flow of ", flows_key);
    const ReorderBitFieldConfig& field = reorder::position_of(plan);
    for (const std::uint32_t first : plan.first_packet_) {
      if (field.bit_width_ < 32 && first >> field.bit_width_ != 0)
        at.error("found ", first, "; accepts numbers of the ", field.bit_width_,
                 " bits of the field");
    }
    return !at.bad();
  }

  /// Numbers that wrap go on in steps if these divide them, or if they never wrap.
  static bool steps_on(const ReorderBitFieldConfig& field, std::uint64_t step) {
    constexpr std::uint32_t NEVER_WRAPS = 48;
    return field.bit_width_ >= NEVER_WRAPS ||
           (std::has_single_bit(step) && step >> field.bit_width_ == 0);
  }

  bool check_step(std::string_view name, const ReorderBitFieldConfig& field) const {
    const Place at = method[name]["step"];
    if (!steps_on(field, field.step_))
      at.error(
          "found ", field.step_, " for numbers of ", field.bit_width_,
          " bits, which would leave the steps when they begin anew; accepts a power of two, or "
          "numbers of 48 bits and more");
    return !at.bad();
  }

  /// A batch number that is part of the sequence number counts batches from 0. `bits`: of the
  /// numbers of one batch.
  bool check_first_of_batch(std::uint32_t bits) const {
    const ReorderBitFieldConfig& sequence = plan.seq_batch_number_.sequence_number_;
    const ReorderBitFieldConfig& batch = plan.seq_batch_number_.batch_number_;
    if (batch.base_ != sequence.base_ ||
        batch.bit_offset_ >= sequence.bit_offset_ + sequence.bit_width_ ||
        sequence.bit_offset_ >= batch.bit_offset_ + batch.bit_width_)
      return true;
    const std::uint64_t numbers = std::uint64_t{1} << bits;
    const auto within = std::ranges::find_if(
        plan.first_packet_, [&](std::uint32_t first) { return first % numbers != 0; });
    if (within == plan.first_packet_.end()) return true;
    method["first_packet"].error(
        "found ", *within, " with a batch_number of the bits of the sequence_number, which begins ",
        "a batch with each multiple of ", numbers, "; accepts one of these, or ",
        "seq_packets_per_batch, which counts batches from the first packet");
    return false;
  }

  bool check_numbers() {
    ReorderSeqBatchNumberConfig& by_batch = plan.seq_batch_number_;
    if (plan.method_ == ReorderMethod::SEQ_BATCH_NUMBER) {
      const std::uint32_t width = by_batch.sequence_number_.bit_width_;
      const std::uint32_t batch_width = by_batch.batch_number_.bit_width_;
      const Place at = method["batch_number"]["bit_width"];
      if (batch_width > width) {
        at.error("found ", batch_width, "; accepts at most the ", width,
                 " bits of the sequence number");
      } else if (check_step("sequence_number", by_batch.sequence_number_)) {
        const std::uint32_t bits = width - batch_width;
        const std::uint64_t step = by_batch.sequence_number_.step_;
        if (bits > 31 || !std::has_single_bit(step) || step > std::uint64_t{1} << bits)
          at.error("found ", batch_width, ", and a sequence number of ", width,
                   " bits in steps of ", step, "; accepts batches of 1 to ", std::uint64_t{1} << 31,
                   " packets");
        else if (check_first_of_batch(bits))
          by_batch.packets_per_batch_ =
              static_cast<std::uint32_t>((std::uint64_t{1} << bits) / step);
      }
      return !at.bad() && !method["sequence_number"]["step"].bad() && !method["first_packet"].bad();
    }
    if (plan.method_ == ReorderMethod::SEQ_PACKETS_PER_BATCH) {
      const ReorderBitFieldConfig& sequence = plan.seq_packets_per_batch_.sequence_number_;
      const std::uint32_t width = sequence.bit_width_;
      if (!check_step("sequence_number", sequence)) return false;
      const std::uint64_t numbers = reorder::numbers_of(width) / sequence.step_;
      const bool apart = plan.flow_stride_ != 0;
      const Place at = apart ? place["flow_stride"] : method["packets_per_batch"];
      if (at.bad() || method["packets_per_batch"].bad()) return false;
      const std::uint32_t stride = reorder::stride_of(plan);
      const bool any = numbers >> 32U != 0 && stride <= MOST_ANY_PACKETS;
      if (stride == 0 || (!any && (!std::has_single_bit(stride) || numbers % stride != 0)))
        at.error("found ", stride, "; accepts a power of two up to ", numbers / 2,
                 ", half of the sequence numbers of ", width,
                 " bits, and with 32 bits any number up to ", MOST_ANY_PACKETS);
      return !at.bad();
    }
    const ReorderBatchPacketNumberConfig& by_packet = plan.batch_packet_number_;
    if (plan.method_ == ReorderMethod::BATCH_PACKET_NUMBER && by_packet.running_) {
      const Place at = method["running"];
      const std::uint64_t stride = reorder::stride_of(plan);
      if (stride == 0 ||
          !steps_on(by_packet.packet_number_, stride * by_packet.packet_number_.step_))
        at.error(
            "found packet numbers of ", by_packet.packet_number_.bit_width_,
            " bits that go on, and ", stride,
            " packets: where they begin anew, images would be shifted; accepts packets that are "
            "a power of two, numbers of 48 bits and more, or seq_packets_per_batch with 32 bits");
      if (at.bad()) return false;
    }
    if (method["packets_per_batch"].bad() || method["batch_bytes"].bad()) return false;
    return place["flow_stride"].bad() || check_places();
  }

  /// Each place of a batch has a number, else no batch could be complete.
  bool check_places() const {
    if (plan.method_ != ReorderMethod::BATCH_PACKET_NUMBER) return true;
    const ReorderBitFieldConfig& field = plan.batch_packet_number_.packet_number_;
    const Place at = method["packet_number"]["bit_width"];
    const std::uint64_t stride = reorder::stride_of(plan);
    const std::uint64_t step = std::max<std::uint64_t>(field.step_, 1);
    const std::uint64_t numbers = (reorder::numbers_of(field.bit_width_) - 1) / step + 1;
    if (numbers < stride)
      at.error("found ", field.bit_width_, ", which is ", numbers, " packet numbers in steps of ",
               step, ", for the ", stride,
               " packets of a batch or flow; accepts a field with a number for each");
    return !at.bad();
  }

  /// If flows have separate slots, those of one flow follow those of the previous one.
  bool check_stride() const {
    const Place at = place["flow_stride"];
    if (at.bad() || plan.flow_stride_ == 0) return !at.bad();
    const std::uint64_t slots = std::uint64_t{plan.flow_stride_} * plan.flow_ids_.size();
    if (plan.method_ == ReorderMethod::BATCH_BYTE_OFFSET)
      at.error("found ", plan.flow_stride_,
               " with batch_byte_offset, whose packets have no slots; remove the key");
    else if (slots != reorder::slots_of(plan))
      at.error("found ", plan.flow_stride_, " for each of ", plan.flow_ids_.size(),
               " flows, which makes ", slots, "; accepts a stride that makes the ",
               reorder::slots_of(plan), " packets of a batch");
    return !at.bad();
  }

  void check_window() const {
    if (plan.timeout_us_ != 0 && plan.timeout_us_ < USUAL_TIMEOUT_US)
      place["timeout_us"].warning("found ", plan.timeout_us_,
                                  ": a frame that takes longer to arrive is closed without its "
                                  "last packets; usual is ",
                                  USUAL_TIMEOUT_US, " or more, or 0 for no timeout");
    const Place at = place["window"];
    const ReorderBitFieldConfig* batch = reorder::batch_number_of(plan);
    const std::uint64_t numbers = reorder::batch_numbers_of(plan);
    if (numbers < 2 && batch != nullptr && batch->step_ > 1) {
      method["batch_number"]["step"].error("found ", batch->step_,
                                           "; accepts less than half of the numbers of ",
                                           batch->bit_width_, " bits");
      return;
    }
    if (numbers == 1) {
      place["method"].error("the ", reorder::stride_of(plan),
                            " packets of a batch use all numbers of the counter, so that two "
                            "batches cannot be told apart; accepted is a counter with at least one "
                            "bit more, or fewer packets per batch");
      return;
    }
    if (at.bad() || plan.window_ <= reorder::most_open(numbers)) return;
    at.error(
        "found ", plan.window_, "; accepts at most half of the ", numbers,
        " batch numbers, so that open batches can be distinguished: ", reorder::most_open(numbers));
  }
};

}  // namespace

bool check_numbers(ReorderConfig& plan, const Place& place, std::string_view flows_key) {
  Numbers numbers{plan, place, flows_key};
  return numbers.check_method() && numbers.check_stride();
}

void check_window(ReorderConfig& plan, const Place& place) {
  Numbers{plan, place, {}}.check_window();
}

}  // namespace daqiri::config
