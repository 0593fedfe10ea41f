// SPDX-License-Identifier: Apache-2.0
// The program's own locking of memory. Locks do not nest: if the program calls munlock() on a
// buffer of malloc, that would unlock pages that the pool locked. So munlock() leaves out those
// pages, and after munlockall() they are locked again. Results and errors are the kernel's. All
// other functions go to the kernel directly: what the program locks is locked, in the pool or not.
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

#include "allocator/host/system.h"
#include "shim/host/host_memory.h"

namespace {

namespace host = cistern::alloc::host;
using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

int unlock(uintptr_t start, uint64_t bytes) {
  return static_cast<int>(syscall(SYS_munlock, start, bytes));
}

// In address order, as the kernel does. Stops at the first piece that it cannot unlock.
int unlock_beside_the_pool(uintptr_t start, uint64_t bytes) {
  int result = 0;
  host_pool().for_each_locked(
      start, bytes,
      [&](uintptr_t piece, uint64_t size) {
        // If the program had locked the piece, each of its pages was made resident. From now on
        // pages are locked as they are touched.
        if (result == 0) host::pages::lock(piece, size, /*eager=*/false);
      },
      [&](uintptr_t piece, uint64_t size) {
        if (result == 0) result = unlock(piece, size);
      });
  return result;
}

}  // namespace

extern "C" {

[[gnu::visibility("default")]] int munlock(const void* address, size_t length) noexcept {
  const auto first = reinterpret_cast<uintptr_t>(address);
  const uintptr_t start = first / host::kPage * host::kPage;
  const uintptr_t end = (first + length + host::kPage - 1) / host::kPage * host::kPage;
  if (!host_locks() || end <= start) return unlock(first, length);
  return unlock_beside_the_pool(start, end - start);
}

[[gnu::visibility("default")]] int munlockall() noexcept {
  const long result = syscall(SYS_munlockall);
  if (host_locks()) host_pool().lock_again();
  return static_cast<int>(result);
}

}  // extern "C"
