// SPDX-License-Identifier: Apache-2.0
// A file that Cistern writes: log, report, recording. Its name comes from a setting, and may be in
// a folder where other users can also create names. So it must be a regular file of the process's
// user with only that name. Only links of the user or root among the folders may lead to it. A new
// file has mode 0600. Names of open descriptors, /dev/null, /dev/full and /dev/tty are the
// exception: nobody else can create those, so they are opened as they are.
//
// Its descriptor is a high number, because programs expect the low ones for files of their own. If
// the program closes that descriptor and the number becomes another file, writes fail. Only one
// thread at a time may open a file; any thread may write.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace cistern::shim {

// Writes to any descriptor without a signal to the program, and without a wait. Log, files and
// jemalloc's messages all go through this. Any thread.

// Whether a name is relative, to the directory at load. False for nullptr.
inline bool is_relative(const char* name) { return name != nullptr && name[0] != '/'; }

// Writes everything, or returns false with errno. Never raises SIGPIPE or SIGXFSZ. `at`: the offset
// in the file; kWhereItStands: the descriptor's own position. `patience_ms`: how long to wait for
// a full non-blocking pipe to take more before giving up.
inline constexpr off_t kWhereItStands = -1;
bool write_quietly(int fd, const char* text, size_t bytes, off_t at = kWhereItStands,
                   int patience_ms = 0);

// What to do if the file exists. `keep`: opening fails with EEXIST, unless the name is that of a
// descriptor or a device that is no regular file.
enum class Existing : uint8_t { append, truncate, keep };

class OwnFile {
 public:
  // `pattern` is for expand_path(). False, with errno, if the file cannot be opened: EPERM if it
  // breaks the rules at the top of this header.
  bool open(const char* pattern, Existing existing);
  // From now on writes go to a duplicate of `fd`; `fd` stays the caller's. False, with errno, if it
  // cannot be duplicated.
  bool adopt(int fd);
  // From now on every write fails.
  void close_own();
  // Everything, or false with errno.
  bool write(const char* text, size_t bytes) const { return write(text, bytes, kWhereItStands); }
  // The same, for the end of the process: waits for the slow reader of a pipe, but gives up if it
  // reads nothing for kPatienceMs.
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

// To be called at load: relative names of files are resolved against the directory of this moment,
// even if the program changes its directory later.
void note_start_directory();

// Writes to `out`, of PATH_MAX bytes, what `name` means relative to the directory at load. A path
// that is too long is cut off, and so names no file.
void path_from_start(const char* name, char* out);

// Why a file could not be opened, for people.
const char* open_error(int error);

// Replaces %p (process id), %h (host name), %r (rank as mpirun, srun or torchrun tell it, else 0)
// and %% in `pattern`; a path longer than `size` is cut off.
void expand_path(const char* pattern, char* out, unsigned long size);

}  // namespace cistern::shim
