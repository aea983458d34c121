# native/bench/<name>.cpp -> program bench_<name>; bench_gpu is in GpuProgram
file(GLOB bench_sources CONFIGURE_DEPENDS bench/*.cpp)
list(FILTER bench_sources EXCLUDE REGEX "/gpu\\.cpp$")
foreach(source IN LISTS bench_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(bench_${name} ${source})
  set_target_properties(bench_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bench)
  target_link_libraries(bench_${name} PRIVATE daqiri_static)
endforeach()
# The peer of the pcap index.
target_link_libraries(bench_pcap_read PRIVATE pcap)

# Comparisons with others, driven by Python.
add_subdirectory(${PROJECT_SOURCE_DIR}/benchmarks ${PROJECT_BINARY_DIR}/benchmarks-build)
