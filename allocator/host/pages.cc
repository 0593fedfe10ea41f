// SPDX-License-Identifier: Apache-2.0
#include "allocator/host/pages.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "allocator/base/keep_errno.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // since Linux 5.18
#endif

namespace cistern::alloc::host::pages {
namespace {

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

}  // namespace

void* reserve(uint64_t bytes, uint64_t alignment) {
  const KeepErrno keep;
  const uint64_t padded = bytes + alignment;
  void* raw = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
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

}  // namespace cistern::alloc::host::pages
