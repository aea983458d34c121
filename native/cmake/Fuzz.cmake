# native/fuzz/<name>.cpp -> program fuzz_<name>, a libFuzzer target. With the thread sanitizer, which
# libFuzzer does without: programs that run the saved inputs of targets with threads, and a ctest
# entry for each.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "DAQIRI_BUILD_FUZZ needs Clang, the compiler is ${CMAKE_CXX_COMPILER_ID}; 'cmake --preset asan' and 'cmake --preset tsan' use clang++")
endif()
if(DAQIRI_SANITIZE STREQUAL "address")
  file(GLOB fuzz_sources CONFIGURE_DEPENDS fuzz/*.cpp)
  add_custom_target(fuzz)
  # What libFuzzer counts; in tests, which share the objects, nobody does.
  target_compile_options(daqiri_objects PRIVATE -fsanitize=fuzzer-no-link)
  foreach(source IN LISTS fuzz_sources)
    get_filename_component(name ${source} NAME_WE)
    add_executable(fuzz_${name} EXCLUDE_FROM_ALL ${source})
    set_target_properties(fuzz_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fuzz)
    target_include_directories(fuzz_${name} PRIVATE tests) # shares their configurations
    target_link_libraries(fuzz_${name} PRIVATE daqiri_static)
    target_compile_options(fuzz_${name} PRIVATE -fsanitize=fuzzer-no-link)
    target_link_options(fuzz_${name} PRIVATE -fsanitize=fuzzer)
    add_dependencies(fuzz fuzz_${name})
  endforeach()
elseif(DAQIRI_SANITIZE STREQUAL "thread")
  foreach(name loopback reorder)
    add_executable(replay_${name} fuzz/${name}.cpp fuzz/replay/main.cpp)
    target_include_directories(replay_${name} PRIVATE fuzz tests)
    target_link_libraries(replay_${name} PRIVATE daqiri_static)
    add_test(NAME fuzz.${name}
             COMMAND replay_${name} ${CMAKE_CURRENT_SOURCE_DIR}/fuzz/corpus/${name})
    set_tests_properties(fuzz.${name} PROPERTIES TIMEOUT 900)
  endforeach()
else()
  message(FATAL_ERROR "DAQIRI_BUILD_FUZZ needs DAQIRI_SANITIZE=address or thread, found '${DAQIRI_SANITIZE}'; 'cmake --preset asan' and 'cmake --preset tsan' set both")
endif()
