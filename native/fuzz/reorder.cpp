// A reorder plan with any accepted configuration, and packets of any bytes: every packet is counted
// once, frames contain what their validity bits say, and all buffers are returned. The length of
// the input determines the number of threads that move payloads, so that saved inputs keep their
// meaning.
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
  plan.batch_packet_number_.first_packet_ = input.ConsumeIntegralInRange<std::uint32_t>(0, 3);
  plan.batch_byte_offset_.batch_number_ = plan.seq_batch_number_.batch_number_;
  plan.batch_byte_offset_.byte_offset_ = plan.seq_batch_number_.sequence_number_;
  plan.batch_byte_offset_.batch_bytes_ =
      packets * input.ConsumeIntegralInRange<std::uint32_t>(1, 9);
  plan.window_ = input.ConsumeIntegralInRange<std::uint32_t>(0, 65);
  plan.timeout_us_ = input.ConsumeIntegralInRange<std::uint64_t>(0, 10);
  plan.flow_stride_ = input.ConsumeIntegralInRange<std::uint32_t>(0, 70);
  using T = ReorderDataType;
  plan.data_types_.input_type_ =
      input.PickValueInArray({T::SAME, T::INT4, T::INT8, T::INT16, T::UINT8, T::UINT16, T::UINT32});
  plan.data_types_.output_type_ = input.PickValueInArray(
      {T::SAME, T::INT8, T::INT16, T::INT32, T::FP16, T::BF16, T::FP32, T::FP64, T::UINT32});
  plan.data_types_.endianness_ =
      input.PickValueInArray({ReorderEndianness::HOST, ReorderEndianness::NETWORK});
  return plan;
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
    packets += frame.info.source_packet_count;
    const std::size_t unit = frame.info.aggregate_len / plan.units();
    for (std::uint32_t i = 0; i < plan.units(); ++i) {
      if ((frame.valid[i / 64] >> (i % 64) & 1U) != 0) continue;
      for (std::size_t k = 0; k < unit; ++k)
        require(static_cast<std::uint8_t>(frame.data[i * unit + k]) == FILL,
                "what is missing is filled");
    }
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
    const Packet each = packets.make(input.ConsumeBytes<std::uint8_t>(what),
                                     what % static_cast<std::uint32_t>(flows), now);
    assembler.take({&each, 1}, now, taker.workers.get());
    if (taker.workers == nullptr) packets.give(&each.buffer, 1);
  }
  {
    const std::lock_guard lock(taker.mutex);
    assembler.finish();
  }
  taker.workers.reset();
  const ReorderSnapshot& n = assembler.tally();
  require(n.packets == n.placed + n.duplicate + n.late + n.early + n.malformed + n.no_buffer,
          "every packet is counted once");
  require(n.placed == taker.packets || taker.discarded > 0, "what was placed is in a frame");
  require(n.complete + n.incomplete == taker.frames, "frames are counted");
  require(region->available() == output.num_bufs_, "all buffers come back");
  require(packets.all_given(), "all packets are given back");
  return 0;
}
