// SPDX-License-Identifier: Apache-2.0
#include "memory/ipc.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "exec/context.h"
#include "exec/engine.h"
#include "memory/device.h"
#include "memory/imports.h"
#include "memory/ranges.h"

namespace simcuda {
namespace {

constexpr uint64_t kMagic = 0x53494d4355444131;  // "SIMCUDA1"

struct Token {
  uint64_t magic;
  int32_t process;
  int32_t file;
  int32_t device;
  uint32_t reserved;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(Token) <= sizeof(CUipcMemHandle));

}  // namespace

CUresult get_ipc_handle(CUdeviceptr address, CUipcMemHandle* handle) {
  const auto found = find_allocation(address);
  const Device* device = device_of(address);
  if (!found || device == nullptr || found->kind != MemoryKind::kDevice) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const Token token{
      kMagic,      getpid(), device->file(), device->ordinal(), 0, device->offset_of(found->base),
      found->bytes};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &token, sizeof token);
  return CUDA_SUCCESS;
}

int open_file_of(pid_t process, int file) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/fd/%d", process, file);
  return open(path, O_RDWR | O_CLOEXEC);
}

CUresult open_ipc_handle(Context& context, const CUipcMemHandle& handle, CUdeviceptr* address) {
  Token token;
  std::memcpy(&token, &handle, sizeof token);
  if (token.magic != kMagic) return CUDA_ERROR_INVALID_VALUE;
  if (token.process == getpid()) return CUDA_ERROR_INVALID_CONTEXT;
  const int file = open_file_of(token.process, token.file);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t lead = import_lead(token.offset);
  void* pages = mmap(nullptr, lead + token.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                     static_cast<off_t>(token.offset - lead));
  close(file);
  if (pages == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  *address = reinterpret_cast<CUdeviceptr>(pages) + lead;
  Device* device = find_device(token.device);  // numbered alike in both processes
  if (device != nullptr && device != &context.device()) {
    const std::lock_guard lock(exec_mutex());
    context.peers.insert(&device->primary());
  }
  add_range({.base = *address,
             .bytes = token.bytes,
             .kind = MemoryKind::kImported,
             .device = device != nullptr ? token.device : context.device().ordinal(),
             .context = &context,
             .id = next_allocation_id()});
  return CUDA_SUCCESS;
}

// As at a free, no work of the context reaches what is no longer there.
CUresult close_ipc_handle(CUdeviceptr address) {
  const auto found = find_range(address);
  if (!found || found->base != address || found->kind != MemoryKind::kImported) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  wait_for_context(*found->context);
  const auto range = remove_range(address, MemoryKind::kImported);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  unmap_import(*range);
  return CUDA_SUCCESS;
}

CUresult get_range_file(CUdeviceptr address, size_t bytes, int* file) {
  constexpr uint64_t kPage = 4096;  // of the host
  const auto found = find_allocation(address);
  const Device* device = device_of(address);
  if (!found || bytes == 0 || address % kPage != 0 || bytes % kPage != 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (device == nullptr || found->kind != MemoryKind::kDevice) return CUDA_ERROR_NOT_SUPPORTED;
  const uint64_t end = (found->base + found->bytes + kPage - 1) / kPage * kPage;
  if (bytes > end - address) return CUDA_ERROR_INVALID_VALUE;
  *file = fcntl(device->file(), F_DUPFD_CLOEXEC, 0);
  return *file < 0 ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

}  // namespace simcuda
