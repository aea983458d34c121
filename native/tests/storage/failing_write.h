/// Writes that fail as those of a broken disk do.
#pragma once

namespace daqiri::test {

/// While it lives, one call of pwritev2(2) in this process fails: number `turn`, from 0, of those
/// with O_DIRECT, or of those without. One at a time.
class FailingWrite {
 public:
  FailingWrite(bool direct, int turn, int error) noexcept;
  FailingWrite(const FailingWrite&) = delete;
  FailingWrite& operator=(const FailingWrite&) = delete;
  ~FailingWrite();
  /// Whether it has failed.
  [[nodiscard]] bool met() const noexcept;
};

}  // namespace daqiri::test
