# daqiri_flags: warnings and sanitizers for everything compiled here; never exported to users.
add_library(daqiri_flags INTERFACE)
target_compile_options(daqiri_flags INTERFACE -Wall -Wextra -Wpedantic -Wshadow)
# GCC 12 finds an impossible overlap in its own std::string (GCC bug 105651).
target_compile_options(
  daqiri_flags INTERFACE $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
# Functions of a shared library may be inlined in it, as Clang does.
target_compile_options(daqiri_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-fno-semantic-interposition>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  # Prefetches for writing; processors of before 2014 do nothing there.
  target_compile_options(daqiri_flags INTERFACE -mprfchw)
endif()
if(DAQIRI_WERROR)
  target_compile_options(daqiri_flags INTERFACE -Werror)
endif()

if(DAQIRI_SANITIZE STREQUAL "address")
  set(sanitize -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(DAQIRI_SANITIZE STREQUAL "thread")
  set(sanitize -fsanitize=thread)
  # GCC 12 warns about fences that its thread sanitizer cannot follow.
  target_compile_options(daqiri_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-tsan>)
elseif(DAQIRI_SANITIZE)
  message(FATAL_ERROR "DAQIRI_SANITIZE='${DAQIRI_SANITIZE}': accepted are address, thread or nothing")
endif()
if(sanitize)
  target_compile_options(daqiri_flags INTERFACE ${sanitize} -fno-omit-frame-pointer)
  target_link_options(daqiri_flags INTERFACE ${sanitize})
  # GCC's name for what is on, which Clang has only lately.
  string(TOUPPER "__SANITIZE_${DAQIRI_SANITIZE}__" macro)
  target_compile_definitions(daqiri_flags INTERFACE $<$<CXX_COMPILER_ID:Clang>:${macro}=1>)
endif()
