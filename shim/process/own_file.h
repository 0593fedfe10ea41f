// SPDX-License-Identifier: Apache-2.0
// A file that Cistern writes: log, report, recording. Its name comes from a setting, and may be in
// a folder where other users can also create names. So it must be a regular file of the process's
// user with only that name. Only links of the user or root among the folders may lead to it. A new
// file has mode 0600. Names of open descriptors, /dev/null, /dev/full and /dev/tty are the
// exception: nobody else can create those, so they are opened as they are.
//
// Its descriptor is a high number, because programs expect the low ones for files of their own.
// Nothing is written once the program has made that number another file. Opening: one thread at a
// time; writing: any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern::shim {

// Writes to any descriptor without a signal to the program, and without a wait. Log, files and
// jemalloc's messages all go through this. Any thread.

// Whether a file's name begins where the process began. False: there is none.
inline bool is_relative(const char* name) { return name != nullptr && name[0] != '/'; }

// Writes everything or gives up: false, with errno. Never raises SIGPIPE or SIGXFSZ. `at`: the
// offset in the file; without it where the descriptor stands. `patience_ms`: how long a pipe that
// is full, and does not block, may take nothing.
inline constexpr off_t kWhereItStands = -1;
bool write_quietly(int fd, const char* text, size_t bytes, off_t at = kWhereItStands,
                   int patience_ms = 0);

// What to do with a file that is there. `keep`: it fails with EEXIST, unless the name is that of a
// descriptor or a device, and no regular file is behind it.
enum class Existing : uint8_t { append, truncate, keep };

class OwnFile {
 public:
  // `pattern` as for expand_path. False, with errno, when it cannot be opened: EPERM, if it is not
  // such a file as above.
  bool open(const char* pattern, Existing existing);
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

// The directory of this moment, at load: relative names begin there, wherever the program goes
// later.
void note_start_directory();

// `name` as it was meant at load; cut off behind PATH_MAX bytes, a file that is not there.
void path_from_start(const char* name, char* out);

// Why a file could not be opened, for people.
const char* open_error(int error);

// Replaces %p (process id), %h (host name), %r (rank as mpirun, srun or torchrun tell it, else 0)
// and %% in `pattern`; a path longer than `size` is cut off.
void expand_path(const char* pattern, char* out, unsigned long size);

}  // namespace cistern::shim
