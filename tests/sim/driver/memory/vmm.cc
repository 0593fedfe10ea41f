// SPDX-License-Identifier: Apache-2.0
#include "memory/vmm.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "base/settings.h"
#include "memory/device.h"
#include "memory/physical_file.h"
#include "memory/ranges.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

// What the watcher knows physical memory by: numbers that are nobody's address.
constinit std::atomic<uint64_t> g_next_key{uint64_t{1} << 62};

// Physical memory: goes when nobody refers to it any more. What another process may have stays in
// the file, as nobody says when that is done with it.
struct Physical {
  Physical(Device& owner, Stretch place, const CUmemAllocationProp& what, bool is_charged)
      : device(owner), stretch(std::move(place)), properties(what), charged(is_charged) {
    watch_physical_begun(key, bytes());
  }
  ~Physical() {
    watch_physical_ended(key);
    if (!shared) give_back_stretch(stretch);
    if (charged) device.refund(bytes());
  }
  Physical(const Physical&) = delete;
  Physical& operator=(const Physical&) = delete;

  size_t bytes() const { return stretch.bytes; }

  Device& device;
  const Stretch stretch;
  const CUmemAllocationProp properties;
  const bool charged;   // imported memory is its exporter's charge, the host's is nobody's
  bool shared = false;  // exported or imported; guarded by the space's mutex
  const uint64_t key = g_next_key.fetch_add(stretch.bytes);
};

struct Handle {
  std::shared_ptr<Physical> physical;
  unsigned references;
};

struct Mapping {
  std::shared_ptr<Physical> physical;
  CUmemGenericAllocationHandle handle;
  size_t bytes;
  std::array<uint8_t, 64> access;  // by device: CUmemAccess_flags
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

// CUDA Driver API, cuMemCreate: memory of the host as such is not to be exported, and the node of
// the calling thread is none to ask for. There is one node.
bool on_host(const CUmemAllocationProp& properties) {
  const CUmemLocation& where = properties.location;
  if (properties.type != CU_MEM_ALLOCATION_TYPE_PINNED) return false;
  return where.type == CU_MEM_LOCATION_TYPE_HOST
             ? properties.requestedHandleTypes == CU_MEM_HANDLE_TYPE_NONE
             : where.type == CU_MEM_LOCATION_TYPE_HOST_NUMA && where.id == 0;
}

// Of memory on the host it is the first one, which does not pay for it.
Device* device_for(const CUmemAllocationProp& properties) {
  if (on_host(properties)) return find_device(0);
  const bool on_device = properties.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return on_device ? find_device(properties.location.id) : nullptr;
}

bool lacks(Lack what) { return (settings().lacks & what) != 0; }

// What the device does not make.
bool beyond(const CUmemAllocationProp& properties) {
  const bool as_file = properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return (as_file && lacks(kLacksFiles)) ||
         (properties.allocFlags.gpuDirectRDMACapable != 0 && lacks(kLacksRdma));
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
  return mmap(memory_at(address), bytes, PROT_NONE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | flags, -1, 0) != MAP_FAILED;
}

// There is one memory, so that the host's pages are open where they are for any device; whether the
// right one has access is the watcher's to see.
void open_to_devices(CUdeviceptr address, const Mapping& mapping) {
  const uint8_t most = *std::max_element(mapping.access.begin(), mapping.access.end());
  const int protection = most == CU_MEM_ACCESS_FLAGS_PROT_READWRITE ? PROT_READ | PROT_WRITE
                         : most == CU_MEM_ACCESS_FLAGS_PROT_READ    ? PROT_READ
                                                                    : PROT_NONE;
  mprotect(memory_at(address), mapping.bytes, protection);
  uint64_t devices = 0;
  for (size_t i = 0; i < mapping.access.size(); ++i) {
    if (mapping.access[i] != CU_MEM_ACCESS_FLAGS_PROT_NONE) devices |= uint64_t{1} << i;
  }
  set_reached_by(address, devices);
}

CUmemGenericAllocationHandle add_handle(Space& all, std::shared_ptr<Physical> physical) {
  const CUmemGenericAllocationHandle handle = all.next_handle++;
  all.handles.emplace(handle, Handle{std::move(physical), 1});
  return handle;
}

}  // namespace

VirtualMemory virtual_memory() {
  Space& all = space();
  const std::lock_guard lock(all.mutex);
  VirtualMemory now{};
  now.handles = all.handles.size();
  now.mappings = all.mappings.size();
  now.reservations = all.reservations.size();
  for (const auto& [address, mapping] : all.mappings) now.mapped_bytes += mapping.bytes;
  for (const auto& [address, bytes] : all.reservations) now.reserved_bytes += bytes;
  return now;
}

