# Component 'cpp': headers, shared library, CMake package, pkg-config file.
install(DIRECTORY include/daqiri ${generated}/daqiri DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT cpp FILES_MATCHING REGEX "\\.(h|hpp)$")
install(TARGETS daqiri EXPORT daqiri-targets COMPONENT cpp)
install(EXPORT daqiri-targets NAMESPACE daqiri:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/daqiri
        COMPONENT cpp)

configure_package_config_file(
  cmake/daqiri-config.cmake.in ${generated}/daqiri-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/daqiri)
# The year says nothing of compatibility: that is what DAQIRI_ABI_VERSION is for.
write_basic_package_version_file(${generated}/daqiri-config-version.cmake
                                 COMPATIBILITY AnyNewerVersion)
install(FILES ${generated}/daqiri-config.cmake ${generated}/daqiri-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/daqiri COMPONENT cpp)

file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/daqiri.pc.in ${generated}/daqiri.pc @ONLY)
install(FILES ${generated}/daqiri.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)
