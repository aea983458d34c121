#include "reorder/preview.h"

#include <algorithm>
#include <new>
#include <utility>

namespace daqiri::reorder {

namespace {

/// The frame that is assembled, and the next.
constexpr std::size_t OTHERS = 2;

}  // namespace

Preview::Preview(const memory::MemoryRegion& region) noexcept
    : region_(region),
      others_(static_cast<std::uint32_t>(std::min(OTHERS, region.config().num_bufs_ - 1))) {}

void Preview::hold(Burst& frame, bool unread) noexcept {
  if (!unread && region_.available() < others_) return;
  wanted_.store(false, std::memory_order_relaxed);
  frame.holders.fetch_add(1, std::memory_order_relaxed);
  // A reader that came meanwhile found no frame and requested one: the next one replaces this.
  static_cast<void>(take(&frame));
}

FrameCopy Preview::newer(std::uint64_t after) {
  const std::lock_guard lock(mutex_);
  copy_held();
  wanted_.store(true, std::memory_order_relaxed);
  return latest_.number > after && latest_.data != nullptr ? latest_ : FrameCopy();
}

void Preview::forget() noexcept {
  const std::lock_guard lock(mutex_);
  drop();
  FrameCopy none;
  none.number = latest_.number;
  latest_ = std::move(none);
}

void Preview::stop() noexcept {
  const std::lock_guard lock(mutex_);
  try {
    copy_held();
  } catch (const std::bad_alloc&) {
    return;
  }
}

void Preview::copy_held() {
  const Held frame = take();
  if (frame == nullptr) return;
  const std::size_t bytes = frame->pkt_lens[0][0];
  std::unique_ptr<std::byte[]> data = std::make_unique_for_overwrite<std::byte[]>(bytes);
  // Its receiver may change `pkts`, and free what they lead to.
  const void* const from = region_.address(frame->buffers[0][0]);
  if (!region_.copy_to_host(from, data.get(), bytes)) return;
  ReorderBurstInfo info = frame->reorder;
  auto columns = std::make_unique<std::uint64_t[]>(info.num_column_values);
  std::copy_n(info.columns, info.num_column_values, columns.get());
  if (info.num_column_values > 0) info.columns = columns.get();
  latest_ = {.number = latest_.number + 1,
             .data = std::move(data),
             .bytes = bytes,
             .info = info,
             .columns = std::move(columns),
             .first_time = frame->timestamps[0],
             .last_time = frame->last_time,
             .missing = frame->missing};
}

}  // namespace daqiri::reorder
