/// Copies of payloads that are done without the plan's lock.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "reorder/assembler.h"
#include "reorder/mover.h"
#include "reorder/plan.h"

namespace daqiri::reorder {

/// Packets that follow each other in a frame.
struct Run {
  std::byte* to;
  /// The frame's buffer, and the output bytes of one packet.
  std::uint32_t frame;
  std::uint32_t slot_bytes;
  const Packet* packets;
  const Found* found;
  std::uint32_t size;
};

/// Notes the copies of one call, and the frames to fill, for the poller to do once it has released
/// the plan's lock: pollers of several queues copy at the same time. In the poller's own memory:
/// what others have written takes longer to write than the rest of the work.
class DeferredCopies final : public Copier {
 public:
  /// Packets in one call.
  static constexpr std::size_t MOST = 128;

  /// `open`: counts the plan's pending copies.
  DeferredCopies(const Plan& plan, OpenCopies& open) noexcept : plan_(plan), open_(open) {}

  Transfer* transfers() noexcept override { return copies_.data() + count_; }
  void move(std::span<const Transfer> copies) noexcept override {
    count_ += copies.size();
    for_runs(copies, [this](std::uint32_t frame, std::uint32_t n) { open_.add(frame, n); });
  }
  void move_run(const Run& run) noexcept {
    open_.add(run.frame, run.size);
    runs_[num_runs_++] = run;
  }
  /// Fill a frame before it is handed on. Returns false if the caller has to do it.
  bool fill_later(std::uint32_t frame, const Filling& filling) noexcept {
    if (num_fillings_ == fillings_.size()) return false;
    open_.add(frame);
    fillings_[num_fillings_++] = {frame, filling};
    return true;
  }
  /// Do the copies. Call without the plan's lock.
  void perform(FrameWaiter& waiter) noexcept {
    // A frame is handed on before the next one is copied: its receiver frees its buffer.
    for (const Run& run : std::span(runs_.data(), num_runs_)) {
      for (std::uint32_t i = 0; i < run.size; ++i) {
        const Place& place = run.found[i].place;
        plan_.place(run.to, plan_.begin_of(place.slot, run.slot_bytes),
                    reinterpret_cast<const std::byte*>(run.packets[i].data) + place.payload_at,
                    place.payload_bytes);
      }
      settled(run.frame, run.size, waiter);
    }
    const Transfer* each = copies_.data();
    for_runs({each, count_}, [&](std::uint32_t frame, std::uint32_t n) {
      for (const Transfer* const end = each + n; each < end; ++each)
        plan_.place(each->to, each->at, each->from, each->bytes);
      settled(frame, n, waiter);
    });
    for (const auto& [frame, filling] : std::span(fillings_.data(), num_fillings_)) {
      plan_.fill(filling);
      if (open_.finish(frame, 1)) waiter.frame_done(frame, true);
    }
  }

 private:
  /// This many copies to a frame are done.
  void settled(std::uint32_t frame, std::uint32_t copies, FrameWaiter& waiter) noexcept {
    plan_.settle();
    if (open_.finish(frame, copies)) waiter.frame_done(frame, true);
  }
  /// Calls `each(frame, n)` for every run of copies to one frame: the count of a frame is in the
  /// cache of another poller.
  template <typename Each>
  static void for_runs(std::span<const Transfer> copies, Each each) noexcept {
    for (std::size_t i = 0; i < copies.size();) {
      const std::size_t first = i;
      while (i < copies.size() && copies[i].frame == copies[first].frame) ++i;
      each(copies[first].frame, static_cast<std::uint32_t>(i - first));
    }
  }

  const Plan& plan_;
  OpenCopies& open_;
  std::array<Transfer, MOST> copies_;
  std::size_t count_{0};
  /// Each has two packets, or more.
  std::array<Run, MOST / 2> runs_;
  std::size_t num_runs_{0};
  std::array<std::pair<std::uint32_t, Filling>, 8> fillings_;
  std::size_t num_fillings_{0};
};

}  // namespace daqiri::reorder
