// SPDX-License-Identifier: Apache-2.0
#include "shim/order/cuda_source.h"

#include <unistd.h>

#include <algorithm>
#include <bit>

#include "allocator/base/threads.h"
#include "shim/entry/driver.h"
#include "shim/ipc/exporter.h"
#include "shim/ipc/protocol.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context.h"
#include "shim/order/shared.h"
#include "shim/order/ties.h"
#include "shim/process/background.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"
#include "shim/record/record.h"

namespace cistern::shim {
namespace {

static_assert(kMaxDevices <= 64);
constexpr uint64_t bit_of_device(CUdevice device) { return uint64_t{1} << device; }

bool has_all_calls(const Driver& d) {
  return d.cuMemGetAllocationGranularity != nullptr && d.cuMemAddressReserve != nullptr &&
         d.cuMemAddressFree != nullptr && d.cuMemCreate != nullptr && d.cuMemRelease != nullptr &&
         d.cuMemMap != nullptr && d.cuMemUnmap != nullptr && d.cuMemSetAccess != nullptr;
}

bool has(CUdevice_attribute attribute, CUdevice device) {
  int value = 0;
  const auto ask = driver().cuDeviceGetAttribute;
  return ask != nullptr && ask(&value, attribute, device) == CUDA_SUCCESS && value != 0;
}

// For a call that gives something back and is not repeated later. Its error may belong to earlier
// work, so a failed call is made once more.
template <typename Call>
CUresult twice_at_most(Call call) {
  const CUresult result = call();
  return result == CUDA_SUCCESS || !may_call() ? result : call();
}

}  // namespace

void CudaUnits::init(const Owner& owner, bool wanted) {
  owner_ = owner;
  unit_bytes_ = 0;
  abilities_.store(0);
  created_.store(false);
  gone_.store(false);
  if (!wanted || !has_all_calls(driver())) return;
  if (!has(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, owner.device)) return;
  abilities_.store(abilities());
  constexpr uint64_t kLeast = uint64_t{2} << 20;
  size_t granularity = 0;
  const CUmemAllocationProp with = properties(abilities_.load());
  if (driver().cuMemGetAllocationGranularity(
          &granularity, &with, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) == CUDA_SUCCESS) {
    unit_bytes_ = std::max(kLeast, std::bit_ceil(uint64_t{granularity}));
  }
}

uint8_t CudaUnits::abilities() const {
  uint8_t found = 0;
  if (has(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, owner_.device)) {
    found |= kForRdma;
  }
  if (has(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, owner_.device)) {
    found |= kAsFile;
  }
  return found;
}

CUmemAllocationProp CudaUnits::properties(uint8_t abilities) const {
  CUmemAllocationProp what{};
  what.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  what.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  what.location.id = owner_.device;
  what.allocFlags.gpuDirectRDMACapable = (abilities & kForRdma) != 0 ? 1 : 0;
  if ((abilities & kAsFile) != 0) {
    what.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  }
  return what;
}

int CudaUnits::reserve_addresses(uint64_t bytes, uint64_t* address) {
  const NoCancel in_hand;
  CUdeviceptr p = 0;
  const CUresult result =
      noted(driver().cuMemAddressReserve(&p, bytes, unit_bytes_, /*addr=*/0, /*flags=*/0),
            owner_.context);
  *address = p;
  return told("reserves addresses", p, bytes, result);
}

void CudaUnits::free_addresses(uint64_t address, uint64_t bytes) {
  if (!may_call()) return;
  const LetByCaptures allowed;
  const auto free = [=] { return driver().cuMemAddressFree(address, bytes); };
  CUresult result = twice_at_most(free);
  if (result != CUDA_SUCCESS && stuck_.load() != 0) {
    // The slot's new context may have no units; then the addresses stay reserved.
    const uint64_t step = unit_bytes_;
    for (uint64_t i = 0; step != 0 && i < bytes; i += step) unmap_stuck(address + i);
    result = free();
  }
  told("gives addresses back", address, bytes, result);
}

// For the current context, which requests the units.
uint64_t CudaUnits::most_units() {
  size_t free = 0, total = 0;
  const bool known = driver().cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS;
  return known ? free / unit_bytes_ : UINT64_MAX;
}

// A device may support properties that the process has no right to. Then the first unit is created
// with fewer properties, and so are all others.
int CudaUnits::create(alloc::Unit* unit) {
  const NoCancel in_hand;
  constexpr uint8_t kLess[] = {kForRdma | kAsFile, kForRdma, 0};
  uint8_t with = abilities_.load();
  CUmemGenericAllocationHandle handle = 0;
  const auto ask = [&] {
    const CUmemAllocationProp what = properties(with);
    return noted(driver().cuMemCreate(&handle, unit_bytes_, &what, /*flags=*/0), owner_.context);
  };
  CUresult result = ask();
  for (const uint8_t less : kLess) {
    const bool refused = result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY;
    if (!refused || created_.load()) break;
    if ((with & less) == with) continue;
    with &= less;
    result = ask();
  }
  if (result == CUDA_SUCCESS && !created_.exchange(true)) abilities_.store(with);
  *unit = handle;
  return told("takes a unit", handle, unit_bytes_, result);
}

void CudaUnits::release(alloc::Unit unit) {
  if (!may_call()) return;
  const LetByCaptures allowed;
  const CUresult result = twice_at_most([=] { return driver().cuMemRelease(unit); });
  told("returns a unit", unit, unit_bytes_, result);
}

bool CudaUnits::can_be_files() const {
  return (abilities_.load() & kAsFile) != 0 && driver().cuMemExportToShareableHandle != nullptr;
}

CUresult CudaUnits::export_file(alloc::Unit unit, int* file) const {
  const NoCancel in_hand;
  const LetByCaptures allowed;
  *file = -1;
  const CUresult result =
      noted(driver().cuMemExportToShareableHandle(
                file, unit, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, /*flags=*/0),
            owner_.context);
  if (*file >= 0) *file = out_of_the_way(*file);
  if (result == CUDA_SUCCESS || *file < 0) return result;
  // The error belongs to earlier work: the call itself has made the file.
  close(*file);
  *file = -1;
  return result;
}

int CudaUnits::map(uint64_t address, const alloc::Unit* units, uint32_t count) {
  const NoCancel in_hand;
  CUresult result = CUDA_SUCCESS;
  uint32_t mapped = 0;
  for (; mapped < count; ++mapped) {
    result = map_one(address + mapped * unit_bytes_, units[mapped]);
    if (result != CUDA_SUCCESS) break;
  }
  int code = result;
  if (code == alloc::kSuccess) code = give_access(address, count * unit_bytes_, 0);
  if (code == alloc::kSuccess) {
    note_mapped(address, count);
  } else {
    undo_map(address, std::min(mapped + 1, count));
  }
  return told("maps units", address, count * unit_bytes_, code);
}

// If an earlier mapping there could not be undone, it is undone now.
CUresult CudaUnits::map_one(uint64_t address, alloc::Unit unit) {
  const auto map = [=, this] {
    return noted(driver().cuMemMap(address, unit_bytes_, /*offset=*/0, unit, /*flags=*/0),
                 owner_.context);
  };
  const CUresult result = map();
  return result == CUDA_SUCCESS || !unmap_stuck(address) ? result : map();
}

// Undoes a failed mapping. The error may belong to earlier work, and the memory may be mapped.
void CudaUnits::undo_map(uint64_t address, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    const uint64_t place = address + i * unit_bytes_;
    const CUresult result =
        twice_at_most([=, this] { return driver().cuMemUnmap(place, unit_bytes_); });
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE) stuck_.fetch_add(1);
  }
}

