// SPDX-License-Identifier: Apache-2.0
// The chunks of which the program exported blocks: the driver's handle of each, from the first
// export until the chunk goes back to the driver or ends with its context. A chunk gets a number
// that no other one of this process ever had, so that a token never finds a later chunk at the same
// address. What in a chunk is still the program's, only the pool knows (HeldBlock). Any thread; one
// lock, under which no call is made.
#pragma once

#include <atomic>
#include <cstdint>

#include "shim/ipc/protocol.h"
#include "shim/ipc/token.h"

namespace cistern::shim {

// The block that the program holds at an address, and the chunk that it lies in.
struct HeldBlock {
  uint64_t start, bytes, chunk;
};

// A token for a block, in the chunk that begins at `block.chunk`; `handle` is the driver's of that
// chunk. False if the system has no memory, or no random numbers, left.
bool export_by_token(const HeldBlock& block, CUcontext context, const CUipcMemHandle& handle,
                     CUipcMemHandle* token);

// The chunk that begins here is about to go back to the driver: its tokens name nothing any more.
void end_exports_at(uint64_t chunk);
void end_exports_of(CUcontext context);

// What the importer is told of a token. `held(address, block)`: the block that the program holds
// around an address, if there is one.
IpcAnswer answer_for(const IpcToken& token, bool (*held)(uint64_t address, HeldBlock* out));

// Of this process: nullptr before its first token.
const IpcProcess* exporting_process();
// How often a token was made, and was given a handle for.
uint64_t tokens_made();
uint64_t tokens_answered();

void reset_exports_after_fork();

}  // namespace cistern::shim
