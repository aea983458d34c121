#include "reorder/stage.h"

#include <algorithm>

namespace daqiri::reorder {

ReorderStage::Running::Running(const ReorderConfig& config, PacketKind kind, RxQueue& to,
                               memory::MemoryRegion& region)
    : name(config.name_),
      queue(to),
      output(region),
      plan(config, kind, to.config().timeout_us_),
      valid(std::make_shared<ValidBits>(region.config().num_bufs_, plan.units())),
      assembler(plan, region, *valid, *this) {}

bool ReorderStage::Running::take(const Frame& frame) noexcept {
  RxAggregate aggregate;
  aggregate.owner = &output;
  aggregate.buffer = frame.buffer;
  aggregate.data = frame.data;
  aggregate.info = frame.info;
  aggregate.valid = frame.valid;
  aggregate.units = plan.units();
  aggregate.time = frame.first_time;
  return queue.pass_on(aggregate);
}

void ReorderStage::add(const ReorderConfig& config, PacketKind kind, RxQueue& queue,
                       memory::MemoryRegion& output) {
  Running& running = plans_.emplace_back(config, kind, queue, output);
  queue.keep(running.valid);
  std::uint32_t index = 0;
  for (const FlowId flow : config.flow_ids_) targets_.push_back({flow, &running, index++});
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
    Running* const running = target_of(batch.flows[first]).running;
    // Packets of one plan, or of none, in a row.
    std::uint32_t end = first;
    std::size_t n = 0;
    for (; end < batch.count; ++end) {
      const Target& target = target_of(batch.flows[end]);
      if (target.running != running) break;
      if (running == nullptr) continue;
      chunk_[n++] = {data_of(end), segment.lengths[end], target.index, batch.times[end]};
      if (n == CHUNK) {
        hand(queue, *running, n);
        n = 0;
      }
    }
    if (running != nullptr) {
      if (n > 0) hand(queue, *running, n);
      owner->give(segment.buffers + first, end - first);
    } else {
      queue.pass_on(source, batch.part(first, end - first));
    }
    first = end;
  }
  for (Running& running : plans_) running.assembler.publish();
}

void ReorderStage::hand(RxQueue& queue, Running& running, std::size_t n) noexcept {
  const ReorderSnapshot& tally = running.assembler.tally();
  const auto refused = [&] { return tally.duplicate + tally.late + tally.malformed; };
  const std::uint64_t refused_before = refused();
  const std::uint64_t no_buffer_before = tally.no_buffer;
  running.assembler.take({chunk_, n}, queue.pass_ns());
  if (const std::uint64_t more = refused() - refused_before; more > 0)
    queue.drop_staged(DropReason::REORDER, more);
  if (const std::uint64_t more = tally.no_buffer - no_buffer_before; more > 0)
    queue.drop_staged(DropReason::NO_PACKET_BUFFER, more);
}

std::uint64_t ReorderStage::expire(RxQueue& /*queue*/, std::uint64_t now_ns) noexcept {
  std::uint64_t next = 0;
  for (Running& running : plans_) {
    const std::uint64_t due = running.assembler.expire(now_ns);
    if (due != 0 && (next == 0 || due < next)) next = due;
    running.assembler.publish();
  }
  return next;
}

void ReorderStage::finish(RxQueue& /*queue*/) noexcept {
  for (Running& running : plans_) {
    running.assembler.finish();
    running.assembler.publish();
  }
}

std::uint64_t ReorderStage::discard() noexcept {
  std::uint64_t packets = 0;
  for (Running& running : plans_) {
    packets += running.assembler.discard();
    running.assembler.publish();
  }
  return packets;
}

std::vector<ReorderStage::Counters> ReorderStage::counters() const {
  std::vector<Counters> all;
  for (const Running& running : plans_) all.push_back({running.name, running.assembler.counters()});
  return all;
}

}  // namespace daqiri::reorder
