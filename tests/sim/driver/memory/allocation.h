// SPDX-License-Identifier: Apache-2.0
//
// What the driver knows about one piece of memory, of whatever kind. Plain value: look-ups hand
// out copies, so nobody holds a reference into a table another thread may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/cuda.h"

namespace simcuda {

class Context;
struct Pool;

enum class MemoryKind : uint8_t {
  kDevice,      // cuMemAlloc, cuMemAllocPitch
  kPool,        // cuMemAllocAsync
  kManaged,     // cuMemAllocManaged
  kPinned,      // cuMemHostAlloc, cuMemAllocHost
  kRegistered,  // cuMemHostRegister
  kImported,    // cuIpcOpenMemHandle
  kMapped,      // cuMemMap
  kGlobal,      // a module's variable
};

constexpr bool is_host(MemoryKind kind) {
  return kind == MemoryKind::kPinned || kind == MemoryKind::kRegistered;
}

struct Allocation {
  CUdeviceptr base = 0;
  size_t bytes = 0;  // as requested
  MemoryKind kind = MemoryKind::kDevice;
  int device = 0;
  size_t placed = 0;              // for kPool: bytes it lies in, with what is left over at its end
  Context* context = nullptr;     // null for memory no context owns (mappings)
  unsigned flags = 0;             // of cuMemHostAlloc, cuMemHostRegister or cuMemAllocManaged
  CUmemoryPool pool = nullptr;    // for kPool, and what was imported from one
  std::shared_ptr<Pool> owner{};  // of those
  uint64_t id = 0;                // unique for the life of the process (BUFFER_ID)
  uint64_t physical = 0;          // for kMapped: the key its bytes are watched by
  uint64_t reached_by = 0;        // for kMapped: the devices that have access, as bits
  unsigned handle_types = 0;      // for kMapped: as what the memory may be exported
  bool rdma = false;              // for kMapped: made for GPUDirect RDMA
  bool ending = false;            // a stream was told to free it: it can be freed no more

  bool contains(CUdeviceptr address, size_t length = 1) const {
    return address >= base && length <= bytes && address - base <= bytes - length;
  }
};

// The next unused Allocation::id.
uint64_t next_allocation_id();

// The live allocation that holds this address.
std::optional<Allocation> find_allocation(CUdeviceptr address);

// Device-accessible memory covers the whole stretch.
bool device_covers(CUdeviceptr address, size_t bytes);

}  // namespace simcuda