CUresult granularity(const CUmemAllocationProp& properties, size_t* bytes) {
  if (lacks(kLacksVirtualMemory)) return CUDA_ERROR_NOT_SUPPORTED;
  if (device_for(properties) == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = Device::kUnitBytes;
  return CUDA_SUCCESS;
}

CUresult reserve_address(size_t bytes, size_t alignment, CUdeviceptr* address) {
  if (lacks(kLacksVirtualMemory)) return CUDA_ERROR_NOT_SUPPORTED;
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
  if (const size_t rest = start + alignment - base; rest != 0)
    munmap(memory_at(base + bytes), rest);
  const std::lock_guard lock(space().mutex);
  space().reservations.emplace(base, bytes);
  watch_reserved(base, bytes);
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
  watch_unreserved(address);
  munmap(memory_at(address), bytes);
  return CUDA_SUCCESS;
}

CUresult create_physical(size_t bytes, const CUmemAllocationProp& properties,
                         CUmemGenericAllocationHandle* handle) {
  if (lacks(kLacksVirtualMemory)) return CUDA_ERROR_NOT_SUPPORTED;
  Device* device = device_for(properties);
  if (device == nullptr) {
    const bool by_device = properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
    return by_device ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
  }
  const bool charged = !on_host(properties);
  if (beyond(properties)) return CUDA_ERROR_NOT_SUPPORTED;
  if (bytes == 0 || !whole_units(bytes)) return CUDA_ERROR_INVALID_VALUE;
  if (charged && !device->charge(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
  auto stretch = take_stretch(bytes);
  if (!stretch) {
    if (charged) device->refund(bytes);
    return CUDA_ERROR_OUT_OF_MEMORY;
  }
  auto physical = std::make_shared<Physical>(*device, std::move(*stretch), properties, charged);
  const std::lock_guard lock(space().mutex);
  *handle = add_handle(space(), std::move(physical));
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
                    bytes <= physical->bytes();
  if (!fits || !reserved(all, address, bytes) || overlaps_mapping(all, address, bytes)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (!map_stretch(physical->stretch, bytes, address)) return CUDA_ERROR_OUT_OF_MEMORY;
  all.mappings.emplace(address, Mapping{physical, handle, bytes, {}});
  add_range({.base = address,
             .bytes = bytes,
             .kind = MemoryKind::kMapped,
             .device = physical->device.ordinal(),
             .id = next_allocation_id(),
             .physical = physical->key,
             .handle_types = static_cast<unsigned>(physical->properties.requestedHandleTypes),
             .rdma = physical->properties.allocFlags.gpuDirectRDMACapable != 0});
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
  if (!mapped_exactly(all, address, bytes) || descriptions == nullptr || count == 0) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  for (size_t i = 0; i < count; ++i) {
    const CUmemLocation& where = descriptions[i].location;
    if (where.type != CU_MEM_LOCATION_TYPE_DEVICE) return CUDA_ERROR_INVALID_VALUE;
    if (find_device(where.id) == nullptr) return CUDA_ERROR_INVALID_DEVICE;
  }
  for (const CUdeviceptr end = address + bytes; address < end;) {
    Mapping& mapping = all.mappings.find(address)->second;
    for (size_t i = 0; i < count; ++i) {
      mapping.access[static_cast<size_t>(descriptions[i].location.id)] =
          static_cast<uint8_t>(descriptions[i].flags);
    }
    open_to_devices(address, mapping);
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
  *flags = mapping->second.access[static_cast<size_t>(device)];
  return CUDA_SUCCESS;
}

CUresult export_physical(CUmemGenericAllocationHandle handle, int* file) {
  const std::lock_guard lock(space().mutex);
  const auto found = space().handles.find(handle);
  if (found == space().handles.end()) return CUDA_ERROR_INVALID_VALUE;
  Physical& physical = *found->second.physical;
  if (!(physical.properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const int opened = export_stretch(physical.stretch);
  if (opened < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  physical.shared = true;
  *file = opened;
  return CUDA_SUCCESS;
}

CUresult import_physical(int file, CUmemGenericAllocationHandle* handle) {
  auto stretch = import_stretch(file);
  if (!stretch) return CUDA_ERROR_INVALID_VALUE;
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0};
  auto physical =
      std::make_shared<Physical>(*find_device(0), std::move(*stretch), properties, false);
  physical->shared = true;
  const std::lock_guard lock(space().mutex);
  *handle = add_handle(space(), std::move(physical));
  return CUDA_SUCCESS;
}

}  // namespace simcuda
