// SPDX-License-Identifier: Apache-2.0
#include "memory/host_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "exec/context.h"
#include "memory/device.h"
#include "memory/imports.h"
#include "memory/ranges.h"

namespace simcuda {
namespace {

size_t page_round(size_t bytes) {
  static const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

size_t machine_bytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * page_round(1);
  return bytes;
}

void unmap(const Allocation& range) {
  // Registered memory is the program's own.
  if (range.kind == MemoryKind::kRegistered) return;
  if (range.kind == MemoryKind::kImported) return unmap_import(range);
  munmap(reinterpret_cast<void*>(range.base), page_round(range.bytes));
}

Allocation describe(Context& context, MemoryKind kind, CUdeviceptr base, size_t bytes,
                    unsigned flags) {
  return {.base = base,
          .bytes = bytes,
          .kind = kind,
          .device = context.device().ordinal(),
          .context = &context,
          .flags = flags,
          .pool = nullptr,
          .id = next_allocation_id()};
}

// What the driver answers where the program takes its pinned memory for its own.
CUresult unless_pinned(CUdeviceptr address, CUresult otherwise) {
  const auto found = find_range(address);
  return found && found->kind == MemoryKind::kPinned ? CUDA_ERROR_INVALID_VALUE : otherwise;
}

}  // namespace

CUresult allocate_host(Context& context, MemoryKind kind, size_t bytes, unsigned flags,
                       CUdeviceptr* address) {
  if (bytes == 0 || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  // Managed memory may be more than there is; what is pinned must be there.
  const size_t most = kind == MemoryKind::kPinned ? machine_bytes() : SIZE_MAX / 2;
  if (bytes > most) return CUDA_ERROR_OUT_OF_MEMORY;
  void* pages = mmap(nullptr, page_round(bytes), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto base = reinterpret_cast<CUdeviceptr>(pages);
  add_range(describe(context, kind, base, bytes, flags));
  *address = base;
  return CUDA_SUCCESS;
}

CUresult free_host(CUdeviceptr base, MemoryKind kind) {
  const auto range = remove_range(base, kind);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  unmap(*range);
  return CUDA_SUCCESS;
}

CUresult register_host(Context& context, void* address, size_t bytes, unsigned flags) {
  if (address == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto base = reinterpret_cast<CUdeviceptr>(address);
  const bool added = add_range(describe(context, MemoryKind::kRegistered, base, bytes, flags));
  return added ? CUDA_SUCCESS : unless_pinned(base, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
}

CUresult unregister_host(void* address) {
  const auto base = reinterpret_cast<CUdeviceptr>(address);
  return remove_range(base, MemoryKind::kRegistered)
             ? CUDA_SUCCESS
             : unless_pinned(base, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
}

void free_host_of(const Context& context) {
  for (const Allocation& range : remove_ranges_of(context)) unmap(range);
}

}  // namespace simcuda
