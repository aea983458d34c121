// A reorder plan with any accepted configuration, and packets of any bytes: every packet is counted
// once, frames contain what their validity bits say, and all buffers are returned. The length of
// the input determines the number of threads that move payloads, and whether the plan has more than
// numbers of 32 bits, so that saved inputs keep their meaning.
#include <fuzzer/FuzzedDataProvider.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "daqiri/config.h"
#include "reorder/assembler.h"
#include "reorder/workers.h"
#include "require.h"
#include "session/loopback_config.h"

using namespace daqiri;
using namespace daqiri::reorder;
using fuzz::require;

namespace {

constexpr std::uint8_t POISON = 0xEE;
constexpr std::uint8_t FILL = 0;

// With an exhausted input, these functions give a valid plan.

ReorderBitFieldConfig any_field(FuzzedDataProvider& input) {
  ReorderBitFieldConfig field;
  field.bit_offset_ = 8 * input.ConsumeIntegralInRange<std::uint32_t>(0, 25) +
                      input.PickValueInArray<std::uint32_t>({0, 0, 1, 4, 7});
  field.bit_width_ = input.PickValueInArray<std::uint32_t>({8, 16, 24, 32, 1, 4, 11, 31, 0, 33});
  field.byte_order_ = input.PickValueInArray({ReorderByteOrder::BIG, ReorderByteOrder::LITTLE});
  field.base_ = input.PickValueInArray({ReorderBase::PACKET, ReorderBase::UDP_PAYLOAD});
  return field;
}

ReorderConfig any_plan(FuzzedDataProvider& input, std::size_t flows) {
  ReorderConfig plan;
  plan.name_ = "plan";
  plan.reorder_type_ = "cpu";
  plan.memory_region_ = "frames";
  for (std::size_t i = 0; i < flows; ++i) plan.flow_ids_.push_back(static_cast<FlowId>(i + 1));
  plan.payload_byte_offset_ = input.ConsumeIntegralInRange<std::uint32_t>(0, 80);
  plan.payload_base_ = input.PickValueInArray({ReorderBase::PACKET, ReorderBase::UDP_PAYLOAD});
  plan.method_ = input.PickValueInArray(
      {ReorderMethod::SEQ_BATCH_NUMBER, ReorderMethod::SEQ_PACKETS_PER_BATCH,
       ReorderMethod::BATCH_PACKET_NUMBER, ReorderMethod::BATCH_BYTE_OFFSET});
  const std::uint32_t packets = input.ConsumeIntegralInRange<std::uint32_t>(1, 130);
  plan.seq_batch_number_.sequence_number_ = any_field(input);
  plan.seq_batch_number_.batch_number_ = any_field(input);
  plan.seq_packets_per_batch_ = {plan.seq_batch_number_.sequence_number_, packets};
  plan.batch_packet_number_.batch_number_ = plan.seq_batch_number_.batch_number_;
  plan.batch_packet_number_.packet_number_ = plan.seq_batch_number_.sequence_number_;
  plan.batch_packet_number_.packets_per_batch_ = packets;
  if (const auto first = input.ConsumeIntegralInRange<std::uint32_t>(0, 3); first != 0)
    plan.first_packet_.assign(first == 3 ? flows : 1, first);
  plan.batch_byte_offset_.batch_number_ = plan.seq_batch_number_.batch_number_;
  plan.batch_byte_offset_.byte_offset_ = plan.seq_batch_number_.sequence_number_;
  plan.batch_byte_offset_.batch_bytes_ =
      packets * input.ConsumeIntegralInRange<std::uint32_t>(1, 9);
  plan.window_ = input.ConsumeIntegralInRange<std::uint32_t>(0, 65);
  plan.timeout_us_ = input.ConsumeIntegralInRange<std::uint64_t>(0, 10);
  plan.flow_stride_ = input.ConsumeIntegralInRange<std::uint32_t>(0, 70);
  using T = ReorderDataType;
  plan.data_types_.input_type_ = input.PickValueInArray(
      {T::SAME, T::INT4, T::INT8, T::INT16, T::UINT8, T::UINT16, T::UINT32, T::UINT10, T::INT12,
       T::UINT12, T::INT14, T::UINT14, T::UINT24, T::INT64, T::FP16, T::FP64});
  plan.data_types_.output_type_ =
      input.PickValueInArray({T::SAME, T::INT8, T::INT16, T::INT32, T::FP16, T::BF16, T::FP32,
                              T::FP64, T::UINT16, T::UINT32, T::INT64});
  plan.data_types_.endianness_ =
      input.PickValueInArray({ReorderEndianness::HOST, ReorderEndianness::NETWORK});
  plan.data_types_.packing_ = input.PickValueInArray({ReorderPacking::MSB, ReorderPacking::LSB});
  return plan;
}

/// A row of a module for each packet.
void add_modules(FuzzedDataProvider& input, ReorderConfig& plan) {
  const auto count = input.ConsumeIntegralInRange<std::uint32_t>(1, 3);
  ReorderModulesConfig& modules = plan.frame_.modules_;
  const std::uint64_t elements = groups_of(plan).output_of(plan.payload_bytes_) /
                                 std::max(bits_of(plan.data_types_.output_type_) / 8, 1U);
  const std::uint32_t rows = slots_of(plan) / count;
  modules.shape_ = {rows, static_cast<std::uint32_t>(elements)};
  const auto part = [&](std::uint32_t of) {
    return of / std::max(1U, input.ConsumeIntegralInRange<std::uint32_t>(1, 3));
  };
  if (input.ConsumeBool()) modules.tile_ = {part(rows), part(modules.shape_[1])};
  if (input.ConsumeBool()) {
    modules.chip_ = {part(rows), part(modules.shape_[1])};
    modules.chip_gap_ = {input.ConsumeIntegralInRange<std::uint32_t>(0, 2), 1};
  }
  std::uint32_t end = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    ReorderPositionConfig position;
    position.origin_ = {end, input.ConsumeIntegralInRange<std::uint32_t>(0, 2)};
    position.flip_ = input.PickValueInArray(
        {ReorderFlip::NONE, ReorderFlip::ROWS, ReorderFlip::COLUMNS, ReorderFlip::BOTH});
    position.rotate_ = input.PickValueInArray({0U, 90U, 180U, 270U});
    end += std::max(rows, modules.shape_[1]) + 8;
    modules.positions_.push_back(position);
  }
  plan.frame_.shape_ = {end, std::max(rows, modules.shape_[1]) + 8};
}

