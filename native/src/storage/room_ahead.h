/// Room on the disk, taken before the data come.
#pragma once

#include <cstdint>

namespace daqiri {

/// Takes room behind the end of a file that grows, in large pieces: the disk gets longer stretches
/// and the kernel less to do for each page. The file's size stays that of its data.
///
/// As much as is in the file is taken ahead, up to a limit and not for small files. Where the file
/// system has no such room, or none is left, the file grows without.
class RoomAhead {
 public:
  /// Begin with the open file `fd`, whose data end at `size`.
  void begin(int fd, std::uint64_t size) noexcept;
  /// Data up to `end` are about to be written.
  void reserve(std::uint64_t end) noexcept;
  /// Whether room is taken behind `size`.
  [[nodiscard]] bool reaches_beyond(std::uint64_t size) const noexcept { return end_ > size; }
  /// Cut the file at `size`, with all room behind it. Returns errno, 0: done.
  int give_back(std::uint64_t size) noexcept;

 private:
  /// A shorter file takes no room.
  static constexpr std::uint64_t LEAST = std::uint64_t{1} << 20U;
  static constexpr std::uint64_t MOST = std::uint64_t{64} << 20U;

  int fd_{-1};
  std::uint64_t end_{0};
  bool possible_{false};
};

}  // namespace daqiri
