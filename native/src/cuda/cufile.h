/// NVIDIA's cuFile (GPUDirect Storage), loaded when the first writer needs it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace daqiri::cuda {

/// As cufile.h declares them in C; the interface is binary compatible from version to version.
struct CufileResult {
  /// 0: success.
  int error;
  /// Of the driver's, where `error` is CU_FILE_CUDA_DRIVER_ERROR.
  int cuda;
};
struct CufileDescription {
  /// CU_FILE_HANDLE_TYPE_OPAQUE_FD
  int type{1};
  union {
    int fd;
    void* handle{nullptr};
  };
  const void* operations{nullptr};
};
struct CufileFunctions {
  CufileResult (*open_driver)();
  CufileResult (*properties)(void*);
  CufileResult (*register_file)(void**, CufileDescription*);
  void (*deregister_file)(void*);
  CufileResult (*register_buffer)(const void*, std::size_t, int);
  CufileResult (*deregister_buffer)(const void*);
  ssize_t (*write)(void*, const void*, std::size_t, off_t, off_t);
};

/// cuFile of this process, whose driver is open as long as that lives. Any thread. Not in a child
/// made by fork(2).
class Cufile {
 public:
  /// Where a GPU is current. Throws Error NOT_SUPPORTED.
  static const Cufile& get();

  [[nodiscard]] const CufileFunctions& call() const noexcept { return functions_; }
  /// "nvidia-fs 2.17": the kernel has it, and disks read the GPU's memory where file system and
  /// disk can; else COMPATIBILITY_MODE.
  [[nodiscard]] const std::string& mode() const noexcept { return mode_; }

 private:
  Cufile();

  CufileFunctions functions_{};
  std::string mode_;
};

/// An error's number, which file_problem knows; above those of errno.
[[nodiscard]] int number_of(CufileResult result) noexcept;
/// "CU_FILE_IO_NOT_SUPPORTED (cuFile error 5008)".
[[nodiscard]] std::string cufile_error_text(int number);

}  // namespace daqiri::cuda