void add_more(FuzzedDataProvider& input, ReorderConfig& plan) {
  const auto widths = [&](ReorderBitFieldConfig& field) {
    field.bit_width_ = input.PickValueInArray<std::uint32_t>({field.bit_width_, 40, 48, 57, 64});
    field.step_ = input.PickValueInArray<std::uint64_t>({1, 1, 2, 3, 256});
  };
  widths(plan.seq_packets_per_batch_.sequence_number_);
  widths(plan.seq_batch_number_.sequence_number_);
  widths(plan.batch_packet_number_.packet_number_);
  widths(plan.batch_packet_number_.batch_number_);
  widths(plan.batch_byte_offset_.batch_number_);
  if (input.ConsumeBool()) plan.batch_packet_number_.batch_number_.step_ = 0;
  plan.batch_packet_number_.running_ = input.ConsumeBool();
  plan.batch_byte_offset_.byte_offset_.unit_ = input.PickValueInArray<std::uint32_t>({1, 2, 8});
  if (input.ConsumeBool()) {
    plan.payload_offset_field_ = any_field(input);
    plan.payload_offset_field_.unit_ = input.PickValueInArray<std::uint32_t>({1, 8, UINT32_MAX});
  }
  if (input.ConsumeBool()) {
    ReorderConditionConfig condition;
    condition.field_ = any_field(input);
    condition.mask_ = input.PickValueInArray<std::uint64_t>({UINT64_MAX, 0xF});
    condition.at_least_ = input.ConsumeIntegralInRange<std::uint64_t>(0, 4);
    condition.at_most_ = input.PickValueInArray<std::uint64_t>({UINT64_MAX, 4});
    plan.conditions_ = {condition};
  }
  if (input.ConsumeBool()) {
    plan.columns_ = {{"first", any_field(input)}, {"sum", any_field(input)}};
    plan.columns_.back().from_ = ReorderColumnSource::SUM;
    if (plan.method_ != ReorderMethod::BATCH_BYTE_OFFSET) {
      plan.columns_.push_back({"packets", any_field(input), ReorderColumnSource::PACKETS});
    }
  }
  if (!input.ConsumeBool()) return;
  plan.payload_bytes_ = input.ConsumeIntegralInRange<std::uint32_t>(1, 40);
  const std::uint64_t bytes = std::uint64_t{slots_of(plan)} * plan.payload_bytes_;
  const std::uint64_t lack = input.ConsumeIntegralInRange<std::uint32_t>(0, 40);
  if (lack != 0 && lack < bytes && bytes < UINT32_MAX)
    plan.frame_.shape_ = {static_cast<std::uint32_t>(bytes - lack)};
  if (input.ConsumeBool()) add_modules(input, plan);
}

