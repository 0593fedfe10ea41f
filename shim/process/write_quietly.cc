// SPDX-License-Identifier: Apache-2.0
#include "shim/process/write_quietly.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <ctime>

#include "allocator/base/os.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

// Whether a pipe that is full takes more within that time; errno stays. A handler of the program
// may run again and again meanwhile.
bool takes_more(int fd, int patience_ms) {
  const int saved = errno;
  const uint64_t end = alloc::os::now_ns() + static_cast<uint64_t>(patience_ms) * 1'000'000;
  int ready = 0;
  for (uint64_t now = 0; patience_ms != 0 && (now = alloc::os::now_ns()) < end;) {
    pollfd pipe{fd, POLLOUT, 0};
    ready = poll(&pipe, 1, static_cast<int>((end - now) / 1'000'000) + 1);
    if (ready >= 0 || errno != EINTR) break;
  }
  errno = saved;
  return ready > 0;
}

}  // namespace

// SIGPIPE, which a pipe without a reader raises, and SIGXFSZ, which a file beyond the process's
// limit raises, are blocked and taken away again: the program must not get them for a line of
// Cistern's.
bool write_quietly(int fd, const char* text, size_t bytes, off_t at, int patience_ms) {
  const NoCancel write_ends;
  sigset_t raised, before, pending;
  sigemptyset(&raised);
  sigaddset(&raised, SIGPIPE);
  sigaddset(&raised, SIGXFSZ);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &raised, &before);
  ssize_t written = 0;
  size_t left = bytes;
  while (left > 0) {
    const size_t done = bytes - left;
    written = at == kWhereItStands ? ::write(fd, text + done, left)
                                   : ::pwrite(fd, text + done, left, at + static_cast<off_t>(done));
    if (written < 0 && errno == EINTR) continue;  // a handler of the program ran
    if (written < 0 && errno == EAGAIN && takes_more(fd, patience_ms)) continue;
    if (written <= 0) break;
    left -= static_cast<size_t>(written);
  }
  const int saved = errno;
  const int signal = saved == EPIPE ? SIGPIPE : SIGXFSZ;
  if (written < 0 && (saved == EPIPE || saved == EFBIG) && sigismember(&pending, signal) == 0) {
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, signal);
    const timespec now{};
    sigtimedwait(&own, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  errno = saved;
  return left == 0;
}

}  // namespace cistern::shim
