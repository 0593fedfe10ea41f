// SPDX-License-Identifier: Apache-2.0
// The chunks of which the program exported blocks: the driver's handle of each, from the first
// export until the chunk goes back to the driver or ends with its context. A block in units is
// exported by itself, until memory is taken from behind its start. Each export gets a number that
// is unique in this process, so that a token never finds a later block at the same address. Only
// the pool knows which blocks of a chunk the program still holds (HeldBlock). Any thread; one lock,
// under which no call is made.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/ipc/protocol.h"
#include "shim/ipc/token.h"

namespace cistern::shim {

// The block that the program holds at an address, and the chunk that it lies in: where that is in
// units, its own start.
struct HeldBlock {
  uint64_t start, bytes, chunk;
  bool in_units;
};

// What the pools know and can do for importers. May be asked on the service's thread.
struct IpcPools {
  // The block that the program holds around an address, if there is one.
  bool (*find)(uint64_t address, HeldBlock* out);
  // Descriptors of the units that a block lies in, from the `first` on, and what the answer tells
  // of all of them. False: they cannot be had. Where no block is held any more, nothing is told;
  // what is held there may be another one by now.
  bool (*units)(const HeldBlock& block, uint32_t first, IpcAnswer* answer, IpcFiles* files);
};

// A token for a block, in the chunk that begins at `block.chunk`; `handle` is the driver's of that
// chunk, without meaning for units. False if the system has no memory left, or before
// begin_exporting().
bool export_by_token(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle,
                     CUipcMemHandle* token);

// The chunk that begins here is about to go back to the driver: its tokens name nothing any more.
void end_exports_at(uint64_t chunk);
// Memory was taken from behind these addresses, before any comes there again.
void end_exports_in(uint64_t address, uint64_t bytes);
void end_exports_of(CUcontext context);

// What the importer is told of a token, with its secret, and sent.
IpcAnswer answer_for(const IpcToken& token, uint32_t first, const IpcPools& pools, IpcFiles* files);

// Whether the token is one of this process for a block that the program holds still, the driver's
// handle behind it, and whether the block lies in units instead.
bool find_exported(const IpcToken& token, const IpcPools& pools, CUipcMemHandle* handle,
                   HeldBlock* block);

// Of this process, as its next token names it: nullptr before begin_exporting().
const IpcProcess* exporting_process();
// The same, described now if it is not yet; nullptr if the system has no random numbers.
const IpcProcess* begin_exporting();
// Somebody else has the socket's name: tokens from now on have another one. Those of before are
// still known to this process, but nobody answers for them. False: there were kMostNames.
bool take_another_name();
inline constexpr uint32_t kMostNames = 64;
// Whether this process made it.
bool own_token(const IpcToken& token);
// How often a token was made, and was given a handle for.
uint64_t tokens_made();
uint64_t tokens_answered();

void reset_exports_after_fork();

}  // namespace cistern::shim
