# Component 'cpp': headers, shared library, CMake package, pkg-config file. The Python package has the
# same for programs beside it, without the pkg-config file.
# The year says nothing of compatibility: that is what DAQIRI_ABI_VERSION is for.
write_basic_package_version_file(${generated}/daqiri-config-version.cmake
                                 COMPATIBILITY AnyNewerVersion)

# install_cpp(COMPONENT HEADERS LIBRARY PACKAGE [NAMELINK_SKIP]): into these folders.
function(install_cpp component headers library package)
  install(DIRECTORY include/daqiri ${generated}/daqiri DESTINATION ${headers}
          COMPONENT ${component} FILES_MATCHING REGEX "\\.(h|hpp)$")
  install(TARGETS daqiri EXPORT daqiri-${component} COMPONENT ${component}
          LIBRARY DESTINATION ${library} ${ARGN} INCLUDES DESTINATION ${headers})
  install(EXPORT daqiri-${component} FILE daqiri-targets.cmake NAMESPACE daqiri::
          DESTINATION ${package} COMPONENT ${component})
  configure_package_config_file(
    cmake/daqiri-config.cmake.in ${generated}/${component}/daqiri-config.cmake
    INSTALL_DESTINATION ${package})
  install(FILES ${generated}/${component}/daqiri-config.cmake
                ${generated}/daqiri-config-version.cmake
          DESTINATION ${package} COMPONENT ${component})
endfunction()

install_cpp(cpp ${CMAKE_INSTALL_INCLUDEDIR} ${CMAKE_INSTALL_LIBDIR}
            ${CMAKE_INSTALL_LIBDIR}/cmake/daqiri)
file(RELATIVE_PATH up /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/daqiri.pc.in ${generated}/daqiri.pc @ONLY)
install(FILES ${generated}/daqiri.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)

set(DAQIRI_LICENSES "" CACHE PATH "Folder with the licences of libraries that are linked in")
if(DAQIRI_LICENSES)
  install(DIRECTORY ${DAQIRI_LICENSES}/ DESTINATION daqiri_ophyd/licenses COMPONENT python)
endif()

if(DAQIRI_BUILD_PYTHON)
  install_cpp(python daqiri_ophyd/include daqiri_ophyd daqiri_ophyd/cmake NAMELINK_SKIP)
endif()
