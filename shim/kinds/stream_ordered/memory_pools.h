// SPDX-License-Identifier: Apache-2.0
// Stream-ordered memory and the driver's memory pools it comes from: allocation and free, the
// device of each pool, and the unused memory that pools keep.
//
// A request is served by the scratch cache or by the driver (stream_ordered.cc). The driver's
// blocks are charged from their allocation to the call that really frees them, be that the
// program's or the scratch cache's. Memory that a pool of the driver keeps beyond that (its release
// threshold, frees that the stream has not reached) is not charged: the driver can use it again,
// also when memory is short. The program's queries must not show memory that the scratch cache
// keeps.
//
// A block may come from a pool on another device than its stream's, or on no device. Pools are
// recorded only if charges are kept (kinds/charges.h) or memory is filled (kinds/unpooled.h).
//
// At each synchronisation a pool returns memory beyond its release threshold, which is 0 by
// default. With CISTERN_MEMPOOL_THRESHOLD a pool whose threshold the program never set is adopted:
// the threshold is raised, and (`auto`) the background thread trims the pool to what the program
// used within the last second. After a second without use it is trimmed completely, and the
// threshold is 0 until the next allocation. Blocks and their order stay the driver's; only the
// threshold is ours.
//
// Adopted are a device's default pool, at the first stream-ordered allocation, and pools that the
// program makes of device memory, unless they are to be shared with other processes. A pool is left
// alone once the program sets its threshold, and with `auto` if the device has a cap, since memory
// that pools keep is not charged. While a context ends, the pools of its device have their own
// threshold; the next use adopts them again, since the end may be a device's reset.
//
// The program's queries return what they would without Cistern: its own threshold, its own
// high-water mark of use (which each look resets), and no memory that is only kept. Before a query
// of a device's free memory is answered, memory kept there goes back.
//
// Any thread may call anything. No lock is held across a driver call: a call on a pool is made
// during a visit, and removing a pool waits until its visitors are gone. Nothing here fails: after
// a failed driver call the pool keeps more or less than it should until the next look, half a
// second later.
#pragma once

#include <cstdint>
#include <optional>

#include "allocator/base/ledger.h"
#include "shim/cuda_api.h"
#include "shim/order/ask.h"
#include "shim/order/contexts/context.h"
#include "shim/process/report_figures.h"
#include "shim/process/settings.h"

namespace cistern::shim {

struct PoolHome {
  CUdevice device;  // kNoDevice: host memory, or the pool is unknown
  alloc::MemoryKind kind;
};

void memory_pool_created(CUmemoryPool pool, const CUmemPoolProps& properties);
// Forgets the home of a pool; returns it, if it was known.
std::optional<PoolHome> forget_home(CUmemoryPool pool);
void remember_home(CUmemoryPool pool, PoolHome home);
// The home of a pool that was noted, or of a device's default pool.
PoolHome home_of(CUmemoryPool pool);

// The program asked for stream-ordered memory: there may be something to trim.
void note_stream_ordered_use();

// If memory is short on the device (kNoDevice: on any device): trims the unused memory of the
// default pools at once; the driver itself would return it at a synchronisation. True if anything
// was returned.
bool trim_default_pools(CUdevice device);

void reset_memory_pools_after_fork();

// What adopted pools keep (kept_pools.cc). The functions below are to be called only where this is
// true, unless they say otherwise.
inline bool keeps_pools() {
  return active() && policy().mempool_threshold.value.mode != config::ThresholdMode::kOff;
}

// The program allocates in stream order, from the named pool or (nullptr) a current one.
void kept_pools_used(CUmemoryPool pool);

// The program made a pool.
void kept_pool_created(CUmemoryPool pool, const CUmemPoolProps& properties);

// Who set a pool's threshold. `asleep`: it was Cistern's until a context of the pool's device began
// to end, and the pool was not used since.
enum class Whose : uint8_t { nobodys, ours, programs, asleep };

// Put around a program's call that sets a pool's threshold or destroys the pool. From the
// constructor on, Cistern makes no driver call on the pool. If the call succeeded, call
// is_the_programs() or is_gone(); else the destructor restores what was before.
class TakenPool {
 public:
  explicit TakenPool(CUmemoryPool pool);
  void is_the_programs();
  void is_gone();
  ~TakenPool();
  TakenPool(const TakenPool&) = delete;
  TakenPool& operator=(const TakenPool&) = delete;

 private:
  struct KeptPool* pool_;  // nullptr: there are too many
  uint64_t birth_;         // tells the pool from a later one with the same handle and record
  Whose was_;              // before the call; the destructor sets it again
};

// Changes the driver's answer about a pool to what it would be if Cistern kept nothing.
void tell_without_kept(CUmemoryPool pool, CUmemPool_attribute attribute, void* value);
// Makes the program's driver call that resets the high-water mark of use.
CUresult reset_used_high(CUmemoryPool pool, void* value);

// Whether several pools keep memory, so that one may keep what another one lacks.
bool several_pools_keep();

// For order/contexts/context.h; these do nothing where the setting is off.
void kept_pools_close(const Context& context);
// Trims what adopted pools on the device keep, before the program asks how much memory is free. It
// cannot be predicted instead: memory whose free still waits for work cannot be trimmed.
void give_back_kept(CUdevice device);
// Trims pools that the program made. For the devices' default pools call trim_default_pools().
bool trim_kept_pools(CUdevice device);

PoolsReport kept_pools_report();

void reset_kept_pools_after_fork();

// `Kind` is the call's meaning of stream 0 (order/ask.h); `real` is the driver's function with the
// same meaning.
using AllocateAsync = CUresult(CUDAAPI*)(CUdeviceptr*, size_t, CUstream);
using AllocateFromPool = CUresult(CUDAAPI*)(CUdeviceptr*, size_t, CUmemoryPool, CUstream);
using FreeAsync = CUresult(CUDAAPI*)(CUdeviceptr, CUstream);

template <typename Kind>
CUresult allocate_async(AllocateAsync real, CUdeviceptr* out, size_t bytes, CUstream stream);
template <typename Kind>
CUresult allocate_from_pool(AllocateFromPool real, CUdeviceptr* out, size_t bytes,
                            CUmemoryPool pool, CUstream stream);
template <typename Kind>
CUresult free_async(FreeAsync real, CUdeviceptr address, CUstream stream);

}  // namespace cistern::shim
