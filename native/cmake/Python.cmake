# native/python/*.cpp -> the extension daqiri_ophyd._native
file(GLOB python_sources CONFIGURE_DEPENDS python/*.cpp)
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
find_package(pybind11 3 CONFIG REQUIRED)
pybind11_add_module(_native MODULE NO_EXTRAS ${python_sources})
target_link_libraries(_native PRIVATE daqiri_internal)
compile_rooms_together(_native ${python_sources})
# The library beside it, whatever LD_LIBRARY_PATH says: RPATH comes before that, RUNPATH after it.
set_target_properties(_native PROPERTIES INSTALL_RPATH "$ORIGIN")
target_link_options(_native PRIVATE -Wl,--disable-new-dtags)
install(TARGETS _native LIBRARY DESTINATION daqiri_ophyd COMPONENT python)
if(SKBUILD)
  install(FILES ${PROJECT_SOURCE_DIR}/docs/man/daqiri-ophyd.1
          DESTINATION ${SKBUILD_DATA_DIR}/share/man/man1 COMPONENT python)
endif()
