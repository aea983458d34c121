#include "reorder/stage.h"

#include <algorithm>

namespace daqiri::reorder {

RunningPlan::RunningPlan(const ReorderConfig& config, PacketKind kind, RxQueue& queue,
                         memory::MemoryRegion& output)
    : queue_(queue),
      output_(output),
      plan_(config, kind, queue.config().timeout_us_),
      valid_(std::make_shared<ValidBits>(output.config().num_bufs_, plan_.units())),
      assembler_(plan_, output, *valid_, *this) {
  queue.keep(valid_);
}

bool RunningPlan::take(const Frame& frame) noexcept {
  RxAggregate aggregate;
  aggregate.owner = &output_;
  aggregate.buffer = frame.buffer;
  aggregate.data = frame.data;
  aggregate.info = frame.info;
  aggregate.valid = frame.valid;
  aggregate.units = plan_.units();
  aggregate.time = frame.first_time;
  return queue_.pass_on(aggregate);
}

void ReorderStage::add(RunningPlan& plan) {
  plans_.push_back(&plan);
  std::uint32_t index = 0;
  for (const FlowId flow : plan.flow_ids()) targets_.push_back({flow, &plan, index++});
  std::ranges::sort(targets_, {}, &Target::flow);
  latest_ = targets_.front();
}

const ReorderStage::Target& ReorderStage::target_of(FlowId flow) noexcept {
  if (flow == latest_.flow) return latest_;
  const auto found = std::ranges::lower_bound(targets_, flow, {}, &Target::flow);
  latest_ = found != targets_.end() && found->flow == flow ? *found : Target{flow, nullptr, 0};
  return latest_;
}

void ReorderStage::take(RxQueue& queue, RxSource& source, const RxBatch& batch) noexcept {
  const RxBatch::Segment& segment = batch.segments[0];
  memory::BufferOwner* owner = segment.owner != nullptr ? segment.owner : &queue.region(0);
  const auto data_of = [&](std::uint32_t i) {
    const void* data =
        segment.data != nullptr ? segment.data[i] : queue.region(0).address(segment.buffers[i]);
    return static_cast<const std::uint8_t*>(data);
  };
  for (std::uint32_t first = 0; first < batch.count;) {
    RunningPlan* const plan = target_of(batch.flows[first]).plan;
    // Packets of one plan, or of none, in a row.
    std::uint32_t end = first;
    std::size_t n = 0;
    for (; end < batch.count; ++end) {
      const Target& target = target_of(batch.flows[end]);
      if (target.plan != plan) break;
      if (plan == nullptr) continue;
      chunk_[n++] = {data_of(end), segment.lengths[end], target.index, batch.times[end]};
      if (n == CHUNK) {
        hand(queue, *plan, n);
        n = 0;
      }
    }
    if (plan != nullptr) {
      if (n > 0) hand(queue, *plan, n);
      owner->give(segment.buffers + first, end - first);
    } else {
      queue.pass_on(source, batch.part(first, end - first));
    }
    first = end;
  }
  for (RunningPlan* plan : plans_) plan->assembler().publish();
}

void ReorderStage::hand(RxQueue& queue, RunningPlan& plan, std::size_t n) noexcept {
  const ReorderSnapshot& tally = plan.assembler().tally();
  const auto refused = [&] { return tally.duplicate + tally.late + tally.malformed; };
  const std::uint64_t refused_before = refused();
  const std::uint64_t no_buffer_before = tally.no_buffer;
  plan.assembler().take({chunk_, n}, queue.pass_ns());
  if (const std::uint64_t more = refused() - refused_before; more > 0)
    queue.drop_staged(DropReason::REORDER, more);
  if (const std::uint64_t more = tally.no_buffer - no_buffer_before; more > 0)
    queue.drop_staged(DropReason::NO_PACKET_BUFFER, more);
}

std::uint64_t ReorderStage::expire(RxQueue& /*queue*/, std::uint64_t now_ns) noexcept {
  std::uint64_t next = 0;
  for (RunningPlan* plan : plans_) {
    const std::uint64_t due = plan->assembler().expire(now_ns);
    if (due != 0 && (next == 0 || due < next)) next = due;
    plan->assembler().publish();
  }
  return next;
}

void ReorderStage::finish(RxQueue& /*queue*/) noexcept {
  for (RunningPlan* plan : plans_) {
    plan->assembler().finish();
    plan->assembler().publish();
  }
}

std::uint64_t ReorderStage::discard() noexcept {
  std::uint64_t packets = 0;
  for (RunningPlan* plan : plans_) {
    packets += plan->assembler().discard();
    plan->assembler().publish();
  }
  return packets;
}

}  // namespace daqiri::reorder
