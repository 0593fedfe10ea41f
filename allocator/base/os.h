// SPDX-License-Identifier: Apache-2.0
// The few things the pools need from the operating system, so that everything above can be read
// (and tested) without it. Linux only. Callable from any thread; nothing here allocates from
// malloc, and nothing is a cancellation point: a thread cancelled here would leave what it counts
// in and holds as it was.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace cistern::alloc::os {

inline constexpr size_t kPage = 4096;  // bytes; the smallest part of a mapping
// Zeroed, private, demand-paged memory aligned to `alignment` (a power of two, at least a page).
// nullptr when the system refuses.
void* map(size_t bytes, size_t alignment = kPage);
// The same aligned to a huge page, and in such pages where the system has them: for tables that are
// read at random, where finding the page takes as long as reading it. A huge page is the process's
// as a whole once a byte of it is touched.
inline constexpr size_t kHugePage = size_t{2} << 20;
void* map_huge(size_t bytes);
// What one of them returned, with the same size.
void unmap(void* memory, size_t bytes);

// Pages of such memory that hold only zeros are the system's again, until somebody writes to them.
// For a large object of which most is zero, and not used under most settings. No other thread knows
// the memory yet.
void give_back_zero_pages(void* memory, size_t bytes);

// The first room - 1 bytes of a file, and a zero behind them. Returns how many there are: 0 if the
// file cannot be read.
size_t read_file(const char* path, char* out, size_t room);

// The decimal number that a text begins with behind blanks, UINT64_MAX if it is larger, 0 if there
// is none; *text is then what follows. Not strtoull(): the headers of glibc 2.38 and later make a
// symbol of it that older systems lack.
uint64_t read_number(const char** text);

// Sleeps while *word == expected, until woken or `timeout_ns` passed (0: no limit).
void futex_wait(uint32_t* word, uint32_t expected, uint64_t timeout_ns);
void futex_wake(uint32_t* word, int count);

// How many processors this process may use, at least 1.
unsigned allowed_cpus();

uint64_t now_ns();  // CLOCK_MONOTONIC, or of a test that stops and moves it (simcuda/clock.h)
void sleep_ns(uint64_t ns);

// Waits until `done()`, looking again and again, ever more seldom, but no longer than `limit_ns`;
// what it said last.
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

// Waits as long as `going_on()`, which another thread ends. Without naps, many that wait would keep
// that thread from a processor.
template <typename GoingOn>
void wait_while(GoingOn going_on) {
  wait_until([&] { return !going_on(); }, UINT64_MAX);
}

}  // namespace cistern::alloc::os
