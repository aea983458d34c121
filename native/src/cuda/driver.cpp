#include "cuda/driver.h"

#include <map>
#include <mutex>

#include "cuda/library.h"
#include "daqiri/error.h"

namespace daqiri::cuda {

namespace {

constexpr const char* LIBRARY = "libcuda.so.1";

/// Returns a context that is kept for the lifetime of the process, because regions are made and
/// freed often, and creating a context takes 0.1 s. Never destroyed, because sessions may end at
/// exit.
void* context_of(const Driver& driver, const std::string& what, int gpu) {
  static std::mutex mutex;
  static auto& kept = *new std::map<int, void*>;
  const std::lock_guard lock(mutex);
  if (const auto found = kept.find(gpu); found != kept.end()) return found->second;
  int count = 0;
  if (driver.call().device_count(&count) == 0 && gpu >= count) {
    throw Error(Status::INVALID_PARAMETER,
                what + ": affinity is " + std::to_string(gpu) + ", and the NVIDIA driver finds " +
                    std::to_string(count) + (count == 1 ? " GPU" : " GPUs") + "; accepts 0" +
                    (count == 1 ? "" : " to " + std::to_string(count - 1)));
  }
  void* context = nullptr;
  driver.require(driver.call().retain_context(&context, gpu), what, gpu);
  return kept.emplace(gpu, context).first->second;
}

}  // namespace

std::string Driver::find_functions() {
  // Never unloaded, because it has its own threads.
  void* const library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return std::string("this host has no NVIDIA driver (") + dlerror() + ")";
  Functions& f = functions_;
  const bool all = find_function(library, "cuInit", f.init) &&
                   find_function(library, "cuGetErrorName", f.error_name) &&
                   find_function(library, "cuGetErrorString", f.error_string) &&
                   find_function(library, "cuDriverGetVersion", f.version) &&
                   find_function(library, "cuDeviceGetCount", f.device_count) &&
                   find_function(library, "cuDevicePrimaryCtxRetain", f.retain_context) &&
                   find_function(library, "cuCtxPushCurrent_v2", f.push_context) &&
                   find_function(library, "cuCtxPopCurrent_v2", f.pop_context) &&
                   find_function(library, "cuCtxSynchronize", f.synchronize) &&
                   find_function(library, "cuMemHostRegister_v2", f.pin) &&
                   find_function(library, "cuMemHostUnregister", f.unpin) &&
                   find_function(library, "cuMemHostAlloc", f.allocate_host) &&
                   find_function(library, "cuMemFreeHost", f.free_host) &&
                   find_function(library, "cuMemAlloc_v2", f.allocate) &&
                   find_function(library, "cuMemFree_v2", f.free) &&
                   find_function(library, "cuMemGetInfo_v2", f.memory) &&
                   find_function(library, "cuMemcpyDtoHAsync_v2", f.copy_to_host) &&
                   find_function(library, "cuMemsetD8Async", f.fill) &&
                   find_function(library, "cuMemcpyHtoDAsync_v2", f.copy_to_gpu) &&
                   find_function(library, "cuDeviceGetAttribute", f.attribute) &&
                   find_function(library, "cuPointerGetAttribute", f.pointer_attribute) &&
                   find_function(library, "cuPointerSetAttribute", f.set_pointer_attribute) &&
                   find_function(library, "cuModuleLoadData", f.load_module) &&
                   find_function(library, "cuModuleUnload", f.unload_module) &&
                   find_function(library, "cuModuleGetFunction", f.find_function) &&
                   find_function(library, "cuFuncGetAttribute", f.function_attribute) &&
                   find_function(library, "cuLaunchKernel", f.launch) &&
                   find_function(library, "cuStreamCreate", f.make_stream) &&
                   find_function(library, "cuStreamDestroy_v2", f.destroy_stream) &&
                   find_function(library, "cuStreamSynchronize", f.wait_for_stream) &&
                   find_function(library, "cuStreamGetCtx", f.context_of_stream) &&
                   find_function(library, "cuStreamWaitEvent", f.let_stream_wait) &&
                   find_function(library, "cuEventCreate", f.make_event) &&
                   find_function(library, "cuEventDestroy_v2", f.destroy_event) &&
                   find_function(library, "cuEventRecord", f.record_event) &&
                   find_function(library, "cuEventSynchronize", f.wait_for_event);
  // Optional: without them, network cards cannot write to GPUs, and GPUs cannot export memory.
  static_cast<void>(find_function(library, "cuFlushGPUDirectRDMAWrites", f.flush_writes));
  static_cast<void>(find_function(library, "cuMemGetHandleForAddressRange", f.export_range));
  return all ? std::string() : std::string(LIBRARY) + " is older than CUDA 11";
}

Driver::Driver() : why_absent_(find_functions()) {
  if (!why_absent_.empty()) return;
  int devices = 0;
  Result result = functions_.init(0);
  if (result == 0) result = functions_.device_count(&devices);
  if (result != 0) {
    why_absent_ = "the NVIDIA driver cannot be initialized: " + text_of(result);
  } else if (devices == 0) {
    why_absent_ = "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES may hide it)";
  }
}

const Driver& Driver::loaded() {
  static const Driver& driver = *new Driver;
  return driver;
}

const Driver& Driver::get(const std::string& what) {
  if (const std::string& why = why_absent(); !why.empty())
    throw Error(Status::NOT_SUPPORTED, what + " needs CUDA, and " + why);
  return loaded();
}

const std::string& Driver::why_absent() {
  static const auto& forked = *new std::string(
      "it does not work in a child made by fork of a process that has used it (multiprocessing: "
      "start method 'spawn')");
  return Driver::forked() ? forked : loaded().why_absent_;
}

std::string Driver::text_of(Result result) const {
  const char* name = nullptr;
  const char* text = nullptr;
  if (functions_.error_name(result, &name) != 0 || functions_.error_string(result, &text) != 0)
    return "CUDA error " + std::to_string(result);
  return std::string(name) + ": " + text;
}

const char* Driver::remedy(Result result) noexcept {
  /// CUDA_ERROR_OUT_OF_MEMORY
  constexpr Result OUT_OF_MEMORY = 2;
  /// CUDA_ERROR_ILLEGAL_ADDRESS to CUDA_ERROR_LAUNCH_FAILED: CUDA no longer works in this process.
  constexpr Result FIRST_FATAL = 700;
  constexpr Result LAST_FATAL = 719;
  constexpr Result LAUNCH_OUT_OF_RESOURCES = 701;
  if (result == OUT_OF_MEMORY) return "end other programs that use the GPU's memory";
  if (result >= FIRST_FATAL && result <= LAST_FATAL && result != LAUNCH_OUT_OF_RESOURCES)
    return "start the program again";
  return "see the kernel log for errors of the GPU (dmesg)";
}

void Driver::require(Result result, const std::string& what, int gpu) const {
  if (result == 0) return;
  throw Error(Status::GENERIC_FAILURE,
              what + ": GPU " + std::to_string(gpu) + " cannot be used: " + text_of(result));
}

Context::Context(const std::string& what, int gpu)
    : driver_(Driver::get(what)), gpu_(gpu), handle_(context_of(driver_, what, gpu)) {
  if (const Result result = driver_.call().push_context(handle_); result != 0)
    throw Error(Status::GENERIC_FAILURE, what + ": " + driver_.text_of(result));
}

Context::~Context() {
  void* context = nullptr;
  driver_.call().pop_context(&context);
}

}  // namespace daqiri::cuda
