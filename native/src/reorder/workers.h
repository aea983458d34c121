/// Threads that copy payloads to their positions.
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

#include "reorder/mover.h"
#include "reorder/plan.h"
#include "system/doorbell.h"

namespace daqiri::reorder {

/// One thread per configured core. If their rings are full, the caller does the copy.
class Workers final : public Mover {
 public:
  /// `frames`: number of buffers for frames.
  Workers(const Plan& plan, const std::vector<std::string>& cores, bool never_sleep,
          std::size_t frames, FrameWaiter& waiter);
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  /// Completes all copies.
  ~Workers() override;

  void move(std::span<const Transfer> copies) noexcept override;
  void fill(std::uint32_t /*frame*/, std::byte* to, std::uint64_t at,
            std::size_t bytes) noexcept override {
    plan_.fill(to, at, bytes);
  }
  void fill_gaps(std::uint32_t /*frame*/, std::byte* to) noexcept override { plan_.fill_gaps(to); }
  Copies close(std::uint32_t frame) noexcept override;

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
  /// Do pending copies; returns their number.
  std::size_t work(Worker& worker) noexcept;

  const Plan& plan_;
  bool never_sleep_;
  FrameWaiter& waiter_;
  OpenCopies open_;
  std::deque<Worker> workers_;
  std::size_t next_{0};
};

}  // namespace daqiri::reorder
