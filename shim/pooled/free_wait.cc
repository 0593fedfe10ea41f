// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/free_wait.h"

#include <optional>

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/synchronise.h"
#include "shim/order/contexts/visit.h"
#include "shim/order/device.h"
#include "shim/order/shared.h"
#include "shim/order/streams/events.h"
#include "shim/order/suspicion.h"
#include "shim/order/ties.h"

namespace cistern::shim {
namespace {

constexpr size_t kUnusedBytes = 4096;

// False for a direct allocation, whose free goes to the driver and waits there, and for a wrong
// free.
bool goes_to_a_pool(alloc::ContextPool& pool, alloc::Chunk* chunk, CUdeviceptr address) {
  uint64_t start, bytes;
  return chunk->is() != alloc::Role::direct && pool.find(chunk, address, &start, &bytes) &&
         start == address;
}

class CountedWait {
 public:
  explicit CountedWait(Context& owner) : ledger_(device_state(owner.device).ledger) {}
  ~CountedWait() {
    ledger_.free_waits.add();
    ledger_.free_wait_ns.add(alloc::os::now_ns() - start_);
  }
  CountedWait(const CountedWait&) = delete;
  CountedWait& operator=(const CountedWait&) = delete;

 private:
  alloc::Ledger& ledger_;
  const uint64_t start_ = alloc::os::now_ns();
};

// With the block's context current.
CUresult synchronise(Context& owner, CUcontext handle, alloc::Ticket* latest) {
  ContextWait all_work(owner);
  CUresult result;
  {
    const CountedWait counted(owner);
    result = noted(driver().cuCtxSynchronize(), handle);
  }
  if (result != CUDA_SUCCESS) return result;
  const Visit visit(owner);
  if (!visit.open() || visit.handle() != handle) return result;  // it ends, or has ended
  all_work.succeeded();
  *latest = all_work.ticket();
  return result;
}

// A free of the driver's own in the current context: of a block that nothing uses, or of a page of
// pinned memory where the device is full. False if there is neither. A block that the driver
// refused to free is the next one's.
bool free_unused_block(Context& owner, CUresult* result) {
  CUdeviceptr block = owner.unused_block.exchange(0);
  if (block == 0 && driver().cuMemAlloc_v2(&block, kUnusedBytes) != CUDA_SUCCESS) {
    void* page = nullptr;
    if (driver().cuMemHostAlloc(&page, kUnusedBytes, 0) != CUDA_SUCCESS) return false;
    *result = noted(driver().cuMemFreeHost(page));
    return true;
  }
  *result = noted(driver().cuMemFree_v2(block));
  if (*result != CUDA_SUCCESS) owner.unused_block.store(block);
  return true;
}

// With the block's context current.
CUresult free_in_driver(Context& owner, CUcontext handle) {
  const alloc::Ticket ticket = shared().reclaim.close();
  owner.seen_empty.expect(ticket);
  CUresult result = CUDA_SUCCESS;
  {
    const CountedWait counted(owner);
    if (!free_unused_block(owner, &result)) return CUDA_SUCCESS;
  }
  const Visit visit(owner);
  const bool lives = visit.open() && visit.handle() == handle;
  if (lives && result == CUDA_SUCCESS) owner.seen_empty.confirm(ticket, SeenEmpty::By::kDriverFree);
  return result;
}

}  // namespace

CUresult wait_in_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                      CUdeviceptr address, alloc::Ticket* latest) {
  const GatePass pass;  // and no end of the thread while it visits the context
  if (!goes_to_a_pool(pool, chunk, address)) return CUDA_SUCCESS;
  std::optional<Visit> visit(std::in_place, owner);
  if (!visit->open()) return CUDA_SUCCESS;
  CUcontext handle = visit->handle();
  const ContextScope scope(handle);  // the thread that frees the block may have another one
  if (!scope) return CUDA_SUCCESS;
  // Over before the wait: a release of the context that does not end it would wait for this thread,
  // and the work that this thread waits for may wait for whoever releases.
  visit.reset();
  const bool plain = pass && !any_peer_access();
  return plain ? synchronise(owner, handle, latest) : free_in_driver(owner, handle);
}

}  // namespace cistern::shim
