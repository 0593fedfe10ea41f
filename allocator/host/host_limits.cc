// SPDX-License-Identifier: Apache-2.0
#include "allocator/host/host_limits.h"

#include <sys/sysinfo.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc::host {
namespace {

constexpr size_t kPathBytes = 512;

// The limit in one file, or no limit: "max" in version 2, a number above all memory in version 1.
uint64_t limit_in(const char* path) {
  char text[32];
  os::read_file(path, text, sizeof text);
  if (text[0] < '0' || text[0] > '9') return UINT64_MAX;
  // Not strtoull: headers of glibc 2.38 make a symbol of it that older systems lack.
  uint64_t limit = UINT64_MAX;
  std::from_chars(text, text + strlen(text), limit);
  return limit == 0 ? UINT64_MAX : limit;
}

// The lowest limit of a group and of those above it; `group` is shortened on the way.
uint64_t lowest_limit(const char* root, const char* controller, char* group, const char* file) {
  uint64_t lowest = UINT64_MAX;
  while (true) {
    char path[2 * kPathBytes];
    snprintf(path, sizeof path, "%s%s%s/%s", root, controller, group, file);
    lowest = std::min(lowest, limit_in(path));
    char* last = strrchr(group, '/');
    if (last == nullptr) return lowest;
    *last = '\0';
  }
}

bool names_memory(const char* controllers, size_t length) {
  constexpr char kMemory[] = "memory";
  constexpr size_t kLength = sizeof kMemory - 1;
  for (size_t at = 0; at < length;) {
    const char* end = static_cast<const char*>(memchr(controllers + at, ',', length - at));
    const size_t word = end == nullptr ? length - at : static_cast<size_t>(end - controllers) - at;
    if (word == kLength && memcmp(controllers + at, kMemory, kLength) == 0) return true;
    at += word + 1;
  }
  return false;
}

// One line, "ID:CONTROLLERS:PATH"; version 2 names no controllers.
uint64_t limit_of_line(const char* line, size_t length, const char* root) {
  const char* end = line + length;
  const char* first = static_cast<const char*>(memchr(line, ':', length));
  if (first == nullptr) return UINT64_MAX;
  const char* names = first + 1;
  const char* second =
      static_cast<const char*>(memchr(names, ':', static_cast<size_t>(end - names)));
  if (second == nullptr) return UINT64_MAX;
  char group[kPathBytes];
  const size_t bytes = std::min(static_cast<size_t>(end - second - 1), sizeof group - 1);
  memcpy(group, second + 1, bytes);
  group[bytes] = '\0';
  if (strcmp(group, "/") == 0) group[0] = '\0';
  if (names == second) return lowest_limit(root, "", group, "memory.max");
  return names_memory(names, static_cast<size_t>(second - names))
             ? lowest_limit(root, "/memory", group, "memory.limit_in_bytes")
             : UINT64_MAX;
}

}  // namespace

uint64_t group_limit(const char* groups, const char* root) {
  uint64_t lowest = UINT64_MAX;
  for (const char* line = groups; *line != '\0';) {
    const char* end = strchrnul(line, '\n');
    lowest = std::min(lowest, limit_of_line(line, static_cast<size_t>(end - line), root));
    line = *end == '\0' ? end : end + 1;
  }
  return lowest;
}

uint64_t usable_memory() {
  const int saved = errno;
  struct sysinfo info;
  const uint64_t physical =
      sysinfo(&info) == 0 ? uint64_t{info.totalram} * info.mem_unit : uint64_t{0};
  char groups[4096];
  const uint64_t limit = os::read_file("/proc/self/cgroup", groups, sizeof groups) != 0
                             ? group_limit(groups, "/sys/fs/cgroup")
                             : UINT64_MAX;
  errno = saved;
  if (limit == UINT64_MAX) return physical;
  return physical == 0 ? limit : std::min(physical, limit);
}

}  // namespace cistern::alloc::host
