// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/free_wait.h"

#include <optional>

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/synchronise.h"
#include "shim/order/contexts/visit.h"
#include "shim/order/device.h"
#include "shim/order/streams/events.h"
#include "shim/order/suspicion.h"

namespace cistern::shim {
namespace {

// With the block's context current.
CUresult synchronise(Context& owner, CUcontext handle, alloc::Ticket* covered) {
  SynchroniseScope all_work(handle);
  const uint64_t start = alloc::os::now_ns();
  const CUresult result = noted(driver().cuCtxSynchronize(), handle);
  alloc::Ledger& ledger = device_state(owner.device).ledger;
  ledger.free_waits.add();
  ledger.free_wait_ns.add(alloc::os::now_ns() - start);
  if (result != CUDA_SUCCESS) return result;
  const Visit visit(owner);
  if (!visit.open() || visit.handle() != handle) return result;  // it ends, or has ended
  all_work.succeeded();
  *covered = all_work.ticket();
  return result;
}

// False for a direct allocation, whose free goes to the driver and waits there, and for a wrong
// free.
bool goes_to_a_pool(alloc::ContextPool& pool, alloc::Chunk* chunk, CUdeviceptr address) {
  uint64_t start, bytes;
  return chunk->is() != alloc::Role::direct && pool.find(chunk, address, &start, &bytes) &&
         start == address;
}

// Something may capture, and then only the program's own calls are made: the free that this one
// stands for would wait, and so does one of memory that nothing uses.
CUresult wait_in_free_of_driver(Context& owner) {
  const ContextScope scope(owner.handle.load(std::memory_order_acquire));
  CUdeviceptr unused = 0;
  if (!scope || driver().cuMemAlloc_v2(&unused, 4096) != CUDA_SUCCESS) return CUDA_SUCCESS;
  device_state(owner.device).ledger.free_waits.add();
  return noted(driver().cuMemFree_v2(unused));
}

}  // namespace

CUresult wait_before_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                          CUdeviceptr address, alloc::Ticket* covered) {
  if (careful()) {
    return goes_to_a_pool(pool, chunk, address) ? wait_in_free_of_driver(owner) : CUDA_SUCCESS;
  }
  const GatePass pass;  // and no end of the thread while it visits the context
  if (!pass || !goes_to_a_pool(pool, chunk, address)) return CUDA_SUCCESS;
  std::optional<Visit> visit(std::in_place, owner);
  if (!visit->open()) return CUDA_SUCCESS;
  CUcontext handle = visit->handle();
  const ContextScope scope(handle);  // the thread that frees the block may have another one
  if (!scope) return CUDA_SUCCESS;
  // Over before the wait: a release of the context that does not end it would wait for this thread,
  // and the work that this thread waits for may wait for whoever releases.
  visit.reset();
  return synchronise(owner, handle, covered);
}

}  // namespace cistern::shim
