# native/tests/<part>/*.cpp -> program test_<part>, one ctest entry each.
find_package(Catch2 2.13 REQUIRED)
add_library(test_main STATIC tests/main.cpp)
target_link_libraries(test_main PUBLIC Catch2::Catch2 daqiri_flags)
target_include_directories(test_main PUBLIC tests)

foreach(part IN LISTS DAQIRI_PARTS)
  get_filename_component(room ${part} NAME) # engines/socket -> tests/socket
  file(GLOB test_sources CONFIGURE_DEPENDS tests/${room}/*.cpp)
  if(test_sources)
    set(name test_${room})
    add_executable(${name} ${test_sources})
    target_link_libraries(${name} PRIVATE test_main daqiri_static)
    target_compile_definitions(${name} PRIVATE DAQIRI_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  endif()
endforeach()
