// SPDX-License-Identifier: Apache-2.0
#include "allocator/host/pages.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "allocator/base/keep_errno.h"

#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24  // since Linux 5.18
#endif

namespace cistern::alloc::host::pages {
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

}  // namespace cistern::alloc::host::pages
