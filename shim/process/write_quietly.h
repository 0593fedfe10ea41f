// SPDX-License-Identifier: Apache-2.0
// Writes to any descriptor without a signal to the program, and without a wait. Log, files and
// jemalloc's messages all go through this. Any thread.
#pragma once

#include <sys/types.h>

#include <cstddef>

namespace cistern::shim {

// Writes everything or gives up: false, with errno. Never raises SIGPIPE or SIGXFSZ. `at`: the
// offset in the file; without it where the descriptor stands. `patience_ms`: how long a pipe that
// is full, and does not block, may take nothing.
inline constexpr off_t kWhereItStands = -1;
bool write_quietly(int fd, const char* text, size_t bytes, off_t at = kWhereItStands,
                   int patience_ms = 0);

}  // namespace cistern::shim
