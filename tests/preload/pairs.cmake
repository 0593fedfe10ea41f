# SPDX-License-Identifier: Apache-2.0
# The tests of preload/expect/ as ctest runs them: `pairs`. `programs_of_TEST` is what run-pair runs for one, `limit_of_TEST`
# its limit, 20 minutes for each case. The cases of a file run one after the other in one process, because its start takes
# longer than most cases. Each case of random/ is a test of its own, because it takes seconds.
file(GLOB_RECURSE expectations CONFIGURE_DEPENDS tests/preload/*.expect)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${expectations})
execute_process(COMMAND tests/preload/run-pair --list ${for_races} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE "([^\n]+)\n" "preload/expect/\\1;" cases "${listed}")
leave_out(cases)
foreach(case ${cases})
  set(test ${case})
  if(NOT case MATCHES "/random/")
    string(REGEX REPLACE "[.].*" "" test ${case})
  endif()
  list(APPEND pairs ${test})
  string(REPLACE preload/expect/ "" program ${case})
  list(APPEND programs_of_${test} --program ${program})
  math(EXPR limit_of_${test} "0${limit_of_${test}} + 1200")
endforeach()
list(REMOVE_DUPLICATES pairs)
