// SPDX-License-Identifier: Apache-2.0
// The few things the pools need from the operating system, so that everything above can be read
// (and tested) without it. Linux only. Callable from any thread; nothing here allocates from
// malloc, and nothing is a cancellation point: a thread cancelled here would never leave its locks
// and counters.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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
