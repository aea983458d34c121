# native/tests/<room>/**/*.cpp -> program test_<room>, and a ctest entry for each file with tests; a
# new room is a new folder, and needs no change here.
find_package(Catch2 2.13 REQUIRED)
if(NOT TARGET Catch2::Catch2WithMain)
  message(FATAL_ERROR "Catch2 ${Catch2_VERSION} in ${Catch2_DIR} has no library Catch2WithMain; install Debian's package catch2, 2.13 or newer")
endif()
add_library(test_flags INTERFACE)
target_link_libraries(test_flags INTERFACE Catch2::Catch2WithMain daqiri_flags)
target_include_directories(test_flags INTERFACE tests)
target_compile_definitions(test_flags INTERFACE DAQIRI_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
# A test's own code need not be fast, and compiles in half the time.
target_compile_options(test_flags INTERFACE $<$<CONFIG:Release>:-O1>)
# Clang takes a name of another file that is compiled together for a shadowed one; GCC does not.
target_compile_options(test_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:-Wno-shadow>)
if(Catch2_VERSION VERSION_GREATER_EQUAL 3)
  target_include_directories(test_flags INTERFACE cmake/catch2_v3)
endif()

# A sixth of what tests take to compile was to read these in each file.
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cpp CONTENT "")
add_executable(test_headers ${CMAKE_CURRENT_BINARY_DIR}/test_headers.cpp)
target_link_libraries(test_headers PRIVATE daqiri_static test_flags)
target_precompile_headers(test_headers PRIVATE <catch2/catch.hpp> "${CMAKE_CURRENT_SOURCE_DIR}/src/session/session.h")

# They take longest, and start first: one that starts last would run alone.
set(first session.test_accounting session.test_dynamic_flows socket.test_tcp_send
          socket.test_tx_flush_sockets storage.test_recorder storage.test_recorder_formats)

file(GLOB rooms CONFIGURE_DEPENDS LIST_DIRECTORIES true tests/*)
if(DAQIRI_SANITIZE STREQUAL "thread")
  # No thread runs there, and a thread sanitizer makes two minutes of it.
  list(FILTER rooms EXCLUDE REGEX "/config$")
endif()
foreach(folder IN LISTS rooms)
  file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS ${folder}/*.cpp)
  # Modules share the registry of the library.
  set(library daqiri_static)
  set(loaded "")
  file(GLOB modules CONFIGURE_DEPENDS ${folder}/*/CMakeLists.txt)
  foreach(list IN LISTS modules)
    set(library daqiri_internal)
    cmake_path(GET list PARENT_PATH module)
    list(FILTER test_sources EXCLUDE REGEX "^${module}/")
    add_subdirectory(${module})
    get_property(targets DIRECTORY ${module} PROPERTY BUILDSYSTEM_TARGETS)
    list(APPEND loaded ${targets})
  endforeach()
  if(test_sources)
    cmake_path(GET folder FILENAME room)
    set(name test_${room})
    add_executable(${name} ${test_sources})
    # The flags of tests come last, and count.
    target_link_libraries(${name} PRIVATE ${library} test_flags)
    if(loaded)
      # Those of this build, too: they are beside the library.
      add_dependencies(${name} ${loaded} daqiri_engines)
    endif()
    compile_rooms_together(${name} ${test_sources})
    target_precompile_headers(${name} REUSE_FROM test_headers)
    foreach(source IN LISTS test_sources)
      file(STRINGS ${source} cases REGEX "^ *(TEMPLATE_|TEST_)" LIMIT_COUNT 1)
      if(cases)
        cmake_path(GET source STEM file)
        # -#: the name of a file is a tag of its tests; [.]: started by another test.
        add_test(NAME ${room}.${file} COMMAND ${name} -\# "[#${file}]~[.]")
        set_tests_properties(${room}.${file} PROPERTIES TIMEOUT 900)
        if("${room}.${file}" IN_LIST first)
          set_tests_properties(${room}.${file} PROPERTIES COST 1)
        endif()
      endif()
    endforeach()
  endif()
endforeach()
