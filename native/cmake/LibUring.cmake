# daqiri_uring: the system's liburing.
find_package(PkgConfig REQUIRED)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing>=2.2)
add_library(daqiri_uring INTERFACE)
target_link_libraries(daqiri_uring INTERFACE PkgConfig::liburing)
