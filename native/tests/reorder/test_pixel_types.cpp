// Pixels of odd sizes at any place, and floating-point pixels.
#include <catch2/catch.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "memory/streaming_copy.h"
#include "reorder/convert.h"

using namespace daqiri;
using namespace daqiri::reorder;
using Type = ReorderDataType;

namespace {

using Bytes = std::vector<std::byte>;

Bytes random_bytes(std::size_t n) {
  static std::mt19937 random(1);
  Bytes bytes(n);
  std::ranges::generate(bytes, [] { return static_cast<std::byte>(random()); });
  return bytes;
}

/// Exactly as many bytes as there are, so that a read or write beyond them is detected.
Bytes moved(Move move, const Bytes& in, std::size_t at, std::size_t out) {
  const Bytes part(in.begin() + static_cast<std::ptrdiff_t>(at), in.end());
  Bytes made(out);
  move(made.data(), part.data(), part.size());
  memory::settle_stores();
  return made;
}

template <typename T>
std::vector<T> values(const Bytes& bytes) {
  std::vector<T> found(bytes.size() / sizeof(T));
  std::memcpy(found.data(), bytes.data(), found.size() * sizeof(T));
  return found;
}

template <typename T>
Bytes bytes_of(const std::vector<T>& elements, bool big) {
  Bytes bytes(elements.size() * sizeof(T));
  std::memcpy(bytes.data(), elements.data(), bytes.size());
  if (big != (std::endian::native == std::endian::big)) {
    for (auto at = bytes.begin(); at != bytes.end(); at += sizeof(T))
      std::reverse(at, at + sizeof(T));
  }
  return bytes;
}

std::vector<MoveSet> tested_sets() {
  std::vector<MoveSet> found{MoveSet::PORTABLE, best_move_set()};
  if (best_move_set() == MoveSet::AVX512) found.push_back(MoveSet::AVX2);
  return found;
}

/// Fraction and sign of the input, and quiet.
template <typename Out>
bool is_nan_of(Out value, std::uint64_t fraction, bool negative) {
  using Bits = std::conditional_t<sizeof(Out) == 4, std::uint32_t, std::uint64_t>;
  constexpr int DIGITS = std::numeric_limits<Out>::digits - 1;
  const auto bits = std::bit_cast<Bits>(value);
  const auto quiet = Bits{1} << (DIGITS - 1);
  return std::isnan(value) && std::signbit(value) == negative &&
         (bits & ((Bits{1} << DIGITS) - 1)) == (static_cast<Bits>(fraction) | quiet);
}

}  // namespace

TEST_CASE("pixels of any number and at any place are those of the scalar loop", "[reorder]") {
  const MoveSet best = best_move_set();
  for (const Type from : {Type::INT4, Type::INT10, Type::INT12, Type::INT14, Type::INT24,
                          Type::UINT4, Type::UINT10, Type::UINT12, Type::UINT14, Type::UINT24}) {
    for (const Type to : {Type::INT16, Type::UINT16, Type::INT32, Type::FP32, Type::FP64}) {
      if (!convertible(from, to)) continue;
      for (int order = 0; order < 4; ++order) {
        const ReorderDataTypesConfig types{
            from, to, order % 2 == 0 ? ReorderEndianness::HOST : ReorderEndianness::NETWORK,
            order / 2 == 0 ? ReorderPacking::MSB : ReorderPacking::LSB};
        const Groups groups(types);
        std::size_t wrong = 0;
        for (std::size_t n = 0; n < 700; n += n < 70 ? 1 : 61) {
          const std::size_t size = n * groups.bytes();
          for (std::size_t at = 0; at < 3; ++at) {
            const Bytes in = random_bytes(size + at);
            const std::size_t out = groups.output_of(size);
            const Bytes wanted = moved(move_for(types, MoveSet::PORTABLE), in, at, out);
            for (const Stores stores : {Stores::CACHED, Stores::STREAMED})
              wrong += moved(move_for(types, best, stores), in, at, out) == wanted ? 0 : 1;
          }
        }
        INFO(reorder_data_type_to_string(from)
             << " to " << reorder_data_type_to_string(to) << ", order " << order);
        CHECK(wrong == 0);
      }
    }
  }
}

TEST_CASE("packed pixels have the documented bits", "[reorder]") {
  const auto made = [](Type type, ReorderPacking packing, std::vector<std::uint8_t> packed) {
    const Bytes in = bytes_of(packed, false);
    const ReorderDataTypesConfig types{type, Type::UINT16, ReorderEndianness::HOST, packing};
    const std::size_t out = Groups(types).output_of(in.size());
    return values<std::uint16_t>(moved(move_for(types), in, 0, out));
  };
  using Values = std::vector<std::uint16_t>;
  CHECK(made(Type::UINT4, ReorderPacking::MSB, {0x12}) == Values{1, 2});
  CHECK(made(Type::UINT4, ReorderPacking::LSB, {0x12}) == Values{2, 1});
  CHECK(made(Type::UINT12, ReorderPacking::MSB, {0x12, 0x3A, 0xBC}) == Values{0x123, 0xABC});
  CHECK(made(Type::UINT12, ReorderPacking::LSB, {0x12, 0x3A, 0xBC}) == Values{0xA12, 0xBC3});
  // 1, 2, 3 and 4.
  CHECK(made(Type::UINT10, ReorderPacking::MSB, {0x00, 0x40, 0x20, 0x0C, 0x04}) ==
        Values{1, 2, 3, 4});
  CHECK(made(Type::UINT10, ReorderPacking::LSB, {0x01, 0x08, 0x30, 0x00, 0x01}) ==
        Values{1, 2, 3, 4});
  CHECK(made(Type::UINT14, ReorderPacking::MSB, {0x00, 0x04, 0x00, 0x20, 0x00, 0xC0, 0x04}) ==
        Values{1, 2, 3, 4});
  CHECK(made(Type::UINT14, ReorderPacking::LSB, {0x01, 0x80, 0x00, 0x30, 0x00, 0x10, 0x00}) ==
        Values{1, 2, 3, 4});
}

