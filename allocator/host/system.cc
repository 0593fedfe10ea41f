// SPDX-License-Identifier: Apache-2.0
#include "allocator/host/system.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "allocator/base/os.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // since Linux 5.18
#endif

namespace cistern::alloc::host {
namespace {

constexpr size_t kPathBytes = 512;

// The limit in one file, or no limit: "max" in version 2, a number above all memory in version 1.
uint64_t limit_in(const char* path) {
  char text[32];
  os::read_file(path, text, sizeof text);
  if (text[0] < '0' || text[0] > '9') return UINT64_MAX;
  const char* at = text;
  const uint64_t limit = os::read_number(&at);
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

namespace pages {
namespace {

constexpr uint64_t kPageBytes = 4096;

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

void* reserve(uint64_t bytes, uint64_t alignment, uintptr_t near) {
  const KeepErrno keep;
  const uint64_t padded = bytes + alignment;
  void* raw = mmap(at(near), padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + alignment - 1) & ~(alignment - 1);
  if (aligned != start) munmap(raw, aligned - start);
  const uintptr_t end = start + padded;
  if (end != aligned + bytes) munmap(at(aligned + bytes), end - (aligned + bytes));
  return at(aligned);
}

bool commit(uintptr_t start, uint64_t bytes) {
  const KeepErrno keep;
  return mprotect(at(start), bytes, PROT_READ | PROT_WRITE) == 0;
}

// By system calls: the program's own mlock() may be ours.
bool lock(uintptr_t start, uint64_t bytes, bool eager) {
  const KeepErrno keep;
  return syscall(SYS_mlock2, start, bytes, eager ? 0 : MLOCK_ONFAULT) == 0;
}

// The system takes `to` away before it looks at `from`: so that is looked at first, by asking for
// one page more in its place. EFAULT: it is not one mapping, because the program changed a part of
// it.
Moved move(uintptr_t from, uint64_t from_bytes, uintptr_t to, uint64_t to_bytes) {
  const KeepErrno keep;
  if (mremap(at(from), from_bytes, from_bytes + kPageBytes, 0) != MAP_FAILED) {
    munmap(at(from + from_bytes), kPageBytes);
  } else if (errno != ENOMEM) {
    return Moved::kNo;
  }
  constexpr int kThere = MREMAP_MAYMOVE | MREMAP_FIXED;
  if (mremap(at(from), from_bytes, to_bytes, kThere, at(to)) != MAP_FAILED) return Moved::kYes;
  // Another thread's mapping may have taken the place meanwhile: it must not be replaced.
  return map_again(to, to_bytes) ? Moved::kNo : Moved::kLost;
}

bool map_again(uintptr_t start, uint64_t bytes) {
  const KeepErrno keep;
  void* mapped = mmap(at(start), bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (mapped == at(start)) return true;
  if (mapped != MAP_FAILED) munmap(mapped, bytes);
  return false;
}

void copy_and_discard(uintptr_t from, uintptr_t to, uint64_t bytes) {
  constexpr uint64_t kPieceBytes = uint64_t{4} << 20;
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t piece = bytes - done < kPieceBytes ? bytes - done : kPieceBytes;
    memcpy(at(to + done), at(from + done), piece);
    discard(from + done, piece, /*locked=*/false);
    done += piece;
  }
}

// The program may have locked some of them, too. Before Linux 5.18 locked pages go only after they
// were unlocked.
bool discard(uintptr_t start, uint64_t bytes, bool locked) {
  const KeepErrno keep;
  if (!locked && madvise(at(start), bytes, MADV_DONTNEED) == 0) return true;
  if (madvise(at(start), bytes, MADV_DONTNEED_LOCKED) == 0) return true;
  if (!locked || syscall(SYS_munlock, start, bytes) != 0) return false;
  const bool gone = madvise(at(start), bytes, MADV_DONTNEED) == 0;
  lock(start, bytes, /*eager=*/false);
  return gone;
}

}  // namespace pages

}  // namespace cistern::alloc::host
