#include "cuda/packet_copies.h"

#include <utility>

#include "daqiri/error.h"

namespace daqiri::cuda {

namespace {

constexpr std::uint32_t MOST_COPIES = PinnedLaunch::MOST_COPIES;

/// A kernel that copies bytes unchanged, and fills with zeros.
Kernel make_kernel(const std::string& what, int gpu) {
  const ReorderConfig bytes;
  return {Context(what, gpu), bytes, what, Geometry::of(bytes.data_types_, 0)};
}

}  // namespace

PacketCopies::PacketCopies(std::ptrdiff_t distance, std::string what, int gpu)
    : DeviceCopies(distance), what_(std::move(what)), gpu_(gpu), kernel_(make_kernel(what_, gpu_)) {
  const Context context(what_, gpu_);
  require(context, context.driver().call().make_stream(stream_.out(context), STREAM_FLAGS));
  for (PinnedLaunch& launch : launches_) require(context, launch.make(context));
}

PacketCopies::~PacketCopies() {
  // Kernels may be running.
  with_context(gpu_, [this](const Functions& call) { call.wait_for_stream(stream_.get()); });
}

cudaEvent_t PacketCopies::to_device(const Packets& packets, cudaEvent_t after) {
  const std::lock_guard lock(mutex_);
  const Context context(what_, gpu_);
  flush(context);
  if (after != nullptr)
    require(context, context.driver().call().let_stream_wait(stream_.get(), after, 0));
  begun_ = copy(context, packets, &PacketCopies::on_device);
  return static_cast<cudaEvent_t>(begun_);
}

void PacketCopies::to_host(const Packets& packets, Behind behind) {
  const Context context(what_, gpu_);
  // Kernels of the application may wait for packets that other threads receive, so no lock is held
  // here.
  if (behind == Behind::EVERYTHING) require(context, context.driver().call().synchronize());
  flush(context);
  std::unique_lock lock(mutex_);
  void* const event = copy(context, packets, &PacketCopies::on_host);
  lock.unlock();
  require(context, context.driver().call().wait_for_event(event));
}

void* PacketCopies::copy(const Context& context, const Packets& packets, Place place) {
  return launch(context, packets.count, [&](std::uint32_t& i, Copy* copies) {
    std::uint32_t n = 0;
    for (; i < packets.count && n < MOST_COPIES; ++i) {
      void* const from = packets.addresses[i];
      if (from != nullptr && packets.bytes[i] > 0)
        copies[n++] = {address_of((this->*place)(from)), address_of(from), packets.bytes[i]};
    }
    return n;
  });
}

void PacketCopies::gather(const Packets& packets, std::uint64_t to, std::size_t width) {
  const Context context(what_, gpu_);
  std::unique_lock lock(mutex_);
  void* const event = launch(context, packets.count, [&](std::uint32_t& i, Copy* copies) {
    std::uint32_t n = 0;
    for (; i < packets.count && n + 1 < MOST_COPIES; ++i, to += width) {
      const std::uint32_t bytes = packets.addresses[i] == nullptr ? 0 : packets.bytes[i];
      if (bytes > 0) copies[n++] = {to, address_of(packets.addresses[i]), bytes};
      if (bytes < width) copies[n++] = {to + bytes, 0, width - bytes};
    }
    return n;
  });
  lock.unlock();
  require(context, context.driver().call().wait_for_event(event));
}

void PacketCopies::wait_for(cudaEvent_t event) {
  if (event == nullptr) return;
  const Context context(what_, gpu_);
  require(context, context.driver().call().wait_for_event(event));
}

void PacketCopies::finish() noexcept {
  try {
    std::unique_lock lock(mutex_);
    void* const begun = begun_;
    lock.unlock();
    wait_for(static_cast<cudaEvent_t>(begun));
  } catch (const std::exception&) {
    // The GPU has failed.
    return;
  }
}

template <typename Fill>
void* PacketCopies::launch(const Context& context, std::uint32_t packets, Fill fill) {
  const Functions& call = context.driver().call();
  for (std::uint32_t done = 0;;) {
    const PinnedLaunch& next = launches_[next_];
    // The GPU may still read its copies; an event that was never recorded is complete. Reusing an
    // event means that its waiters also wait for later launches.
    require(context, call.wait_for_event(next.event.get()));
    const std::uint32_t n = fill(done, next.copies());
    if (n > 0) require(context, kernel_.launch(call, next.copies(), n, stream_.get()));
    require(context, call.record_event(next.event.get(), stream_.get()));
    next_ = (next_ + 1) % launches_.size();
    if (done == packets) return next.event.get();
  }
}

bool PacketCopies::flush() const noexcept {
  if (!flushes_) return true;
  try {
    flush(Context(what_, gpu_));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

void PacketCopies::flush(const Context& context) const {
  /// CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, and its TO_OWNER.
  constexpr int TARGET = 0;
  constexpr int TO_OWNER = 100;
  if (flushes_) require(context, context.driver().call().flush_writes(TARGET, TO_OWNER));
}

void PacketCopies::require(const Context& context, Result result) const {
  if (result == 0) return;
  throw Error(Status::GENERIC_FAILURE,
              what_ + ": packets cannot be copied on GPU " + std::to_string(gpu_) + " (" +
                  context.driver().text_of(result) + "); " + Driver::remedy(result));
}

}  // namespace daqiri::cuda
