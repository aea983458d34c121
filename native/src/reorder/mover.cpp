#include "reorder/mover.h"

#include <atomic>

#include "daqiri/error.h"

namespace daqiri::reorder {

namespace {

constinit std::atomic<MakeGpuMover> registered{nullptr};

}  // namespace

void Mover::set_kernel(const FrameKernel* /*kernel*/, std::mutex& /*callers*/) {
  throw Error(Status::NOT_SUPPORTED, "kernels process frames on a GPU only; set reorder_type: gpu");
}

void Mover::set_stream(void* /*stream*/, std::mutex& /*callers*/) {
  throw Error(Status::NOT_SUPPORTED, "streams are for GPUs only; set reorder_type: gpu");
}

RegisteredGpuMover::RegisteredGpuMover(MakeGpuMover make) noexcept {
  registered.store(make, std::memory_order_release);
}

std::unique_ptr<Mover> make_gpu_mover(const Plan& plan, const ReorderConfig& config,
                                      const memory::MemoryRegion& output, FrameWaiter& waiter) {
  const MakeGpuMover make = registered.load(std::memory_order_acquire);
  if (make == nullptr)
    throw Error(Status::NOT_SUPPORTED,
                "this build does not reorder on a GPU; set reorder_type: cpu");
  return make(plan, config, output, waiter);
}

}  // namespace daqiri::reorder
