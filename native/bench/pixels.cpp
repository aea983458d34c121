// Rate of every conversion of pixels: payloads of about 8 KiB, in buffers of packets, become frames
// of 1 MiB of payloads. For comparison: memcpy of the same payloads, and bare loops that a compiler
// makes vectors of, for the same instruction sets. All read the same memory, and write to the same
// frames in turn.
//
// usage: bench_pixels; then a line `WHAT INPUT OUTPUT ORDER SECONDS` a measurement: ours; memcpy;
// bytes (a loop that makes pixels of single bytes), words (of words of 64 bits that have whole
// pixels). ORDER: host, network, msb or lsb.
#include <time.h>

#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "memory/region.h"
#include "reorder/convert.h"

using namespace daqiri;
using namespace daqiri::reorder;

namespace {

/// Where payloads begin in packets.
constexpr std::size_t HEADER = 50;
constexpr std::size_t PAYLOAD = 8192;
constexpr std::size_t FRAME = std::size_t{1} << 20U;
constexpr std::size_t PACKETS = 16 * FRAME / PAYLOAD;
constexpr std::size_t FRAMES = 4;

#ifdef __x86_64__
#define ALL_SETS __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define ALL_SETS
#endif

using Loop = void (*)(std::byte*, const std::byte*, std::size_t);

template <bool SWAP, typename T>
[[gnu::always_inline]] inline T loaded(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  if constexpr (SWAP && sizeof(T) == 2) value = static_cast<T>(__builtin_bswap16(value));
  if constexpr (SWAP && sizeof(T) == 4) value = static_cast<T>(__builtin_bswap32(value));
  if constexpr (SWAP && sizeof(T) == 8) value = static_cast<T>(__builtin_bswap64(value));
  return value;
}

/// Elements of whole bytes.
template <typename In, bool SWAP, typename Out>
struct Whole {
  ALL_SETS static void bytes(std::byte* to, const std::byte* from, std::size_t n) {
    using Bits = std::conditional_t<
        sizeof(In) == 1, std::uint8_t,
        std::conditional_t<sizeof(In) == 2, std::uint16_t,
                           std::conditional_t<sizeof(In) == 4, std::uint32_t, std::uint64_t>>>;
    for (std::size_t i = 0; i < n / sizeof(In); ++i) {
      const auto value = std::bit_cast<In>(loaded<SWAP, Bits>(from + i * sizeof(In)));
      const auto out = static_cast<Out>(value);
      std::memcpy(to + i * sizeof out, &out, sizeof out);
    }
  }
};

template <int BITS, bool SIGNED, bool MSB, typename Out>
struct Parts {
  static constexpr int GROUP = BITS == 4 || BITS == 12 ? 2 : BITS == 24 ? 1 : 4;
  static constexpr int GROUP_BYTES = GROUP * BITS / 8;
  using Value = std::conditional_t<SIGNED, std::int32_t, std::uint32_t>;

