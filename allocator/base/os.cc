// SPDX-License-Identifier: Apache-2.0
#include "allocator/base/os.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <system_error>

// Where a test preloads a clock of its own (tests/sim/include/simcuda/clock.h); null in every other
// process.
extern "C" {
__attribute__((weak)) uint64_t cistern_clock_now_ns();
__attribute__((weak)) void cistern_clock_wait(uint32_t* word, uint32_t expected, uint64_t ns);
}

namespace cistern::alloc::os {
namespace {

timespec to_timespec(uint64_t ns) {
  return {.tv_sec = static_cast<time_t>(ns / 1'000'000'000),
          .tv_nsec = static_cast<long>(ns % 1'000'000'000)};
}

}  // namespace

void* map(size_t bytes, size_t alignment) {
  KeepErrno keep;
  bytes = (bytes + kPage - 1) & ~(kPage - 1);
  const size_t padded = bytes + alignment;
  void* raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) return nullptr;
  const auto start = reinterpret_cast<uintptr_t>(raw);
  const uintptr_t aligned = (start + alignment - 1) & ~(alignment - 1);
  if (aligned != start) munmap(raw, aligned - start);
  const uintptr_t end = start + padded;
  if (end != aligned + bytes) {
    munmap(reinterpret_cast<void*>(aligned + bytes), end - (aligned + bytes));
  }
  return reinterpret_cast<void*>(aligned);
}

void* map_huge(size_t bytes) {
  void* memory = map(bytes, kHugePage);
  KeepErrno keep;
  if (memory != nullptr) madvise(memory, bytes, MADV_HUGEPAGE);
  return memory;
}

void unmap(void* memory, size_t bytes) {
  KeepErrno keep;
  munmap(memory, bytes);
}

// The system gives back whole pages of its own size, which is not the same everywhere.
void give_back_zero_pages(void* memory, size_t bytes) {
  static constexpr unsigned char kZero[4096] = {};
  KeepErrno keep;
  if (getauxval(AT_PAGESZ) != sizeof kZero) return;
  auto* const first = static_cast<unsigned char*>(memory);
  for (size_t i = 0; i < bytes; i += sizeof kZero) {
    const size_t count = std::min(sizeof kZero, bytes - i);
    if (std::memcmp(first + i, kZero, count) == 0) madvise(first + i, count, MADV_DONTNEED);
  }
}

size_t read_file(const char* path, char* out, size_t room) {
  KeepErrno keep;
  size_t length = 0;
  const long file = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
  if (file >= 0) {
    long count;
    while ((count = syscall(SYS_read, file, out + length, room - 1 - length)) > 0) {
      length += static_cast<size_t>(count);
    }
    syscall(SYS_close, file);
  }
  out[length] = '\0';
  return length;
}

uint64_t read_number(const char** text) {
  const char* begin = *text + strspn(*text, " \t\n");
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(begin, begin + strlen(begin), number);
  *text = end;
  return error == std::errc::result_out_of_range ? UINT64_MAX : number;
}

void futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns) {
  KeepErrno keep;
  if (timeout_ns != 0 && cistern_clock_wait != nullptr) {
    return cistern_clock_wait(word, expected, timeout_ns);
  }
  const timespec limit = to_timespec(timeout_ns);
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, timeout_ns == 0 ? nullptr : &limit,
          nullptr, 0);
}

void futex_wake(uint32_t* word, int count) {
  KeepErrno keep;
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

unsigned allowed_cpus() {
  KeepErrno keep;
  cpu_set_t allowed;
  // Refused only where there are more processors than the set has places for.
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return CPU_SETSIZE;
  const int count = CPU_COUNT(&allowed);
  return count < 1 ? 1 : static_cast<unsigned>(count);
}

uint64_t now_ns() {
  if (cistern_clock_now_ns != nullptr) [[unlikely]]
    return cistern_clock_now_ns();
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void sleep_ns(uint64_t ns) {
  KeepErrno keep;
  if (cistern_clock_wait != nullptr) return cistern_clock_wait(nullptr, 0, ns);
  const timespec duration = to_timespec(ns);
  syscall(SYS_nanosleep, &duration, nullptr);  // nanosleep() is a cancellation point
}

}  // namespace cistern::alloc::os
