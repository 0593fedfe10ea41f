// SPDX-License-Identifier: Apache-2.0
// The log, the one channel by which Cistern talks to people: lines "cistern: <level>: …", one
// write() each, to the log file or to stderr. Any thread; safe before main and while the process
// ends; never on a hot path. A file of its own, because files of every folder include it, and few
// of them write any other file (own_file.h).
#pragma once

#include "config/policy.h"

namespace cistern::shim {

// To be called at load; until then nothing is printed. CISTERN_LOG_FILE is a pattern for
// expand_path(). The file is opened with the first line; without a file, lines go to stderr. A
// relative name is resolved against the current directory at load.
void open_log(const config::Policy& policy);

bool log_enabled(config::LogLevel level);

[[gnu::format(printf, 2, 3)]] void log(config::LogLevel level, const char* format, ...);

// Writes a complete line, which must begin with "cistern: ".
void log_line(const char* line);

}  // namespace cistern::shim