bool CudaUnits::unmap_stuck(uint64_t address) {
  if (stuck_.load() == 0 || driver().cuMemUnmap(address, unit_bytes_) != CUDA_SUCCESS) return false;
  stuck_.fetch_sub(1);
  return true;
}

// After an error the call is repeated, and the second result counts. The first error may belong to
// earlier work; then the first call has unmapped the memory.
CUresult CudaUnits::unmap_for_sure(uint64_t address, uint64_t bytes, CUcontext context) {
  const CUresult first = driver().cuMemUnmap(address, bytes);
  if (context != nullptr) noted(first, context);
  if (first == CUDA_SUCCESS || first == CUDA_ERROR_INVALID_VALUE || !may_call()) return first;
  const CUresult second = driver().cuMemUnmap(address, bytes);
  return second == CUDA_ERROR_INVALID_VALUE ? CUDA_SUCCESS : second;
}

// Touches nothing of a context that may be ending, as CudaSource::release().
int CudaUnits::unmap(uint64_t address, uint32_t count) {
  const uint64_t bytes = count * unit_bytes_;
  if (gone_.load()) return unmap_gone(address, bytes, count);
  const GatePass pass;
  const alloc::CountedIn at_work(*owner_.at_work);
  const bool forbidden = !pass && !this_thread.may_free_in_capture;
  if (forbidden || owner_.closing->load() != 0 || !may_call()) return alloc::kNotNow;
  if (!pay_for_release()) return alloc::kNotNow;
  const CUresult result = unmap_for_sure(address, bytes, owner_.context);
  if (result == CUDA_SUCCESS) note_unmapped(address, bytes, count);
  return told("unmaps units", address, bytes, result);
}

int CudaUnits::unmap_of_gone(uint64_t address, uint64_t bytes) {
  return unmap_gone(address, bytes, /*count=*/1);
}

// The handle may be another context's by now, so an error is not noted for it.
int CudaUnits::unmap_gone(uint64_t address, uint64_t bytes, uint32_t count) {
  if (!may_call()) return alloc::kNotNow;
  const LetByCaptures allowed;
  const CUresult result = unmap_for_sure(address, bytes, /*context=*/nullptr);
  if (result == CUDA_SUCCESS) note_unmapped(address, bytes, count);
  return told("unmaps units of a context that is gone", address, bytes, result);
}