/// Packets in separate allocations, so that reads beyond the end or after their release are
/// detected.
class Packets final : public memory::BufferOwner {
 public:
  static constexpr std::uint32_t MOST = 256;

  Packets() : BufferOwner("packets", MOST, memory::Place::HOST), bytes_(MOST) {}
  void give(const std::uint32_t* buffers, std::uint32_t n) noexcept override {
    for (std::uint32_t i = 0; i < n; ++i) {
      require(bytes_[buffers[i]] != nullptr, "a packet's buffer is given back once");
      bytes_[buffers[i]].reset();
    }
  }
  Packet make(const std::vector<std::uint8_t>& bytes, std::uint32_t flow, std::uint64_t time) {
    auto& own = bytes_[made_] = std::make_unique<std::uint8_t[]>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), own.get());
    return {own.get(), static_cast<std::uint32_t>(bytes.size()), flow, time, this, made_++};
  }
  [[nodiscard]] bool all_given() const {
    return std::ranges::all_of(bytes_, [](const auto& each) { return each == nullptr; });
  }

 private:
  std::vector<std::unique_ptr<std::uint8_t[]>> bytes_;
  std::uint32_t made_{0};
};

/// Callers of the assembler must hold `mutex`.
struct Taker final : FrameSink, FrameWaiter {
  Taker(const Plan& made, memory::MemoryRegion& output)
      : plan(made), region(output), closing(output.config().num_bufs_) {}
  bool begin(std::uint32_t /*buffer*/) noexcept override { return true; }
  void take(const Frame& frame) noexcept override {
    if (workers == nullptr || workers->close(frame.buffer) == Mover::Copies::DONE)
      return check(frame);
    closing[frame.buffer] = {frame, true};
  }
  void discard(std::uint32_t buffer) noexcept override {
    ++discarded;
    if (workers == nullptr || workers->close(buffer) == Mover::Copies::DONE)
      return region.give(&buffer, 1);
    closing[buffer].wanted = false;
  }
  void frame_done(std::uint32_t buffer, bool /*good*/) noexcept override {
    const std::lock_guard lock(mutex);
    if (closing[buffer].wanted) return check(closing[buffer].frame);
    region.give(&buffer, 1);
  }
  void check(const Frame& frame) noexcept {
    std::uint64_t valid = 0;
    for (std::uint32_t i = 0; i < plan.units(); ++i) valid += frame.valid[i / 64] >> (i % 64) & 1U;
    require(valid + frame.missing == plan.units(), "what is not valid is missing");
    require(frame.info.aggregate_len <= region.buf_size(), "a frame fits its buffer");
    require(frame.info.num_column_values == plan.columns().numbers(),
            "a frame has the plan's columns");
    packets += frame.info.source_packet_count;
    const std::uint32_t unit =
        plan.by_bytes() ? static_cast<std::uint32_t>(plan.output_bytes(plan.unit_bytes()))
                        : frame.info.payload_len;
    if (!plan.layout().none()) return check_image(frame);
    require(plan.begin_of(plan.units(), unit) == frame.info.aggregate_len,
            "a frame ends with a unit");
    for (std::uint32_t i = 0; i < plan.units(); ++i) {
      if ((frame.valid[i / 64] >> (i % 64) & 1U) != 0) continue;
      for (std::uint64_t at = plan.begin_of(i, unit); at < plan.begin_of(i + 1, unit); ++at)
        require(static_cast<std::uint8_t>(frame.data[at]) == FILL, "what is missing is filled");
    }
    give(frame);
  }
  void check_image(const Frame& frame) noexcept {
    require(frame.info.aggregate_len == plan.frame_bytes(), "a frame is the image");
    for (const ModuleLayout::Rectangle& gap : plan.layout().gaps()) {
      for (std::uint64_t row = 0; row < gap.rows; ++row) {
        for (std::uint64_t i = 0; i < gap.columns * plan.element_bytes(); ++i)
          require(static_cast<std::uint8_t>(
                      frame.data[static_cast<std::uint64_t>(gap.to) * plan.element_bytes() +
                                 row * static_cast<std::uint64_t>(gap.to_next_row) *
                                     plan.element_bytes() +
                                 i]) == FILL,
                  "gaps are filled");
      }
    }
    give(frame);
  }
  void give(const Frame& frame) noexcept {
    std::memset(frame.data, POISON, frame.info.aggregate_len);
    region.give(&frame.buffer, 1);
    ++frames;
  }

