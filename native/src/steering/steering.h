/// The current steering program, which can be replaced while packets are steered.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "metrics/counters.h"
#include "steering/classifier.h"
#include "steering/flow_tally.h"

namespace daqiri::steering {

/// Whoever steers holds a Reader, and is on the latest program from the beginning of a pass to its
/// end. A program lives until no pass is on it: readers take no lock and free nothing.
class Steering {
 public:
  Steering() : program_(std::make_shared<const Program>()), current_(program_.get()) {}

  /// Puts another program in force, and waits until no pass is on the one before. Any thread but
  /// one that is in a pass. Throws std::bad_alloc.
  void publish(std::shared_ptr<const Program> program);
  [[nodiscard]] std::shared_ptr<const Program> program() const;

  /// For a thread that steers; as long-lived as this. Throws std::bad_alloc.
  [[nodiscard]] FlowTally& add_tally() const;
  /// What all threads together have steered to a position. Any thread.
  [[nodiscard]] FlowSnapshot counts(std::size_t position) const;

  /// One thread, but to make and to end it.
  class Reader {
   public:
    explicit Reader(const Steering& steering);
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader();

    /// Begins a pass, and ends the one before.
    const Program& refresh() noexcept {
      const std::uint64_t passes = passes_.load(std::memory_order_relaxed);
      // Whoever publishes, and sees no pass after that, has put its program where this looks next.
      passes_.store((passes + 2) | 1U, std::memory_order_seq_cst);
      program_ = steering_.current_.load(std::memory_order_seq_cst);
      return *program_;
    }
    /// Of this pass.
    [[nodiscard]] const Program& program() const noexcept { return *program_; }
    /// Ends the pass: it may be long until the next one.
    void rest() noexcept {
      passes_.store(passes_.load(std::memory_order_relaxed) & ~std::uint64_t{1},
                    std::memory_order_release);
    }

   private:
    friend class Steering;
    const Steering& steering_;
    const Program* program_{nullptr};
    /// Changes with each pass; odd: in one.
    std::atomic<std::uint64_t> passes_{0};
  };

  /// A pass that ends with a scope.
  class Pass {
   public:
    explicit Pass(Reader& reader) noexcept : reader_(reader) { reader_.refresh(); }
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;
    ~Pass() { reader_.rest(); }
    [[nodiscard]] const Program& program() const noexcept { return reader_.program(); }

   private:
    Reader& reader_;
  };

 private:
  void wait_for_passes() const;

  /// One program after the other; before the others.
  std::mutex publishing_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Program> program_;
  mutable std::deque<FlowTally> tallies_;
  /// Readers come and go with the engine: held for as long as their passes are waited for.
  mutable std::mutex readers_mutex_;
  mutable std::vector<const Reader*> readers_;
  std::atomic<const Program*> current_;
};

}  // namespace daqiri::steering
