#include "storage/packet_gather.h"

#include <cstring>

namespace daqiri {

void gather_rows(const std::uint8_t* data, const std::int64_t* offsets,
                 const std::uint32_t* lengths, std::size_t n, std::uint8_t* out,
                 std::size_t width) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    std::uint8_t* row = out + i * width;
    std::memcpy(row, data + offsets[i], lengths[i]);
    if (lengths[i] < width) std::memset(row + lengths[i], 0, width - lengths[i]);
  }
}

}  // namespace daqiri
