// SPDX-License-Identifier: Apache-2.0
// A caching allocator with the rules that PyTorch documents for its own, without expandable
// segments. Sizes are rounded up to 512 bytes. Up to 1 MiB they come from segments of 2 MiB, below
// 10 MiB from segments of 20 MiB, and larger ones from a segment of their own in steps of 2 MiB.
// The smallest free block of the stream that fits is taken. What is left over is split off if it is
// 512 bytes or more, of large segments more than 1 MiB. Free neighbours are joined. If the driver
// has no memory, all segments without a block in use go back to it, and it is asked again.
#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_map>

#include "instead.h"

namespace instead {
namespace {

constexpr size_t kMiB = size_t{1} << 20, kStep = 512, kMostSmall = kMiB, kMostShared = 10 * kMiB,
                 kSmallSegment = 2 * kMiB, kLargeSegment = 20 * kMiB;

struct Block {
  CUdeviceptr address;
  size_t bytes;
  CUstream stream;
  bool small;
  Block *before = nullptr, *after = nullptr;  // in its segment
  bool in_use = false;
};

struct SmallestFirst {
  bool operator()(const Block* a, const Block* b) const {
    return std::tie(a->small, a->stream, a->bytes, a->address) <
           std::tie(b->small, b->stream, b->bytes, b->address);
  }
};

std::set<Block*, SmallestFirst> idle;
std::unordered_map<CUdeviceptr, Block*> used;
uint64_t held = 0, peak = 0;

size_t rounded(size_t bytes, size_t step) { return (bytes + step - 1) / step * step; }

size_t segment_bytes(size_t bytes) {
  if (bytes <= kMostSmall) return kSmallSegment;
  return bytes < kMostShared ? kLargeSegment : rounded(bytes, 2 * kMiB);
}

Block* find_idle(size_t bytes, CUstream stream, bool small) {
  Block wanted{0, bytes, stream, small};
  const auto found = idle.lower_bound(&wanted);
  if (found == idle.end() || (*found)->stream != stream || (*found)->small != small) return nullptr;
  Block* block = *found;
  idle.erase(found);
  return block;
}

// Segments that are wholly free go to the driver, whose free waits for the work.
void return_idle_segments() {
  for (auto next = idle.begin(); next != idle.end();) {
    Block* block = *next;
    if (block->before != nullptr || block->after != nullptr) {
      ++next;
      continue;
    }
    next = idle.erase(next);
    cuMemFree(block->address);
    held -= block->bytes;
    delete block;
  }
}

CUresult new_segment(size_t bytes, CUstream stream, bool small, Block** out) {
  CUdeviceptr address = 0;
  const size_t segment = segment_bytes(bytes);
  CUresult code = cuMemAlloc(&address, segment);
  if (code == CUDA_ERROR_OUT_OF_MEMORY) {
    return_idle_segments();
    code = cuMemAlloc(&address, segment);
  }
  if (code != CUDA_SUCCESS) return code;
  held += segment;
  peak = std::max(peak, held);
  *out = new Block{address, segment, stream, small};
  return code;
}

void split(Block* block, size_t bytes) {
  const size_t rest = block->bytes - bytes;
  if (block->small ? rest < kStep : rest <= kMostSmall) return;
  auto* behind = new Block{block->address + bytes, rest, block->stream, block->small};
  behind->before = block;
  behind->after = block->after;
  if (behind->after != nullptr) behind->after->before = behind;
  block->after = behind;
  block->bytes = bytes;
  idle.insert(behind);
}

// `block` takes in the one behind it.
void join(Block* block, Block* behind) {
  block->bytes += behind->bytes;
  block->after = behind->after;
  if (block->after != nullptr) block->after->before = block;
  delete behind;
}

}  // namespace

CUresult allocate(size_t bytes, CUstream stream, CUdeviceptr* out) {
  const size_t wanted = std::max(rounded(bytes, kStep), kStep);
  const bool small = wanted <= kMostSmall;
  Block* block = find_idle(wanted, stream, small);
  if (block == nullptr) {
    if (const CUresult code = new_segment(wanted, stream, small, &block); code != CUDA_SUCCESS)
      return code;
  }
  split(block, wanted);
  block->in_use = true;
  used[block->address] = block;
  *out = block->address;
  return CUDA_SUCCESS;
}

// At once to its stream again, whose later work runs behind what used it.
CUresult release(CUdeviceptr address, CUstream) {
  const auto found = used.find(address);
  if (found == used.end()) return CUDA_ERROR_INVALID_VALUE;
  Block* block = found->second;
  used.erase(found);
  block->in_use = false;
  if (Block* behind = block->after; behind != nullptr && !behind->in_use) {
    idle.erase(behind);
    join(block, behind);
  }
  if (Block* before = block->before; before != nullptr && !before->in_use) {
    idle.erase(before);
    join(before, block);
    block = before;
  }
  idle.insert(block);
  return CUDA_SUCCESS;
}

uint64_t held_peak() { return peak; }

}  // namespace instead
