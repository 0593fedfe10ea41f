// SPDX-License-Identifier: Apache-2.0
// Memory from the pools: the work of cuMemAlloc and cuMemFree under Cistern; and for page-locked
// host memory (CISTERN_PINNED_POOL) that of cuMemHostAlloc, cuMemAllocHost and cuMemFreeHost.
// Also the answers to queries about such memory (queries.cc). Results are the driver's own, or
// those that it would have returned. Any thread.
//
// The driver serves all other requests. It serves a request for pinned memory that has unknown
// flags. It also does so if the pools have no clean memory for the request and must not obtain
// more: during a capture, while much freed memory waits for work, or beyond the pools' default
// limit (a limit that the user set makes the request fail). A free of pinned memory waits as
// CISTERN_FREE_SYNC says. If much freed memory waits for work, it also waits for the oldest, at
// most a second, and free chunks go back to the driver, whose free waits as without Cistern.
#pragma once

#include <cstddef>

#include "allocator/base/source.h"
#include "allocator/chunk/chunk.h"
#include "allocator/context_pool.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

struct Context;

// The context whose pool serves this request of the calling thread; nullptr: the request is the
// driver's (no context, one without a pool, or arguments that the driver refuses).
Context* serving_context(const CUdeviceptr* out, size_t bytes);

// `context` is the result of serving_context() for the request. If only phases observe, allocate()
// and free() report to them.
CUresult allocate(Context& context, CUdeviceptr* out, size_t bytes);
// The same out of line, for calls with observers (watch/watch.h). So allocate() has one caller, the
// hook's fast path, and is inlined there.
CUresult allocate_watched(Context& context, CUdeviceptr* out, size_t bytes);

// Whether the address lies in a chunk of the pools, and in which. Waits, 2 s at most, while that
// chunk is on its way back to the driver.
bool ours(CUdeviceptr address, alloc::Chunk** chunk);

// `chunk` is what ours() found for the address.
CUresult free(alloc::Chunk* chunk, CUdeviceptr address);
CUresult free_watched(alloc::Chunk* chunk, CUdeviceptr address);  // as allocate_watched()
// The same for cuMemFreeAsync. The caller has checked that no capture forbids the call. `in_driver`
// makes the driver's call, if no pool takes the block back.
CUresult free_ordered(alloc::Chunk* chunk, CUdeviceptr address,
                      const alloc::OrderedFree& in_driver);

CUresult allocate_pinned(void** out, size_t bytes, unsigned flags);
CUresult free_pinned(void* memory);

// Whether the address lies in a chunk of pinned memory, and in which. Waits, 2 s at most, while
// that chunk is on its way back to the driver.
bool pinned(const void* memory, alloc::Chunk** chunk);
// Whether the program holds a block of that chunk there.
bool holds_pinned(alloc::Chunk* chunk, const void* memory);

// cuMemGetAddressRange of a block in this chunk.
CUresult pinned_range(alloc::Chunk* chunk, CUdeviceptr* base, size_t* size, CUdeviceptr address);

// Queries of an address of pinned memory. If the program holds no block there, the result is the
// driver's for an address that is no allocation (kNowhere).
CUresult pinned_flags(unsigned* flags, void* memory);
CUresult pinned_device_pointer(CUdeviceptr* out, void* memory, unsigned flags);

// --- queries about a pooled block, by the program and by other processes. Results describe the
// block, not its chunk. `chunk` is the result of ours() or pinned() for the address. If the program
// holds no block there, the error is the driver's for an unknown address.
//
// If the pools' memory comes from virtual memory management (order/cuda_source.h), its handles,
// mappings and access rights belong to Cistern. The program gets the same results as for memory of
// cuMemAlloc.
//
// Another process may open a block (cuIpcGetMemHandle). For a whole block the driver's handle is
// enough. For a block inside a chunk, or in units, the program gets a token (ipc/protocol.h), and
// this process answers processes that open it. From then on the block is quarantined at its free
// (ContextPool::mark_exported); no further one is exported once an eighth of the device is in
// quarantine.

// An address that cannot be an allocation: nothing is ever mapped in the second page. The driver is
// asked about it in place of an address that the program does not hold.
inline constexpr CUdeviceptr kNowhere = 0x1000;

// cuMemGetAddressRange: the block's start and requested bytes; either pointer may be null.
// `pool` is that of the chunk.
CUresult block_range(alloc::ContextPool& pool, alloc::Chunk* chunk, CUdeviceptr* base, size_t* size,
                     CUdeviceptr address);

// kNowhere if the range begins or ends in the pools' virtual memory, else `address`. With the
// result as its argument, a driver call about handles fails as it does for memory of cuMemAlloc.
CUdeviceptr not_in_a_unit(CUdeviceptr address, size_t bytes = 1);

// cuIpcGetMemHandle. Fails with "not supported" for a block in units that cannot be shared with
// other processes.
CUresult export_block(alloc::Chunk* chunk, CUipcMemHandle* handle, CUdeviceptr address);

// Whether the handle is a token that this process made. If so, *out is the driver's handle of the
// chunk, or the token itself if the program no longer holds the block. For a block in units
// *in_units is true, and *out has no meaning.
bool own_handle(const CUipcMemHandle& handle, CUipcMemHandle* out, bool* in_units);

}  // namespace cistern::shim
