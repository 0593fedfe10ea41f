// SPDX-License-Identifier: Apache-2.0
// The content of a CUipcMemHandle for a block inside a chunk, or in units. The driver's handle
// names the whole chunk, and has no room for the place of the block in it; for units there is none.
// So the program gets a token that names the process and the block. A process that opens it asks
// that process for the driver's handle, or for descriptors of the units (service.h, client.h). 64
// bits that are Cistern's and a checksum tell a token from a handle of the driver. The driver does
// not know tokens. Any thread.
#pragma once

#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

inline constexpr uint32_t kIpcVersion = 4;  // of tokens and of messages

// The process that exports. `name` and `secret` are random, made with its first token. The name is
// that of its socket, where every user of the machine can read it. It tells a process from a later
// one with the same number. The secret stands in tokens alone and is never sent: what a message
// shows of it is a pass, a word or a proof.
struct IpcProcess {
  uint64_t name;
  uint64_t secret;
  int32_t number;
  uint32_t network;  // its network namespace: sockets of one are not seen in another
};

struct IpcToken {
  uint64_t magic;
  uint32_t version;
  uint32_t checksum;
  IpcProcess process;
  uint64_t address;  // the block's, in that process
  uint64_t bytes;    // requested
  uint64_t chunk;  // the number under which its chunk, or it in its units, was exported (exports.h)
};
static_assert(sizeof(IpcToken) == sizeof(CUipcMemHandle));

CUipcMemHandle make_token(const IpcProcess& process, uint64_t address, uint64_t bytes,
                          uint64_t chunk);
// False: a handle of the driver, or anything else. The version may be another one.
bool read_token(const CUipcMemHandle& handle, IpcToken* out);

inline bool same_process(const IpcProcess& a, const IpcProcess& b) {
  return a.name == b.name && a.secret == b.secret;
}

// By the pass a request shows that it comes from where a token is. It is always the same, so that
// the kernel can look for it. Whoever holds the socket's name learns it.
uint64_t pass_of(const IpcProcess& process);
// By the proof an answer shows that it comes from where the secret is: nobody learns it from a
// request with that number, or from another answer.
uint64_t proof_of(const IpcProcess& process, uint64_t number);
// By the word an importer shows, on the line that was opened for its request with that number
// (service.h), that it is still the one with the token.
uint64_t word_of(const IpcProcess& process, uint64_t number);
// The token as it stands in a message: with this, the pass or the word, in place of the secret.
IpcToken showing(const IpcToken& token, uint64_t shown);

// The calling process, with a new name and secret; false if the system has none. Not cancelled
// meanwhile.
bool describe_ipc_process(IpcProcess* out);
// The network namespace of the calling process, 0 if that is not known.
uint32_t network_namespace();

}  // namespace cistern::shim
