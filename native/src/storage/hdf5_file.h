/// HDF5 files whose bytes are written by this library, not by HDF5.
#pragma once

#include <hdf5.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "daqiri/error.h"

namespace daqiri::hdf5 {

/// Storage that the HDF5 library reads and writes instead of a file.
class Storage {
 public:
  Storage() = default;
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;
  virtual ~Storage() = default;

  /// Allocate space for an object and return its address. Default, as in HDF5: after the last one.
  virtual haddr_t allocate(H5FD_mem_t type, hsize_t bytes) noexcept;
  virtual bool read(haddr_t at, void* to, std::size_t bytes) noexcept = 0;
  virtual bool write(H5FD_mem_t type, haddr_t at, const void* from, std::size_t bytes) noexcept = 0;
  /// Make the file as long as what was allocated.
  virtual bool truncate() noexcept = 0;
  [[nodiscard]] virtual haddr_t size() const noexcept = 0;

  /// End of the allocated space.
  [[nodiscard]] haddr_t end() const noexcept { return end_; }
  void set_end(haddr_t end) noexcept { end_ = end < least_end_ ? least_end_ : end; }

 protected:
  /// Lower bound of the end: the superblock of a killed writer may have an older one.
  void set_least_end(haddr_t end) noexcept { least_end_ = end; }

 private:
  haddr_t end_{0};
  haddr_t least_end_{0};
};

/// An object of the library.
class Handle {
 public:
  using Close = herr_t (*)(hid_t);
  Handle() = default;
  /// Throws Error GENERIC_FAILURE if `id` is invalid; `action` is what was attempted.
  Handle(hid_t id, Close closed_by, const char* action);
  Handle(Handle&& other) noexcept
      : id_(std::exchange(other.id_, H5I_INVALID_HID)), close_(other.close_) {}
  Handle& operator=(Handle other) noexcept {
    std::swap(id_, other.id_);
    std::swap(close_, other.close_);
    return *this;
  }
  ~Handle() { close(); }
  /// Returns whether the object was closed without an error.
  bool close() noexcept;
  [[nodiscard]] bool is_open() const noexcept { return id_ >= 0; }
  operator hid_t() const noexcept { return id_; }  // NOLINT(google-explicit-constructor)

 private:
  hid_t id_{H5I_INVALID_HID};
  Close close_{nullptr};
};

/// Call before other functions of the library, in each thread: stops it from printing errors.
void enter() noexcept;
/// Message of the library about the last failed call in this thread.
std::string latest_error();
/// Throws Error GENERIC_FAILURE: "cannot <action> (HDF5: <message of the library>)" unless `good`.
void require(bool good, const char* action);

/// Create a file in `storage`, which is empty and outlives it. Throws Error.
Handle create(Storage& storage, const std::string& name);
/// Open the file in `storage` for writing; clears marks that a killed writer left. Throws Error.
Handle reopen(Storage& storage, const std::string& name);

}  // namespace daqiri::hdf5
