// SPDX-License-Identifier: Apache-2.0
// Blocks of other processes, opened by their tokens (ipc/token.h). For a block in a chunk the
// driver maps the whole chunk: once for each context, until the last of its blocks is closed there.
// For a block in units only those are mapped (imported_table.h). The program gets the address and
// the size of its block. The last close of a block waits for its context, as the driver's does.
// Needs no pools: it works with CISTERN_POOL=off. Any thread; no lock is held across a driver call
// or while the exporter is asked.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"

namespace cistern::shim {

// Of an open block in units: the context that opened it, and the size of its units, which lie at
// multiples of that.
struct ImportedUnits {
  CUcontext opener;
  uint64_t unit_bytes;
};

using OpenMemHandle = CUresult(CUdeviceptr*, CUipcMemHandle, unsigned);

// Whether the handle is a token.
bool by_token(const CUipcMemHandle& handle);

// cuIpcOpenMemHandle for a token; `real` is the driver's. Where the block cannot be had, the driver
// is asked about the token, which it does not know, and the log says why.
CUresult open_imported(OpenMemHandle* real, CUdeviceptr* out, const CUipcMemHandle& handle,
                       unsigned flags);

// cuIpcCloseMemHandle, for any address.
CUresult close_imported(CUdeviceptr address);

// Whether the address lies in a chunk, or in units, opened by a token; *bytes is 0 where no open
// block is there. `*units`, where wanted: only of a block in units, else as it was.
bool find_imported(CUdeviceptr address, uint64_t* start, uint64_t* bytes,
                   ImportedUnits* units = nullptr);

// cuMemGetAddressRange, with what find_imported() found.
CUresult imported_range(CUdeviceptr* base, size_t* size, uint64_t start, uint64_t bytes);

// How often a block was opened by a token.
uint64_t blocks_imported();

// How often none could be opened by its token, since no process under Cistern answered as it has
// to. Those that were freed meanwhile do not count.
uint64_t imports_unanswered();

// The context is gone, and what the driver mapped for it with it. Makes no call of the driver.
void imports_of_context_gone(CUcontext context);
// Unmaps units of contexts that are. No lock may be held.
void unmap_imports_of_gone();

}  // namespace cistern::shim