  /// A frame whose last payloads are still being moved.
  struct Closing {
    Frame frame;
    bool wanted{true};
  };
  const Plan& plan;
  memory::MemoryRegion& region;
  std::vector<Closing> closing;
  std::mutex mutex;
  std::uint64_t packets{0};
  std::uint64_t frames{0};
  std::uint64_t discarded{0};
  /// Destroyed first. Null if the caller moves payloads.
  std::unique_ptr<Workers> workers;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  FuzzedDataProvider input(data, size);
  const std::size_t flows = input.ConsumeIntegralInRange<std::size_t>(1, 2);
  NetworkConfig config = test::loopback_config();
  RxConfig& rx = config.ifs_.front().rx_;
  rx.flows_.clear();
  for (std::size_t i = 0; i < flows; ++i) {
    FlowConfig flow;
    flow.name_ = "flow" + std::to_string(i);
    flow.id_ = static_cast<FlowId>(i + 1);
    flow.match_.udp_dst_ = {static_cast<std::uint16_t>(5000 + i),
                            static_cast<std::uint16_t>(5000 + i)};
    flow.action_.type_ = FlowType::QUEUE;
    flow.action_.id_ = static_cast<std::uint16_t>(rx.queues_.front().common_.id_);
    flow.actions_ = {flow.action_};
    rx.flows_.push_back(flow);
  }
  MemoryRegionConfig output;
  output.name_ = "frames";
  output.num_bufs_ = input.ConsumeIntegralInRange<std::size_t>(1, 4);
  output.buf_size_ = (1U << 19U) >> input.ConsumeIntegralInRange<std::uint32_t>(0, 12);
  config.mrs_["frames"] = output;
  rx.reorder_configs_ = {any_plan(input, flows)};
  if (size / 3 % 2 == 1) add_more(input, rx.reorder_configs_.front());
  if (!validate_config(config).ok()) return 0;

  const auto region = memory::MemoryRegion::allocate(config.mrs_["frames"]);
  std::memset(region->address(0), POISON, region->extent().stride * output.num_bufs_);
  const PacketKind kind = input.ConsumeBool() ? PacketKind::FRAMES : PacketKind::PAYLOADS;
  const ReorderConfig& accepted = config.ifs_.front().rx_.reorder_configs_.front();
  const Plan plan(accepted, kind);
  const ValidBits valid(output.num_bufs_, plan.units());
  Packets packets;
  Taker taker(plan, *region);
  if (const std::size_t threads = size % 3; threads > 0) {
    FrameWaiter& waiter = taker;
    taker.workers = std::make_unique<Workers>(plan, std::vector<std::string>(threads, "any"), false,
                                              output.num_bufs_, waiter);
  }
  Assembler assembler(plan, *region, valid, taker);
  std::uint64_t now = 1;
  for (std::uint32_t step = 0; step < Packets::MOST && input.remaining_bytes() > 0; ++step) {
    const auto what = input.ConsumeIntegral<std::uint8_t>();
    const std::lock_guard lock(taker.mutex);
    if (what == 0) assembler.discard();
    if (what == 1) assembler.expire(now += 4000);
    if (what == 2) assembler.begin_epoch(now, now, std::nullopt);
    if (what == 3) assembler.begin_epoch(now, now, static_cast<std::uint32_t>(step));
    if (what == 4) now += 250'000'000;
    // Some have waited while an acquisition began.
    const std::uint64_t arrival = what % 8 == 7 ? now - 1 : now;
    const Packet each = packets.make(input.ConsumeBytes<std::uint8_t>(what),
                                     what % static_cast<std::uint32_t>(flows), arrival);
    assembler.take({&each, 1}, now, taker.workers.get());
    if (taker.workers == nullptr) packets.give(&each.buffer, 1);
  }
  {
    const std::lock_guard lock(taker.mutex);
    assembler.finish();
  }
  taker.workers.reset();
  const ReorderSnapshot& n = assembler.tally();
  require(n.packets ==
              n.placed + n.duplicate + n.late + n.early + n.malformed + n.left_out + n.no_buffer,
          "every packet is counted once");
  require(n.placed == taker.packets || taker.discarded > 0, "what was placed is in a frame");
  require(n.complete + n.incomplete == taker.frames, "frames are counted");
  require(region->available() == output.num_bufs_, "all buffers come back");
  require(packets.all_given(), "all packets are given back");
  return 0;
}
