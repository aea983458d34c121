/// Threads that move payloads to their places.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "memory/buffers.h"
#include "reorder/plan.h"
#include "system/doorbell.h"

namespace daqiri::reorder {

/// A payload on its way to a frame.
struct Transfer {
  std::byte* to;
  const std::byte* from;
  std::uint32_t bytes;
  /// The frame's buffer.
  std::uint32_t frame;
  /// The packet's buffer.
  memory::BufferOwner* owner;
  std::uint32_t buffer;
};

/// Does copies, in any order.
class Mover {
 public:
  virtual ~Mover() = default;
  /// The packets' buffers are its own, too.
  virtual void move(std::span<const Transfer> copies) noexcept = 0;
};

/// Who is told that all copies to a closed frame are done. Any thread.
class FrameWaiter {
 public:
  virtual ~FrameWaiter() = default;
  virtual void frame_done(std::uint32_t frame) noexcept = 0;
};

/// A thread for each core that was given. What they have no room for, the caller does.
class Workers final : public Mover {
 public:
  /// `frames`: buffers that frames can be in.
  Workers(const Plan& plan, const std::vector<std::string>& cores, bool never_sleep,
          std::size_t frames, FrameWaiter& waiter);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// All copies are done then.
  ~Workers() override;

  /// By one thread at a time.
  void move(std::span<const Transfer> copies) noexcept override;
  /// No more copies to a frame follow. True: all are done, else `frame_done` tells. By the thread
  /// that moves.
  bool close(std::uint32_t frame) noexcept;

 private:
  /// One producer, one consumer.
  struct alignas(64) Worker {
    static constexpr std::size_t CAPACITY = 1024;
    std::string core;
    std::unique_ptr<Transfer[]> ring{std::make_unique<Transfer[]>(CAPACITY)};
    alignas(64) std::atomic<std::uint64_t> head{0};
    alignas(64) std::atomic<std::uint64_t> tail{0};
    Doorbell doorbell;
    std::jthread thread;
  };

  void run(Worker& worker, const std::stop_token& stop) noexcept;
  /// Do what waits; returns how much that was.
  std::size_t work(Worker& worker) noexcept;
  void finish(std::uint32_t frame, std::uint32_t copies) noexcept;

  const Plan& plan_;
  bool never_sleep_;
  FrameWaiter& waiter_;
  /// By frame: copies that are not done, and CLOSED.
  std::unique_ptr<std::atomic<std::uint32_t>[]> pending_;
  std::deque<Worker> workers_;
  std::size_t next_{0};
};

}  // namespace daqiri::reorder
