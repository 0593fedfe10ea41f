// SPDX-License-Identifier: Apache-2.0
// The one channel to people: lines "cistern: <level>: …", one write() each, to the log file or to
// stderr. Any thread; safe before main and while the process ends; never on a hot path.
#pragma once

#include "config/policy.h"

namespace cistern::shim {

// Until this is called nothing is printed. `file` may hold %p (process id) and %h (host name);
// nullptr: stderr. It is opened at the first line.
void open_log(config::LogLevel level, const char* file);

bool log_enabled(config::LogLevel level);

[[gnu::format(printf, 2, 3)]] void log(config::LogLevel level, const char* format, ...);

// A complete line that already says "cistern: …".
void log_line(const char* line);

// Replaces %p, %h, %r (rank as mpirun, srun or torchrun tell it, else 0) and %% in `pattern`.
void expand_path(const char* pattern, char* out, unsigned long size);

}  // namespace cistern::shim
