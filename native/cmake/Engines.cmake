# daqiri_engine(NAME x SOURCES ... [REQUIRES ...] [TEST]): module daqiri_engine_x.so, which the
# library loads when a configuration names engine x. REQUIRES: packages of pkg-config, such as
# "libdpdk >= 23.11"; where one is not installed, the engine is left out. TEST: not installed.
add_custom_target(daqiri_engines)

function(daqiri_engine)
  cmake_parse_arguments(PARSE_ARGV 0 engine "TEST" "NAME" "SOURCES;REQUIRES")
  set(module daqiri_engine_${engine_NAME})
  set(libraries "")
  foreach(package IN LISTS engine_REQUIRES)
    string(MAKE_C_IDENTIFIER "${module}_${package}" found)
    pkg_check_modules(${found} QUIET IMPORTED_TARGET "${package}")
    if(NOT ${found}_FOUND)
      message(STATUS "Engine ${engine_NAME}: left out, pkg-config does not find ${package}")
      return()
    endif()
    list(APPEND libraries PkgConfig::${found})
  endforeach()
  message(STATUS "Engine ${engine_NAME}: module ${module}.so")
  configure_file(${daqiri_cmake}/engine_module.cpp.in ${module}.cpp @ONLY)
  add_library(${module} MODULE ${engine_SOURCES} ${CMAKE_CURRENT_BINARY_DIR}/${module}.cpp)
  compile_rooms_together(${module} ${engine_SOURCES})
  target_link_libraries(${module} PRIVATE daqiri_internal ${libraries})
  # As in the library.
  target_link_options(${module} PRIVATE -Wl,-Bsymbolic-functions)
  set_target_properties(${module} PROPERTIES PREFIX "" INSTALL_RPATH "$ORIGIN/..")
  if(NOT engine_TEST)
    # Where the library looks, in the build folder and as installed.
    set_target_properties(${module} PROPERTIES LIBRARY_OUTPUT_DIRECTORY
                                               $<TARGET_FILE_DIR:daqiri>/daqiri-engines)
    add_dependencies(daqiri_engines ${module})
    install(TARGETS ${module} LIBRARY DESTINATION daqiri_ophyd/daqiri-engines COMPONENT python)
    install(TARGETS ${module} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/daqiri-engines
                              COMPONENT cpp)
  endif()
endfunction()
