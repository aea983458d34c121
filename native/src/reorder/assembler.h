/// Assembles packets of a plan into frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "daqiri/burst.h"
#include "daqiri/reorder.h"
#include "memory/region.h"
#include "metrics/counters.h"
#include "reorder/mover.h"
#include "reorder/plan.h"

namespace daqiri::reorder {

/// packets = placed + duplicate + late + malformed + no_buffer, at any snapshot.
struct ReorderSnapshot {
  /// Packets of the plan's flows.
  Counter packets{"packets"};
  /// In a frame.
  Counter placed{"placed"};
  /// The frame had its slot already.
  Counter duplicate{"duplicate"};
  /// The frame was closed.
  Counter late{"late"};
  /// Too short for its fields, another length than its frame's packets, a place beyond the frame.
  Counter malformed{"malformed"};
  /// When the frame began, no buffer was free.
  Counter no_buffer{"no_buffer"};
  /// Frames that were closed, with all of their packets and with some.
  Counter complete{"complete"};
  Counter incomplete{"incomplete"};
  /// Packets that incomplete frames lack. Of plans by byte offsets: elements.
  Counter missing{"missing"};
  /// Frames that nobody gets: when they began, no buffer was free, they were flushed, or their
  /// copies failed; the latter are closed as well.
  Counter lost{"lost"};
  /// Times that numbers began anew.
  Counter restarts{"restarts"};
};

/// A packet of one of a plan's flows.
struct Packet {
  const std::uint8_t* data;
  std::uint32_t length;
  /// Its place in Plan::flow_ids.
  std::uint32_t flow;
  /// Arrival, ns; 0: not known.
  std::uint64_t time;
  /// Where it lies, for movers; as Transfer::owner.
  memory::BufferOwner* owner{nullptr};
  std::uint32_t buffer{0};
};

/// A closed batch. The buffer is the taker's.
struct Frame {
  std::uint32_t buffer;
  std::byte* data;
  ReorderBurstInfo info;
  /// Bit i of word i / 64: unit i (Plan::units) holds a packet's data, not the fill value. As long
  /// as the buffer is not given back.
  const std::uint64_t* valid;
  /// Of its first and its last packet.
  std::uint64_t first_time;
  std::uint64_t last_time;
  /// Packets that it lacks; of plans by byte offsets: elements.
  std::uint32_t missing;
  /// Batches that were begun before it.
  std::uint64_t order;
};

/// Who takes frames.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  virtual void take(const Frame& frame) noexcept = 0;
  /// Nobody wants what is in the buffer, which is the taker's.
  virtual void discard(std::uint32_t buffer) noexcept = 0;
};

/// Validity of the frames in a region's buffers. Lives as long as anybody looks at a frame.
class ValidBits {
 public:
  ValidBits(std::size_t buffers, std::uint32_t units)
      : words_((std::size_t{units} + 63) / 64),
        bits_(std::make_unique<std::uint64_t[]>(buffers * words_)) {}
  [[nodiscard]] std::size_t words() const noexcept { return words_; }
  [[nodiscard]] std::uint64_t* of(std::uint32_t buffer) const noexcept {
    return bits_.get() + buffer * words_;
  }

 private:
  std::size_t words_;
  std::unique_ptr<std::uint64_t[]> bits_;
};

/// A batch is what its packets' numbers say. `Plan::window` of them are open at once: the newest,
/// and those right before it. One is closed by its last packet, by a packet of a batch that is
/// `window` later, or by the timeout. What it lacks is filled.
///
/// Numbers wrap: up to half of all numbers ahead of the newest is later, the rest is earlier. When
/// as many packets as the window holds have come late, and none in between was not, the numbers
/// have begun anew.
///
/// One thread at a time.
class Assembler {
 public:
  /// `output` holds a batch in a buffer; `valid` has room for the buffers of it.
  Assembler(const Plan& plan, memory::MemoryRegion& output, const ValidBits& valid,
            FrameSink& sink);
  /// Missing parts of frames are filled by `mover`, which they need: the memory is a GPU's. Before
  /// packets come.
  void fill_with(Mover& mover) noexcept { fills_ = &mover; }

