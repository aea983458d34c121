/// Assembles packets of a plan into frames.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "daqiri/burst.h"
#include "daqiri/reorder.h"
#include "memory/region.h"
#include "metrics/counters.h"
#include "reorder/columns.h"
#include "reorder/mover.h"
#include "reorder/plan.h"

namespace daqiri::reorder {

class DeferredCopies;

/// packets = placed + duplicate + late + early + malformed + left_out + no_buffer, in every
/// snapshot.
struct ReorderSnapshot {
  /// Packets of the plan's flows.
  Counter packets{"packets"};
  /// Packets in a frame.
  Counter placed{"placed"};
  /// Packets whose slot was already filled.
  Counter duplicate{"duplicate"};
  /// Packets whose frame was closed.
  Counter late{"late"};
  /// Packets from before the acquisition: they arrived before it began, or belong to a frame that
  /// had begun.
  Counter early{"early"};
  /// Packets that are too short for their fields, differ in length from the frame's other packets,
  /// or have a position outside the frame.
  Counter malformed{"malformed"};
  /// Packets that do not fulfil the conditions.
  Counter left_out{"left_out"};
  /// Packets of a frame that had no free buffer when it began.
  Counter no_buffer{"no_buffer"};
  /// Delivered frames, with all or only some of their packets.
  Counter complete{"complete"};
  Counter incomplete{"incomplete"};
  /// Packets missing from incomplete frames. For plans by byte offsets: elements.
  Counter missing{"missing"};
  /// Frames that are not delivered: no buffer was free when they began, they were flushed, or their
  /// copies failed; the latter count as complete or incomplete, too.
  Counter lost{"lost"};
  /// Numbers before a delivered frame of which no packet came.
  Counter skipped{"skipped"};
  /// Complete and incomplete frames that no receiver read: freed for a newer frame, or discarded
  /// because a recorder began.
  Counter untaken{"untaken"};
  /// Times that the batch numbers began anew after a pause.
  Counter restarts{"restarts"};

  /// Frames that did not come, for either reason.
  [[nodiscard]] std::uint64_t absent() const noexcept { return lost + skipped; }
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

/// The place of a packet.
struct Found {
  Located located;
  /// How many packets, with this one, follow each other in its batch.
  std::uint32_t run;
  Place place;
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
  /// Its place in the acquisition, from 0: frames before it, with those that were skipped or lost.
  std::uint64_t index;
  /// Batches before it that were lost or skipped.
  std::uint64_t lost;
};

/// Receiver of frames.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  /// A frame begins in this buffer. Returns false if it could not be delivered later; then it is
  /// lost.
  virtual bool begin(std::uint32_t buffer) noexcept = 0;
  /// No buffer is free for a frame that begins. Returns whether to try again, because one that was
  /// delivered has been given up.
  virtual bool give_up_oldest() noexcept { return false; }
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

/// The numbers in packets define their batch. `Plan::window` batches are open at once. A batch is
/// closed by its last packet, by the first packet of another one if no more may be open and it has
/// the earliest number, or by the timeout. Missing data are filled.
///
/// Frames are delivered in the order of their numbers: a closed one waits until all that have begun
/// before it are closed. If numbers before it are absent, it waits until no more batches may be
/// open, or as long as the timeout.
///
/// Numbers wrap: up to half of all numbers ahead of the newest are later, the rest are earlier.
/// They begin with the first packet; until a frame is delivered, with the earliest. If no packet
/// was placed for PAUSE_NS, the first one that cannot be placed begins them anew. Of plans that
/// divide, sequence numbers go on after the last one, also in the next acquisition, or begin anew
/// near 0; where neither is certain, packets are late from then on.
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

