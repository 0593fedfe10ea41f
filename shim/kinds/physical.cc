// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/unpooled.h"

#include <atomic>

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/kinds/charges.h"
#include "shim/order/ask.h"
#include "shim/pooled/out_of_memory.h"
#include "shim/watch/watch.h"

namespace cistern::shim {
namespace {

// `uses` counts the references that the driver may still hold. `handles` counts the handles that
// the program holds. A handle that is being released no longer counts, since the driver may reuse
// its value at once.
struct Physical {
  Physical* next;
  uint64_t key;  // the handle
  uint64_t bytes;
  uint64_t number;  // its unique number in a recording; the driver reuses handles
  CUdevice device;
  bool charged;
  uint32_t handles;
  uint32_t uses;  // handles and mappings
};

// Mappings of imported memory are recorded as well (`physical` is nullptr), because one unmapping
// may undo several mappings.
struct Mapped {
  Mapped* next;
  uint64_t key;  // the address
  uint64_t bytes;
  Physical* physical;
};

constinit alloc::Mutex physical_mutex;
constinit alloc::KeyedTable<Physical, 12> physicals{};
constinit alloc::KeyedTable<Mapped, 12> mapped{};
constinit alloc::Arena<Physical> physical_arena{};
constinit alloc::Arena<Mapped> mapped_arena{};
constinit std::atomic<uint64_t> last_number{0};

using Physicals = Physical*;  // a list

// The memory behind a handle that the program holds, or nullptr. Caller holds the lock, also for
// drop() and take_mappings().
Physical* held(CUmemGenericAllocationHandle handle) {
  return physicals.find(handle, [](const Physical& p) { return p.handles != 0; });
}

// Removes one reference. After the last one the memory goes to `ended`.
void drop(Physical* physical, Physicals* ended) {
  if (physical == nullptr || --physical->uses != 0) return;
  physicals.remove(physical);
  physical->next = *ended;
  *ended = physical;
}

// Caller must not hold the lock.
void end_all(Physicals ended) {
  while (ended != nullptr) {
    Physical* physical = ended;
    ended = physical->next;
    watch_free(alloc::Memory::physical, physical->number, nullptr, [] { return CUDA_SUCCESS; });
    if (physical->charged) refund(MemoryKind::physical, physical->device, physical->bytes);
    physical_arena.give_back(physical);
  }
}

// Takes out the mappings that make up a range, as a list.
Mapped* take_mappings(uint64_t address, uint64_t size) {
  Mapped* taken = nullptr;
  for (const uint64_t end = address + size; address < end;) {
    Mapped* mapping = mapped.find(address);
    if (mapping == nullptr) break;
    mapped.remove(mapping);
    address += mapping->bytes;
    mapping->next = taken;
    taken = mapping;
  }
  return taken;
}

// The error that the driver returns for invalid arguments, before it allocates.
CUresult check(size_t size, const CUmemAllocationProp& properties, unsigned long long flags) {
  size_t granularity = 0;
  const auto ask = driver().cuMemGetAllocationGranularity;
  if (ask == nullptr) return CUDA_SUCCESS;
  const CUresult result = ask(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  if (result != CUDA_SUCCESS) return result;
  const bool valid = flags == 0 && (granularity == 0 || size % granularity == 0);
  return valid ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUdevice device_of(const CUmemAllocationProp& properties) {
  const bool on_device = properties.type == CU_MEM_ALLOCATION_TYPE_PINNED &&
                         properties.location.type == CU_MEM_LOCATION_TYPE_DEVICE;
  return on_device ? properties.location.id : kNoDevice;
}

CUresult create_as(uint64_t number, CUmemGenericAllocationHandle* handle, size_t size,
                   const CUmemAllocationProp* properties, unsigned long long flags) {
  if (handle == nullptr || properties == nullptr) {
    return noted(driver().cuMemCreate(handle, size, properties, flags));
  }
  const CUdevice device = device_of(*properties);
  Charge charge(MemoryKind::physical, device, charging() ? size : 0);
  if (charge.refused()) {
    const CUresult result = check(size, *properties, flags);
    return result != CUDA_SUCCESS ? result : no_room_for_units();
  }
  const CUresult result =
      charge.ask([&] { return noted(driver().cuMemCreate(handle, size, properties, flags)); });
  if (result != CUDA_SUCCESS || !(charge.made() || watching())) return result;
  Physical* physical = physical_arena.take();
  if (physical == nullptr) return result;  // not charged, because it could never be refunded
  *physical = {.next = nullptr,
               .key = *handle,
               .bytes = size,
               .number = number,
               .device = device,
               .charged = charge.made(),
               .handles = 1,
               .uses = 1};
  if (charge.made()) charge.hand_over();
  const alloc::LockGuard guard(physical_mutex);
  physicals.insert(physical);
  return result;
}

}  // namespace

bool following_physical() { return charging() || watching(); }

CUresult create_physical(CUmemGenericAllocationHandle* handle, size_t size,
                         const CUmemAllocationProp* properties, unsigned long long flags) {
  uint64_t number = 0;
  return watch_allocation(alloc::Memory::physical, &number, size, nullptr, [&] {
    number = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
    return create_as(number, handle, size, properties, flags);
  });
}

CUresult release_physical(CUmemGenericAllocationHandle handle) {
  Physical* physical;
  {
    const alloc::LockGuard guard(physical_mutex);
    physical = held(handle);
    if (physical != nullptr) --physical->handles;
  }
  const CUresult result = noted(driver().cuMemRelease(handle));
  if (physical == nullptr) return result;
  Physicals ended = nullptr;
  {
    const alloc::LockGuard guard(physical_mutex);
    result == CUDA_SUCCESS ? drop(physical, &ended) : void(++physical->handles);
  }
  end_all(ended);
  return result;
}

// The driver returns the handle that was used to map the memory (cuda.h), even if the program has
// released it since. The record is found by the address, and gets the returned handle.
CUresult retain_physical(CUmemGenericAllocationHandle* handle, void* address) {
  const CUresult result = noted(driver().cuMemRetainAllocationHandle(handle, address));
  if (result != CUDA_SUCCESS) return result;
  const auto at = reinterpret_cast<uint64_t>(address);
  const alloc::LockGuard guard(physical_mutex);
  const Mapped* mapping = mapped.search([&](const Mapped& m) { return at - m.key < m.bytes; });
  Physical* physical = mapping != nullptr ? mapping->physical : nullptr;
  if (physical == nullptr) return result;
  ++physical->handles;
  ++physical->uses;
  if (physical->key != *handle) {
    physicals.remove(physical);
    physical->key = *handle;
    physicals.insert(physical);
  }
  return result;
}

CUresult map_physical(CUdeviceptr address, size_t size, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags) {
  Mapped* mapping = mapped_arena.take();
  Physical* physical = nullptr;
  if (mapping != nullptr) {
    // Counted before the driver's call: a release by another thread must not end the charge.
    const alloc::LockGuard guard(physical_mutex);
    physical = held(handle);
    if (physical != nullptr) ++physical->uses;
  }
  const CUresult result = noted(driver().cuMemMap(address, size, offset, handle, flags));
  if (mapping == nullptr) return result;
  if (result != CUDA_SUCCESS) {
    mapped_arena.give_back(mapping);
    Physicals ended = nullptr;
    {
      const alloc::LockGuard guard(physical_mutex);
      drop(physical, &ended);
    }
    end_all(ended);
    return result;
  }
  *mapping = {nullptr, address, size, physical};
  const alloc::LockGuard guard(physical_mutex);
  mapped.insert(mapping);
  return result;
}

CUresult unmap_physical(CUdeviceptr address, size_t size) {
  Mapped* taken;
  {
    const alloc::LockGuard guard(physical_mutex);
    taken = take_mappings(address, size);
  }
  const CUresult result = noted(driver().cuMemUnmap(address, size));
  Physicals ended = nullptr;
  {
    const alloc::LockGuard guard(physical_mutex);
    while (taken != nullptr) {
      Mapped* mapping = taken;
      taken = mapping->next;
      if (result != CUDA_SUCCESS) {
        mapped.insert(mapping);
        continue;
      }
      drop(mapping->physical, &ended);
      mapped_arena.give_back(mapping);
    }
  }
  end_all(ended);
  return result;
}

void reset_physical_after_fork() {
  physical_mutex.reset();
  physical_arena.reset_after_fork();
  mapped_arena.reset_after_fork();
}

}  // namespace cistern::shim