  /// Place packets. `now_ns`: CLOCK_MONOTONIC. With a mover, their buffers are given back, now or
  /// when it has moved them; without, none of them is looked at later.
  void take(std::span<const Packet> packets, std::uint64_t now_ns, Mover* mover = nullptr) noexcept;
  /// Close what has waited long enough. Returns when to be called again; 0: there is no need to.
  std::uint64_t expire(std::uint64_t now_ns) noexcept;
  /// Close all.
  void finish() noexcept;
  /// Forget all open batches, and where the numbers are.
  void discard() noexcept;
  /// Frames that were taken and thrown away.
  void count_lost(std::uint64_t n) noexcept { tally_.lost += n; }

  /// Batches that were begun.
  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_batches_; }
  [[nodiscard]] const ReorderSnapshot& tally() const noexcept { return tally_; }

 private:
  struct Batch {
    /// Unwrapped.
    std::uint64_t number{0};
    std::uint32_t raw{0};
    std::byte* data{nullptr};
    std::uint64_t* valid{nullptr};
    std::uint32_t buffer{0};
    /// Slots or elements.
    std::uint32_t units{0};
    std::uint32_t packets{0};
    std::uint32_t payload_bytes{0};
    /// Output bytes of one packet.
    std::uint32_t slot_bytes{0};
    std::uint64_t first_time{0};
    std::uint64_t last_time{0};
    std::uint64_t begun_ns{0};
    std::uint64_t order{0};
    bool open{false};
    /// False: `number` is of no batch.
    bool used{false};
  };
  enum class End : std::uint8_t { COMPLETE, WINDOW, TIMEOUT };
  enum class Claim : std::uint8_t { FREE, TAKEN, OVERLAPS };

  /// Place a packet. False: it is in no frame.
  bool take(const Packet& packet, std::uint64_t now_ns) noexcept;
  /// The open batch that a packet with this number, of so many units, belongs to; null: it is late.
  Batch* batch_of(std::uint32_t raw, std::uint32_t units, std::uint64_t now_ns) noexcept;
  /// Begin with a batch, as if there had been none before.
  void begin(std::uint32_t raw) noexcept;
  /// The newest batch is another; those that fall out of the window are closed.
  void advance(std::uint64_t newest) noexcept;
  void open(Batch& batch, std::uint64_t number, std::uint32_t raw, std::uint64_t now_ns) noexcept;
  bool place(Batch& batch, const Place& place, const Packet& packet) noexcept;
  /// Mark units as valid, when none of them is.
  static Claim claim(std::uint64_t* valid, std::uint32_t first, std::uint32_t units) noexcept;
  void close(Batch& batch, End end) noexcept;
  /// Write the fill value where packets are missing.
  void fill(const Batch& batch) const noexcept;
  /// Hand on the copies that are noted; those that are done are there for others.
  void settle() noexcept;

  [[nodiscard]] Batch& at(std::uint64_t number) noexcept {
    return batches_[number % batches_.size()];
  }

  static constexpr std::size_t CHUNK = 32;

  const Plan& plan_;
  memory::MemoryRegion& output_;
  const ValidBits& valid_;
  FrameSink& sink_;
  /// Most output bytes of a packet: all of a batch have room. Not by byte offsets.
  std::uint64_t most_output_;
  /// By number modulo the window.
  std::vector<Batch> batches_;
  /// The one that had the latest packet.
  Batch* latest_{nullptr};
  bool begun_{false};
  std::uint64_t newest_{0};
  /// Of packets in a row that were late.
  std::uint64_t late_units_{0};
  std::uint32_t num_open_{0};
  std::uint64_t begun_batches_{0};
  /// Of the call of `take` that goes on.
  Mover* mover_{nullptr};
  Mover* fills_{nullptr};
  Transfer copies_[CHUNK];
  std::size_t num_copies_{0};
  ReorderSnapshot tally_;
};

}  // namespace daqiri::reorder
