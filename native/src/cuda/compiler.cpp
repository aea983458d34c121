#include "cuda/compiler.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>

#include "daqiri/error.h"

namespace daqiri::cuda {

namespace {

/// As nvrtc.h declares them in C.
struct Nvrtc {
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(void**);
  int (*compile)(void*, int, const char* const*);
  int (*log_size)(void*, std::size_t*);
  int (*log)(void*, char*);
  int (*code_size)(void*, std::size_t*);
  int (*code)(void*, char*);
};

/// Newest first; then in CUDA's own folder, which the loader need not know.
constexpr std::array LIBRARIES{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                               "/usr/local/cuda/lib64/libnvrtc.so"};

template <typename Function>
void require(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  throw Error(Status::NOT_SUPPORTED, std::string("NVRTC has no function ") + name +
                                         "; install that of CUDA 11.2 or newer");
}

Nvrtc load_nvrtc() {
  void* library = nullptr;
  for (const char* const name : LIBRARIES)
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    throw Error(Status::NOT_SUPPORTED,
                "a GPU's kernels are compiled with NVRTC, and libnvrtc is not installed; install "
                "the CUDA toolkit, or name the folder of a pip package's libnvrtc in "
                "LD_LIBRARY_PATH");
  }
  Nvrtc f{};
  require(library, "nvrtcCreateProgram", f.create);
  require(library, "nvrtcDestroyProgram", f.destroy);
  require(library, "nvrtcCompileProgram", f.compile);
  require(library, "nvrtcGetProgramLogSize", f.log_size);
  require(library, "nvrtcGetProgramLog", f.log);
  require(library, "nvrtcGetCUBINSize", f.code_size);
  require(library, "nvrtcGetCUBIN", f.code);
  return f;
}

}  // namespace

std::string compile(const std::string& source, int major, int minor) {
  static const Nvrtc f = load_nvrtc();
  void* program = nullptr;
  int problem = f.create(&program, source.c_str(), "daqiri", 0, nullptr, nullptr);
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(major * 10 + minor);
  const std::array options{architecture.c_str(), "--std=c++17"};
  if (problem == 0) problem = f.compile(program, static_cast<int>(options.size()), options.data());
  std::string text;
  std::size_t size = 0;
  if (problem == 0) {
    problem = f.code_size(program, &size);
    text.resize(size);
    if (problem == 0) problem = f.code(program, text.data());
  } else if (program != nullptr && f.log_size(program, &size) == 0) {
    text.resize(size);
    f.log(program, text.data());
  }
  if (program != nullptr) f.destroy(&program);
  if (problem == 0) return text;
  throw Error(Status::INTERNAL_ERROR, "NVRTC cannot compile a kernel for " + architecture +
                                          " (error " + std::to_string(problem) + "): " + text);
}

}  // namespace daqiri::cuda
