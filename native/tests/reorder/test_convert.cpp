// Conversions compared with the rules, one element at a time.
#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "memory/streaming_copy.h"
#include "reorder/convert.h"

using namespace daqiri;
using namespace daqiri::reorder;
using Type = ReorderDataType;

namespace {

constexpr Type INPUTS[] = {Type::INT4,  Type::INT8,   Type::INT16, Type::INT32,
                           Type::UINT8, Type::UINT16, Type::UINT32};
constexpr Type OUTPUTS[] = {Type::FP16,  Type::BF16,  Type::FP32,   Type::FP64,  Type::INT8,
                            Type::UINT8, Type::INT16, Type::UINT16, Type::INT32, Type::UINT32};

std::vector<MoveSet> sets() {
  std::vector<MoveSet> found{MoveSet::PORTABLE};
  if (best_move_set() >= MoveSet::AVX2) found.push_back(MoveSet::AVX2);
  if (best_move_set() >= MoveSet::AVX512) found.push_back(MoveSet::AVX512);
  return found;
}

/// All implementations that this processor can run.
std::vector<std::pair<MoveSet, Stores>> codes() {
  std::vector<std::pair<MoveSet, Stores>> found;
  for (const MoveSet set : sets()) {
    for (const Stores stores : {Stores::CACHED, Stores::STREAMED}) found.emplace_back(set, stores);
  }
  return found;
}

/// Element `i` of `bytes`.
std::int64_t input(const std::vector<std::uint8_t>& bytes, std::size_t i, Type type, bool network) {
  if (type == Type::INT4) {
    const int nibble = i % 2 == 0 ? bytes[i / 2] / 16 : bytes[i / 2] % 16;
    return nibble >= 8 ? nibble - 16 : nibble;
  }
  const std::size_t size = bits_of(type) / 8;
  std::uint64_t value = 0;
  for (std::size_t k = 0; k < size; ++k)
    value += std::uint64_t{bytes[i * size + (network ? size - 1 - k : k)]} << (8 * k);
  const bool is_signed = type == Type::INT8 || type == Type::INT16 || type == Type::INT32;
  const std::int64_t range = std::int64_t{1} << (8 * size);
  const auto number = static_cast<std::int64_t>(value);
  return is_signed && number >= range / 2 ? number - range : number;
}

/// The number with these bits: a sign, `exponent` bits and `fraction` bits.
double small(std::uint16_t bits, int exponent, int fraction) {
  const int e = bits >> fraction & ((1 << exponent) - 1);
  const int f = bits & ((1 << fraction) - 1);
  const int bias = (1 << (exponent - 1)) - 1;
  double value = 0;
  if (e == (1 << exponent) - 1)
    value = f == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
  else if (e == 0)
    value = std::ldexp(f, 1 - bias - fraction);
  else
    value = std::ldexp((1 << fraction) + f, e - bias - fraction);
  return bits >> 15 ? -value : value;
}

/// Rounds to nearest, ties to even, by comparing the neighbours.
std::uint16_t nearest(double value, int exponent, int fraction) {
  const auto infinite = static_cast<std::uint16_t>(((1 << exponent) - 1) << fraction);
  const double magnitude = std::fabs(value);
  std::uint16_t low = 0;
  for (std::uint16_t step = 0x4000; step > 0; step /= 2) {
    const auto next = static_cast<std::uint16_t>(low + step);
    if (next < infinite && small(next, exponent, fraction) <= magnitude) low = next;
  }
  const auto high = static_cast<std::uint16_t>(low + 1);
  // The value that infinity would have if the exponent continued.
  const double below = small(low, exponent, fraction);
  const double above =
      high == infinite ? std::ldexp(1, 1 << (exponent - 1)) : small(high, exponent, fraction);
  const double down = magnitude - below;
  const double up = above - magnitude;
  const std::uint16_t chosen = down < up || (down == up && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(chosen | (std::signbit(value) ? 0x8000 : 0));
}

template <typename T>
bool holds(const std::byte* at, std::int64_t value) {
  T element;
  std::memcpy(&element, at, sizeof element);
  return element == static_cast<T>(value) && static_cast<std::int64_t>(element) == value;
}

bool right(const std::byte* at, Type type, std::int64_t value) {
  std::uint16_t bits = 0;
  float single = 0;
  double twice = 0;
  switch (type) {
    case Type::FP16:
      std::memcpy(&bits, at, 2);
      return bits == nearest(static_cast<double>(value), 5, 10);
    case Type::BF16:
      std::memcpy(&bits, at, 2);
      return bits == nearest(static_cast<double>(value), 8, 7);
    case Type::FP32:
      std::memcpy(&single, at, 4);
      return single == static_cast<float>(value);
    case Type::FP64:
      std::memcpy(&twice, at, 8);
      return twice == static_cast<double>(value);
    case Type::INT8:
      return holds<std::int8_t>(at, value);
    case Type::UINT8:
      return holds<std::uint8_t>(at, value);
    case Type::INT16:
      return holds<std::int16_t>(at, value);
    case Type::UINT16:
      return holds<std::uint16_t>(at, value);
    case Type::INT32:
      return holds<std::int32_t>(at, value);
    case Type::UINT32:
      return holds<std::uint32_t>(at, value);
    default:
      return false;
  }
}

/// All values of a small type; otherwise values near changes of rounding and sign, and random ones.
std::vector<std::uint8_t> inputs(Type type) {
  std::vector<std::uint8_t> bytes;
  const std::uint32_t size = std::max(bits_of(type) / 8, 1U);
  const auto add = [&](std::uint32_t value) {
    for (std::uint32_t k = 0; k < size; ++k)
      bytes.push_back(static_cast<std::uint8_t>(value >> (8 * k)));
  };
  if (size < 4) {
    for (std::uint32_t value = 0; value < 1U << (8 * size); ++value) add(value);
    return bytes;
  }
  std::mt19937 random(1);
  for (std::uint32_t bit = 0; bit < 32; ++bit) {
    for (int step = -9; step <= 9; ++step) {
      add((1U << bit) + static_cast<std::uint32_t>(step));
      add(0U - (1U << bit) + static_cast<std::uint32_t>(step));
      // Values halfway between two numbers of fp16 and bf16, and their neighbours.
      for (const int digits : {8, 11}) {
        const auto last = static_cast<int>(bit) - digits;
        if (last < 0) continue;
        add((1U << bit) + (1U << last) + static_cast<std::uint32_t>(step));
        add((1U << bit) + (3U << last) + static_cast<std::uint32_t>(step));
      }
    }
  }
  for (int i = 0; i < 5000; ++i) add(static_cast<std::uint32_t>(random()) >> (random() % 32));
  return bytes;
}

}  // namespace

TEST_CASE("every element is converted as its types say", "[reorder]") {
  for (const Type from : INPUTS) {
    const std::vector<std::uint8_t> bytes = inputs(from);
    for (const Type to : OUTPUTS) {
      for (const auto order : {ReorderEndianness::HOST, ReorderEndianness::NETWORK}) {
        const ReorderDataTypesConfig types{from, to, order};
        for (const auto& [set, stores] : codes()) {
          const Move move = move_for(types, set, stores);
          REQUIRE((move != nullptr) == convertible(from, to));
          if (move == nullptr) continue;
          const std::size_t n = bytes.size() * 8 / bits_of(from);
          const std::size_t each = bits_of(to) / 8;
          // Unaligned; nothing is written after the end.
          std::vector<std::byte> out(n * each + 2, std::byte{0xA5});
          std::vector<std::byte> in(bytes.size() + 1);
          std::memcpy(in.data() + 1, bytes.data(), bytes.size());
          move(out.data() + 1, in.data() + 1, bytes.size());
          memory::settle_stores();
          std::size_t wrong = 0;
          const bool network = order == ReorderEndianness::NETWORK;
          for (std::size_t i = 0; i < n; ++i)
            wrong += right(out.data() + 1 + i * each, to, input(bytes, i, from, network)) ? 0 : 1;
          INFO(reorder_data_type_to_string(from)
               << " to " << reorder_data_type_to_string(to) << ", set " << static_cast<int>(set)
               << ", stores " << static_cast<int>(stores));
          CHECK(wrong == 0);
          CHECK(out.front() == std::byte{0xA5});
          CHECK(out.back() == std::byte{0xA5});
        }
      }
    }
  }
}

TEST_CASE("integers are never narrowed, and never change their sign", "[reorder]") {
  CHECK(convertible(Type::SAME, Type::SAME));
  CHECK_FALSE(convertible(Type::SAME, Type::FP32));
  CHECK_FALSE(convertible(Type::INT16, Type::SAME));
  CHECK_FALSE(convertible(Type::INT16, Type::INT8));
  CHECK_FALSE(convertible(Type::INT16, Type::UINT32));
  CHECK_FALSE(convertible(Type::UINT16, Type::INT16));
  CHECK(convertible(Type::UINT16, Type::INT32));
  CHECK(convertible(Type::INT4, Type::INT8));
  CHECK_FALSE(convertible(Type::FP32, Type::FP64));
}

TEST_CASE("bytes of any number are copied as they are, to anywhere", "[reorder]") {
  std::vector<std::byte> in(1000);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = static_cast<std::byte>(i * 7);
  for (const auto& [set, stores] : codes()) {
    const Move move = move_for({}, set, stores);
    REQUIRE(move != nullptr);
    std::size_t wrong = 0;
    for (std::size_t n = 0; n < in.size(); n += n < 140 ? 1 : 13) {
      for (const std::size_t at : {0U, 1U, 31U, 32U, 63U}) {
        alignas(64) std::array<std::byte, 1100> out;
        out.fill(std::byte{0x5A});
        move(out.data() + at, in.data(), n);
        memory::settle_stores();
        wrong += std::memcmp(out.data() + at, in.data(), n) == 0 ? 0 : 1;
        const auto same = [](std::byte each) { return each == std::byte{0x5A}; };
        wrong += std::all_of(out.begin(), out.begin() + at, same) ? 0 : 1;
        wrong += std::all_of(out.begin() + at + n, out.end(), same) ? 0 : 1;
      }
    }
    INFO("set " << static_cast<int>(set) << ", stores " << static_cast<int>(stores));
    CHECK(wrong == 0);
  }
}

TEST_CASE("only frames that fill the last cache are streamed", "[reorder]") {
  CHECK_FALSE(worth_streaming(0));
  CHECK_FALSE(worth_streaming(4096));
  const std::uint64_t cache = last_cache_bytes();
  CHECK(cache % 1024 == 0);
  CHECK(worth_streaming(cache / 2) == (cache > 0));
  if (cache > 0) CHECK_FALSE(worth_streaming(cache / 2 - 1));
}

TEST_CASE("a fill value is written in the type of the output", "[reorder]") {
  std::byte at[8]{};
  std::uint16_t bits = 0;
  for (const double value : {0.0, -0.0, 1.0, -1.5, 65504.0, 65519.0, 65520.0, 1e-7, 5.96e-8, 2.9e-8,
                             0.1, std::numeric_limits<double>::infinity()}) {
    REQUIRE(encode(value, Type::FP16, at));
    std::memcpy(&bits, at, 2);
    CHECK(bits == nearest(std::isinf(value) ? 1e300 : value, 5, 10));
    REQUIRE(encode(value, Type::BF16, at));
    std::memcpy(&bits, at, 2);
    CHECK(bits == nearest(std::isinf(value) ? 1e300 : value, 8, 7));
  }
  REQUIRE(encode(std::nan(""), Type::FP32, at));
  float single = 0;
  std::memcpy(&single, at, 4);
  CHECK(std::isnan(single));
  REQUIRE(encode(std::nan(""), Type::FP16, at));
  std::memcpy(&bits, at, 2);
  CHECK(std::isnan(small(bits, 5, 10)));
  CHECK(encode(-128, Type::INT8, at));
  CHECK_FALSE(encode(-129, Type::INT8, at));
  CHECK_FALSE(encode(0.5, Type::UINT16, at));
  CHECK_FALSE(encode(std::nan(""), Type::INT32, at));
  CHECK_FALSE(encode(256, Type::SAME, at));
  CHECK(encode(4294967295.0, Type::UINT32, at));
}
