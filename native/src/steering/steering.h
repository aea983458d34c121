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
#include "steering/recent_verdicts.h"

namespace daqiri::steering {

/// Threads that steer use a Reader, and the same program from the beginning to the end of a pass. A
/// program lives until no pass uses it: readers take no lock and free nothing.
class Steering {
 public:
  Steering() : program_(std::make_shared<const Program>()), current_(program_.get()) {}

  /// Replace the program, and wait until no pass uses the previous one. Any thread that is not in a
  /// pass. Throws std::bad_alloc.
  void publish(std::shared_ptr<const Program> program);
  /// Make space in the tallies for the counters of a program's flows, before it is published.
  /// Throws std::bad_alloc.
  void grow(const Program& program);
  [[nodiscard]] std::shared_ptr<const Program> program() const;

  /// Add a tally for a thread that steers; lives as long as this object. Throws std::bad_alloc.
  [[nodiscard]] FlowTally& add_tally() const;
  /// Sum of all threads' counts for a position. Any thread.
  [[nodiscard]] FlowSnapshot counts(std::size_t position) const;

  /// Used by one thread, except for construction and destruction.
  class Reader {
   public:
    explicit Reader(const Steering& steering);
    Reader(const Reader&) = delete;
    Reader& operator=(const Reader&) = delete;
    ~Reader();

    /// Begin a pass; ends the previous one.
    const Program& refresh() noexcept {
      const std::uint64_t passes = passes_.load(std::memory_order_relaxed);
      // If `publish` sees no pass after this store, its program is already the one that is loaded
      // next.
      passes_.store((passes + 2) | 1U, std::memory_order_seq_cst);
      program_ = steering_.current_.load(std::memory_order_seq_cst);
      recent_.use(*program_);
      return *program_;
    }
    /// The program of this pass.
    [[nodiscard]] const Program& program() const noexcept { return *program_; }
    /// Program::classify of a frame whose first `captured` bytes, with all headers, are at `frame`.
    /// The verdict is valid until the next call.
    const Verdict& classify(const std::uint8_t* frame, std::uint32_t captured,
                            std::uint32_t length) noexcept {
      return recent_.classify(*program_, frame, captured, length);
    }
    /// The verdict of `classify`, if it was asked for such a frame shortly before; null: it was
    /// not. Valid until the next `classify` or `refresh`; until then, frames with one verdict give
    /// one address.
    [[nodiscard]] const Verdict* recent(const std::uint8_t* frame,
                                        std::uint32_t captured) noexcept {
      return recent_.find(frame, captured);
    }
    /// What frames have that get the verdict which `recent` has returned last.
    [[nodiscard]] RecentVerdicts::Latest latest() const noexcept { return recent_.latest(); }
    /// End the pass, because the next one may begin much later.
    void rest() noexcept {
      passes_.store(passes_.load(std::memory_order_relaxed) & ~std::uint64_t{1},
                    std::memory_order_release);
    }

   private:
    friend class Steering;
    const Steering& steering_;
    const Program* program_{nullptr};
    RecentVerdicts recent_;
    /// Changes with each pass; odd during a pass.
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

  /// Held while a program is published; locked before the other mutexes.
  std::mutex publishing_;
  mutable std::mutex mutex_;
  std::shared_ptr<const Program> program_;
  mutable std::deque<FlowTally> tallies_;
  /// Held while passes of readers are waited for, because readers are added and removed at any
  /// time.
  mutable std::mutex readers_mutex_;
  mutable std::vector<const Reader*> readers_;
  std::atomic<const Program*> current_;
};

}  // namespace daqiri::steering
