// SPDX-License-Identifier: Apache-2.0
//
// Memory pools of other processes. A pool's descriptor is a new opening of its device's memory: the
// name tells which device, and the position, which travels with it, which pool of the exporter. So
// an importer needs nothing from the exporter, which may have ended.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "exec/context.h"
#include "exec/current.h"
#include "memory/imports.h"
#include "memory/pool.h"
#include "memory/pool_object.h"
#include "memory/ranges.h"

namespace simcuda {
namespace {

constexpr uint64_t kPoolMagic = 0x53494d504f4f4c31;  // "SIMPOOL1"

// The ordinal of the device whose memory the descriptor is; none if it is of none.
Device* device_behind(int file) {
  char link[64], name[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t length = readlink(link, name, sizeof name - 1);
  if (length <= 0) return nullptr;
  name[length] = '\0';
  int ordinal = -1;
  return std::sscanf(name, "/memfd:simcuda-device-%d", &ordinal) == 1 ? find_device(ordinal)
                                                                      : nullptr;
}

struct Shared {
  uint64_t magic;
  uint64_t pool;
  uint64_t offset;
  uint64_t bytes;
};
static_assert(sizeof(Shared) <= sizeof(CUmemPoolPtrExportData));

}  // namespace

CUresult export_pool(CUmemoryPool handle, int* file) {
  const auto pool = find_pool(handle);
  if (pool == nullptr || !pool->shareable || pool->file >= 0) return CUDA_ERROR_INVALID_VALUE;
  char link[64];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", pool->device.file());
  const int opened = open(link, O_RDWR | O_CLOEXEC);
  if (opened < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  lseek(opened, static_cast<off_t>(pool->number), SEEK_SET);
  *file = opened;
  return CUDA_SUCCESS;
}

CUresult import_pool(int file, CUmemoryPool* pool) {
  Device* device = device_behind(file);
  const off_t number = device == nullptr ? 0 : lseek(file, 0, SEEK_CUR);
  if (number <= 0) return CUDA_ERROR_INVALID_VALUE;
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  CUmemPoolProps properties{};
  properties.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  auto made = std::make_shared<Pool>(*device, properties, next_pool_number());
  made->file = own;
  made->exporters_number = static_cast<uint64_t>(number);
  *pool = add_pool(std::move(made));
  return CUDA_SUCCESS;
}

CUresult export_pointer(CUdeviceptr address, CUmemPoolPtrExportData* data) {
  const auto found = find_allocation(address);
  const bool shareable = found && found->base == address && found->kind == MemoryKind::kPool &&
                         found->owner->shareable && !found->ending;
  if (!shareable) return CUDA_ERROR_INVALID_VALUE;
  const Shared shared{kPoolMagic, found->owner->number, found->owner->device.offset_of(address),
                      found->bytes};
  std::memset(data, 0, sizeof *data);
  std::memcpy(data, &shared, sizeof shared);
  return CUDA_SUCCESS;
}

CUresult import_pointer(CUmemoryPool handle, const CUmemPoolPtrExportData& data,
                        CUdeviceptr* address) {
  const auto pool = find_pool(handle);
  Shared shared;
  std::memcpy(&shared, &data, sizeof shared);
  const bool fits = pool != nullptr && pool->file >= 0 && shared.magic == kPoolMagic &&
                    shared.pool == pool->exporters_number && shared.bytes != 0;
  if (!fits) return CUDA_ERROR_INVALID_VALUE;
  const size_t lead = import_lead(shared.offset);
  void* pages = mmap(nullptr, lead + shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, pool->file,
                     static_cast<off_t>(shared.offset - lead));
  if (pages == MAP_FAILED) return CUDA_ERROR_MAP_FAILED;
  *address = reinterpret_cast<CUdeviceptr>(pages) + lead;
  add_range({.base = *address,
             .bytes = shared.bytes,
             .kind = MemoryKind::kImported,
             .device = pool->device.ordinal(),
             .context = current_context(),
             .pool = handle,
             .owner = pool,
             .id = next_allocation_id()});
  const std::lock_guard lock(pool->mutex);
  pool->imported += shared.bytes;
  pool->count(shared.bytes);
  return CUDA_SUCCESS;
}

}  // namespace simcuda
