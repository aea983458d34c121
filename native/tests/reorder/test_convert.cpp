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

constexpr Type INPUTS[] = {Type::INT4,   Type::INT8,   Type::INT10,  Type::INT12,  Type::INT14,
                           Type::INT16,  Type::INT24,  Type::INT32,  Type::INT64,  Type::UINT4,
                           Type::UINT8,  Type::UINT10, Type::UINT12, Type::UINT14, Type::UINT16,
                           Type::UINT24, Type::UINT32, Type::UINT64};
constexpr Type OUTPUTS[] = {Type::FP16,  Type::BF16,   Type::FP32,  Type::FP64,
                            Type::INT8,  Type::UINT8,  Type::INT16, Type::UINT16,
                            Type::INT32, Type::UINT32, Type::INT64, Type::UINT64};
/// Holds every integer of 64 bits.
using Number = long double;
static_assert(std::numeric_limits<Number>::digits >= 64);

std::vector<MoveSet> sets() {
  std::vector<MoveSet> found{MoveSet::PORTABLE};
  if (best_move_set() == MoveSet::NEON) found.push_back(MoveSet::NEON);
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

/// Element `i` of `bytes`, bit by bit.
Number input(const std::vector<std::uint8_t>& bytes, std::size_t i,
             const ReorderDataTypesConfig& types) {
  const std::size_t bits = bits_of(types.input_type_);
  const bool msb_first = bits % 8 != 0 ? types.packing_ == ReorderPacking::MSB
                                       : types.endianness_ == ReorderEndianness::NETWORK;
  const bool is_signed = reorder_data_type_to_string(types.input_type_).front() == 'i';
  Number value = 0;
  for (std::size_t k = 0; k < bits; ++k) {
    // Bit k of the element, counted from the least significant one, in the packet.
    const std::size_t at = i * bits + (msb_first ? bits - 1 - k : k);
    const bool set = bytes[at / 8] >> (msb_first ? 7 - at % 8 : at % 8) & 1;
    const Number worth = std::ldexp(Number{1}, static_cast<int>(k));
    if (set) value += is_signed && k == bits - 1 ? -worth : worth;
  }
  return value;
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
std::uint16_t nearest(Number value, int exponent, int fraction) {
  const auto infinite = static_cast<std::uint16_t>(((1 << exponent) - 1) << fraction);
  const Number magnitude = std::fabs(value);
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
  const Number down = magnitude - below;
  const Number up = above - magnitude;
  const std::uint16_t chosen = down < up || (down == up && low % 2 == 0) ? low : high;
  return static_cast<std::uint16_t>(chosen | (std::signbit(value) ? 0x8000 : 0));
}

template <typename T>
bool holds(const std::byte* at, Number value) {
  T element;
  std::memcpy(&element, at, sizeof element);
  return static_cast<Number>(element) == value;
}

bool right(const std::byte* at, Type type, Number value) {
  std::uint16_t bits = 0;
  float single = 0;
  double twice = 0;
  switch (type) {
    case Type::FP16:
      std::memcpy(&bits, at, 2);
      return bits == nearest(value, 5, 10);
    case Type::BF16:
      std::memcpy(&bits, at, 2);
      return bits == nearest(value, 8, 7);
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
    case Type::INT64:
      return holds<std::int64_t>(at, value);
    case Type::UINT64:
      return holds<std::uint64_t>(at, value);
    default:
      return false;
  }
}

/// All values of a small type, or all bytes of packed ones at each place; otherwise values near
/// changes of rounding and sign, and random ones.
std::vector<std::uint8_t> inputs(Type type) {
  std::vector<std::uint8_t> bytes;
  std::mt19937_64 random(1);
  const std::uint32_t bits = bits_of(type);
  const std::uint32_t size = bits < 8 ? 1 : bits / 8;
  const auto add = [&](std::uint64_t value) {
    for (std::uint32_t k = 0; k < size; ++k)
      bytes.push_back(static_cast<std::uint8_t>(value >> (8 * k)));
  };
  if (is_packed(type) && bits > 8) {
    for (std::uint32_t i = 0; i < 40000 * group_bytes(type); ++i)
      bytes.push_back(static_cast<std::uint8_t>(random()));
    return bytes;
  }
  if (bits <= 16) {
    for (std::uint32_t value = 0; value < 1U << (8 * size); ++value) add(value);
    return bytes;
  }
  for (std::uint32_t bit = 0; bit < bits; ++bit) {
    for (int step = -9; step <= 9; ++step) {
      const auto more = static_cast<std::uint64_t>(std::int64_t{step});
      const std::uint64_t one = std::uint64_t{1} << bit;
      add(one + more);
      add(0U - one + more);
      // Values halfway between two numbers of smaller types, and their neighbours.
      for (const int digits : {8, 11, 24, 53}) {
        const auto last = static_cast<int>(bit) - digits;
        if (last < 0) continue;
        for (const std::uint64_t part : {1U, 3U}) {
          add(one + (part << last) + more);
          add(0U - one - (part << last) + more);
        }
      }
    }
  }
  for (int i = 0; i < 5000; ++i) add(random() >> (random() % 64));
  return bytes;
}

}  // namespace

TEST_CASE("every element is converted as its types say", "[reorder]") {
  for (const Type from : INPUTS) {
    const std::vector<std::uint8_t> bytes = inputs(from);
    for (const Type to : OUTPUTS) {
      for (int order = 0; order < 2; ++order) {
        ReorderDataTypesConfig types{from, to};
        if (is_packed(from))
          types.packing_ = order == 0 ? ReorderPacking::MSB : ReorderPacking::LSB;
        else
          types.endianness_ = order == 0 ? ReorderEndianness::HOST : ReorderEndianness::NETWORK;
        const std::size_t n = bytes.size() * 8 / bits_of(from);
        std::vector<Number> values(n);
        for (std::size_t i = 0; i < n; ++i) values[i] = input(bytes, i, types);
        for (const auto& [set, stores] : codes()) {
          const Move move = move_for(types, set, stores);
          REQUIRE((move != nullptr) == convertible(from, to));
          if (move == nullptr) continue;
          const std::size_t each = bits_of(to) / 8;
          // Unaligned; nothing is written after the end.
          std::vector<std::byte> out(n * each + 2, std::byte{0xA5});
          std::vector<std::byte> in(bytes.size() + 1);
          std::memcpy(in.data() + 1, bytes.data(), bytes.size());
          move(out.data() + 1, in.data() + 1, bytes.size());
          memory::settle_stores();
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < n; ++i)
            wrong += right(out.data() + 1 + i * each, to, values[i]) ? 0 : 1;
          INFO(reorder_data_type_to_string(from)
               << " to " << reorder_data_type_to_string(to) << ", order " << order << ", set "
               << static_cast<int>(set) << ", stores " << static_cast<int>(stores));
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
  CHECK(convertible(Type::UINT12, Type::UINT16));
  CHECK(convertible(Type::UINT14, Type::INT16));
  CHECK_FALSE(convertible(Type::INT12, Type::UINT16));
  CHECK_FALSE(convertible(Type::UINT10, Type::UINT8));
  CHECK_FALSE(convertible(Type::UINT24, Type::UINT24));
  CHECK_FALSE(convertible(Type::UINT64, Type::INT64));
  CHECK_FALSE(convertible(Type::INT4, Type::UINT4));
}

TEST_CASE("floats become wider floats only", "[reorder]") {
  CHECK(convertible(Type::FP16, Type::FP16));
  CHECK(convertible(Type::FP16, Type::FP32));
  CHECK(convertible(Type::FP32, Type::FP64));
  CHECK_FALSE(convertible(Type::FP64, Type::FP32));
  CHECK_FALSE(convertible(Type::FP16, Type::BF16));
  CHECK_FALSE(convertible(Type::BF16, Type::FP32));
  CHECK_FALSE(convertible(Type::FP64, Type::INT64));
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
  CHECK_FALSE(encode(4294967296.0, Type::UINT32, at));
  CHECK(encode(-0x1p63, Type::INT64, at));
  CHECK_FALSE(encode(0x1p63, Type::INT64, at));
  CHECK_FALSE(encode(0x1p64, Type::UINT64, at));
  REQUIRE(encode(0x1p64 - 0x1p11, Type::UINT64, at));
  std::uint64_t wide = 0;
  std::memcpy(&wide, at, 8);
  CHECK(wide == 0xFFFF'FFFF'FFFF'F800U);
}