uint64_t CudaUnits::devices() const {
  return bit_of_device(owner_.device) | owner_.peers(owner_.number);
}

// `given`: the devices that may have access already. Peer access may change meanwhile, and the
// thread that changes it may not find memory that the pool does not have yet. So it is checked
// again afterwards.
int CudaUnits::give_access(uint64_t address, uint64_t bytes, uint64_t given) const {
  for (;;) {
    const uint64_t now = devices();
    const CUresult result = set_access(address, bytes, now, given & ~now);
    if (result != CUDA_SUCCESS) return result;
    if (devices() == now) return alloc::kSuccess;
    given = now;
  }
}

int CudaUnits::access_changed(uint64_t address, uint64_t bytes) {
  const NoCancel in_hand;
  return told("changes who has access", address, bytes, give_access(address, bytes, ~uint64_t{0}));
}

// Peer access may have been opened to devices that cannot have it (ties.h, peer_device_opened). The
// driver refuses a list that names such a device.
CUresult CudaUnits::set_access(uint64_t address, uint64_t bytes, uint64_t with,
                               uint64_t without) const {
  CUmemAccessDesc list[kMaxDevices];
  size_t count = 0;
  const auto can_access = driver().cuDeviceCanAccessPeer;
  for (uint64_t left = with | without; left != 0; left &= left - 1) {
    const CUdevice device = std::countr_zero(left);
    int can = 0;
    const bool peer = device != owner_.device;
    if (peer && (can_access == nullptr || can_access(&can, device, owner_.device) != CUDA_SUCCESS ||
                 can == 0)) {
      continue;
    }
    list[count].location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    list[count++].flags = (with & bit_of_device(device)) != 0 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                              : CU_MEM_ACCESS_FLAGS_PROT_NONE;
  }
  return noted(driver().cuMemSetAccess(address, bytes, list, count), owner_.context);
}

// In a recording each mapped unit is a chunk, since one unmapping may undo parts of several
// mappings.
void CudaUnits::note_mapped(uint64_t address, uint32_t count) const {
  if (!watching()) [[likely]]
    return;
  for (uint32_t i = 0; i < count; ++i, address += unit_bytes_) {
    note_obtained({alloc::Memory::linear, owner_.device, owner_.context}, address, unit_bytes_);
  }
}

// To be called before other memory is mapped there. The addresses stay Cistern's, so no other
// thread can get them yet.
void CudaUnits::note_unmapped(uint64_t address, uint64_t bytes, uint32_t count) {
  end_exports_in(address, bytes);
  if (!watching()) [[likely]]
    return;
  for (uint32_t i = 0; i < count; ++i, address += bytes / count) {
    ChunkRelease(alloc::Memory::linear, address).ended(alloc::kSuccess);
  }
}

// --- access of peers to the units of a context (ties.h) ---

namespace {

// If memory is unmapped meanwhile, the driver no longer knows it, and no device needs access to it.
CUresult share(Context& owner) {
  const Visit visit(owner);
  CudaUnits* units = visit.open() ? owner.source.units() : nullptr;
  if (units == nullptr) return CUDA_SUCCESS;
  CUresult result = CUDA_SUCCESS;
  owner.pool.for_each_mapped([&](uint64_t address, uint64_t bytes) {
    const auto changed = static_cast<CUresult>(units->access_changed(address, bytes));
    if (changed != CUDA_SUCCESS && changed != CUDA_ERROR_INVALID_VALUE) result = changed;
  });
  return result;
}

}  // namespace

CUresult share_units(CUcontext owner) {
  Context* context = working_context(owner);
  return context == nullptr ? CUDA_SUCCESS : share(*context);
}

uint64_t devices_of_current(CUdevice* current) {
  CUcontext handle = nullptr;
  if (driver().cuCtxGetDevice(current) != CUDA_SUCCESS ||
      driver().cuCtxGetCurrent(&handle) != CUDA_SUCCESS) {
    return 0;
  }
  const CUdevice own = *current;
  const auto bit_of_device = [](CUdevice device) { return uint64_t{1} << device; };
  const Context* context = active() ? working_context(handle) : nullptr;
  uint64_t devices = context != nullptr ? devices_reaching(context->number) : 0;
  for (uint64_t left = devices & ~bit_of_device(own); left != 0; left &= left - 1) {
    const CUdevice peer = std::countr_zero(left);
    int can = 0;
    const auto ask = driver().cuDeviceCanAccessPeer;
    if (ask == nullptr || ask(&can, peer, own) != CUDA_SUCCESS || can == 0)
      devices &= ~bit_of_device(peer);
  }
  return devices | bit_of_device(own);
}

CUresult share_all_units() {
  CUresult result = CUDA_SUCCESS;
  for_each_context([&](Context& context) {
    const CUresult shared = share(context);
    if (shared != CUDA_SUCCESS) result = shared;
  });
  return result;
}

}  // namespace cistern::shim
