// SPDX-License-Identifier: Apache-2.0
// The few things the pools need from the operating system, so that everything above can be read
// (and tested) without it. Linux only. Callable from any thread; nothing here allocates from
// malloc, and nothing is a cancellation point: a thread cancelled here would never leave its locks
// and counters.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cistern::alloc {

// Keeps errno as it is, for a scope that makes system calls. The pools work inside the program's
// calls: they must not change the errno it sees.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

// --- File names behind which no other user can have put a link. Such a file can be written without
// further checks.

// Whether the path names a file descriptor of this or another process. The kernel keeps other users
// away from a process's descriptors.
inline bool names_descriptor(const char* path) {
  const auto after = [](const char* start, const char* text) -> const char* {
    const size_t length = strlen(start);
    return strncmp(text, start, length) == 0 ? text + length : nullptr;
  };
  const auto all_digits = [](const char* text) {
    return *text != '\0' && text[strspn(text, "0123456789")] == 0;
  };
  if (strcmp(path, "/dev/stdout") == 0 || strcmp(path, "/dev/stderr") == 0) return true;
  if (const char* number = after("/dev/fd/", path); number != nullptr) return all_digits(number);
  const char* process = after("/proc/", path);
  if (process == nullptr) return false;
  const char* rest = after("self", process);
  if (rest == nullptr) rest = process + strspn(process, "0123456789");
  const char* number = rest == process ? nullptr : after("/fd/", rest);
  return number != nullptr && all_digits(number);
}

// Whether the path names a descriptor, or one of the devices that store nothing.
inline bool nobody_else_made(const char* path) {
  for (const char* name : {"/dev/null", "/dev/full", "/dev/tty"}) {
    if (strcmp(path, name) == 0) return true;
  }
  return names_descriptor(path);
}

}  // namespace cistern::alloc

namespace cistern::alloc::os {

inline constexpr size_t kPage = 4096;  // bytes; the smallest part of a mapping
// Zeroed, private, demand-paged memory aligned to `alignment` (a power of two, at least a page).
// nullptr when the system refuses.
void* map(size_t bytes, size_t alignment = kPage);
// As map(), but aligned to a huge page, and in huge pages if the system has them. For tables that
// are read at random: there a TLB miss takes as long as the read itself. Once one byte of a huge
// page is touched, the whole page is resident.
inline constexpr size_t kHugePage = size_t{2} << 20;
void* map_huge(size_t bytes);
// Unmaps what map() or map_huge() returned for the same size.
void unmap(void* memory, size_t bytes);

// Returns those pages to the system that hold only zeros. They read as zero, and are resident again
// only once written. For a large object that is mostly zero and mostly unused. No other thread may
// know the memory yet.
void give_back_zero_pages(void* memory, size_t bytes);

// Reads the first room - 1 bytes of a file, and puts a zero behind them. Returns the number of
// bytes; 0 if the file cannot be read.
size_t read_file(const char* path, char* out, size_t room);

// Skips blanks in *text and reads the decimal number that follows. Returns UINT64_MAX if it is
// larger, 0 if there is none. Leaves *text behind the number. Not strtoull(): the headers of glibc
// 2.38 and later turn it into a symbol that older systems lack.
uint64_t read_number(const char** text);

// Sleeps while *word == expected, until woken or `timeout_ns` passed (0: no limit).
void futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns);
void futex_wake(uint32_t* word, int count);

// How many processors this process may use, at least 1.
unsigned allowed_cpus();

uint64_t now_ns();  // CLOCK_MONOTONIC, or a test's clock that stops and moves (simcuda/clock.h)
void sleep_ns(uint64_t ns);

// Calls `done()` again and again, ever more seldom, until it is true or `limit_ns` have passed.
// Returns its last result.
template <typename Done>
bool wait_until(Done done, uint64_t limit_ns) {
  constexpr uint64_t kFirstNapNs = 1000, kLongestNapNs = 200'000;
  const uint64_t start = now_ns();
  while (!done()) {
    const uint64_t waited = now_ns() - start;
    if (waited >= limit_ns) return false;
    sleep_ns(std::clamp(waited / 4, kFirstNapNs, kLongestNapNs));
  }
  return true;
}

// Waits as long as `going_on()` is true; another thread ends it. The wait sleeps, because many
// spinning threads would keep that thread from a processor.
template <typename GoingOn>
void wait_while(GoingOn going_on) {
  wait_until([&] { return !going_on(); }, UINT64_MAX);
}

}  // namespace cistern::alloc::os
