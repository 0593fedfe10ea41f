// SPDX-License-Identifier: Apache-2.0
// Blocks of other processes, opened by their tokens (ipc/token.h). For a block in a chunk the
// driver maps the whole chunk: once for each context, until the last of its blocks is closed there.
// For a block in units only those are mapped (imported_table.h). The program gets the address and
// the size of its block. The last close of a block waits for its context, as the driver's does.
// Needs no pools: it works with CISTERN_POOL=off. Any thread; no lock is held across a driver call
// or while the exporter answers.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"

namespace cistern::shim {

// For an open block in units: the context that opened it, and the size of its units. Each unit lies
// at a multiple of that size.
struct ImportedUnits {
  CUcontext opener;
  uint64_t unit_bytes;
};

using OpenMemHandle = CUresult(CUdeviceptr*, CUipcMemHandle, unsigned);

// Whether the handle is a token.
bool by_token(const CUipcMemHandle& handle);

// cuIpcOpenMemHandle for a token; `real` is the driver's function. If the block cannot be opened,
// the log says why, and the result is the driver's error for the token, which it does not know.
CUresult open_imported(OpenMemHandle* real, CUdeviceptr* out, const CUipcMemHandle& handle,
                       unsigned flags);

// cuIpcCloseMemHandle, for any address.
CUresult close_imported(CUdeviceptr address);

// Whether the address lies in a chunk, or in units, opened by a token. *bytes is 0 if no open block
// is at the address. Sets *units only for a block in units; `units` may be null.
bool find_imported(CUdeviceptr address, uint64_t* start, uint64_t* bytes,
                   ImportedUnits* units = nullptr);

// cuMemGetAddressRange, with what find_imported() found.
CUresult imported_range(CUdeviceptr* base, size_t* size, uint64_t start, uint64_t bytes);

// How often a block was opened by a token.
uint64_t blocks_imported();

// How often a block could not be opened by its token, because no process under Cistern gave a valid
// answer. Blocks that their exporter had freed do not count.
uint64_t imports_unanswered();

// The context is gone, and with it the chunks that the driver mapped for it. Makes no driver call.
void imports_of_context_gone(CUcontext context);
// Unmaps the units that contexts had open which are gone. The caller may hold no lock.
void unmap_imports_of_gone();

}  // namespace cistern::shim
