// SPDX-License-Identifier: Apache-2.0
// Queries and attributes of an address (cuda.h: cuPointerGetAttribute and the calls around it). The
// driver answers for its whole allocation. If that differs from the program's block, the answer is
// about the block, with one size everywhere: the requested one. BUFFER_ID and MEMORY_BLOCK_ID stay
// the driver's: a program that caches registrations by them has registered the whole allocation.
// Memory in units (order/cuda_source.h) is reported as memory of cuMemAlloc. But what another
// process or device can do with it stays the driver's answer.
//
// For an address of ours that the program does not hold, the answer is the driver's for an unknown
// address. A successful call that makes a block known outside the process is recorded
// (allocator/context_pool.h, mark_exported). Any thread.
#include <algorithm>

#include "allocator/base/source.h"
#include "shim/entry/driver.h"
#include "shim/kinds/imported.h"
#include "shim/kinds/stream_ordered/scratch.h"
#include "shim/kinds/unpooled.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/contexts/context.h"
#include "shim/order/contexts/pinned_pools.h"
#include "shim/pooled/memory.h"

namespace cistern::shim {
namespace {

// An address in a pool, in a block of another process or in the scratch cache, and the block there
// that the program holds.
struct Place {
  CUdeviceptr address;
  alloc::Chunk* chunk = nullptr;  // nullptr: imported, or the scratch cache's
  alloc::ContextPool* pool = nullptr;
  uint64_t start = 0, bytes = 0;
  uint64_t whole = 0;  // size of a scratch block as the driver reports it
  bool imported = false;
  ImportedUnits units{};  // of an imported block
  ScratchFound scratch = ScratchFound::foreign;

  // False: the address is none of Cistern's.
  bool known() {
    if (ours(address, &chunk)) {
      pool = &context_of(chunk)->pool;
      return true;
    }
    if (pinned(reinterpret_cast<void*>(address), &chunk)) {
      pool = &pinned_pool_of(chunk)->pool;
      return true;
    }
    imported = find_imported(address, &start, &bytes, &units);
    if (imported) return true;
    if (!scratch_on()) [[likely]]
      return false;
    scratch = scratch_find(address, &start, &bytes, &whole);
    return scratch != ScratchFound::foreign;
  }
  bool held() const {
    if (imported) return bytes != 0;
    return chunk != nullptr ? pool->is_live(chunk, address) : scratch == ScratchFound::live;
  }
  bool find() { return chunk != nullptr ? pool->find(chunk, address, &start, &bytes) : held(); }
  // Whether the driver sees it as mapped memory.
  bool in_units() const {
    return chunk != nullptr ? chunk->is() == alloc::Role::range : units.unit_bytes != 0;
  }
  // Calls visit(address) for the part of the block in each of its units.
  template <typename Visitor>
  void for_each_unit(Visitor visit) const {
    const uint64_t unit =
        chunk != nullptr ? context_of(chunk)->source.units()->unit_bytes() : units.unit_bytes;
    for (uint64_t at = start; at < start + bytes; at = (at / unit + 1) * unit) visit(at);
  }
  void known_outside() const {
    if (chunk != nullptr) {
      pool->mark_exported(chunk, address);
    } else if (!imported) {
      scratch_exported(start);
    }
  }
};

bool tells_start(CUpointer_attribute attribute) {
  return attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR ||
         attribute == CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR;
}

bool tells_size(CUpointer_attribute attribute) {
  return attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
         attribute == CU_POINTER_ATTRIBUTE_MAPPING_SIZE;
}

bool tells_extent(CUpointer_attribute attribute) {
  return tells_start(attribute) || tells_size(attribute);
}

// Only these attributes need the block's start and size; for the others it is enough that the
// program holds it.
bool needs_extent(CUpointer_attribute attribute, const Place& place) {
  return tells_extent(attribute) ||
         (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID && place.in_units());
}

bool any_needs_extent(const CUpointer_attribute* attributes, unsigned count, const Place& place) {
  for (unsigned i = 0; i < count; ++i) {
    if (needs_extent(attributes[i], place)) return true;
  }
  return false;
}

// The start or size that the driver would report for a block of its own in the same place. Its
// mapping is the pages in which the block lies.
uint64_t extent_of_block(CUpointer_attribute attribute, const Place& place) {
  const uint64_t first_page = place.start / alloc::kDriverPage * alloc::kDriverPage;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      return place.start;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      return place.bytes;
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
      return first_page;
    default:
      return alloc::round_up(place.start + place.bytes - first_page, alloc::kDriverPage);
  }
}

// Replaces the extent of the driver's whole allocation by the block's. A 0 stays: it means that the
// driver reports nothing for such memory. A scratch block may share a mapping with others; the
// start and size of that mapping stay as the driver reports them.
void put_extent(void* data, CUpointer_attribute attribute, const Place& place) {
  if (!tells_extent(attribute)) return;
  auto* told = static_cast<uint64_t*>(data);
  if (place.chunk == nullptr && !place.imported) {
    if (tells_size(attribute) && *told == place.whole) *told = place.bytes;
  } else if (*told != 0) {
    *told = extent_of_block(attribute, place);
  }
}

// A program may cache what it knows of a block by this id. It must not find the same id after
// another unit was mapped there. The driver gives each mapping an id of its own, later ones a
// higher one.
uint64_t id_of_units(const Place& place) {
  uint64_t highest = 0;
  place.for_each_unit([&](uint64_t address) {
    unsigned long long id = 0;
    ask(driver().cuPointerGetAttribute, &id, CU_POINTER_ATTRIBUTE_BUFFER_ID, address);
    highest = std::max<uint64_t>(highest, id);
  });
  return highest;
}

// Replaces the attributes that the driver answers differently for mapped memory than for memory of
// cuMemAlloc. The program cannot get a handle to export of either (pooled/memory.h).
void put_as_linear(void* data, CUpointer_attribute attribute, const Place& place) {
  if (!place.in_units()) return;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) =
          place.chunk == nullptr ? place.units.opener : context_of(place.chunk)->handle.load();
      break;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
      *static_cast<uint64_t*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<uint64_t*>(data) = id_of_units(place);
      break;
    default:
      break;
  }
}

