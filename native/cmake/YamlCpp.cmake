# daqiri_yaml: the system's yaml-cpp, shared (Debian's archive is not position-independent, so that
# it cannot go into an extension).
find_package(yaml-cpp REQUIRED)
add_library(daqiri_yaml INTERFACE)
if(TARGET yaml-cpp::yaml-cpp) # 0.8 and newer
  target_link_libraries(daqiri_yaml INTERFACE yaml-cpp::yaml-cpp)
else()
  target_link_libraries(daqiri_yaml INTERFACE yaml-cpp)
endif()
