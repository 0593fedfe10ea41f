// SPDX-License-Identifier: Apache-2.0
// The memory of other processes that is open and mapped in this one (imported.h). Any thread.
//
// The table has one lock, under which no call is made. Memory of another process may lie in units
// (ipc/protocol.h): its exporter sends descriptors of them, which are mapped side by side in
// addresses of this process by virtual memory management. To the driver this is mapped memory,
// which outlives contexts. No lock may be held while units are mapped.
#pragma once

#include "shim/cuda_api.h"
#include "shim/ipc/client.h"

namespace cistern::shim {

// A chunk of another process, as a context has it open; or a block in units, of which the handle is
// its token.
// `closing`: a thread asks the driver to close it, and takes the record away then, and nobody else
// does. Whoever wants the chunk meanwhile opens it anew, and may get the same addresses before the
// record is away. `gone`: its context went.
struct Mapping {
  Mapping* next;
  uint64_t key;  // where it begins
  uint64_t bytes;
  CUcontext context;
  unsigned long long context_number;
  CUipcMemHandle handle;
  uint64_t users;       // open blocks, each as often as it is open
  uint64_t surplus;     // that the driver counts beside these, as it would not close them
  uint64_t unit_bytes;  // 0: in a chunk
  bool closing, gone;

  bool in_units() const { return unit_bytes != 0; }
};

// Of a chunk that is open already. False: it is not.
bool use_open_mapping(const Mapping& wanted, const IpcAnswer& answer, CUdeviceptr* out);
// Of a chunk that the driver has just opened. False: it was open already, to another thread, or
// there is no memory. Then the driver, which counts, is to close it once.
bool use_new_mapping(const Mapping& opened, const IpcAnswer& answer, CUdeviceptr* out);
// The driver would not close what was opened beside a mapping: that is noted there. False: there is
// no such mapping.
bool note_surplus(const Mapping& opened);

enum class Closing : uint8_t { foreign, not_open, still_open, others_use_it, last };

// Where a block is closed for good whose chunk others use, its context is to be waited for before
// (`waited`): the driver does that at the end of a block of its own. `*mapping` is the caller's
// where it was the last; `*context` that of the block.
Closing begin_closing(CUdeviceptr address, bool waited, Mapping** mapping, CUcontext* context);

// What became of the mapping whose last block was to be closed.
enum class Closed : uint8_t { still_open, closed, still_mapped };
// Where its context went meanwhile, it is not open any more.
void end_closing(Mapping* mapping, Closed how);

// Units that nobody has open, and that are mapped: of contexts that are gone, and of `idle`, which
// is waited for before they are unmapped. They are the caller's.
Mapping* take_left_over(CUcontext idle);
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

// What is mapped of a token, or why not: nothing is, then. `reply` is the exporter's last, of which
// `first` is the answer with the `files` that came along; further ones are asked for, with
// the same `patience`.
CUresult map_units(const IpcToken& token, const IpcAnswer& first, IpcFiles* files,
                   IpcPatience* patience, MappedUnits* out, IpcReply* reply);

// An error means that it is mapped as before.
CUresult unmap_units(const MappedUnits& units);

}  // namespace cistern::shim
