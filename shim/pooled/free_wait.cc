// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/free_wait.h"

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/synchronise.h"
#include "shim/order/device.h"
#include "shim/order/streams/events.h"
#include "shim/order/suspicion.h"

namespace cistern::shim {
namespace {

// Makes the block's context current first: the thread that frees the block may have another one.
CUresult synchronise(Context& owner, CUcontext handle, alloc::Ticket* covered) {
  const ContextScope scope(handle);
  if (!scope) return CUDA_SUCCESS;
  SynchroniseScope all_work(handle);
  const uint64_t start = alloc::os::now_ns();
  const CUresult result = noted(driver().cuCtxSynchronize(), handle);
  alloc::Ledger& ledger = device_state(owner.device).ledger;
  ledger.free_waits.add();
  ledger.free_wait_ns.add(alloc::os::now_ns() - start);
  if (result != CUDA_SUCCESS) return result;
  all_work.succeeded();
  *covered = all_work.ticket();
  return result;
}

// False for a direct allocation, whose free goes to the driver and waits there, and for a wrong
// free.
bool goes_to_a_pool(Context& owner, alloc::Chunk* chunk, CUdeviceptr address) {
  uint64_t start, bytes;
  return chunk->is() != alloc::Role::direct && owner.pool.find(chunk, address, &start, &bytes) &&
         start == address;
}

}  // namespace

CUresult wait_before_free(Context& owner, alloc::Chunk* chunk, CUdeviceptr address,
                          alloc::Ticket* covered) {
  const GatePass pass;
  if (!pass || !goes_to_a_pool(owner, chunk, address)) return CUDA_SUCCESS;
  owner.visitors.fetch_add(1);  // the context does not end meanwhile
  CUcontext handle = owner.handle.load();
  const bool lives = handle != nullptr && !owner.source.closing();
  const CUresult result = lives ? synchronise(owner, handle, covered) : CUDA_SUCCESS;
  owner.visitors.fetch_sub(1);
  return result;
}

}  // namespace cistern::shim
