/// Files that this process left with nothing but whole records in them.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>

namespace daqiri {

/// Appending burst after burst to one file must not walk through all its records every time to see
/// whether the last one is torn. What has changed since is not known here.
class WholeFiles {
 public:
  void remember(int fd) noexcept;
  [[nodiscard]] bool knows(int fd) const noexcept;

 private:
  struct Mark {
    std::uint64_t device{0};
    std::uint64_t inode{0};
    std::int64_t size{-1};
    std::int64_t changed_ns{0};
    bool operator==(const Mark&) const = default;
  };
  static bool look(int fd, Mark& mark) noexcept;

  mutable std::mutex mutex_;
  std::array<Mark, 64> marks_{};
  std::size_t next_{0};
};

/// The process's.
WholeFiles& whole_files() noexcept;

}  // namespace daqiri
