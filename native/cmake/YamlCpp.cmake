# daqiri_yaml: the system's yaml-cpp. A Python wheel takes the static archive where there is one that a
# shared object can hold (Debian 12's is not position independent), so that the extension runs on a
# machine without libyaml-cpp.
find_package(yaml-cpp REQUIRED)
add_library(daqiri_yaml INTERFACE)
if(DAQIRI_BUILD_PYTHON)
  find_library(DAQIRI_YAML_ARCHIVE libyaml-cpp.a)
endif()
if(DAQIRI_YAML_ARCHIVE)
  include(CheckCXXSourceCompiles)
  set(CMAKE_REQUIRED_INCLUDES ${YAML_CPP_INCLUDE_DIR})
  set(CMAKE_REQUIRED_FLAGS -fPIC)
  set(CMAKE_REQUIRED_LINK_OPTIONS -shared)
  set(CMAKE_REQUIRED_LIBRARIES ${DAQIRI_YAML_ARCHIVE})
  check_cxx_source_compiles("#include <yaml-cpp/yaml.h>
    int main() { return YAML::Load(\"1\").as<int>(); }" DAQIRI_YAML_ARCHIVE_IS_PIC)
  unset(CMAKE_REQUIRED_INCLUDES)
  unset(CMAKE_REQUIRED_FLAGS)
  unset(CMAKE_REQUIRED_LINK_OPTIONS)
  unset(CMAKE_REQUIRED_LIBRARIES)
endif()
if(DAQIRI_YAML_ARCHIVE_IS_PIC)
  target_link_libraries(daqiri_yaml INTERFACE ${DAQIRI_YAML_ARCHIVE})
  target_include_directories(daqiri_yaml SYSTEM INTERFACE ${YAML_CPP_INCLUDE_DIR})
elseif(TARGET yaml-cpp::yaml-cpp) # 0.8 and newer
  target_link_libraries(daqiri_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(daqiri_yaml INTERFACE yaml-cpp)
endif()
