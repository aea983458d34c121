// Cost of assembling packets to frames, without an engine: a plan and its assembler take packets in
// a receive region, in batches of 64 and shuffled within them, and make frames of 1 MiB for each
// module. For comparison: copies and conversions of as many bytes. All read the same memory from
// start to end, and write to the same frames in turn.
//
// usage: bench_reorder; then a line `WHAT PAYLOAD MODULES SECONDS` a measurement: gather, convert
// (int16 to fp32), swap (the same, big-endian); copies and copy (memcpy of payloads, and of whole
// frames); convert-loops and convert-loop, swap-loops and swap-loop (a bare loop over each payload,
// and over whole frames); place (packets are looked at, and nothing is moved). With +cached: never
// past the caches; with +ordered: packets are in order.

#include <algorithm>
#include <bit>
#include <cstring>
#include <iostream>
#include <numeric>
#include <random>
#include <sstream>
#include <string_view>
#include <vector>

#include "arguments.h"
#include "reorder/assembler.h"
#include "timing/clock.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

/// Ethernet, IPv4 and UDP, followed by the number of the frame and that of the packet.
constexpr std::uint32_t NUMBERS_AT = 42;
constexpr std::uint32_t HEADER = NUMBERS_AT + 8;
constexpr std::uint32_t BATCH = 64;
constexpr std::uint32_t MODULE_BYTES = 1 << 20;
/// Frames in use at once, and frames that packets wait for.
constexpr std::uint32_t FRAMES = 4;

/// Number of frames whose packets are in memory. A power of two, as their numbers then wrap around.
std::uint32_t packet_frames(std::uint32_t modules) { return std::max(16 / modules, 4U); }

std::unique_ptr<memory::MemoryRegion> region(const char* name, std::uint64_t buffers,
                                             std::uint64_t size) {
  MemoryRegionConfig config;
  config.name_ = name;
  config.num_bufs_ = buffers;
  config.buf_size_ = size;
  auto made = memory::MemoryRegion::allocate(config);
  std::memset(made->address(0), 1, made->extent().stride * buffers);
  return made;
}

enum class Kind : std::uint8_t { SAME, CONVERT, SWAP };

ReorderConfig configuration(std::uint32_t payload, std::uint32_t modules, Kind kind) {
  ReorderConfig config;
  config.method_ = ReorderMethod::BATCH_PACKET_NUMBER;
  config.payload_byte_offset_ = HEADER;
  const auto bits = static_cast<std::uint32_t>(std::countr_zero(packet_frames(modules)));
  config.batch_packet_number_.batch_number_ = {NUMBERS_AT * 8 + 32 - bits, bits};
  config.batch_packet_number_.packet_number_ = {NUMBERS_AT * 8 + 32, 32};
  config.batch_packet_number_.packets_per_batch_ = MODULE_BYTES / payload * modules;
  if (modules > 1) config.flow_stride_ = MODULE_BYTES / payload;
  for (std::uint32_t flow = 0; flow < modules; ++flow) config.flow_ids_.push_back(flow);
  if (kind != Kind::SAME)
    config.data_types_ = {
        ReorderDataType::INT16, ReorderDataType::FP32,
        kind == Kind::SWAP ? ReorderEndianness::NETWORK : ReorderEndianness::HOST};
  return config;
}

void store_be32(std::uint8_t* at, std::uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(at, &value, sizeof value);
}

/// Cost per packet in addition to the payload.
class NoCopier final : public Copier {
 public:
  Transfer* transfers() noexcept override { return transfers_; }
  void move(std::span<const Transfer>) noexcept override {}

 private:
  Transfer transfers_[CHUNK];
};

