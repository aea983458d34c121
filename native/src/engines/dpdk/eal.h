/// DPDK's environment abstraction layer (EAL): the part of DPDK that belongs to the process.
#pragma once

#include <string>

namespace daqiri::dpdk {

/// Start the EAL, unless it has been started: DPDK can be started once in a process, so it is never
/// stopped. Any thread. Throws Error: once it has failed, the same error every time; in a child
/// made by fork(2), NOT_SUPPORTED.
void start_eal();

/// Whether this process started the EAL. A child made by fork(2) must not touch what it has of it.
[[nodiscard]] bool owns_eal() noexcept;

/// While it exists, errors that DPDK reports in this thread are for an exception: the log has them
/// as details.
class Reports {
 public:
  Reports();
  Reports(const Reports&) = delete;
  Reports& operator=(const Reports&) = delete;
  ~Reports();

  /// Text of `error`, an errno of either sign, and what DPDK reported in this thread since the last
  /// call.
  [[nodiscard]] static std::string reason(int error);
};

}  // namespace daqiri::dpdk