  /// Place packets. `now_ns`: CLOCK_MONOTONIC. With a copier, their buffers are freed now or after
  /// it has read them; without one, packets are not read after the call.
  void take(std::span<const Packet> packets, std::uint64_t now_ns,
            Copier* copier = nullptr) noexcept;
  /// Find the places of packets; any thread. `found`: as many as packets.
  void locate(std::span<const Packet> packets, Found* found) const noexcept;
  /// As `take`, of packets that were located; both are not read after `copies.perform`.
  void take(std::span<const Packet> packets, const Found* found, std::uint64_t now_ns,
            DeferredCopies& copies) noexcept;
  /// Close batches that have waited long enough. Returns when to call it again; 0: not needed.
  std::uint64_t expire(std::uint64_t now_ns) noexcept;
  /// Close and deliver all batches.
  void finish() noexcept;
  /// Close and deliver batches of which no more packets are expected: those before the newest, and
  /// the newest if no packet was placed for IDLE_NS.
  void finish_idle(std::uint64_t now_ns) noexcept;
  /// Begin an acquisition: close and deliver all batches, and forget the numbers. Packets whose
  /// arrival is before `since` count as early for a second, in which all that waited before the
  /// engine comes out; after that, a clock may have been set. The remaining packets of the open
  /// batches are early, too. `first`: expected number of the first batch; earlier ones are early.
  /// Returns the order of the next batch. Throws std::bad_alloc.
  std::uint64_t begin_epoch(std::uint64_t since, std::uint64_t now_ns,
                            std::optional<std::uint64_t> first);
  /// There are no more acquisitions.
  void end_epochs() noexcept { acquiring_ = false; }
  /// Go on with the sequence numbers of another plan's assembler, which has discarded its batches.
  void continue_after(const Assembler& other) noexcept;
  /// Discard all batches and the position in the batch numbers.
  void discard() noexcept;

  /// Where the columns of its frames are.
  [[nodiscard]] const std::shared_ptr<const ColumnNumbers>& columns() const noexcept {
    return columns_;
  }
  /// Whether packets are late because their number is not known.
  [[nodiscard]] bool unknown() const noexcept { return unknown_; }
  /// Number of batches that have begun.
  [[nodiscard]] std::uint64_t begun() const noexcept { return begun_batches_; }
  [[nodiscard]] const ReorderSnapshot& tally() const noexcept { return tally_; }

 private:
  enum class End : std::uint8_t { COMPLETE, WINDOW, TIMEOUT };
  struct Batch {
    /// LOST: no buffer was free.
    enum class State : std::uint8_t { EMPTY, OPEN, CLOSED, DELIVERED, LOST } state{State::EMPTY};
    End end{End::COMPLETE};
    /// Whether its packets may be the rest of a batch that had begun before the acquisition; and
    /// whether all that the other lacked have come, while that is so.
    bool doubtful{false};
    bool rest{false};
    /// It was doubtful, and is not any more.
    bool anew{false};
    std::uint64_t raw{0};
    /// Null: it is lost.
    std::byte* data{nullptr};
    std::uint64_t* valid{nullptr};
    /// Null: the plan has none. `lowest`: position of the packet with that of FIRST.
    std::uint64_t* columns{nullptr};
    std::uint32_t lowest{0};
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
    /// Whether those after it need not wait for it.
    [[nodiscard]] bool ended() const noexcept {
      return doubtful ? rest : state == State::CLOSED || state == State::LOST;
    }
  };
  /// A batch of which a packet may still come when an acquisition begins: it was open, or delivered
  /// from a stream that goes on, which may repeat packets; or its first packets waited before the
  /// engine. In `begun_units_`, in the same place: its valid units, and those that came since, of
  /// which `again` were valid.
  struct Begun {
    std::uint64_t raw;
    std::uint32_t units{0};
    std::uint32_t came{0};
    std::uint32_t again{0};
    /// Nothing came for GAP_NS before the first of these: they are not of the old batch.
    bool after_gap{false};
  };
  enum class Claim : std::uint8_t { FREE, TAKEN, OVERLAPS };
  enum class Fate : std::uint8_t { PLACED, DUPLICATE, LATE, EARLY, MALFORMED, LEFT_OUT, NO_BUFFER };

