// SPDX-License-Identifier: Apache-2.0
#include "watch/access.h"

#include <algorithm>
#include <string_view>

#include "exec/context.h"
#include "memory/allocation.h"
#include "memory/device.h"

namespace simcuda {
namespace {

// Why nobody owns this address.
const char* why_unowned(uint64_t address, uint64_t start, const Lives& lives) {
  if (lives.ended_holding(address) != nullptr) return "memory that has been freed";
  return address == start ? "memory that was never allocated" : "memory past the end of";
}

bool fills(const Work& work) {
  return std::string_view(info(work.call).name).starts_with("cuMemset");
}

// In an allocation that pools hand out, a stretch must lie within one block.
const char* outside_block(const Access& access, const Work& work, Memory& memory) {
  const Life* pool = memory.allocations.holding(access.address);
  if (pool == nullptr || pool->blocks == 0) return nullptr;
  const Life* block = memory.blocks.holding(access.address);
  if (block == nullptr && fills(work)) return nullptr;
  if (block == nullptr) {
    return memory.blocks.ended_holding(access.address) != nullptr ? "a block that has been freed"
                                                                  : "memory outside any block";
  }
  return block->holds(access.address, access.bytes) ? nullptr : "memory past the end of its block";
}

// Of mapped memory a copy is made by its own device or by the one that does the work, whichever has
// access. How NVIDIA's driver copies between devices without it is not known.
const char* out_of_reach(const Allocation& mapped, const Work& work, const Context& context) {
  uint64_t may = uint64_t{1} << context.device().ordinal();
  if (work.kernel == nullptr) may |= uint64_t{1} << mapped.device;
  return (mapped.reached_by & may) != 0 ? nullptr
                                        : "mapped memory that the device has no access to";
}

bool reaches(const Context& context, uint64_t address) {
  const auto found = find_allocation(address);
  const bool local =
      !found || found->kind != MemoryKind::kDevice || found->device == context.device().ordinal();
  return local || std::any_of(context.peers.begin(), context.peers.end(), [&](const Context* peer) {
           return peer->device().ordinal() == found->device;
         });
}

bool freed_before(uint64_t address, Memory& memory, const VectorClock& clock) {
  const Life* life = memory.allocations.holding(address);
  return life != nullptr && life->end_at && clock.covers(*life->end_at);
}

}  // namespace

Verdict examine(const Access& access, const Work& work, const Context& context, Memory& memory,
                const VectorClock& clock) {
  Verdict verdict;
  const uint64_t end = access.address + access.bytes;
  for (uint64_t at = access.address; at < end;) {
    const auto found = find_allocation(at);
    const bool goes_on = at == access.address || (found && found->kind == MemoryKind::kMapped);
    if (!found || !goes_on) {
      verdict.address = at;
      verdict.wrong =
          found ? "memory past the end of" : why_unowned(at, access.address, memory.allocations);
      return verdict;
    }
    if (found->kind == MemoryKind::kMapped) {
      verdict.wrong = out_of_reach(*found, work, context);
      verdict.address = at;
      if (verdict.wrong != nullptr) return verdict;
    }
    const uint64_t here = std::min<uint64_t>(end, found->base + found->bytes) - at;
    const uint64_t key = found->physical == 0 ? at : found->physical + (at - found->base);
    verdict.pieces.push_back({key, at, here});
    at += here;
  }
  verdict.address = access.address;
  if (freed_before(access.address, memory, clock)) {
    verdict.wrong = "memory that has been freed";
  } else if (work.kernel != nullptr && !reaches(context, access.address)) {
    verdict.wrong = "another device's memory without peer access";
  } else if (work.ends == 0) {
    verdict.wrong = outside_block(access, work, memory);
  }
  return verdict;
}

}  // namespace simcuda