  [[gnu::always_inline]] static void put(std::byte* to, std::uint32_t high) {
    const auto out = static_cast<Out>(static_cast<Value>(high) >> (32 - BITS));
    std::memcpy(to, &out, sizeof out);
  }
  ALL_SETS static void bytes(std::byte* to, const std::byte* from, std::size_t n) {
    for (std::size_t i = 0; i < n / GROUP_BYTES; ++i, from += GROUP_BYTES) {
      const auto byte = [from](int at) { return std::to_integer<std::uint32_t>(from[at]); };
#pragma GCC unroll 4
      for (int k = 0; k < GROUP; ++k) {
        const int first = k * BITS / 8;
        const int bit = k * BITS % 8;
        std::uint32_t high = 0;
        // The pixel at the upper end of 32 bits; other bits above it are shifted out.
        for (int b = 0; 8 * b < bit + BITS; ++b) {
          const int up = MSB ? 24 - 8 * b + bit : 32 - BITS - bit + 8 * b;
          high |= up >= 0 ? byte(first + b) << up : byte(first + b) >> -up;
        }
        put(to, high);
        to += sizeof(Out);
      }
    }
  }
  ALL_SETS static void words(std::byte* to, const std::byte* from, std::size_t n) {
    for (std::size_t i = 0; i < n / GROUP_BYTES; ++i, from += GROUP_BYTES) {
      // Reads beyond the group, but not beyond a packet's buffer.
      const auto word = loaded<MSB, std::uint64_t>(from);
#pragma GCC unroll 4
      for (int k = 0; k < GROUP; ++k) {
        const std::uint64_t high = word << (MSB ? k * BITS : 64 - (k + 1) * BITS);
        put(to, static_cast<std::uint32_t>(high >> 32U));
        to += sizeof(Out);
      }
    }
  }
};

template <typename In, typename Out>
Loop whole(bool swap) {
  return swap ? Whole<In, true, Out>::bytes : Whole<In, false, Out>::bytes;
}

template <int BITS, bool SIGNED, typename Out>
Loop parts(bool msb, bool words) {
  if (words)
    return msb ? Parts<BITS, SIGNED, true, Out>::words : Parts<BITS, SIGNED, false, Out>::words;
  return msb ? Parts<BITS, SIGNED, true, Out>::bytes : Parts<BITS, SIGNED, false, Out>::bytes;
}

template <int BITS, typename Natural>
Loop parts(const ReorderDataTypesConfig& types, bool msb, bool words) {
  using Unsigned = std::make_unsigned_t<Natural>;
  const bool single = types.output_type_ == ReorderDataType::FP32;
  if (is_unsigned(types.input_type_))
    return single ? parts<BITS, false, float>(msb, words)
                  : parts<BITS, false, Unsigned>(msb, words);
  return single ? parts<BITS, true, float>(msb, words) : parts<BITS, true, Natural>(msb, words);
}

/// Null: there is none.
Loop bare(const ReorderDataTypesConfig& types, bool words) {
  const bool swap = types.endianness_ == ReorderEndianness::NETWORK;
  const bool msb = types.packing_ == ReorderPacking::MSB;
  const bool single = types.output_type_ == ReorderDataType::FP32;
  const ReorderDataType input = types.input_type_;
  switch (bits_of(input)) {
    case 4:
      return words ? nullptr : parts<4, std::int8_t>(types, msb, false);
    case 10:
      return parts<10, std::int16_t>(types, msb, words);
    case 12:
      return parts<12, std::int16_t>(types, msb, words);
    case 14:
      return parts<14, std::int16_t>(types, msb, words);
    case 24:
      return parts<24, std::int32_t>(types, swap, words);
    default:
      break;
  }
  if (words) return nullptr;
  // Of the same size, only bytes are swapped.
  if (bits_of(types.output_type_) == bits_of(input) &&
      is_float(types.output_type_) == is_float(input)) {
    if (bits_of(input) == 8) return whole<std::uint8_t, std::uint8_t>(false);
    if (bits_of(input) == 16) return whole<std::uint16_t, std::uint16_t>(swap);
    if (bits_of(input) == 32) return whole<std::uint32_t, std::uint32_t>(swap);
    return whole<std::uint64_t, std::uint64_t>(swap);
  }
  switch (input) {
    case ReorderDataType::INT8:
      return whole<std::int8_t, float>(false);
    case ReorderDataType::UINT8:
      return whole<std::uint8_t, float>(false);
    case ReorderDataType::INT16:
      return whole<std::int16_t, float>(swap);
    case ReorderDataType::UINT16:
      return whole<std::uint16_t, float>(swap);
    case ReorderDataType::INT32:
      return whole<std::int32_t, float>(swap);
    case ReorderDataType::UINT32:
      return whole<std::uint32_t, float>(swap);
    case ReorderDataType::INT64:
      return single ? whole<std::int64_t, float>(swap) : nullptr;
    case ReorderDataType::UINT64:
      return single ? whole<std::uint64_t, float>(swap) : nullptr;
    case ReorderDataType::FP32:
      return whole<float, double>(swap);
#ifdef __FLT16_MANT_DIG__
    case ReorderDataType::FP16:
      return whole<_Float16, float>(swap);
#endif
    default:
      return nullptr;
  }
}

/// Processor time of this thread, so that other programs on the core do not count.
std::uint64_t processor_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(now.tv_nsec);
}

