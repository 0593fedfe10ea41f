// SPDX-License-Identifier: Apache-2.0
// The log, the one channel by which Cistern talks to people: lines "cistern: <level>: …", one
// write() each, to the log file or to stderr. Any thread; safe before main and while the process
// ends; never on a hot path.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

#include "config/policy.h"

namespace cistern::shim {

// At load; until then nothing is printed. CISTERN_LOG_FILE is a pattern for expand_path() and is
// opened with the first line; without it lines go to stderr. A relative name here, as in
// CISTERN_REPORT_FILE, is one in the directory of this moment, wherever the program goes later.
void open_log(const config::Policy& policy);

bool log_enabled(config::LogLevel level);

[[gnu::format(printf, 2, 3)]] void log(config::LogLevel level, const char* format, ...);

// A complete line that already says "cistern: …".
void log_line(const char* line);

// Writes everything or gives up: false, with errno. Never raises SIGPIPE or SIGXFSZ. `at`: the
// offset in the file; without it where the descriptor stands. `patience_ms`: how long a pipe that
// is full, and does not block, may take nothing.
inline constexpr off_t kWhereItStands = -1;
bool write_quietly(int fd, const char* text, size_t bytes, off_t at = kWhereItStands,
                   int patience_ms = 0);

}  // namespace cistern::shim
