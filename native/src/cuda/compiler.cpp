#include "cuda/compiler.h"

#include <dlfcn.h>

#include <array>
#include <cstddef>

#include "cuda/driver.h"
#include "cuda/library.h"
#include "daqiri/error.h"

namespace daqiri::cuda {

namespace {

/// Functions as declared in nvrtc.h.
struct Nvrtc {
  int (*version)(int*, int*);
  int (*create)(void**, const char*, const char*, int, const char* const*, const char* const*);
  int (*destroy)(void**);
  int (*compile)(void*, int, const char* const*);
  int (*log_size)(void*, std::size_t*);
  int (*log)(void*, char*);
  int (*code_size)(void*, std::size_t*);
  int (*code)(void*, char*);
};

/// Newest first; the last is in CUDA's own folder, which the loader may not search.
constexpr std::array LIBRARIES{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2",
                               "/usr/local/cuda/lib64/libnvrtc.so"};

bool find_functions(void* library, Nvrtc& f) noexcept {
  return find_function(library, "nvrtcVersion", f.version) &&
         find_function(library, "nvrtcCreateProgram", f.create) &&
         find_function(library, "nvrtcDestroyProgram", f.destroy) &&
         find_function(library, "nvrtcCompileProgram", f.compile) &&
         find_function(library, "nvrtcGetProgramLogSize", f.log_size) &&
         find_function(library, "nvrtcGetProgramLog", f.log) &&
         find_function(library, "nvrtcGetCUBINSize", f.code_size) &&
         find_function(library, "nvrtcGetCUBIN", f.code);
}

std::string version_of(const Nvrtc& f, int& major) {
  int minor = 0;
  f.version(&major, &minor);
  return std::to_string(major) + "." + std::to_string(minor);
}

/// Loads the newest NVRTC whose code a driver of CUDA `newest` supports.
Nvrtc load_nvrtc(int newest) {
  std::string unfit;
  for (const char* const name : LIBRARIES) {
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) continue;
    Nvrtc f{};
    int major = 0;
    if (!find_functions(library, f)) {
      unfit.append(unfit.empty() ? "" : ", ").append(name).append(" is older than CUDA 11.2");
    } else if (const std::string version = version_of(f, major); major > newest) {
      unfit.append(unfit.empty() ? "" : ", ").append(name).append(" is from CUDA ").append(version);
    } else {
      return f;
    }
    dlclose(library);
  }
  std::string text = "a GPU's kernels are compiled with NVRTC of CUDA 11.2 to ";
  text.append(std::to_string(newest)).append(", which the driver supports, and libnvrtc ");
  text.append(unfit.empty() ? "is not installed" : "is not of that version (" + unfit + ")");
  throw Error(Status::NOT_SUPPORTED,
              text.append("; install the CUDA toolkit, or name the folder of a pip package's "
                          "libnvrtc in LD_LIBRARY_PATH"));
}

const Nvrtc& nvrtc(int newest) {
  static const Nvrtc f = load_nvrtc(newest);
  return f;
}

}  // namespace

std::string why_no_compiler() {
  try {
    const Driver& driver = Driver::get("kernels of a GPU");
    int version = 0;
    if (const Result result = driver.call().version(&version); result != 0)
      return driver.text_of(result);
    nvrtc(version / 1000);
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

std::string compile(const std::string& source, int major, int minor, int newest) {
  const Nvrtc& f = nvrtc(newest);
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
  throw Error(Status::INTERNAL_ERROR, "NVRTC " + version_of(f, major) +
                                          " cannot compile a kernel for " + architecture +
                                          " (error " + std::to_string(problem) + "): " + text);
}

}  // namespace daqiri::cuda
