# SPDX-License-Identifier: Apache-2.0
# What a race detector runs: it sees nothing where one thread runs alone, and takes ten times as long to look.
# Of the pools' and settings' unit tests these are the files that start a thread, or include what does (those
# of the shim stay: they have fakes for each other); of the programs, all but those whose expectation says
# `one-thread`. The other sanitizers run the rest, too.
foreach(source ${tests/unit})
  file(STRINGS ${source} threads LIMIT_COUNT 1 REGEX
    "std::j?thread|pthread_create|start_own_thread|/(arena_pool|forked|ipc_peers|random_graphs|unit_imports|written)[.]h")
  if(source MATCHES "/tests/unit/(allocator|config)/.*_test[.]cc$" AND NOT threads)
    list(REMOVE_ITEM tests/unit ${source})
  endif()
endforeach()
set(for_races --of-threads)