/// Makes frames of packets, one after the other, for the time of the measurement.
class Frames final : FrameSink {
 public:
  Frames(std::uint32_t payload, std::uint32_t modules, Kind kind, bool ordered)
      : payload_(payload),
        modules_(modules),
        frame_bytes_(std::uint64_t{MODULE_BYTES} * modules * (kind == Kind::SAME ? 1 : 2)),
        plan_(configuration(payload, modules, kind), PacketKind::PAYLOADS, frame_bytes_),
        cached_plan_(configuration(payload, modules, kind), PacketKind::PAYLOADS),
        packets_(region("packets",
                        std::uint64_t{MODULE_BYTES} / payload * modules * packet_frames(modules),
                        payload + HEADER)),
        output_(region("frames", FRAMES, frame_bytes_)),
        valid_(FRAMES, plan_.units()),
        assembler_(plan_, *output_, valid_, *this),
        cached_(cached_plan_, *output_, valid_, *this) {
    order_.resize(std::size_t{MODULE_BYTES} / payload * modules);
    std::iota(order_.begin(), order_.end(), 0U);
    std::mt19937 random(1);
    for (auto at = order_.begin(); !ordered && at != order_.end();) {
      const auto end = order_.end() - at > BATCH ? at + BATCH : order_.end();
      std::shuffle(at, end, random);
      at = end;
    }
    // Modules are used in turn.
    for (std::uint32_t at = 0; at < packets_->config().num_bufs_; ++at) {
      auto* packet = static_cast<std::uint8_t*>(packets_->address(at));
      store_be32(packet + NUMBERS_AT, at / static_cast<std::uint32_t>(order_.size()));
      store_be32(packet + NUMBERS_AT + 4, order_[at % order_.size()] / modules);
    }
  }

  /// One frame through an assembler.
  void gather(bool cached, Copier* copier = nullptr) {
    Packet batch[BATCH];
    for (std::size_t at = 0; at < order_.size(); at += BATCH) {
      const std::size_t n = std::min<std::size_t>(BATCH, order_.size() - at);
      for (std::size_t i = 0; i < n; ++i) {
        batch[i] = {next(next_), payload_ + HEADER, order_[at + i] % modules_, 1, nullptr, 0};
      }
      (cached ? cached_ : assembler_).take({batch, n}, 1, copier);
    }
  }
  /// Copies as many bytes, payload by payload in the same order, with a bare function.
  template <typename Action>
  void each(Action action) {
    std::byte* frame = next_frame();
    const std::size_t place = frame_bytes_ / order_.size();
    for (const std::uint32_t i : order_)
      action(frame + i * place, next(next_copy_) + HEADER, payload_);
  }
  /// Copies as many bytes at once.
  template <typename Action>
  void whole(Action action) {
    action(next_frame(), next_packets(), bytes());
  }

#ifdef __x86_64__
#define ALL_SETS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ALL_SETS
#endif
  ALL_SETS static void convert(std::byte* to, const std::uint8_t* from, std::size_t bytes) {
    auto* const out = reinterpret_cast<float*>(to);
    for (std::size_t i = 0; i < bytes / 2; ++i) {
      std::int16_t element;
      std::memcpy(&element, from + 2 * i, sizeof element);
      out[i] = element;
    }
  }
  ALL_SETS static void swap(std::byte* to, const std::uint8_t* from, std::size_t bytes) {
    auto* const out = reinterpret_cast<float*>(to);
    for (std::size_t i = 0; i < bytes / 2; ++i) {
      std::uint16_t element;
      std::memcpy(&element, from + 2 * i, sizeof element);
      out[i] = static_cast<std::int16_t>(__builtin_bswap16(element));
    }
  }

  [[nodiscard]] std::size_t bytes() const { return std::size_t{MODULE_BYTES} * modules_; }
  [[nodiscard]] std::size_t packets() const { return order_.size(); }
  /// Number of complete frames.
  [[nodiscard]] std::uint64_t complete() const {
    return assembler_.tally().complete + cached_.tally().complete;
  }

 private:
  const std::uint8_t* next(std::uint32_t& next) {
    const std::uint32_t packet = next;
    next = next + 1 < packets_->config().num_bufs_ ? next + 1 : 0;
    return static_cast<const std::uint8_t*>(packets_->address(packet));
  }
  /// Bytes of a frame, from the memory of the packets.
  const std::uint8_t* next_packets() {
    at_ = at_ + 2 * bytes() <= packets_->extent().bytes ? at_ + bytes() : 0;
    return static_cast<const std::uint8_t*>(packets_->address(0)) + at_;
  }
  std::byte* next_frame() {
    std::uint32_t buffer = 0;
    output_->take(&buffer, 1);
    give_back(buffer);
    return static_cast<std::byte*>(output_->address(buffer));
  }
  /// Frames stay in use for a while.
  void give_back(std::uint32_t buffer) {
    if (held_.size() < FRAMES - 2) {
      held_.push_back(buffer);
      return;
    }
    output_->give(&held_[oldest_], 1);
    held_[oldest_] = buffer;
    oldest_ = (oldest_ + 1) % held_.size();
  }
  bool begin(std::uint32_t /*buffer*/) noexcept override { return true; }
  void take(const Frame& frame) noexcept override { give_back(frame.buffer); }
  void discard(std::uint32_t buffer) noexcept override { output_->give(&buffer, 1); }

