// SPDX-License-Identifier: Apache-2.0
#include "shim/log.h"

#include <fcntl.h>
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
constinit std::atomic<int> descriptor_{-1};

int open_file() {
  char path[4096];
  expand_path(file_, path, sizeof path);
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  int expected = -1;
  if (fd >= 0 && !descriptor_.compare_exchange_strong(expected, fd)) {
    close(fd);
    return expected;
  }
  return fd;
}

int output() {
  if (file_ == nullptr) return STDERR_FILENO;
  const int fd = descriptor_.load(std::memory_order_acquire);
  return fd >= 0 ? fd : open_file();
}

const char* rank() {
  for (const char* name :
       {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID", "RANK"}) {
    if (const char* value = getenv(name)) return value;
  }
  return "0";
}

}  // namespace

void open_log(config::LogLevel level, const char* file) {
  file_ = file;
  level_.store(static_cast<int>(level), std::memory_order_release);
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
  [[maybe_unused]] const ssize_t written = write(output(), buffer, bytes);
  errno = saved;
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