  /// Place a packet. Returns false if it is in no frame.
  bool take(const Packet& packet, Located located, Place where, std::uint64_t now_ns) noexcept;
  /// Calls `take(i)` until no packet is left, which returns how many packets from this one on were
  /// placed; 0: this one was not.
  template <typename Take>
  void take_all(std::span<const Packet> packets, Copier* copier, std::uint64_t now_ns,
                Take take) noexcept;
  /// Place packets that follow each other, at once: while others wait for the plan. Returns false,
  /// without a change, if they are not all for free slots of the latest batch.
  bool place_run(std::span<const Packet> packets, const Found* found,
                 std::uint64_t now_ns) noexcept;
  /// Place a packet in a batch other than the latest.
  Fate place_in_other(const Place& where, const Packet& packet, std::uint64_t now_ns) noexcept;
  void leave_latest() noexcept;
  /// A packet could not be placed. If there was a pause before it, begin anew with it. Returns
  /// whether it is placed now.
  bool begins_anew(Fate fate, const Place& where, const Packet& packet,
                   std::uint64_t now_ns) noexcept;
  /// Returns the batch of a packet with this number, which is open or lost; null: the packet is
  /// late.
  Batch* batch_of(std::uint64_t raw, const Packet& packet, std::uint64_t now_ns) noexcept;
  /// Begin a batch before the open one with number `at`.
  Batch& open_at(std::uint64_t at, std::uint64_t raw, const Packet& packet,
                 std::uint64_t now_ns) noexcept;
  /// The batch with this number that is not delivered; null: there is none.
  [[nodiscard]] Batch* held_with(std::uint64_t raw) noexcept;
  /// The latest batch with this number; null: there is none.
  Batch* find(std::uint64_t raw) noexcept;
  [[nodiscard]] std::uint64_t ahead(std::uint64_t raw, std::uint64_t of) const noexcept {
    return (raw - of) & plan_.batch_mask();
  }
  [[nodiscard]] bool is_after(std::uint64_t raw, std::uint64_t other) const noexcept {
    return ahead(raw, other) - 1 <= plan_.batch_mask() >> 1U;
  }
  /// Whether as many numbers as batches may be open lie between this one and the newest.
  [[nodiscard]] bool is_far_back(std::uint64_t raw) const noexcept {
    return plan_.batch_step() != 0 && !is_after(raw, newest_) &&
           ahead(newest_, raw) / plan_.batch_step() >= batches_.size();
  }
  // Of plans that divide.

