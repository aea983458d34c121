#include "cuda/cufile.h"

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "cuda/driver.h"
#include "cuda/library.h"
#include "daqiri/error.h"
#include "storage/write_backend.h"
#include "system/file.h"

namespace daqiri::cuda {

namespace {

/// The second is in CUDA's own folder, which the loader may not search.
constexpr std::array CUFILE_LIBRARIES{"libcufile.so.0", "/usr/local/cuda/lib64/libcufile.so.0"};

/// Another library of the process has opened the driver.
constexpr int DRIVER_ALREADY_OPEN = 5026;
constexpr int CUDA_DRIVER_ERROR = 5011;
/// An error number contains cuFile's error in these low bits, and CUDA's error above.
constexpr unsigned CUDA_BITS = 16;

constexpr std::pair<int, const char*> NAMES[] = {
    {5001, "DRIVER_NOT_INITIALIZED"},
    {5002, "DRIVER_INVALID_PROPS"},
    {5003, "DRIVER_UNSUPPORTED_LIMIT"},
    {5004, "DRIVER_VERSION_MISMATCH"},
    {5005, "DRIVER_VERSION_READ_ERROR"},
    {5006, "DRIVER_CLOSING"},
    {5007, "PLATFORM_NOT_SUPPORTED"},
    {5008, "IO_NOT_SUPPORTED"},
    {5009, "DEVICE_NOT_SUPPORTED"},
    {5010, "NVFS_DRIVER_ERROR"},
    {CUDA_DRIVER_ERROR, "CUDA_DRIVER_ERROR"},
    {5012, "CUDA_POINTER_INVALID"},
    {5013, "CUDA_MEMORY_TYPE_INVALID"},
    {5014, "CUDA_POINTER_RANGE_ERROR"},
    {5015, "CUDA_CONTEXT_MISMATCH"},
    {5016, "INVALID_MAPPING_SIZE"},
    {5017, "INVALID_MAPPING_RANGE"},
    {5018, "INVALID_FILE_TYPE"},
    {5019, "INVALID_FILE_OPEN_FLAG"},
    {5020, "DIO_NOT_SET"},
    {5022, "INVALID_VALUE"},
    {5023, "MEMORY_ALREADY_REGISTERED"},
    {5024, "MEMORY_NOT_REGISTERED"},
    {5025, "PERMISSION_DENIED"},
    {DRIVER_ALREADY_OPEN, "DRIVER_ALREADY_OPEN"},
    {5027, "HANDLE_NOT_REGISTERED"},
    {5028, "HANDLE_ALREADY_REGISTERED"},
    {5029, "DEVICE_NOT_FOUND"},
    {5030, "INTERNAL_ERROR"},
    {5031, "GETNEWFD_FAILED"},
    {5033, "NVFS_SETUP_ERROR"},
    {5034, "IO_DISABLED"},
    {5036, "GPU_MEMORY_PINNING_FAILED"},
    {5043, "NOMEM_ERROR"},
    {5044, "IO_ERROR"},
    {5045, "INTERNAL_BUF_REGISTER_ERROR"},
    {5047, "INVALID_CONTEXT_ERROR"},
    {5048, "NVFS_INTERNAL_DRIVER_ERROR"},
};

bool find_functions(void* library, CufileFunctions& f) noexcept {
  return find_function(library, "cuFileDriverOpen", f.open_driver) &&
         find_function(library, "cuFileDriverGetProperties", f.properties) &&
         find_function(library, "cuFileHandleRegister", f.register_file) &&
         find_function(library, "cuFileHandleDeregister", f.deregister_file) &&
         find_function(library, "cuFileBufRegister", f.register_buffer) &&
         find_function(library, "cuFileBufDeregister", f.deregister_buffer) &&
         find_function(library, "cuFileWrite", f.write);
}

CufileFunctions load_functions() {
  std::string why;
  for (const char* const name : CUFILE_LIBRARIES) {
    // Never unloaded, because it has its own threads.
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    CufileFunctions f{};
    if (library != nullptr && find_functions(library, f)) return f;
    why.append(why.empty() ? "" : "; ");
    why.append(library == nullptr ? dlerror() : name + std::string(" lacks functions"));
  }
  throw Error(Status::NOT_SUPPORTED,
              "cuFile is not installed (" + why +
                  "); install the CUDA toolkit's libcufile, or name the folder of a pip package's "
                  "libcufile.so.0 in LD_LIBRARY_PATH");
}

std::string mode_of(const CufileFunctions& functions) {
  // CUfileDrvProps_t begins with these members, and grows with each version.
  struct Properties {
    unsigned major;
    unsigned minor;
    std::array<std::byte, 4096> others;
  };
  const auto properties = std::make_unique<Properties>();
  if (functions.properties(properties.get()).error != 0 || properties->major == 0)
    return COMPATIBILITY_MODE;
  return "nvidia-fs " + std::to_string(properties->major) + "." + std::to_string(properties->minor);
}

const RegisteredErrorText error_text(cufile_error_text);

}  // namespace

Cufile::Cufile() : functions_(load_functions()) {
  const CufileResult result = functions_.open_driver();
  if (result.error != 0 && result.error != DRIVER_ALREADY_OPEN) {
    throw Error(Status::NOT_SUPPORTED,
                "cuFile's driver does not open: " + cufile_error_text(number_of(result)) +
                    "; see cufile.log, and `gdscheck -p` for what this host supports");
  }
  mode_ = mode_of(functions_);
}

const Cufile& Cufile::get() {
  // If this fails, the next call tries again.
  static const Cufile cufile;
  return cufile;
}

int number_of(CufileResult result) noexcept {
  const unsigned cuda = result.error == CUDA_DRIVER_ERROR ? static_cast<unsigned>(result.cuda) : 0;
  return static_cast<int>(cuda << CUDA_BITS | static_cast<unsigned>(result.error));
}

std::string cufile_error_text(int number) {
  constexpr unsigned ERROR = (1U << CUDA_BITS) - 1;
  const int error = static_cast<int>(static_cast<unsigned>(number) & ERROR);
  const int cuda = static_cast<int>(static_cast<unsigned>(number) >> CUDA_BITS);
  const auto* const name = std::ranges::find(NAMES, error, &std::pair<int, const char*>::first);
  std::string text = name == std::end(NAMES) ? "" : std::string("CU_FILE_") + name->second + " (";
  text.append("cuFile error ").append(std::to_string(error));
  if (cuda != 0) text.append(", ").append(Driver::get("cuFile").text_of(cuda));
  return name == std::end(NAMES) ? text : text + ")";
}

}  // namespace daqiri::cuda
