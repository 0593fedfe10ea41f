# SPDX-License-Identifier: Apache-2.0
# What the builds with a sanitizer have of their own, and what they leave out.

# Tests that a sanitizer cannot add to run in the plain build alone (tests/README.md). bash, RTLD_DEEPBIND and a
# tool with a dlsym of its own do not work under a preloaded sanitizer's runtime, with Cistern or without.
set(left_out "")
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
  list(APPEND left_out "^(bench|clients|drivers|gpu|host|hygiene|launcher|layers|mutation)/"
    "^preload/(bare_runs|covering|expectations|runner)_test"
    "^record/(hostile_recordings|hostile_symbols|python_frames|events|summary|trace)_test"
    "expect/life/(everyday|own_pipes)" "expect/lookup/(deepbind|driver_copies|hands_out_import|routes)"
    "expect/order/(stream_life.unseen|out_of_sight)" "expect/fill/filled.unseen" "expect/contexts/unseen_context")
endif()
# ThreadSanitizer's runtime ends a process whose main thread ended by pthread_exit, and needs a thread of its own
# where a program may start none. In free_sync_false a race is planted.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
  list(APPEND left_out "life/endings" "expect/ipc/ipc_ends.last" "expect/pooling/kept_pools.no_thread"
    "expect/reclaim/(free_sync_false|idle_ends.leaves_main|idle_release.no_thread|kept.no_thread)")
endif()
macro(leave_out list)  # LIST OF TESTS
  foreach(names ${left_out})
    list(FILTER ${list} EXCLUDE REGEX "${names}")
  endforeach()
endmacro()

# A race detector sees nothing where one thread runs alone, and takes ten times as long to look.
# Of the pools' and settings' unit tests it runs the files that start a thread, or include what does (those
# of the shim stay: they have fakes for each other), without their cases with the tag `one-thread` or `race` (the
# case is a race itself: it closes another thread's socket); of the programs, all but those whose expectation says
# `one-thread`. The other sanitizers run the rest, too.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=thread")
  foreach(source ${tests/unit})
    file(STRINGS ${source} threads LIMIT_COUNT 1 REGEX
      "std::j?thread|pthread_create|start_own_thread|/(arena_pool|forked|ipc_peers|random_graphs|unit_imports|written)[.]h")
    if(source MATCHES "/tests/unit/(allocator|config)/.*_test[.]cc$" AND NOT threads)
      list(REMOVE_ITEM tests/unit ${source})
    endif()
  endforeach()
  set(for_races --of-threads)
  set(cases_for_races TEST_SPEC "~[one-thread]~[race]")
endif()

# Damaged input against its readers: only where reads out of bounds are seen.
# Each fuzzer takes a seed and a number of rounds; `make soak` runs long ones.
if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=address")
  target_compile_definitions(cistern_tools PRIVATE _GLIBCXX_ASSERTIONS)
  foreach(what config elf ipc plan recording)
    add_executable(${what}_fuzz tests/fuzz/${what}_fuzz.cc)
    target_link_libraries(${what}_fuzz PRIVATE cistern_tools)
    add_test(NAME fuzz/${what} COMMAND ${what}_fuzz)
    set_tests_properties(fuzz/${what} PROPERTIES LABELS fuzz TIMEOUT 1200)
  endforeach()
  target_sources(elf_fuzz PRIVATE config/tool/elf.cc)
  target_sources(ipc_fuzz PRIVATE "$<FILTER:$<TARGET_OBJECTS:unit_tests_object>,INCLUDE,/shim/(ipc/[a-z_]+|process/own_thread)[.]cc>")
endif()
