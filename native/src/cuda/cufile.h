/// NVIDIA's cuFile (GPUDirect Storage), loaded when the first writer needs it.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace daqiri::cuda {

/// Structures as declared in cufile.h; the interface is binary compatible between versions.
struct CufileResult {
  /// 0: success.
  int error;
  /// Error of the CUDA driver, if `error` is CU_FILE_CUDA_DRIVER_ERROR.
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

/// cuFile in this process; its driver stays open until the process ends. Any thread. Not in a child
/// made by fork(2).
class Cufile {
 public:
  /// A GPU must be current. Throws Error NOT_SUPPORTED.
  static const Cufile& get();

  [[nodiscard]] const CufileFunctions& call() const noexcept { return functions_; }
  /// "nvidia-fs 2.17": the kernel has the module, and disks read GPU memory directly if file system
  /// and disk support it; otherwise COMPATIBILITY_MODE.
  [[nodiscard]] const std::string& mode() const noexcept { return mode_; }

 private:
  Cufile();

  CufileFunctions functions_{};
  std::string mode_;
};

/// Number of an error for file_problem; larger than any errno.
[[nodiscard]] int number_of(CufileResult result) noexcept;
/// "CU_FILE_IO_NOT_SUPPORTED (cuFile error 5008)".
[[nodiscard]] std::string cufile_error_text(int number);

}  // namespace daqiri::cuda
