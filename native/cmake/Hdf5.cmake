# daqiri_hdf5: the system's HDF5 library, serial, shared, thread-safe.
include(CheckCXXSourceCompiles)
find_package(PkgConfig REQUIRED)
pkg_check_modules(HDF5 REQUIRED IMPORTED_TARGET GLOBAL "hdf5 >= 1.10.3")
# Each recorder has a thread of its own, and they share the library.
set(CMAKE_REQUIRED_LIBRARIES PkgConfig::HDF5)
check_cxx_source_compiles("
#include <H5public.h>
#ifndef H5_HAVE_THREADSAFE
#error not thread-safe
#endif
int main() {}" DAQIRI_HDF5_IS_THREADSAFE)
unset(CMAKE_REQUIRED_LIBRARIES)
if(NOT DAQIRI_HDF5_IS_THREADSAFE)
  unset(DAQIRI_HDF5_IS_THREADSAFE CACHE)
  message(FATAL_ERROR
    "HDF5 ${HDF5_VERSION} in ${HDF5_LIBDIR} is not thread-safe (H5_HAVE_THREADSAFE is not defined in "
    "H5pubconf.h). Use one that was built with --enable-threadsafe, such as Debian's libhdf5-dev, and "
    "put the folder of its hdf5.pc into PKG_CONFIG_PATH.")
endif()
add_library(daqiri_hdf5 INTERFACE)
target_link_libraries(daqiri_hdf5 INTERFACE PkgConfig::HDF5)
