/// Writes and cuts that fail like those of a broken disk.
#pragma once

namespace daqiri::test {

/// While it exists, one call of pwritev2(2) in this process fails: call number `turn`, counted from
/// 0, among those with O_DIRECT or those without. Only one may exist at a time.
class FailingWrite {
 public:
  FailingWrite(bool direct, int turn, int error) noexcept;
  FailingWrite(const FailingWrite&) = delete;
  FailingWrite& operator=(const FailingWrite&) = delete;
  ~FailingWrite();
  /// Whether the call has failed.
  [[nodiscard]] bool met() const noexcept;
};

/// While it exists, one call of ftruncate(2) in this process fails with EIO: call number `turn`.
class FailingCut {
 public:
  explicit FailingCut(int turn) noexcept;
  FailingCut(const FailingCut&) = delete;
  FailingCut& operator=(const FailingCut&) = delete;
  ~FailingCut();
  [[nodiscard]] bool met() const noexcept;
};

}  // namespace daqiri::test
