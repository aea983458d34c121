/// A plan whose packets a test sends, and the frames that it makes of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "reorder/assembler.h"
#include "reorder/deferred_copies.h"

namespace daqiri::test {

using namespace reorder;

inline constexpr std::uint64_t TIMEOUT_NS = 1'000'000;
inline constexpr std::uint64_t PAUSE_NS = 250'000'000;
inline constexpr std::uint64_t IDLE_NS = 50'000'000;
inline constexpr std::uint64_t GAP_NS = 10'000'000;
inline constexpr std::uint64_t BACKLOG_NS = 1'000'000'000;

inline ReorderConfig by_packet_number(std::uint32_t packets, std::uint32_t batch_bits = 16) {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  config.flow_ids_ = {1};
  config.payload_byte_offset_ = 8;
  config.batch_packet_number_.batch_number_ = {0, batch_bits};
  config.batch_packet_number_.packet_number_ = {32, 16};
  config.batch_packet_number_.packets_per_batch_ = packets;
  return config;
}

inline ReorderConfig with_timeout(ReorderConfig config) {
  config.timeout_us_ = TIMEOUT_NS / 1000;
  return config;
}

inline ReorderConfig by_sequence_number(std::uint32_t packets, std::uint32_t stride = 0) {
  ReorderConfig config;
  config.method_ = ReorderMethod::SEQ_PACKETS_PER_BATCH;
  config.flow_ids_ = {1, 2};
  config.flow_stride_ = stride;
  config.payload_byte_offset_ = 8;
  config.seq_packets_per_batch_ = {{0, 32}, packets};
  return config;
}

struct Seen {
  std::uint32_t batch;
  std::vector<std::uint8_t> bytes;
  std::vector<bool> valid;
  std::uint32_t packets;
  bool timed_out;
  std::uint64_t first_time;
  std::vector<std::uint64_t> columns{};
  bool operator==(const Seen&) const = default;
};

/// A plan with a region that no other test uses.
struct Bench : FrameSink, FrameWaiter {
  explicit Bench(const ReorderConfig& config, std::uint32_t buffers = 80,
                 std::uint32_t buf_size = 4096, std::uint64_t taken_to_be = 0)
      : plan(with_timeout(config), PacketKind::PAYLOADS, taken_to_be),
        valid(buffers, plan.units()),
        open(buffers) {
    MemoryRegionConfig output;
    output.name_ = "frames";
    output.num_bufs_ = buffers;
    output.buf_size_ = buf_size;
    region = memory::MemoryRegion::allocate(output);
    std::memset(region->address(0), 0xEE, region->extent().stride * buffers);
    assembler = std::make_unique<Assembler>(plan, *region, valid, *this);
  }

  bool begin(std::uint32_t /*buffer*/) noexcept override { return !refuse; }
  void take(const Frame& frame) noexcept override {
    if (!deferred) return see(frame);
    static_cast<void>(open.close(frame.buffer));
    closed.push_back(frame);
  }
  void see(const Frame& frame) {
    Seen each;
    each.batch = static_cast<std::uint32_t>(frame.info.batch_id);
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(frame.data);
    each.bytes.assign(bytes, bytes + frame.info.aggregate_len);
    for (std::uint32_t i = 0; i < plan.units(); ++i)
      each.valid.push_back((frame.valid[i / 64] >> (i % 64) & 1U) != 0);
    each.packets = frame.info.source_packet_count;
    each.timed_out = (frame.info.burst_flags & DAQIRI_BURST_FLAG_REORDER_TIMEOUT) != 0;
    each.first_time = frame.first_time;
    each.columns.assign(frame.info.columns, frame.info.columns + frame.info.num_column_values);
    frames.push_back(std::move(each));
    indices.push_back(frame.index);
    absent.push_back(frame.lost);
    orders.push_back(frame.order);
    if (!keep) {
      std::memset(frame.data, 0xEE, region->buf_size());
      region->give(&frame.buffer, 1);
    }
  }
  void discard(std::uint32_t buffer) noexcept override {
    if (!deferred) return region->give(&buffer, 1);
    static_cast<void>(open.close(buffer));
    discarded.push_back(buffer);
  }
  void frame_done(std::uint32_t /*frame*/, bool good) noexcept override { failed += good ? 0 : 1; }

