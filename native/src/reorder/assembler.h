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

/// packets = placed + duplicate + late + malformed + no_buffer, in every snapshot.
struct ReorderSnapshot {
  /// Packets of the plan's flows.
  Counter packets{"packets"};
  /// Packets in a frame.
  Counter placed{"placed"};
  /// Packets whose slot was already filled.
  Counter duplicate{"duplicate"};
  /// Packets whose frame was closed.
  Counter late{"late"};
  /// Packets that are too short for their fields, differ in length from the frame's other packets,
  /// or have a position outside the frame.
  Counter malformed{"malformed"};
  /// Packets of a frame that had no free buffer when it began.
  Counter no_buffer{"no_buffer"};
  /// Closed frames, with all or only some of their packets.
  Counter complete{"complete"};
  Counter incomplete{"incomplete"};
  /// Packets missing from incomplete frames. For plans by byte offsets: elements.
  Counter missing{"missing"};
  /// Frames that are not delivered: no buffer was free when they began, they were flushed, or their
  /// copies failed; the latter count as closed, too.
  Counter lost{"lost"};
  /// Restarts of the batch numbers.
  Counter restarts{"restarts"};
};

/// A packet of one of a plan's flows.
struct Packet {
  const std::uint8_t* data;
  std::uint32_t length;
  /// Index in Plan::flow_ids.
  std::uint32_t flow;
  /// Arrival, ns; 0: unknown.
  std::uint64_t time;
  /// Its buffer, for movers; see Transfer::owner.
  memory::BufferOwner* owner{nullptr};
  std::uint32_t buffer{0};
};

/// A closed batch. The receiver owns the buffer.
struct Frame {
  std::uint32_t buffer;
  std::byte* data;
  ReorderBurstInfo info;
  /// Bit i of word i / 64: unit i (Plan::units) holds a packet's data, not the fill value. Valid
  /// until the buffer is freed.
  const std::uint64_t* valid;
  /// Arrival of its first and its last packet.
  std::uint64_t first_time;
  std::uint64_t last_time;
  /// Missing packets; for plans by byte offsets: elements.
  std::uint32_t missing;
  /// Number of batches that began before it.
  std::uint64_t order;
};

/// Receiver of frames.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// A frame begins in this buffer. Returns false if it could not be delivered later; then it is
  /// lost.
  virtual bool begin(std::uint32_t buffer) noexcept = 0;
  virtual void take(const Frame& frame) noexcept = 0;
  /// Discard the contents of the buffer, which the receiver owns.
  virtual void discard(std::uint32_t buffer) noexcept = 0;
};

/// Validity bits of the frames in a region's buffers. Must live as long as any frame is in use.
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

/// The numbers in packets define their batch. `Plan::window` batches are open at once: the newest,
/// and those directly before it. A batch is closed by its last packet, by a packet of a batch that
/// is `window` later, or by the timeout. Missing data are filled.
///
/// Numbers wrap: up to half of all numbers ahead of the newest are later, the rest are earlier. If
/// as many late packets arrive in a row as the window holds, the numbers have restarted.
///
/// One thread at a time.
class Assembler {
 public:
  /// `output`: each buffer holds one batch; `valid` has bits for its buffers.
  Assembler(const Plan& plan, memory::MemoryRegion& output, const ValidBits& valid,
            FrameSink& sink);
  /// Let `mover` fill missing parts of frames, as required for GPU memory. Call before packets
  /// arrive.
  void fill_with(Mover& mover) noexcept { fills_ = &mover; }

  /// Place packets. `now_ns`: CLOCK_MONOTONIC. With a mover, their buffers are freed now or after
  /// it has moved them; without one, packets are not read after the call.
  void take(std::span<const Packet> packets, std::uint64_t now_ns, Mover* mover = nullptr) noexcept;
  /// Close batches that have waited long enough. Returns when to call it again; 0: not needed.
  std::uint64_t expire(std::uint64_t now_ns) noexcept;
  /// Close all batches.
  void finish() noexcept;
  /// Discard all open batches and the position in the batch numbers.
  void discard() noexcept;
  /// Count frames that were completed and discarded.
  void count_lost(std::uint64_t n) noexcept { tally_.lost += n; }

  /// Number of batches that have begun.
  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_batches_; }
  [[nodiscard]] const ReorderSnapshot& tally() const noexcept { return tally_; }

 private:
  struct Batch {
    /// Unwrapped batch number.
    std::uint64_t number{0};
    std::uint32_t raw{0};
    std::byte* data{nullptr};
    std::uint64_t* valid{nullptr};
    std::uint32_t buffer{0};
    /// Number of valid slots or elements.
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
    /// Whether `number` is the number of a batch.
    bool used{false};
  };
  enum class End : std::uint8_t { COMPLETE, WINDOW, TIMEOUT };
  enum class Claim : std::uint8_t { FREE, TAKEN, OVERLAPS };

  /// Place a packet. Returns false if it is in no frame.
  bool take(const Packet& packet, std::uint64_t now_ns) noexcept;
  /// Returns the open batch of a packet with this number and this many units; null: it is late.
  Batch* batch_of(std::uint32_t raw, std::uint32_t units, std::uint64_t now_ns) noexcept;
  /// Begin with a batch, as if there were none before.
  void begin(std::uint32_t raw) noexcept;
  /// Set the newest batch; close batches that leave the window.
  void advance(std::uint64_t newest) noexcept;
  void open(Batch& batch, std::uint64_t number, std::uint32_t raw, std::uint64_t now_ns) noexcept;
  bool place(Batch& batch, const Place& place, const Packet& packet) noexcept;
  /// Mark units as valid, if none of them is.
  static Claim claim(std::uint64_t* valid, std::uint32_t first, std::uint32_t units) noexcept;
  void close(Batch& batch, End end) noexcept;
  /// Write the fill value where packets are missing.
  void fill(const Batch& batch) const noexcept;
  /// Pass pending copies to the mover; without one, make completed copies visible to other threads.
  void settle() noexcept;

  [[nodiscard]] Batch& at(std::uint64_t number) noexcept {
    return batches_[number % batches_.size()];
  }

  static constexpr std::size_t CHUNK = 32;

  const Plan& plan_;
  memory::MemoryRegion& output_;
  const ValidBits& valid_;
  FrameSink& sink_;
  /// Most output bytes per packet, so that all packets of a batch fit. Not for byte offsets.
  std::uint64_t most_output_;
  /// By number modulo the window.
  std::vector<Batch> batches_;
  /// The batch of the latest packet.
  Batch* latest_{nullptr};
  bool begun_{false};
  std::uint64_t newest_{0};
  /// Units of late packets in a row.
  std::uint64_t late_units_{0};
  std::uint32_t num_open_{0};
  std::uint64_t begun_batches_{0};
  /// Mover of the current call of `take`.
  Mover* mover_{nullptr};
  Mover* fills_{nullptr};
  Transfer copies_[CHUNK];
  std::size_t num_copies_{0};
  ReorderSnapshot tally_;
};

}  // namespace daqiri::reorder
