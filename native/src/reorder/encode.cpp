// Values as elements of frames.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "reorder/convert.h"

namespace daqiri::reorder {

namespace {

template <typename T>
bool put_integer(double value, std::byte* to) noexcept {
  // The first number above the range is a power of two, which a double holds.
  const double end = std::ldexp(1, std::numeric_limits<T>::digits);
  if (!(value >= static_cast<double>(std::numeric_limits<T>::min()) && value < end) ||
      value != std::trunc(value))
    return false;
  const T out = static_cast<T>(value);
  std::memcpy(to, &out, sizeof out);
  return true;
}

/// For any number.
template <int E, int F>
std::uint16_t small_bits(double value) noexcept {
  constexpr int BIAS = (1 << (E - 1)) - 1;
  constexpr int INFINITE = ((1 << E) - 1) << F;
  const int sign = std::signbit(value) ? 1 << 15 : 0;
  if (std::isnan(value)) return static_cast<std::uint16_t>(sign | INFINITE | 1 << (F - 1));
  const double magnitude = std::fabs(value);
  if (magnitude == 0) return static_cast<std::uint16_t>(sign);
  int exponent = std::isinf(magnitude) ? 2 * BIAS : std::max(std::ilogb(magnitude), 1 - BIAS);
  // In units of the last place: an integer below 2^(F + 1), rounded to nearest by the current mode.
  const double units =
      std::isinf(magnitude) ? 0 : std::nearbyint(std::ldexp(magnitude, F - exponent));
  const double bits = units + std::ldexp(exponent + BIAS - 1, F);
  const bool infinite = std::isinf(magnitude) || bits >= INFINITE;
  return static_cast<std::uint16_t>(sign | (infinite ? INFINITE : static_cast<int>(bits)));
}

}  // namespace

bool encode(double value, ReorderDataType output, std::byte* to) noexcept {
  const auto put = [to](auto element) {
    std::memcpy(to, &element, sizeof element);
    return true;
  };
  switch (output) {
    case ReorderDataType::FP16:
      return put(small_bits<5, 10>(value));
    case ReorderDataType::BF16:
      return put(small_bits<8, 7>(value));
    case ReorderDataType::FP32:
      return put(static_cast<float>(value));
    case ReorderDataType::FP64:
      return put(value);
    case ReorderDataType::INT8:
      return put_integer<std::int8_t>(value, to);
    case ReorderDataType::SAME:
    case ReorderDataType::UINT8:
      return put_integer<std::uint8_t>(value, to);
    case ReorderDataType::INT16:
      return put_integer<std::int16_t>(value, to);
    case ReorderDataType::UINT16:
      return put_integer<std::uint16_t>(value, to);
    case ReorderDataType::INT32:
      return put_integer<std::int32_t>(value, to);
    case ReorderDataType::UINT32:
      return put_integer<std::uint32_t>(value, to);
    case ReorderDataType::INT64:
      return put_integer<std::int64_t>(value, to);
    case ReorderDataType::UINT64:
      return put_integer<std::uint64_t>(value, to);
    default:
      return false;
  }
}

}  // namespace daqiri::reorder
