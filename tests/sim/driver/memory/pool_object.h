// SPDX-License-Identifier: Apache-2.0
//
// A memory pool as its own files know it (memory/pool.cc, memory/pool_sharing.cc). It lives as long
// as its handle or an allocation from it does.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/cuda.h"
#include "base/settings.h"
#include "memory/device.h"
#include "memory/pool_space.h"

namespace simcuda {

struct Pool {
  Pool(Device& owner, const CUmemPoolProps& what, uint64_t its_number)
      : device(owner),
        number(its_number),
        shareable(what.handleTypes != CU_MEM_HANDLE_TYPE_NONE),
        most_bytes(what.maxSize == 0 ? UINT64_MAX : what.maxSize),
        space(owner, settings().pool_step_bytes) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  Device& device;
  const uint64_t number;      // in its process
  const bool shareable;       // such pools give nothing back ("IPC Export Pool Limitations")
  const uint64_t most_bytes;  // reserved
  // Of an imported pool: the exporting device's memory, and the exporter's number; -1 otherwise.
  int file = -1;
  uint64_t exporters_number = 0;

  std::mutex mutex;  // guards what follows; never taken with exec_mutex()
  uint64_t release_threshold = 0;
  int reuse_follow_events = 1;
  int reuse_opportunistic = 1;
  int reuse_internal = 1;
  uint64_t used = 0;  // also what a stream has yet to free
  uint64_t used_high = 0;
  uint64_t imported = 0;
  uint64_t reserved_high = 0;
  PoolSpace space;
  // Freed allocations whose stream is not there yet, by address.
  struct Ending {
    uint64_t bytes;  // as requested
    uint64_t id;
    std::shared_ptr<StreamFree> freed;
  };
  std::map<CUdeviceptr, Ending> ending;

  void count(uint64_t bytes) {
    used += bytes;
    if (used > used_high) used_high = used;
    if (reserved() > reserved_high) reserved_high = reserved();
  }
  uint64_t reserved() const { return space.reserved_bytes() + imported; }
};

// Null for a handle that names nothing.
std::shared_ptr<Pool> find_pool(CUmemoryPool handle);
CUmemoryPool add_pool(std::shared_ptr<Pool> pool);
uint64_t next_pool_number();

}  // namespace simcuda
