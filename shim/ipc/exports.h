// SPDX-License-Identifier: Apache-2.0
// The chunks with exported blocks: for each the driver's handle, from the first export until the
// chunk goes back to the driver or ends with its context. A block in units is exported by itself,
// until its first unit is unmapped. Each export gets a number that is unique in this process, so
// that a token never finds a later block at the same address. Only the pool knows which blocks of a
// chunk the program still holds (HeldBlock). Any thread; one lock, under which no call is made.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/ipc/protocol.h"

namespace cistern::shim {

// A block that the program holds, and the start of its chunk; for a block in units `chunk` is the
// block's own start.
struct HeldBlock {
  uint64_t start, bytes, chunk;
  bool in_units;
};

// What the pools do for importers. The service's thread may call these.
struct IpcPools {
  // Finds the block that the program holds around an address; false if there is none.
  bool (*find)(uint64_t address, HeldBlock* out);
  // Writes descriptors of the block's units, from unit `first` on, to `files`, and the number and
  // size of all its units to `answer`. False if there can be no descriptors. Writes nothing if the
  // program holds no block there any more. It may hold another one by now, so check the export's
  // number afterwards.
  bool (*units)(const HeldBlock& block, uint32_t first, IpcAnswer* answer, IpcFiles* files);
};

// Makes a token for a block. `handle` is the driver's handle of the chunk at `block.chunk`; it is
// ignored for a block in units. False if the system is out of memory, or before begin_exporting().
bool export_by_token(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle,
                     CUipcMemHandle* token);

// The chunk that begins here is about to go back to the driver: its tokens become invalid.
void end_exports_at(uint64_t chunk);
// Units were unmapped from these addresses: tokens of blocks that begin there become invalid. To be
// called before other units are mapped there.
void end_exports_in(uint64_t address, uint64_t bytes);
void end_exports_of(CUcontext context);

// The answer to an importer that has this token (with its secret), and in `files` the descriptors
// to send with it.
IpcAnswer answer_for(const IpcToken& token, uint32_t first, const IpcPools& pools, IpcFiles* files);

// Whether this process made the token and the program still holds its block. Sets *block, and
// *handle to the driver's handle of its chunk; a block in units has none.
bool find_exported(const IpcToken& token, const IpcPools& pools, CUipcMemHandle* handle,
                   HeldBlock* block);

// This process as its next token names it; nullptr before begin_exporting().
const IpcProcess* exporting_process();
// The same, after drawing a name and a secret if there are none; nullptr if the system has no
// random numbers.
const IpcProcess* begin_exporting();
// To be called if another process has taken the socket's name: tokens from now on carry a new name.
// This process still recognises its older tokens, but nobody answers importers of them. False after
// kMostNames names.
bool take_another_name();
inline constexpr uint32_t kMostNames = 64;
// Whether this process made the token.
bool own_token(const IpcToken& token);
// How many tokens were made, and how many times an importer got the block of one.
uint64_t tokens_made();
uint64_t tokens_answered();

void reset_exports_after_fork();

}  // namespace cistern::shim
