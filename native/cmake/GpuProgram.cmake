# bench_gpu: the kernel of plans, measured. In wheels, too, for `daqiri-ophyd gpu check`; of the
# engine it needs only these.
add_executable(
  bench_gpu bench/gpu.cpp src/cuda/compiler.cpp src/cuda/driver.cpp src/cuda/kernel.cpp
            src/cuda/module.cpp src/memory/streaming_copy.cpp src/reorder/convert.cpp
            src/reorder/encode.cpp src/reorder/module_layout.cpp)
# clang-tidy would read the engine's files twice.
set_target_properties(bench_gpu PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench
                                           UNITY_BUILD OFF EXPORT_COMPILE_COMMANDS OFF)
target_include_directories(bench_gpu PRIVATE include src ${generated})
target_link_libraries(bench_gpu PRIVATE daqiri_flags ${CMAKE_DL_LIBS})
if(DAQIRI_BUILD_PYTHON)
  install(TARGETS bench_gpu RUNTIME DESTINATION daqiri_ophyd COMPONENT python)
endif()