  /// A number as if numbers did not wrap; null: whether the instrument went on or began anew cannot
  /// be told, and images would be mixed. `paused`: no packet was placed for PAUSE_NS.
  [[nodiscard]] std::optional<std::uint64_t> continued(std::uint64_t sequence,
                                                       bool paused) const noexcept;
  struct Step {
    std::uint64_t number;
    std::uint64_t size;
  };
  /// The nearest number to `before` that a packet with this number may have.
  [[nodiscard]] Step nearest(std::uint64_t before, std::uint64_t sequence) const noexcept;
  /// Complete a place. Returns false if the number is not known.
  [[nodiscard]] bool divide(Place& where, const Packet& packet, std::uint64_t now_ns) noexcept;
  /// The next packet begins the numbers.
  void forget() noexcept;
  /// Count a packet with the number of a batch from before the acquisition. Returns whether these
  /// packets are of a new one: not with a few that came before, which the network duplicated.
  bool are_new(Begun& begun, const Place& place) noexcept;
  [[nodiscard]] std::uint64_t* units_of(const Begun& begun) noexcept {
    const auto at = static_cast<std::size_t>(&begun - begun_before_.data());
    return begun_units_.get() + at * 2 * valid_.words();
  }
  [[nodiscard]] std::uint64_t* came_units_of(const Begun& begun) noexcept {
    return units_of(begun) + valid_.words();
  }
  [[nodiscard]] bool is_all(const Begun& begun) const noexcept {
    return begun.units + begun.came - begun.again == plan_.units();
  }
  /// Claim the units of a packet. Returns how many; adds them to `both` if the others have some.
  std::uint32_t claim_beside(std::uint64_t* units, const std::uint64_t* others, const Place& place,
                             std::uint32_t& both) noexcept;
  /// Null: there is none with this number.
  [[nodiscard]] Begun* begun_with(std::uint64_t raw) noexcept;
  /// Null: there is no place, as all others are later.
  Begun* add_begun(std::uint64_t raw) noexcept;
  void remove_begun(Begun& begun) noexcept;
  /// What came since the acquisition began was the rest of it.
  void absorb(Begun& begun) noexcept;
  /// Whether packets came again, or all of them: they are of a new batch.
  [[nodiscard]] bool is_new(const Begun& begun) const noexcept;
  /// A doubtful batch is a new one. Returns false if it may have packets of the old one.
  bool make_new(Batch& batch, Begun& begun) noexcept;
  /// Retract the batches whose packets are all that the old ones lacked: nothing came for GAP_NS,
  /// and the next packet is of a new batch.
  void retract_rests() noexcept;
  /// A packet arrived before the acquisition, and waited. Others of its batch may come later, or
  /// came through another poller.
  void note_waited(const Place& place, std::uint64_t time) noexcept;
  /// The packets of this batch came since the acquisition began.
  void note_came(Begun& begun, const Batch& batch) noexcept;
  /// Whether a packet that is not next is of a batch from before the acquisition.
  bool is_stale(const Place& place) noexcept;
  /// Compare a packet of a doubtful batch with those from before the acquisition. Returns false if
  /// those of the batch were, or may have been, from before, so that it is retracted.
  bool weigh(Batch& batch, const Place& place, bool after_silence) noexcept;
  /// Whether nothing was placed for `ns` before this packet.
  [[nodiscard]] bool silence_before(const Packet& packet, std::uint64_t now_ns,
                                    std::uint64_t ns) const noexcept {
    return packet.time != 0 ? packet.time >= active_ + ns
                            : placed_ == 0 && now_ns >= active_ns_ + ns;
  }
  /// Begin with a number, as if there were none before.
  void begin(std::uint64_t raw) noexcept;
  /// Forget a batch that is from before the acquisition.
  void retract(Batch& batch) noexcept;
  /// Forget the batch in this place, and move those behind it.
  void retract_at(std::uint64_t place) noexcept;
  void open(Batch& batch, std::uint64_t raw, const Packet& packet, std::uint64_t now_ns) noexcept;
  /// Returns false if none is free.
  bool take_buffer(Batch& batch) noexcept;
  Fate place(Batch& batch, const Place& place, const Packet& packet) noexcept;
  /// The whole groups of a payload, and where they begin in the output.
  struct Whole {
    const std::byte* from;
    std::uint32_t bytes;
    std::uint64_t to;
  };
  /// Keep the parts of groups at the ends of a payload, of plans that split them. Returns the rest.
  Whole keep_split(const Batch& batch, const Place& place, const std::byte* payload) noexcept;
  /// Place groups whose parts are both there.
  void join_split(const Batch& batch) noexcept;
  /// A group of which slot `slot` of a batch has the rest.
  [[nodiscard]] std::byte* split_group(const Batch& batch, std::uint32_t slot) noexcept {
    return split_.get() + (std::size_t{batch.buffer} * plan_.units() + slot) * MOST_GROUP;
  }
  /// Take the columns of a packet.
  void read_columns(Batch& batch, const Place& place, const Packet& packet) noexcept;
  /// Count packets that were placed in a batch.
  void add(Batch& batch, std::uint32_t packets, std::uint32_t units) noexcept;
  /// Mark units as valid, if none of them is.
  static Claim claim(std::uint64_t* valid, std::uint32_t first, std::uint32_t units) noexcept;
  void close(Batch& batch, End end) noexcept;
  /// Whether no other can be before the batch that is next, and no more packets come for it.
  [[nodiscard]] bool may_end_next() const noexcept;
  /// Deliver closed batches that no other is before.
  void deliver() noexcept;
  /// Close and deliver, or forget, the batch that is next.
  void end_next() noexcept;
  /// Numbers between the latest one that ended and that of the batch that is next.
  [[nodiscard]] std::uint64_t absent_before_next() const noexcept;
  void hand(Batch& batch) noexcept;
  /// Write the fill value where there are no data. `lacks`: packets are missing.
  void fill(const Batch& batch, bool lacks) const noexcept;
  /// Pass pending copies to the copier; without one, make completed copies visible to other
  /// threads.
  void settle() noexcept;
  void count(Fate fate) noexcept;

  /// Batches that have begun, and are not delivered.
  [[nodiscard]] std::uint64_t held() const noexcept { return end_ - next_; }
  [[nodiscard]] bool full() const noexcept { return held() == batches_.size(); }
  [[nodiscard]] Batch& at(std::uint64_t place) noexcept {
    return batches_[place % batches_.size()];
  }
  [[nodiscard]] const Batch& at(std::uint64_t place) const noexcept {
    return batches_[place % batches_.size()];
  }
  /// Of a batch that is not delivered.
  [[nodiscard]] std::uint64_t place_of(const Batch& batch) const noexcept {
    const auto slot = static_cast<std::uint64_t>(&batch - batches_.data());
    return next_ + (slot + batches_.size() - next_ % batches_.size()) % batches_.size();
  }

