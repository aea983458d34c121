#include "reorder/stage.h"

#include <algorithm>

namespace daqiri::reorder {

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
  for (RunningPlan* plan : plans_) {
    const std::uint32_t gate = plan->find_gate(batch);
    if (gate == batch.count) continue;
    if (gate > 0) take(queue, source, batch.part(0, gate));
    plan->pass_gate(batch.times[gate]);
    return take(queue, source, batch.part(gate, batch.count - gate));
  }
  const bool recorded = queue.recorded();
  const RxBatch::Segment& segment = batch.segments[0];
  memory::BufferOwner* const owner = queue.owner_of(batch, 0);
  const auto data_of = [&](std::uint32_t i) {
    const void* data =
        segment.data != nullptr ? segment.data[i] : queue.region(0).address(segment.buffers[i]);
    return static_cast<const std::uint8_t*>(data);
  };
  for (std::uint32_t first = 0; first < batch.count;) {
    RunningPlan* const plan = target_of(batch.flows[first]).plan;
    const bool frees = plan != nullptr && plan->frees_packets() && !recorded;
    // A run of packets of one plan, or of none.
    std::uint32_t end = first;
    for (; end < batch.count; ++end) {
      const Target& target = target_of(batch.flows[end]);
      if (target.plan != plan || (plan != nullptr && end - first == chunk_.size())) break;
      if (plan == nullptr) continue;
      chunk_[end - first] = {data_of(end),     segment.lengths[end],    target.index,
                             batch.times[end], frees ? owner : nullptr, segment.buffers[end]};
    }
    const std::uint32_t n = end - first;
    if (plan != nullptr) plan->take({chunk_.data(), n}, queue.pass_ns(), recorded);
    if (plan != nullptr && !frees && !recorded) owner->give(segment.buffers + first, n);
    if (plan == nullptr || recorded) {
      queue.pass_on(source, batch.part(first, n));
    } else {
      queue.count_taken(n);
    }
    first = end;
  }
}

std::uint64_t ReorderStage::expire(std::uint64_t now_ns) noexcept {
  std::uint64_t next = 0;
  for (RunningPlan* plan : plans_) {
    const std::uint64_t due = plan->expire(now_ns);
    if (due != 0 && (next == 0 || due < next)) next = due;
  }
  return next;
}

void ReorderStage::finish() noexcept {
  for (RunningPlan* plan : plans_) plan->finish();
}

void ReorderStage::discard() noexcept {
  for (RunningPlan* plan : plans_)
    if (!plan->taken()) plan->discard();
}

bool ReorderStage::taken() const noexcept {
  return std::ranges::any_of(plans_, [](const RunningPlan* plan) { return plan->taken(); });
}

Burst* ReorderStage::receive() noexcept {
  for (RunningPlan* plan : plans_) plan->note_reader();
  for (RunningPlan* plan : plans_) {
    if (Burst* burst = plan->receive()) return burst;
  }
  return nullptr;
}

bool ReorderStage::ready() const noexcept {
  return std::ranges::any_of(plans_, [](const RunningPlan* plan) { return plan->ready(); });
}

bool ReorderStage::finished() const noexcept {
  return std::ranges::all_of(plans_, [](const RunningPlan* plan) { return plan->finished(); });
}

}  // namespace daqiri::reorder
