#include "storage/hdf5_file.h"

#include <memory>
#include <mutex>
#include <new>

#if H5_VERSION_GE(1, 13, 0)
#include <H5FDdevelop.h>
#endif

namespace daqiri::hdf5 {

namespace {

// --- The driver: C functions that the library calls

/// A storage that the library has open.
struct OpenStorage {
  H5FD_t base;
  Storage* storage;
};
/// Driver information in the library's file access properties.
struct DriverInfo {
  Storage* storage;
};
Storage& storage_of(const H5FD_t* file) noexcept {
  return *reinterpret_cast<const OpenStorage*>(file)->storage;
}

H5FD_t* open_storage(const char* /*name*/, unsigned /*flags*/, hid_t access, haddr_t /*most*/) {
  const auto* info = static_cast<const DriverInfo*>(H5Pget_driver_info(access));
  if (info == nullptr) return nullptr;
  // No exception may cross the library.
  std::unique_ptr<OpenStorage> opened(new (std::nothrow) OpenStorage{{}, info->storage});
  return opened == nullptr ? nullptr : &opened.release()->base;
}

herr_t close_storage(H5FD_t* file) {
  const std::unique_ptr<OpenStorage> closed(reinterpret_cast<OpenStorage*>(file));
  return 0;
}

int compare(const H5FD_t* a, const H5FD_t* b) {
  const Storage* const first = &storage_of(a);
  const Storage* const second = &storage_of(b);
  return std::less<>{}(first, second) ? -1 : first == second ? 0 : 1;
}

herr_t query(const H5FD_t* /*file*/, unsigned long* flags) {
  if (flags != nullptr) *flags = H5FD_FEAT_SUPPORTS_SWMR_IO;
  return 0;
}

haddr_t allocate(H5FD_t* file, H5FD_mem_t type, hid_t /*transfer*/, hsize_t bytes) {
  return storage_of(file).allocate(type, bytes);
}
haddr_t get_end(const H5FD_t* file, H5FD_mem_t /*type*/) { return storage_of(file).end(); }
herr_t set_end(H5FD_t* file, H5FD_mem_t /*type*/, haddr_t end) {
  storage_of(file).set_end(end);
  return 0;
}
haddr_t get_size(const H5FD_t* file, H5FD_mem_t /*type*/) { return storage_of(file).size(); }
herr_t read(H5FD_t* file, H5FD_mem_t /*type*/, hid_t /*transfer*/, haddr_t at, std::size_t bytes,
            void* to) {
  return storage_of(file).read(at, to, bytes) ? 0 : -1;
}
herr_t write(H5FD_t* file, H5FD_mem_t type, hid_t /*transfer*/, haddr_t at, std::size_t bytes,
             const void* from) {
  return storage_of(file).write(type, at, from, bytes) ? 0 : -1;
}
herr_t truncate(H5FD_t* file, hid_t /*transfer*/, hbool_t /*closing*/) {
  return storage_of(file).truncate() ? 0 : -1;
}

/// The file is locked when it is opened. These exist because the library marks files as open only
/// if their driver can lock.
herr_t lock(H5FD_t* /*file*/, hbool_t /*for_writing*/) { return 0; }
herr_t unlock(H5FD_t* /*file*/) { return 0; }

const H5FD_class_t& driver_class() noexcept {
  static const H5FD_class_t described = [] {
    H5FD_class_t driver{};
#if H5_VERSION_GE(1, 13, 0)
    driver.version = H5FD_CLASS_VERSION;
    driver.value = static_cast<H5FD_class_value_t>(511);  // the highest value reserved for testing
#endif
    driver.name = "daqiri";
    driver.maxaddr = (haddr_t{1} << 62U) - 1;
    driver.fc_degree = H5F_CLOSE_STRONG;
    driver.fapl_size = sizeof(DriverInfo);
    driver.open = open_storage;
    driver.close = close_storage;
    driver.cmp = compare;
    driver.query = query;
    driver.alloc = allocate;
    driver.get_eoa = get_end;
    driver.set_eoa = set_end;
    driver.get_eof = get_size;
    driver.read = read;
    driver.write = write;
    driver.truncate = truncate;
    driver.lock = lock;
    driver.unlock = unlock;
    for (H5FD_mem_t& type : driver.fl_map) type = H5FD_MEM_DEFAULT;
    return driver;
  }();
  return described;
}

hid_t driver() {
  static const hid_t id = H5FDregister(&driver_class());
  return id;
}

Handle access_to(Storage& storage) {
  Handle access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "describe an HDF5 file");
  const DriverInfo info{&storage};
  require(driver() >= 0 && H5Pset_driver(access, driver(), &info) >= 0 &&
              H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110) >= 0 &&
              H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) >= 0 &&
              H5Pset_sieve_buf_size(access, 0) >= 0 && H5Pset_small_data_block_size(access, 0) >= 0,
          "describe an HDF5 file");
  return access;
}

herr_t keep_first(unsigned n, const H5E_error2_t* error, void* text) {
  if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(text) = error->desc;
  return 0;
}

}  // namespace

void enter() noexcept {
  // A forked child must not close files that the parent has open.
  static std::once_flag once;
  std::call_once(once, [] { H5dont_atexit(); });
  thread_local const bool quiet = H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr) >= 0;
  static_cast<void>(quiet);
}

std::string latest_error() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_first, &text);
  return text;
}

void require(bool good, const char* action) {
  if (good) return;
  const std::string reason = latest_error();
  throw Error(Status::GENERIC_FAILURE,
              "cannot " + std::string(action) + (reason.empty() ? "" : " (HDF5: " + reason + ")"));
}

Handle::Handle(hid_t id, Close closed_by, const char* action) : id_(id), close_(closed_by) {
  require(id >= 0, action);
}

bool Handle::close() noexcept {
  const hid_t id = std::exchange(id_, H5I_INVALID_HID);
  return id < 0 || close_(id) >= 0;
}

Handle create(Storage& storage, const std::string& name) {
  enter();
  const Handle access = access_to(storage);
  return {H5Fcreate(name.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access), H5Fclose,
          "create an HDF5 file"};
}

Handle reopen(Storage& storage, const std::string& name) {
  enter();
  const Handle access = access_to(storage);
  const hbool_t forget = true;
  // Like h5clear.
  require(H5Pset(access, "clear_status_flags", &forget) >= 0, "clear the marks of an HDF5 file");
  return {H5Fopen(name.c_str(), H5F_ACC_RDWR, access), H5Fclose, "open an HDF5 file"};
}

// --- Storage

haddr_t Storage::allocate(H5FD_mem_t /*type*/, hsize_t bytes) noexcept {
  const haddr_t at = end_;
  end_ += bytes;
  return at;
}

}  // namespace daqiri::hdf5
