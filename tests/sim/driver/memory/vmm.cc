// SPDX-License-Identifier: Apache-2.0
#include "memory/vmm.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "memory/device.h"
#include "memory/ranges.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

// What the watcher knows physical memory by: numbers that are nobody's address.
constinit std::atomic<uint64_t> g_next_key{uint64_t{1} << 62};

// Physical memory: goes when nobody refers to it any more.
struct Physical {
  Physical(Device& owner, int memory_file, size_t size, const CUmemAllocationProp& what,
           bool is_charged)
      : device(owner), file(memory_file), bytes(size), properties(what), charged(is_charged) {
    watch_physical_begun(key, bytes);
  }
  ~Physical() {
    watch_physical_ended(key);
    close(file);
    if (charged) device.refund(bytes);
  }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  Device& device;
  const int file;
  const size_t bytes;
  const CUmemAllocationProp properties;
  const bool charged;  // imported memory is its exporter's charge
  const uint64_t key = g_next_key.fetch_add(bytes);
};

struct Handle {
  std::shared_ptr<Physical> physical;
  unsigned references;
};

struct Mapping {
  std::shared_ptr<Physical> physical;
  CUmemGenericAllocationHandle handle;
  size_t bytes;
  unsigned long long access;
};

struct Space {
  std::mutex mutex;
  std::map<CUdeviceptr, size_t> reservations;
  std::map<CUmemGenericAllocationHandle, Handle> handles;
  std::map<CUdeviceptr, Mapping> mappings;
  CUmemGenericAllocationHandle next_handle = 1;
};

Space& space() {
  static Space& all = *new Space;
  return all;
}

bool whole_units(uint64_t value) { return value % Device::kUnitBytes == 0; }

void* host(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

Device* device_for(const CUmemAllocationProp& properties) {
  const bool on_device = properties.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return on_device ? find_device(properties.location.id) : nullptr;
}

// Caller holds the mutex, here and below.
bool reserved(const Space& all, CUdeviceptr address, size_t bytes) {
  auto after = all.reservations.upper_bound(address);
  if (after == all.reservations.begin()) return false;
  const auto& [base, size] = *std::prev(after);
  return address - base <= size && bytes <= size - (address - base);
}

bool overlaps_mapping(const Space& all, CUdeviceptr address, size_t bytes) {
  const auto after = all.mappings.lower_bound(address);
  if (after != all.mappings.end() && after->first < address + bytes) return true;
  if (after == all.mappings.begin()) return false;
  const auto& [base, before] = *std::prev(after);
  return base + before.bytes > address;
}

std::map<CUdeviceptr, Mapping>::iterator mapping_at(Space& all, CUdeviceptr address) {
  auto after = all.mappings.upper_bound(address);
  if (after == all.mappings.begin()) return all.mappings.end();
  const auto before = std::prev(after);
  return address - before->first < before->second.bytes ? before : all.mappings.end();
}

// Whole mappings, without a gap, make up the stretch.
bool mapped_exactly(Space& all, CUdeviceptr address, size_t bytes) {
  const CUdeviceptr end = address + bytes;
  auto at = all.mappings.find(address);
  while (at != all.mappings.end() && at->first == address && address < end) {
    address += at->second.bytes;
    ++at;
  }
  return address == end;
}

// A place the address can be given back to: nothing there, no access.
bool blank(CUdeviceptr address, size_t bytes, int flags) {
  return mmap(host(address), bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags,
              -1, 0) != MAP_FAILED;
}

CUmemGenericAllocationHandle add_handle(Space& all, std::shared_ptr<Physical> physical) {
  const CUmemGenericAllocationHandle handle = all.next_handle++;
  all.handles.emplace(handle, Handle{std::move(physical), 1});
  return handle;
}

}  // namespace