  /// Send packets in one call, as pollers of several queues do: placed under the plan's lock, and
  /// copied later.
  void send_together(std::vector<std::vector<std::uint8_t>>& together) {
    std::vector<Packet> sent;
    for (const std::vector<std::uint8_t>& bytes : together)
      sent.push_back({bytes.data(), static_cast<std::uint32_t>(bytes.size()), 0, 0});
    std::vector<Found> found(sent.size());
    assembler->locate(sent, found.data());
    deferred = true;
    DeferredCopies copies(plan, open);
    assembler->take(sent, found.data(), now, copies);
    copies.perform(*this);
    deferred = false;
    for (const Frame& frame : std::exchange(closed, {})) see(frame);
    for (const std::uint32_t buffer : std::exchange(discarded, {})) region->give(&buffer, 1);
    together.clear();
  }

  void send(std::vector<std::uint8_t> bytes, std::uint64_t time = 0, std::uint32_t flow = 0) {
    packets.push_back(std::move(bytes));
    const Packet packet{packets.back().data(), static_cast<std::uint32_t>(packets.back().size()),
                        flow, time};
    assembler->take({&packet, 1}, now);
    // The packets are not read again after take().
    std::fill(packets.back().begin(), packets.back().end(), std::uint8_t{0xDD});
  }
  void send(std::uint32_t batch, std::uint32_t slot, std::uint8_t value, std::uint32_t size = 4,
            std::uint32_t flow = 0) {
    send(packet(batch, slot, value, size), 0, flow);
  }
  void send_at(std::uint64_t time, std::uint32_t batch, std::uint32_t slot, std::uint8_t value,
               std::uint32_t size = 4) {
    send(packet(batch, slot, value, size), time);
  }
  [[nodiscard]] std::vector<std::uint8_t> packet(std::uint32_t batch, std::uint32_t slot,
                                                 std::uint8_t value, std::uint32_t size) const {
    std::vector<std::uint8_t> bytes(8 + size, value);
    const std::uint32_t bits = plan.batch_mask() == 0xFFFFU ? batch << 16U : batch << 24U;
    for (int i = 0; i < 4; ++i)
      bytes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(bits >> (24 - 8 * i));
    bytes[4] = static_cast<std::uint8_t>(slot >> 8U);
    bytes[5] = static_cast<std::uint8_t>(slot);
    return bytes;
  }

  /// Sends a packet with a sequence number.
  void sequence(std::uint64_t number, std::uint8_t value = 7, std::uint64_t time = 0,
                std::uint32_t flow = 0) {
    std::vector<std::uint8_t> bytes(12, value);
    for (std::size_t i = 0; i < 4; ++i)
      bytes[i] = static_cast<std::uint8_t>(number >> (24 - 8 * i));
    send(std::move(bytes), time, flow);
  }
  /// Sends all packets of a batch.
  void whole(std::uint32_t batch) {
    for (std::uint32_t slot = 0; slot < plan.units(); ++slot) send(batch, slot, 7);
  }
  [[nodiscard]] std::vector<std::uint32_t> batches() const {
    std::vector<std::uint32_t> numbers;
    for (const Seen& frame : frames) numbers.push_back(frame.batch);
    return numbers;
  }

  [[nodiscard]] bool balanced() const {
    const ReorderSnapshot& t = assembler->tally();
    return t.packets ==
           t.placed + t.duplicate + t.late + t.early + t.malformed + t.left_out + t.no_buffer;
  }

  Plan plan;
  ValidBits valid;
  OpenCopies open;
  std::unique_ptr<memory::MemoryRegion> region;
  std::unique_ptr<Assembler> assembler;
  std::vector<Seen> frames;
  std::vector<std::uint64_t> indices;
  std::vector<std::uint64_t> absent;
  std::vector<std::uint64_t> orders;
  std::deque<std::vector<std::uint8_t>> packets;
  std::uint64_t now{1};
  bool keep{false};
  bool refuse{false};
  /// Frames and buffers of a call whose copies are done later.
  bool deferred{false};
  std::vector<Frame> closed;
  std::vector<std::uint32_t> discarded;
  int failed{0};
};

inline std::vector<std::uint8_t> slots(const std::vector<int>& values, std::size_t size = 4) {
  std::vector<std::uint8_t> bytes;
  for (const int value : values) bytes.insert(bytes.end(), size, static_cast<std::uint8_t>(value));
  return bytes;
}

}  // namespace daqiri::test
