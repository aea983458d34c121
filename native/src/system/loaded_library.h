/// Libraries that are used if the host has them.
#pragma once

#include <initializer_list>

namespace daqiri {

/// Base class of classes whose members are functions of a library. The library stays loaded.
class LoadedLibrary {
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

  /// The first of these files that can be loaded; their names differ between distributions.
  LoadedLibrary(std::initializer_list<const char*> names) noexcept;
  [[nodiscard]] Symbol find(const char* name) noexcept;

 private:
  void* loaded_{nullptr};
  bool missing_{false};
};

}  // namespace daqiri