  /// Most bytes of a group of elements.
  static constexpr std::size_t MOST_GROUP = 8;
  static constexpr std::uint64_t PAUSE_NS = 250'000'000;
  static constexpr std::uint64_t IDLE_NS = 50'000'000;
  /// Packets of a batch follow each other sooner, and exposures later.
  static constexpr std::uint64_t GAP_NS = 10'000'000;
  static constexpr std::uint64_t BACKLOG_NS = 1'000'000'000;
  /// Sequence numbers that are lost in one piece while frames are assembled.
  static constexpr std::uint64_t LOST_NUMBERS = 1U << 16;
  /// At a begin: what goes on lacks few numbers, or what begins anew lacks not so many.
  static constexpr std::uint64_t FEW_NUMBERS = 64;
  static constexpr std::uint64_t MANY_NUMBERS = 1U << 24;

  const Plan& plan_;
  memory::MemoryRegion& output_;
  const ValidBits& valid_;
  std::shared_ptr<const ColumnNumbers> columns_;
  FrameSink& sink_;
  /// Of plans that split groups, for each buffer and slot; otherwise null.
  std::unique_ptr<std::byte[]> split_;
  /// Most output bytes per packet, so that all packets of a batch fit. Not for byte offsets.
  std::uint64_t most_output_;
  /// In the order of their numbers, from place `next_` until `end_`, modulo the window; before them
  /// are the latest ones that were delivered or lost.
  std::vector<Batch> batches_;
  /// The batch of the latest packet, if it has a buffer and is not doubtful.
  Batch* latest_{nullptr};
  bool begun_{false};
  /// No frame was delivered since the numbers began.
  bool fresh_{false};
  /// `last_` is known, so that absent numbers after it count.
  bool anchored_{false};
  /// Places, see `batches_`.
  std::uint64_t next_{0};
  std::uint64_t end_{0};
  /// Number of the latest batch that ended, and the latest of all numbers.
  std::uint64_t last_{0};
  std::uint64_t newest_{0};
  /// Numbers since the latest frame of which no packet came; and those with lost ones.
  std::uint64_t passed_{0};
  std::uint64_t gap_{0};
  /// Of plans that divide: the newest batch's first sequence number when the numbers were
  /// forgotten; null: there were none.
  std::optional<std::uint64_t> before_;
  /// Packets are late because their numbers are not known, until the first one of an acquisition
  /// is.
  bool unknown_{false};
  /// Place of the frame that is delivered next if no number before it is absent.
  std::uint64_t index_{0};
  /// Arrival of the packet that was last placed, or with which a batch last began, unless the
  /// latest batch has it: by the clock of the packets, since the poller may have been delayed; and
  /// CLOCK_MONOTONIC of that call.
  std::uint64_t active_{0};
  std::uint64_t active_ns_{0};
  /// Packets placed in the present call.
  std::uint64_t placed_{0};
  std::uint64_t begun_batches_{0};
  // Of the acquisition.
  std::uint64_t since_{0};
  std::uint64_t since_until_ns_{0};
  bool acquiring_{false};
  /// Nothing was placed for GAP_NS since it began: what was sent before has arrived.
  bool rested_{false};
  /// Batches that began since, and are not doubtful; counted while others may be.
  std::uint64_t undoubted_batches_{0};
  std::optional<std::uint64_t> first_;
  /// Valid units of the latest incomplete batches that were delivered, as in `batches_`.
  std::vector<std::uint64_t> delivered_units_;
  std::vector<Begun> begun_before_;
  std::unique_ptr<std::uint64_t[]> begun_units_;
  /// Of the current call of `take`.
  Copier* copier_{nullptr};
  DeferredCopies* deferred_{nullptr};
  Mover* fills_{nullptr};
  /// Of the copier.
  Transfer* copies_{nullptr};
  std::size_t num_copies_{0};
  ReorderSnapshot tally_;
};

}  // namespace daqiri::reorder
