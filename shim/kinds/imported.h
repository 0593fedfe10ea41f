// SPDX-License-Identifier: Apache-2.0
// Blocks of other processes, opened by their tokens (ipc/protocol.h). For a block in a chunk the
// driver maps the whole chunk: once for each context, until the last of its blocks is closed there.
// For a block in units only those are mapped (map_units()). The program gets the address and the
// size of its block. The last close of a block waits for its context, as the driver's does. Needs
// no pools: it works with CISTERN_POOL=off. Any thread; no lock is held across a driver call or
// while the exporter answers.
#pragma once

#include <cstddef>

#include "shim/cuda_api.h"
#include "shim/ipc/client.h"

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

// --- imported_table.cc: the table of memory that is open and mapped in this process, for
// imported.cc. It has one lock, under which no call is made. Memory of another process may lie in
// units (ipc/protocol.h): the exporter sends their descriptors, and this process maps them side by
// side by virtual memory management. Such mappings outlive contexts. The caller of map_units() and
// unmap_units() may hold no lock.

// A chunk of another process that a context has open; or a block in units, whose handle is its
// token. `closing`: one thread has the driver close the mapping, and only that thread removes the
// record. A thread that needs the chunk meanwhile opens it anew, and may get the same addresses
// before the old record is removed. `gone`: its context has ended.
struct Mapping {
  Mapping* next;
  uint64_t key;  // where it begins
  uint64_t bytes;
  CUcontext context;
  unsigned long long context_number;
  CUipcMemHandle handle;
  uint64_t users;       // how often its blocks are open, in all
  uint64_t surplus;     // further opens that the driver counts, because closing them failed
  uint64_t unit_bytes;  // 0: in a chunk
  bool closing, gone;

  bool in_units() const { return unit_bytes != 0; }
};

// Opens a block of a chunk that its context already has open. False if it has not, or if there is
// no memory for the record.
bool use_open_mapping(const Mapping& wanted, const IpcAnswer& answer, CUdeviceptr* out);
// Opens a block of a chunk that the driver has just opened. False if another thread has opened the
// chunk meanwhile, or if there is no memory. The driver counts opens, so the caller must then have
// it close the chunk once.
bool use_new_mapping(const Mapping& opened, const IpcAnswer& answer, CUdeviceptr* out);
// That close failed: counts it as surplus of the chunk's mapping. False if there is no such
// mapping.
bool note_surplus(const Mapping& opened);

enum class Closing : uint8_t { foreign, not_open, still_open, others_use_it, last };

// Begins to close the block at an address. The last close of a block waits for its context, as the
// driver's does. If other blocks use the chunk, the driver makes no such wait. Then the result is
// others_use_it: wait for *context and call again with `waited`. If the result is `last`, no other
// block uses the chunk: the caller must close *mapping and call end_closing().
Closing begin_closing(CUdeviceptr address, bool waited, Mapping** mapping, CUcontext* context);

// What became of the mapping whose last block was to be closed.
enum class Closed : uint8_t { still_open, closed, still_mapped };
// still_open: the driver refused to close it. If its context has ended meanwhile, the mapping is
// dropped all the same.
void end_closing(Mapping* mapping, Closed how);

// Takes a list of units that are still mapped though no block in them is open: those of contexts
// that are gone, and those of `idle`, which the caller must wait for before it unmaps them.
Mapping* take_left_over(CUcontext idle);
// Returns units that could not be unmapped; gives back the record of units that were.
void leave_over_again(Mapping* list);
void forget_left_over(Mapping* units);

// As find_imported(), imports_of_context_gone() and blocks_imported().
bool find_open_block(CUdeviceptr address, uint64_t* start, uint64_t* bytes, CUcontext* opener,
                     uint64_t* unit_bytes);
void drop_mappings_of(CUcontext context);
uint64_t blocks_opened();

void reset_imported_after_fork();

struct MappedUnits {
  CUdeviceptr base;
  uint64_t bytes;
};

// Maps the units of a token's block. `first` is the exporter's first answer, with the descriptors
// in `files`; the function requests further ones, within the same `patience`. *reply is the
// exporter's last reply. After an error nothing is mapped.
CUresult map_units(const IpcToken& token, const IpcAnswer& first, IpcFiles* files,
                   IpcPatience* patience, MappedUnits* out, IpcReply* reply);

// After an error the units are still mapped.
CUresult unmap_units(const MappedUnits& units);

}  // namespace cistern::shim
