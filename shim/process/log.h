// SPDX-License-Identifier: Apache-2.0
// The log, the one channel by which Cistern talks to people: lines "cistern: <level>: …", one
// write() each, to the log file or to stderr. Any thread; safe before main and while the process
// ends; never on a hot path.
#pragma once

#include <sys/types.h>

#include <atomic>
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

// A file that Cistern keeps open. Its descriptor is a high number, because programs expect the low
// ones for files of their own. Nothing is written once the program has made that number another
// file.
class OwnFile {
 public:
  // `pattern` as for expand_path. False, with errno, when it cannot be opened.
  bool open(const char* pattern, int flags);
  // One that is there, such as a device; false where it is a regular file.
  bool open_unless_regular(const char* pattern);
  // From now on writes to a duplicate of `fd`, which stays the caller's. False, with errno, if
  // there is none.
  bool adopt(int fd);
  // What is written from now on fails.
  void close_own();
  // Everything, or false with errno.
  bool write(const char* text, size_t bytes) const { return write(text, bytes, kWhereItStands); }
  // The same, at the end of the process: it waits for a pipe's reader who is slow, though not for
  // one who reads nothing any more.
  bool write_patiently(const char* text, size_t bytes) const {
    return write(text, bytes, kWhereItStands, kPatienceMs);
  }
  // The same at an offset of the file.
  bool write_at(const char* text, size_t bytes, uint64_t at) const {
    return write(text, bytes, static_cast<off_t>(at));
  }

 private:
  static constexpr int kPatienceMs = 2000;

  bool still_ours() const;
  bool write(const char* text, size_t bytes, off_t at, int patience_ms = 0) const;

  std::atomic<int> descriptor_{-1};
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

// Replaces %p (process id), %h (host name), %r (rank as mpirun, srun or torchrun tell it, else 0)
// and %% in `pattern`; a path longer than `size` is cut off.
void expand_path(const char* pattern, char* out, unsigned long size);

}  // namespace cistern::shim
