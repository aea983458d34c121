/// libpcap, if the host has it.
#pragma once

namespace daqiri {

/// Base class of classes whose members are functions of libpcap. The library stays loaded.
class Libpcap {
 public:
  /// Whether the library is not installed, or lacks a requested function.
  [[nodiscard]] bool missing() const noexcept { return missing_; }

 protected:
  struct Symbol {
    void* address;
    template <typename Function>
    operator Function*() const noexcept {  // NOLINT(google-explicit-constructor)
      return reinterpret_cast<Function*>(address);
    }
  };

  Libpcap() noexcept;
  [[nodiscard]] Symbol find(const char* name) noexcept;

 private:
  void* loaded_;
  bool missing_{false};
};

}  // namespace daqiri