// If the driver refuses a list because of one attribute, it still writes the others, and does not
// say which. An attribute counts as written if its data equals the driver's answer to that
// attribute alone.
bool written(const void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  uint64_t alone = 0;
  return ask(driver().cuPointerGetAttribute, &alone, attribute, address) == CUDA_SUCCESS &&
         *static_cast<const uint64_t*>(data) == alone;
}

void put_of_block(void* data, CUpointer_attribute attribute, const Place& place) {
  put_extent(data, attribute, place);
  put_as_linear(data, attribute, place);
}

void put_what_was_told(CUresult result, void* data, CUpointer_attribute attribute,
                       const Place& place) {
  if (data == nullptr || !(tells_extent(attribute) || place.in_units())) {
    return;
  }
  if (result == CUDA_SUCCESS || written(data, attribute, place.address)) {
    put_of_block(data, attribute, place);
  }
}

// As the alias of an unknown address the driver returns the address itself. It was asked about
// kNowhere, so put the program's address there.
void put_address(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  const bool tells_alias = attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER ||
                           attribute == CU_POINTER_ATTRIBUTE_HOST_POINTER;
  if (data == nullptr || !tells_alias) return;
  auto* alias = static_cast<CUdeviceptr*>(data);
  if (*alias == kNowhere) *alias = address;
}

CUresult unknown_attributes(unsigned count, CUpointer_attribute* attributes, void** data,
                            CUdeviceptr address) {
  const CUresult result = ask(driver().cuPointerGetAttributes, count, attributes, data, kNowhere);
  for (unsigned i = 0; i < count; ++i) put_address(data[i], attributes[i], address);
  return result;
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  Place place{address};
  if (!place.known()) {
    return ask(driver().cuPointerGetAttribute, data, attribute, address);
  }
  const bool held = needs_extent(attribute, place) ? place.find() : place.held();
  if (!held) return ask(driver().cuPointerGetAttribute, data, attribute, kNowhere);
  const CUresult result = ask(driver().cuPointerGetAttribute, data, attribute, address);
  if (result != CUDA_SUCCESS) return result;
  put_of_block(data, attribute, place);
  if (attribute == CU_POINTER_ATTRIBUTE_P2P_TOKENS) place.known_outside();
  return result;
}