TEST_CASE("floats of 16 bits keep their values", "[reorder]") {
  std::vector<std::uint16_t> all(0x10000);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  for (const bool big : {false, true}) {
    const Bytes in = bytes_of(all, big);
    const auto order = big ? ReorderEndianness::NETWORK : ReorderEndianness::HOST;
    for (const MoveSet set : tested_sets()) {
      const auto made = [&](Type to, std::size_t each) {
        return moved(move_for({Type::FP16, to, order}, set), in, 0, all.size() * each);
      };
      CHECK(values<std::uint16_t>(made(Type::FP16, 2)) == all);
      const auto single = values<float>(made(Type::FP32, 4));
      const auto twice = values<double>(made(Type::FP64, 8));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::uint64_t fraction = i & 0x3FF;
        const auto exponent = static_cast<int>(i >> 10 & 0x1F);
        const bool negative = i >> 15 != 0;
        double wanted = std::numeric_limits<double>::infinity();
        if (exponent == 0) wanted = std::ldexp(fraction, -24);
        if (exponent != 0 && exponent < 31) wanted = std::ldexp(fraction + 1024, exponent - 25);
        wanted = negative ? -wanted : wanted;
        const bool good =
            exponent == 31 && fraction != 0
                ? is_nan_of(single[i], fraction << 13, negative) &&
                      is_nan_of(twice[i], fraction << 42, negative)
                : single[i] == wanted && twice[i] == wanted && std::signbit(single[i]) == negative;
        wrong += good ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("floats of 32 and 64 bits keep their values", "[reorder]") {
  std::mt19937_64 random(1);
  std::vector<std::uint32_t> singles{0,          0x80000000, 1,          0x7F800000,
                                     0xFF800001, 0x7FC00001, 0x007FFFFF, 0x3F800000};
  std::vector<std::uint64_t> doubles{0, 1, 0x7FF0000000000000, 0xFFF0000000000001};
  for (int i = 0; i < 3000; ++i) {
    singles.push_back(static_cast<std::uint32_t>(random()));
    doubles.push_back(random());
  }
  for (const bool big : {false, true}) {
    const auto order = big ? ReorderEndianness::NETWORK : ReorderEndianness::HOST;
    const Bytes of_4 = bytes_of(singles, big);
    const Bytes of_8 = bytes_of(doubles, big);
    for (const MoveSet set : tested_sets()) {
      const Move same_4 = move_for({Type::FP32, Type::FP32, order}, set);
      CHECK(values<std::uint32_t>(moved(same_4, of_4, 0, of_4.size())) == singles);
      const Move same_8 = move_for({Type::FP64, Type::FP64, order}, set);
      CHECK(values<std::uint64_t>(moved(same_8, of_8, 0, of_8.size())) == doubles);
      const Move wide = move_for({Type::FP32, Type::FP64, order}, set);
      const auto made = values<double>(moved(wide, of_4, 0, 2 * of_4.size()));
      std::size_t wrong = 0;
      for (std::size_t i = 0; i < singles.size(); ++i) {
        const auto value = std::bit_cast<float>(singles[i]);
        const std::uint64_t fraction = std::uint64_t{singles[i] & 0x7FFFFF} << 29;
        const bool good = std::isnan(value)
                              ? is_nan_of(made[i], fraction, std::signbit(value))
                              : std::bit_cast<std::uint64_t>(made[i]) ==
                                    std::bit_cast<std::uint64_t>(static_cast<double>(value));
        wrong += good ? 0 : 1;
      }
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("groups are counted as by a division", "[reorder]") {
  for (const Type from : {Type::SAME, Type::UINT4, Type::UINT8, Type::UINT10, Type::UINT12,
                          Type::UINT14, Type::UINT16, Type::UINT24, Type::UINT32, Type::UINT64}) {
    const Type to = from == Type::SAME ? Type::SAME : Type::FP64;
    const Groups groups({from, to});
    const std::uint64_t elements = from == Type::SAME ? 1 : group_elements(from);
    CHECK(groups.output_bytes() == elements * (from == Type::SAME ? 1 : 8));
    CHECK(groups.bytes() * 8 == (from == Type::SAME ? 8 : elements * bits_of(from)));
    std::size_t wrong = 0;
    for (std::uint32_t i = 0; i < 4000; ++i) {
      for (const std::uint32_t bytes : {i, UINT32_MAX - i}) {
        const bool whole = bytes % groups.bytes() == 0;
        wrong += groups.fill(bytes) == whole ? 0 : 1;
        const std::uint64_t output = std::uint64_t{bytes} / groups.bytes() * groups.output_bytes();
        if (whole) wrong += groups.output_of(bytes) == output ? 0 : 1;
        if (whole) wrong += groups.input_of(output) == bytes ? 0 : 1;
      }
    }
    CHECK(wrong == 0);
  }
}
