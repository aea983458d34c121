# daqiri_yaml: the system's yaml-cpp. A Python wheel takes the static archive where there is one, so
# that the extension runs on a machine without libyaml-cpp.
find_package(yaml-cpp REQUIRED)
add_library(daqiri_yaml INTERFACE)
if(DAQIRI_BUILD_PYTHON)
  find_library(DAQIRI_YAML_ARCHIVE libyaml-cpp.a)
endif()
if(DAQIRI_YAML_ARCHIVE)
  target_link_libraries(daqiri_yaml INTERFACE ${DAQIRI_YAML_ARCHIVE})
  target_include_directories(daqiri_yaml SYSTEM INTERFACE ${YAML_CPP_INCLUDE_DIR})
elseif(TARGET yaml-cpp::yaml-cpp) # 0.8 and newer
  target_link_libraries(daqiri_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(daqiri_yaml INTERFACE yaml-cpp)
endif()
