// SPDX-License-Identifier: Apache-2.0
//
// The memory of one pool: what it took from its device, and what of that is free, in stream order.
// A free run knows the last free that made it; whoever asks for memory says which frees count.
// Memory is taken and given back in steps (SIMCUDA_POOL_STEP_MB), as the driver does: on an H100 a
// pool's first allocation of 512 bytes took 32 MiB and one of 33 MiB took 64, and a synchronisation
// after the free gave all of it back (tests/gpu/facts_memory.cu).
//
// In steps of one unit a block lies as the device's own do: of 1 MiB and more it has its units
// alone, a smaller one lies in one unit. In larger steps blocks lie side by side; how NVIDIA's
// driver places them is not known.
//
// Free memory in pieces is put together before more is taken: NVIDIA, "Using the NVIDIA CUDA
// Stream-Ordered Memory Allocator", says that the driver maps it side by side. Not thread-safe: the
// pool's lock guards it.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "exec/work.h"

namespace simcuda {

class Device;

// A free in stream order, and where its stream was then. Null means: over, for everybody.
struct StreamFree {
  uint64_t stream = 0;
  MarkerRef done{};
  bool counted = false;  // the memory is out of the pool's use: a moment before `done` is reached
};
using StreamFreeRef = std::shared_ptr<const StreamFree>;

// Of all pools of the process: what they have now, how often one took memory from its device, and
// how often one gave some back.
struct PoolTotals {
  uint64_t reserved_bytes, taken, given_back;
};
PoolTotals pool_totals();

class PoolSpace {
 public:
  using Usable = std::function<bool(const StreamFree&)>;

  PoolSpace(Device& device, uint64_t step_bytes) : device_(device), step_(step_bytes) {}
  ~PoolSpace();
  PoolSpace(const PoolSpace&) = delete;
  PoolSpace& operator=(const PoolSpace&) = delete;

  // The bytes that a request of this size takes, with what is left over at its end.
  uint64_t placed(uint64_t bytes) const;

  struct Taken {
    CUdeviceptr address = 0;             // 0: there is none
    std::vector<StreamFreeRef> after{};  // the frees of what was taken
  };

  // A stretch of free memory, of placed() bytes, whose frees all count as `usable`; the smallest
  // run that serves, or several side by side.
  Taken take(uint64_t bytes, const Usable& usable);
  void give(CUdeviceptr address, uint64_t bytes, StreamFreeRef freed);
  // Frees for which this holds are over for everybody.
  void settle(const Usable& over);

  // Takes memory from the device for a request of this size, with what lies unused elsewhere for
  // everybody; false if there is none, or if it would be more than `most_bytes` in all.
  bool grow(uint64_t bytes, uint64_t most_bytes);
  // Gives whole steps that nobody uses back, while more than `keep_bytes` would be left.
  void trim(uint64_t keep_bytes);

  uint64_t reserved_bytes() const { return reserved_; }
  bool has_unsettled() const { return unsettled_ != 0; }

 private:
  struct Run {
    uint64_t bytes;
    StreamFreeRef freed;
  };
  using Runs = std::map<CUdeviceptr, Run>;

  void add(CUdeviceptr address, uint64_t bytes, StreamFreeRef freed);
  Runs::iterator drop(Runs::iterator at);
  // Where a block may lie in a free stretch; 0 if nowhere.
  CUdeviceptr place_in(CUdeviceptr start, uint64_t length, uint64_t bytes) const;
  // Runs side by side hold the block that starts at `address`; the first ones may lie before it.
  Taken take_from(Runs::iterator first, CUdeviceptr address, uint64_t bytes);
  // Free for everybody, from end to end.
  bool unused(CUdeviceptr address, uint64_t bytes) const;
  void cut_out(CUdeviceptr address, uint64_t bytes);
  bool take_block(uint64_t bytes, uint64_t wanted_bytes);

  Device& device_;
  const uint64_t step_;
  uint64_t reserved_ = 0;
  uint64_t unsettled_ = 0;                 // runs whose free may not be over
  std::map<CUdeviceptr, uint64_t> steps_;  // what was taken, by address
  Runs free_;
  std::set<std::pair<uint64_t, CUdeviceptr>> by_size_;
};

}  // namespace simcuda
