// SPDX-License-Identifier: Apache-2.0
#include "shim/process/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cistern::shim {
namespace {

constexpr int kSilent = -1;
constinit std::atomic<int> level_{kSilent};
constinit const char* file_ = nullptr;
constinit OwnFile log_{};

// Whether lines go to the log file. The file is opened with the first line, because most processes
// log none. A forked child opens it anew, since %p in its name means another file, and does so even
// if a thread of the parent was opening it during the fork.
bool to_file() {
  static constinit std::atomic<pid_t> opened_by{0};  // negative: it is opening now
  static constinit std::atomic<bool> usable{false};
  const pid_t self = getpid();
  pid_t seen = opened_by.load(std::memory_order_acquire);
  while (seen != self) {
    if (seen == -self) {
      seen = opened_by.load(std::memory_order_acquire);
    } else if (opened_by.compare_exchange_strong(seen, -self)) {
      usable.store(file_ != nullptr && log_.open(file_, O_APPEND));
      opened_by.store(seen = self, std::memory_order_release);
      if (file_ != nullptr && !usable.load()) {
        log(config::LogLevel::kWarn, "the log file %s cannot be opened: %s; check CISTERN_LOG_FILE",
            file_, strerrordesc_np(errno));
      }
    }
  }
  return usable.load();
}

const char* rank() {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"}) {
    if (const char* value = getenv(name)) return value;
  }
  return "0";
}

}  // namespace

void open_log(const config::Policy& policy) {
  file_ = policy.log_file.value;
  level_.store(static_cast<int>(policy.log.value), std::memory_order_release);
}

bool log_enabled(config::LogLevel level) {
  return static_cast<int>(level) <= level_.load(std::memory_order_acquire);
}

void log(config::LogLevel level, const char* format, ...) {
  if (!log_enabled(level)) return;
  static constexpr const char* kNames[] = {"error", "warn", "info", "debug"};
  char line[1024];
  int length = snprintf(line, sizeof line, "cistern: %s: ", kNames[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + length, sizeof line - static_cast<size_t>(length), format, arguments);
  va_end(arguments);
  log_line(line);
}

void log_line(const char* line) {
  const int saved = errno;
  char buffer[1100];
  const int length = snprintf(buffer, sizeof buffer, "%s\n", line);
  const auto bytes =
      static_cast<size_t>(length) < sizeof buffer ? static_cast<size_t>(length) : sizeof buffer - 1;
  // A log that cannot be written must not disturb the program.
  to_file() ? log_.write(buffer, bytes) : write_quietly(STDERR_FILENO, buffer, bytes);
  errno = saved;
}

void OwnFile::adopt(int fd) {
  struct stat file;
  constexpr int kOutOfTheWay = 100;  // programs expect the low numbers for files of their own
  const int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, kOutOfTheWay);
  if (moved < 0 || fstat(moved, &file) != 0) return;
  const int before = still_ours() ? descriptor_.load(std::memory_order_relaxed) : -1;
  device_ = file.st_dev;
  inode_ = file.st_ino;
  descriptor_.store(moved, std::memory_order_release);
  if (before >= 0) close(before);
}

bool OwnFile::open(const char* pattern, int flags) {
  char path[4096];
  expand_path(pattern, path, sizeof path);
  // Not blocking: a pipe that nobody reads must not hold the program up.
  const int fd = ::open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0666);
  adopt(fd);
  const int saved = errno;
  if (fd >= 0) close(fd);
  errno = saved;
  return fd >= 0;
}

// The program may have closed our descriptor and opened a file of its own under the same number.
bool OwnFile::still_ours() const {
  struct stat file;
  const int fd = descriptor_.load(std::memory_order_acquire);
  return fd >= 0 && fstat(fd, &file) == 0 && file.st_dev == device_ && file.st_ino == inode_;
}

void OwnFile::write(const char* text, size_t bytes) const {
  if (still_ours()) write_quietly(descriptor_.load(std::memory_order_relaxed), text, bytes);
}

// SIGPIPE, which a pipe without a reader raises, is blocked and taken away again: the program must
// not get it for a line of Cistern's.
void write_quietly(int fd, const char* text, size_t bytes) {
  sigset_t pipe, before, pending;
  sigemptyset(&pipe);
  sigaddset(&pipe, SIGPIPE);
  sigpending(&pending);
  pthread_sigmask(SIG_BLOCK, &pipe, &before);
  ssize_t written = 0;
  for (size_t done = 0; done < bytes && written >= 0; done += static_cast<size_t>(written)) {
    written = ::write(fd, text + done, bytes - done);
    if (written == 0) break;
    if (written < 0 && errno == EINTR) written = 0;  // a handler of the program ran: try again
  }
  if (written < 0 && errno == EPIPE && sigismember(&pending, SIGPIPE) == 0) {
    const timespec now{};
    sigtimedwait(&pipe, nullptr, &now);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void expand_path(const char* pattern, char* out, unsigned long size) {
  char* end = out + size - 1;
  const auto append = [&](const char* text) {
    while (*text != '\0' && out < end) *out++ = *text++;
  };
  for (; *pattern != '\0' && out < end; ++pattern) {
    const char kind = *pattern == '%' ? pattern[1] : '\0';
    char text[256] = "";
    if (kind == 'p') snprintf(text, sizeof text, "%d", static_cast<int>(getpid()));
    if (kind == 'h') gethostname(text, sizeof text - 1);
    if (kind == 'r') snprintf(text, sizeof text, "%s", rank());
    if (kind == '%') snprintf(text, sizeof text, "%%");
    if (strchr("phr%", kind) == nullptr || kind == '\0') {
      *out++ = *pattern;
      continue;
    }
    append(text);
    ++pattern;
  }
  *out = '\0';
}

}  // namespace cistern::shim