  std::uint32_t payload_;
  std::uint32_t modules_;
  std::uint64_t frame_bytes_;
  Plan plan_;
  Plan cached_plan_;
  std::unique_ptr<memory::MemoryRegion> packets_;
  std::unique_ptr<memory::MemoryRegion> output_;
  ValidBits valid_;
  Assembler assembler_;
  Assembler cached_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> held_;
  std::size_t oldest_{0};
  /// Packets for the assemblers, which use one frame after the other, and for the copies.
  std::uint32_t next_{0};
  std::uint32_t next_copy_{0};
  std::size_t at_{0};
};

template <typename Action>
std::string measure(const Frames& frames, double seconds, Action&& action) {
  const std::uint64_t before = frames.complete();
  const std::uint64_t begun = monotonic_ns();
  const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
  std::uint64_t now = begun;
  std::uint64_t times = 0;
  for (; now < end; now = monotonic_ns(), ++times) action();
  std::ostringstream line;
  line << R"({"ns": )" << (now - begun) << R"(, "frames": )" << times << R"(, "bytes": )"
       << times * frames.bytes() << R"(, "packets": )" << times * frames.packets()
       << R"(, "complete": )" << frames.complete() - before << "}";
  return line.str();
}

}  // namespace

int main() {
  std::puts("{}");
  std::fflush(stdout);
  std::unique_ptr<Frames> frames;
  NoCopier nothing;
  std::string line;
  std::string latest;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what;
    std::uint32_t payload = 0;
    std::uint32_t modules = 0;
    double seconds = 0;
    if (!(words >> what >> payload >> modules >> seconds)) return 2;
    const auto has = [&what](std::string_view option) {
      if (!what.ends_with(option)) return false;
      what.resize(what.size() - option.size());
      return true;
    };
    const bool cached = has("+cached");
    const bool ordered = has("+ordered");
    const auto is = [&what](std::initializer_list<std::string_view> names) {
      return std::ranges::find(names, what) != names.end();
    };
    const Kind kind = is({"swap", "swap-loop", "swap-loops"})            ? Kind::SWAP
                      : is({"convert", "convert-loop", "convert-loops"}) ? Kind::CONVERT
                                                                         : Kind::SAME;
    std::ostringstream setup;
    setup << payload << ' ' << modules << ' ' << static_cast<int>(kind) << ' ' << ordered;
    if (setup.str() != latest) frames = std::make_unique<Frames>(payload, modules, kind, ordered);
    latest = setup.str();
    auto* const loop = kind == Kind::SWAP ? Frames::swap : Frames::convert;
    std::string answer;
    if (is({"gather", "convert", "swap"})) {
      answer = measure(*frames, seconds, [&] { frames->gather(cached); });
    } else if (what == "place") {
      answer = measure(*frames, seconds, [&] { frames->gather(cached, &nothing); });
    } else if (what == "copies") {
      answer = measure(*frames, seconds, [&] { frames->each(std::memcpy); });
    } else if (what == "copy") {
      answer = measure(*frames, seconds, [&] { frames->whole(std::memcpy); });
    } else if (is({"convert-loops", "swap-loops"})) {
      answer = measure(*frames, seconds, [&] { frames->each(loop); });
    } else if (is({"convert-loop", "swap-loop"})) {
      answer = measure(*frames, seconds, [&] { frames->whole(loop); });
    } else {
      std::fprintf(stderr, "no measurement '%s'\n", what.c_str());
      return 2;
    }
    std::puts(answer.c_str());
    std::fflush(stdout);
  }
  return 0;
}