CUresult pointer_attributes(unsigned count, CUpointer_attribute* attributes, void** data,
                            CUdeviceptr address) {
  Place place{address};
  if (attributes == nullptr || data == nullptr || !place.known()) {
    return ask(driver().cuPointerGetAttributes, count, attributes, data, address);
  }
  const bool held = any_needs_extent(attributes, count, place) ? place.find() : place.held();
  if (!held) return unknown_attributes(count, attributes, data, address);
  const CUresult result = ask(driver().cuPointerGetAttributes, count, attributes, data, address);
  for (unsigned i = 0; i < count; ++i) {
    put_what_was_told(result, data[i], attributes[i], place);
    if (attributes[i] == CU_POINTER_ATTRIBUTE_P2P_TOKENS) place.known_outside();
  }
  return result;
}

CUresult set_pointer_attribute(const void* value, CUpointer_attribute attribute,
                               CUdeviceptr address) {
  Place place{address};
  if (!place.known()) {
    return ask(driver().cuPointerSetAttribute, value, attribute, address);
  }
  if (!place.find()) return ask(driver().cuPointerSetAttribute, value, attribute, kNowhere);
  CUresult result = ask(driver().cuPointerSetAttribute, value, attribute, address);
  if (result == CUDA_SUCCESS && place.in_units()) {
    place.for_each_unit([&](uint64_t each) {
      if (result != CUDA_SUCCESS) return;
      result = ask(driver().cuPointerSetAttribute, value, attribute, each);
    });
  }
  // Programs set SYNC_MEMOPS for another device that will access the memory. Resetting it does not
  // mean that this device is done.
  const bool set = result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS &&
                   *static_cast<const unsigned*>(value) != 0;
  if (set) place.known_outside();
  return result;
}

// Callers widen the range of a small block to whole pages, so the program may hold the block at
// either end. The driver checks all other rules for the range.
CUresult range_handle(void* handle, CUdeviceptr address, size_t bytes, CUmemRangeHandleType type,
                      unsigned long long flags) {
  Place place{address}, last{address + bytes - 1};
  const auto real = driver().cuMemGetHandleForAddressRange;
  if (!place.known()) return ask(real, handle, address, bytes, type, flags);
  const bool first_held = place.held();
  const bool last_held = last.known() && last.chunk == place.chunk && last.held();
  if (!first_held && !last_held) return ask(real, handle, kNowhere, bytes, type, flags);
  const CUresult result = ask(real, handle, address, bytes, type, flags);
  if (result != CUDA_SUCCESS) return result;
  if (first_held) place.known_outside();
  if (last_held) last.known_outside();
  return result;
}

// With P2P tokens another device can reach the memory from now on.
void note_shared(CUpointer_attribute asked) {
  if (asked == CU_POINTER_ATTRIBUTE_P2P_TOKENS) everything_becomes_visible();
}

}  // namespace
}  // namespace cistern::shim

using namespace cistern::shim;  // NOLINT(google-build-using-namespace): these are its C faces

CUresult cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
  cistern::alloc::Chunk* chunk;
  if (ours(dptr, &chunk)) return block_range(context_of(chunk)->pool, chunk, pbase, psize, dptr);
  return pinned(reinterpret_cast<void*>(dptr), &chunk) ? pinned_range(chunk, pbase, psize, dptr)
                                                       : linear_range(pbase, psize, dptr);
}

CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
  note_shared(attribute);
  const CUresult result = pointer_attribute(data, attribute, ptr);
  if (result == CUDA_SUCCESS && attribute == CU_POINTER_ATTRIBUTE_DEVICE_POINTER &&
      *static_cast<const CUdeviceptr*>(data) != ptr) {
    everything_becomes_visible();
  }
  return result;
}

CUresult cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                void** data, CUdeviceptr ptr) {
  for (unsigned i = 0; attributes != nullptr && i < numAttributes; ++i) note_shared(attributes[i]);
  return pointer_attributes(numAttributes, attributes, data, ptr);
}

CUresult cuPointerSetAttribute(const void* value, CUpointer_attribute attribute, CUdeviceptr ptr) {
  if (attribute == CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) everything_becomes_visible();
  return set_pointer_attribute(value, attribute, ptr);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
  everything_becomes_visible();
  cistern::alloc::Chunk* chunk;
  return ours(dptr, &chunk) ? export_block(chunk, pHandle, dptr)
                            : ask(driver().cuIpcGetMemHandle, pHandle, dptr);
}

CUresult cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                       CUmemRangeHandleType handleType, unsigned long long flags) {
  everything_becomes_visible();
  return range_handle(handle, dptr, size, handleType, flags);
}