CUresult granularity(const CUmemAllocationProp& properties, size_t* bytes) {
  if (device_for(properties) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = Device::kUnitBytes;
  return CUDA_SUCCESS;
}

CUresult reserve_address(size_t bytes, size_t alignment, CUdeviceptr* address) {
  if (bytes == 0 || !whole_units(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (alignment == 0) alignment = Device::kUnitBytes;
  if ((alignment & (alignment - 1)) != 0) return CUDA_ERROR_INVALID_VALUE;
  if (alignment < Device::kUnitBytes) alignment = Device::kUnitBytes;
  void* room = mmap(nullptr, bytes + alignment, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const auto start = reinterpret_cast<CUdeviceptr>(room);
  const CUdeviceptr base = (start + alignment - 1) / alignment * alignment;
  if (base > start) munmap(room, base - start);
  if (const size_t rest = start + alignment - base; rest != 0) munmap(host(base + bytes), rest);
  const std::lock_guard lock(space().mutex);
  space().reservations.emplace(base, bytes);
  *address = base;
  return CUDA_SUCCESS;
}

CUresult free_address(CUdeviceptr address, size_t bytes) {
  Space& all = space();
  const std::lock_guard lock(all.mutex);
  const auto found = all.reservations.find(address);
  const bool whole = found != all.reservations.end() && found->second == bytes;
  if (!whole || overlaps_mapping(all, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  all.reservations.erase(found);
  munmap(host(address), bytes);
  return CUDA_SUCCESS;
}

CUresult create_physical(size_t bytes, const CUmemAllocationProp& properties,
                         CUmemGenericAllocationHandle* handle) {
  Device* device = device_for(properties);
  if (device == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  if (bytes == 0 || !whole_units(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (!device->charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  const int file = memfd_create("simcuda-physical", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(bytes)) != 0) {
    if (file >= 0) close(file);
    device->refund(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  const std::lock_guard lock(space().mutex);
  *handle = add_handle(space(), std::make_shared<Physical>(*device, file, bytes, properties, true));
  return CUDA_SUCCESS;
}

CUresult release_physical(CUmemGenericAllocationHandle handle) {
  std::shared_ptr<Physical> last;  // destroyed after the lock
  const std::lock_guard lock(space().mutex);
  const auto found = space().handles.find(handle);
  if (found == space().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  if (--found->second.references != 0) return CUDA_SUCCESS;
  last = std::move(found->second.physical);
  space().handles.erase(found);
  return CUDA_SUCCESS;
}

CUresult retain_physical(CUdeviceptr address, CUmemGenericAllocationHandle* handle) {
  Space& all = space();
  const std::lock_guard lock(all.mutex);
  const auto mapping = mapping_at(all, address);
  if (mapping == all.mappings.end()) return CUDA_ERROR_INVALID_VALUE;
  auto known = all.handles.find(mapping->second.handle);
  if (known != all.handles.end()) {
    ++known->second.references;
    *handle = known->first;
    return CUDA_SUCCESS;
  }
  *handle = add_handle(all, mapping->second.physical);
  mapping->second.handle = *handle;
  return CUDA_SUCCESS;
}

CUresult physical_properties(CUmemGenericAllocationHandle handle, CUmemAllocationProp* properties) {
  const std::lock_guard lock(space().mutex);
  const auto found = space().handles.find(handle);
  if (found == space().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  *properties = found->second.physical->properties;
  return CUDA_SUCCESS;
}

CUresult map_physical(CUdeviceptr address, size_t bytes, size_t offset,
                      CUmemGenericAllocationHandle handle) {
  Space& all = space();
  const std::lock_guard lock(all.mutex);
  const auto found = all.handles.find(handle);
  if (found == all.handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::shared_ptr<Physical> physical = found->second.physical;
  const bool fits = bytes != 0 && whole_units(address) && whole_units(bytes) && offset == 0 &&
                    bytes <= physical->bytes;
  if (!fits || !reserved(all, address, bytes) || overlaps_mapping(all, address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (mmap(host(address), bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, physical->file, 0) ==
      MAP_FAILED) {
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  all.mappings.emplace(address, Mapping{physical, handle, bytes, CU_MEM_ACCESS_FLAGS_PROT_NONE});
  add_range({.base = address,
             .bytes = bytes,
             .kind = MemoryKind::kMapped,
             .device = physical->device.ordinal(),
             .id = next_allocation_id(),
             .physical = physical->key});
  return CUDA_SUCCESS;
}

CUresult unmap_physical(CUdeviceptr address, size_t bytes) {
  Space& all = space();
  const std::lock_guard lock(all.mutex);
  if (!mapped_exactly(all, address, bytes)) return CUDA_ERROR_INVALID_VALUE;
  for (const CUdeviceptr end = address + bytes; address < end;) {
    const auto mapping = all.mappings.find(address);
    const size_t here = mapping->second.bytes;
    remove_range(address, MemoryKind::kMapped);
    if (!blank(address, here, MAP_FIXED)) return CUDA_ERROR_OUT_OF_MEMORY;
    all.mappings.erase(mapping);
    address += here;
  }
  return CUDA_SUCCESS;
}

CUresult set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc* descriptions,
                    size_t count) {
  Space& all = space();
  const std::lock_guard lock(all.mutex);
  if (!mapped_exactly(all, address, bytes) || descriptions == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  unsigned long long access = CU_MEM_ACCESS_FLAGS_PROT_NONE;
  for (size_t i = 0; i < count; ++i) {
    if (descriptions[i].flags > access) access = descriptions[i].flags;
  }
  // Any device's access is access here: there is one memory.
  const int protection = access == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                         : access == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                      : PROT_NONE;
  mprotect(host(address), bytes, protection);
  for (const CUdeviceptr end = address + bytes; address < end;) {
    Mapping& mapping = all.mappings.find(address)->second;
    mapping.access = access;
    address += mapping.bytes;
  }
  return CUDA_SUCCESS;
}

CUresult get_access(CUdeviceptr address, int device, unsigned long long* flags) {
  Space& all = space();
  const std::lock_guard lock(all.mutex);
  const auto mapping = mapping_at(all, address);
  const bool known = mapping != all.mappings.end() && find_device(device) != nullptr;
  if (!known) return CUDA_ERROR_INVALID_VALUE;
  *flags = mapping->second.access;
  return CUDA_SUCCESS;
}

CUresult export_physical(CUmemGenericAllocationHandle handle, int* file) {
  const std::lock_guard lock(space().mutex);
  const auto found = space().handles.find(handle);
  if (found == space().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  const Physical& physical = *found->second.physical;
  if (!(physical.properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  *file = fcntl(physical.file, F_DUPFD_CLOEXEC, 0);
  return *file >= 0 ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

CUresult import_physical(int file, CUmemGenericAllocationHandle* handle) {
  struct stat status;
  const bool memory = fstat(file, &status) == 0 && status.st_size > 0 &&
                      whole_units(static_cast<uint64_t>(status.st_size));
  if (!memory) return CUDA_ERROR_INVALID_VALUE;
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  const std::lock_guard lock(space().mutex);
  *handle = add_handle(
      space(), std::make_shared<Physical>(*find_device(0), own, static_cast<size_t>(status.st_size),
                                          properties, false));
  return CUDA_SUCCESS;
}

}  // namespace simcuda
