// SPDX-License-Identifier: Apache-2.0
#include "shim/process/log.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"
#include "config/text.h"
#include "shim/process/no_cancel.h"
#include "shim/process/own_file.h"

namespace cistern::shim {
namespace {

constexpr int kSilent = -1;
constinit std::atomic<int> level_{kSilent};
constinit const char* log_file = nullptr;
constinit OwnFile log_{};

// Works in place, since the shown text is never longer. Returns the new length.
size_t only_shown(char* text, size_t bytes) {
  size_t length = 0;
  config::for_each_shown({text, bytes}, "?", [&](std::string_view piece) {
    memmove(text + length, piece.data(), piece.size());
    length += piece.size();
  });
  return length;
}

// Where a line goes. The log file is opened with the first line, because most processes log none. A
// forked child opens it again, since %p in its name means another file. It does so even if a thread
// of the parent was opening it during the fork. If a signal handler interrupts the opening and logs
// a line, that line is lost.
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
      usable.store(log_file != nullptr && log_.open(log_file, Existing::append));
      opener.store(0);
      opened_by.store(seen = self, std::memory_order_release);
      if (log_file != nullptr && !usable.load()) {
        log(config::LogLevel::kWarn, "the log file %s cannot be opened: %s; check CISTERN_LOG_FILE",
            log_file, open_error(errno));
      }
    }
  }
  return usable.load() ? Target::file : Target::standard_error;
}

}  // namespace

void open_log(const config::Policy& policy) {
  log_file = policy.log_file.value;
  if (is_relative(log_file) || is_relative(policy.report_file.value) ||
      is_relative(policy.record.value)) {
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
  auto bytes =
      static_cast<size_t>(length) < sizeof buffer ? static_cast<size_t>(length) : sizeof buffer - 1;
  bytes = only_shown(buffer, bytes - 1);
  buffer[bytes++] = '\n';
  // A log that cannot be written must not disturb the program.
  const Target where = target();
  if (where == Target::file) log_.write(buffer, bytes);
  if (where == Target::standard_error) write_quietly(STDERR_FILENO, buffer, bytes);
  errno = saved;
}

}  // namespace cistern::shim
