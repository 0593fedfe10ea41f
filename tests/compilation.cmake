# SPDX-License-Identifier: Apache-2.0
# How some files are compiled.
set_property(SOURCE tests/preload/programs/order/per_thread_streams.cu PROPERTY COMPILE_OPTIONS --default-stream=per-thread)
# A sanitizer's runtime looks its functions up by dlsym before it can serve instrumented code.
set_property(SOURCE shim/entry/loader.cc shim/entry/routes.cc shim/entry/unknown.cc tests/catch_main.cc APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=all)
# Link-time optimisation with clang takes an llvm-ar and a linker plugin of clang's own version.
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  include(CheckIPOSupported)
  check_ipo_supported(RESULT lto LANGUAGES C CXX)
  set_target_properties(cistern_config cistern_allocator cistern_shim cistern-config cistern-plan cistern-trace ${objects}
    PROPERTIES INTERPROCEDURAL_OPTIMIZATION_RELWITHDEBINFO ${lto})
  if(lto)  # the tests and benches that link these archives are not optimised so, and still read what is in there
    target_link_options(cistern_config INTERFACE $<$<CONFIG:RelWithDebInfo>:-flto=thin>)
  endif()
  set_property(SOURCE tests/unit/shim/fake_shim.cc APPEND PROPERTY COMPILE_OPTIONS -Wno-unused-private-field)
  # Valgrind 3.19, Debian 12's, cannot read clang's DWARF 5, and ends the program that the object is in.
  target_compile_options(inside INTERFACE $<$<CONFIG:RelWithDebInfo>:-gdwarf-4>)
endif()
# What makes the tests compile faster: they take longer to compile than to run, and Catch2's assertions are most of that.
# The sanitizers look for faults in what is tested, not in the tests, and take the longest in the tests' own code.
# GCC's warning finds what is not there at this level, as under the sanitizers.
if(TARGET unit_tests)
  target_compile_options(catch_main PRIVATE -O0 -g0)
  foreach(target unit_tests sim_tests)
    target_compile_definitions(${target} PRIVATE CATCH_CONFIG_FAST_COMPILE)
    target_compile_options(${target} PRIVATE $<IF:$<CONFIG:RelWithDebInfo>,-O1$<SEMICOLON>-g1,-O0> -fno-sanitize=undefined
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  endforeach()
  # A tested file also has functions that call files outside the unit tests. No test calls these functions, and the linker
  # leaves them out. No run-time types, as in the object: UBSan would look for those of classes that are not linked.
  target_compile_options(unit_tests_object PRIVATE -ffunction-sections -fdata-sections -fno-rtti)
  target_link_options(unit_tests PRIVATE -Wl,--gc-sections)
  target_compile_options(unit_tests_object PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1;-g1>
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
endif()
# The simulator is compiled to run quickly enough, no more.
if(TARGET simcuda)
  target_compile_options(simcuda PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1;-g1>)
  target_compile_options(cudart_object PRIVATE $<$<CONFIG:RelWithDebInfo>:-O1;-g1>)
endif()
# The files of a folder are compiled as one: their headers, read once, and what these instantiate, compiled once,
# are most of the work. The simulator's tables include cuda.h in several ways, one a file. Where bugs are planted
# (tests/mutation), a build type of its own, each file of the product is compiled alone; so are, by CMake, those with
# options of their own (above), and those of shim/host/, which define what the C library's headers declare.
# A unit test is in a namespace of its name; one looks for a name that stands outside of it.
file(GLOB_RECURSE sources CONFIGURE_DEPENDS config/*.cc allocator/*.cc shim/*.cc tests/sim/driver/*.cc tests/sim/cudart/*.cc
  tests/unit/allocator/*_test.cc tests/unit/config/*_test.cc)
list(FILTER sources EXCLUDE REGEX "/driver/table/|/symbols_test[.]cc$")
foreach(source ${sources})
  cmake_path(GET source PARENT_PATH group)
  cmake_path(RELATIVE_PATH group BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
  string(REGEX REPLACE "driver/(api|memory)$" "driver/calls" group ${group})
  string(REGEX REPLACE "driver/(base|exec|watch)$" "driver/device" group ${group})
  if(source MATCHES "_per_thread")  # these include the others, with other names of the functions
    string(APPEND group _per_thread)
  endif()
  string(MAKE_C_IDENTIFIER ${group} group)
  set_property(SOURCE ${source} PROPERTY UNITY_GROUP ${group})
endforeach()
set_target_properties(simcuda cudart_object PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
if(TARGET unit_tests)
  set(unit_tests unit_tests)
endif()
if(NOT CMAKE_BUILD_TYPE STREQUAL None)
  foreach(target cistern_config cistern_allocator cistern_shim cistern_tools cistern-config ${unit_tests})
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # it takes a name of another file's unnamed namespace for a shadowed one
      target_compile_options(${target} PRIVATE -Wno-shadow)
    endif()
  endforeach()
endif()
# Headers that most files of a kind include, parsed once for all of them: for most of the simulator's
# and the programs' files that is nearly all of the work. Each file still includes what it uses: make
# lint reads the object's files without.
# With a compiler launcher there are none: ccache keeps nothing that was compiled with them. With clang there are
# none either: behind one, clang 19 takes va_list in the headers of libstdc++ for two types.
if(CMAKE_CXX_COMPILER_LAUNCHER OR CMAKE_CXX_COMPILER_ID MATCHES Clang)
  return()
endif()
set(of_threads <atomic> <cstdint> <cstdio> <cstdlib> <cstring> <memory> <mutex> <string> <thread> <vector>)
set(of_containers <algorithm> <chrono> <deque> <map> <optional> <random> <set> <string_view> <unordered_map>)
target_precompile_headers(cistern_allocator PRIVATE <algorithm> <atomic> <bit> <cstdint> <cstring>)
foreach(target cistern_shim unit_tests_object)
  if(TARGET ${target})
    target_precompile_headers(${target} PRIVATE <algorithm> <atomic> <bit> <cstdint> <cstdio> <cstring> <string_view> shim/cuda_api.h)
  endif()
endforeach()
target_precompile_headers(cistern_tools PRIVATE <algorithm> <cstdint> <cstdio> <map> <memory> <optional> <string> <vector>)
foreach(target unit_tests sim_tests)
  if(TARGET ${target})
    target_precompile_headers(${target} PRIVATE ${PROJECT_SOURCE_DIR}/tests/catch.h ${of_threads} ${of_containers})
  endif()
endforeach()
# Precompiled headers are for one set of options.
set_property(SOURCE shim/entry/loader.cc shim/entry/routes.cc shim/entry/unknown.cc PROPERTY SKIP_PRECOMPILE_HEADERS ON)
set(sources ${tests/preload/programs})
list(FILTER sources INCLUDE REGEX "[.]cc$")
list(FILTER sources EXCLUDE REGEX "/fixtures/")
foreach(source ${sources})
  cmake_path(GET source STEM name)
  if(NOT first)
    set(first ${name}_object)
    target_precompile_headers(${first} PRIVATE ${of_threads})
  else()
    target_precompile_headers(${name}_object REUSE_FROM ${first})
  endif()
endforeach()