std::unique_ptr<memory::MemoryRegion> region(const char* name, std::size_t buffers,
                                             std::size_t size) {
  MemoryRegionConfig config;
  config.name_ = name;
  config.num_bufs_ = buffers;
  config.buf_size_ = size;
  return memory::MemoryRegion::allocate(config);
}

}  // namespace

int main() {
  const auto packets = region("packets", PACKETS, HEADER + PAYLOAD + 64);
  // The widest output is sixteen times the payload.
  const auto frames = region("frames", FRAMES, 16 * FRAME);
  std::mt19937_64 random(1);
  for (std::size_t i = 0; i < packets->extent().stride * PACKETS; i += 8) {
    const std::uint64_t bits = random();
    std::memcpy(static_cast<std::byte*>(packets->address(0)) + i, &bits, 8);
  }
  std::memset(frames->address(0), 0, frames->extent().stride * FRAMES);
  std::puts("{}");
  std::fflush(stdout);
  std::string line;
  std::size_t packet = 0;
  std::size_t frame = 0;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string what;
    std::string input;
    std::string output;
    std::string order;
    double seconds = 0;
    if (!(words >> what >> input >> output >> order >> seconds)) return 2;
    const ReorderDataTypesConfig types{
        reorder_data_type_from_string(input), reorder_data_type_from_string(output),
        order == "network" ? ReorderEndianness::NETWORK : ReorderEndianness::HOST,
        order == "lsb" ? ReorderPacking::LSB : ReorderPacking::MSB};
    const Move move = move_for(types);
    if (move == nullptr) return 2;
    Loop loop = nullptr;
    if (what == "ours") loop = move;
    if (what == "memcpy")
      loop = [](std::byte* to, const std::byte* from, std::size_t n) { std::memcpy(to, from, n); };
    if (what == "bytes" || what == "words") loop = bare(types, what == "words");
    if (loop == nullptr) {
      std::puts(R"({"missing": "no such loop"})");
      std::fflush(stdout);
      continue;
    }
    const Groups groups(types);
    const std::size_t bytes = PAYLOAD / groups.bytes() * groups.bytes();
    const std::size_t made = what == "memcpy" ? bytes : groups.output_of(bytes);
    if (what == "bytes" || what == "words") {
      // They do the same work.
      std::vector<std::byte> wanted(made);
      std::vector<std::byte> found(made);
      const auto* const from = static_cast<const std::byte*>(packets->address(0)) + HEADER;
      move(wanted.data(), from, bytes);
      loop(found.data(), from, bytes);
      if (!is_float(types.input_type_) && wanted != found) {
        std::fprintf(stderr, "another result: %s\n", line.c_str());
        return 2;
      }
    }
    const std::uint64_t begun = processor_ns();
    const auto end = begun + static_cast<std::uint64_t>(seconds * 1e9);
    std::uint64_t now = begun;
    std::uint64_t total = 0;
    for (; now < end; now = processor_ns()) {
      auto* const to = static_cast<std::byte*>(frames->address(static_cast<std::uint32_t>(frame)));
      frame = (frame + 1) % FRAMES;
      for (std::size_t i = 0; i < FRAME / PAYLOAD; ++i) {
        const auto* const from =
            static_cast<const std::byte*>(packets->address(static_cast<std::uint32_t>(packet)));
        packet = (packet + 1) % PACKETS;
        loop(to + i * made, from + HEADER, bytes);
        total += bytes;
      }
    }
    std::printf("{\"ns\": %llu, \"bytes\": %llu}\n", static_cast<unsigned long long>(now - begun),
                static_cast<unsigned long long>(total));
    std::fflush(stdout);
  }
  return 0;
}
