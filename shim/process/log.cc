// SPDX-License-Identifier: Apache-2.0
#include "shim/process/log.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"
#include "config/line.h"
#include "shim/process/no_cancel.h"
#include "shim/process/own_file.h"

namespace cistern::shim {
namespace {

constexpr int kSilent = -1;
constinit std::atomic<int> level_{kSilent};
constinit const char* file_ = nullptr;
constinit OwnFile log_{};

bool relative(const char* name) { return name != nullptr && name[0] != '/'; }

// Where a line goes. The log file is opened with the first line, because most processes log none. A
// forked child opens it anew, since %p in its name means another file, and does so even if a thread
// of the parent was opening it during the fork. A line is lost where a signal handler writes it
// that has interrupted the opening.
enum class Target : uint8_t { file, standard_error, nowhere };
Target target() {
  static constinit std::atomic<pid_t> opened_by{0};  // negative: it is opening now
  static constinit std::atomic<pthread_t> opener{0};
  static constinit std::atomic<bool> usable{false};
  const pid_t self = getpid();
  const auto opening = [&] { return opened_by.load(std::memory_order_acquire) == -self; };
  pid_t seen = opened_by.load(std::memory_order_acquire);
  while (seen != self) {
    if (seen == -self) {
      if (opener.load() == pthread_self()) return Target::nowhere;
      alloc::os::wait_while(opening);
      seen = opened_by.load(std::memory_order_acquire);
    } else if (opened_by.compare_exchange_strong(seen, -self)) {
      opener.store(pthread_self());
      usable.store(file_ != nullptr && log_.open(file_, Existing::append));
      opener.store(0);
      opened_by.store(seen = self, std::memory_order_release);
      if (file_ != nullptr && !usable.load()) {
        log(config::LogLevel::kWarn, "the log file %s cannot be opened: %s; check CISTERN_LOG_FILE",
            file_, open_error(errno));
      }
    }
  }
  return usable.load() ? Target::file : Target::standard_error;
}

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

void open_log(const config::Policy& policy) {
  file_ = policy.log_file.value;
  if (relative(file_) || relative(policy.report_file.value) || relative(policy.record.value)) {
    note_start_directory();
  }
  level_.store(static_cast<int>(policy.log.value), std::memory_order_release);
}

bool log_enabled(config::LogLevel level) {
  return static_cast<int>(level) <= level_.load(std::memory_order_acquire);
}

void log(config::LogLevel level, const char* format, ...) {
  if (!log_enabled(level)) return;
  static constexpr const char* kNames[] = {"error", "warn", "info", "debug"};
  char line[2048];
  int length = snprintf(line, sizeof line, "cistern: %s: ", kNames[static_cast<int>(level)]);
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(line + length, sizeof line - static_cast<size_t>(length), format, arguments);
  va_end(arguments);
  log_line(line);
}

void log_line(const char* line) {
  const NoCancel opening_or_writing;
  const int saved = errno;
  char buffer[2100];
  const int length = snprintf(buffer, sizeof buffer, "%s\n", line);
  const auto bytes =
      static_cast<size_t>(length) < sizeof buffer ? static_cast<size_t>(length) : sizeof buffer - 1;
  for (size_t i = 0; i + 1 < bytes; ++i) buffer[i] = config::shown(buffer[i]);
  // A log that cannot be written must not disturb the program.
  const Target where = target();
  if (where == Target::file) log_.write(buffer, bytes);
  if (where == Target::standard_error) write_quietly(STDERR_FILENO, buffer, bytes);
  errno = saved;
}

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
