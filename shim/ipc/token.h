// SPDX-License-Identifier: Apache-2.0
// The content of a CUipcMemHandle for a block inside a chunk, or in units. The driver's handle
// names the whole chunk and has no room for the block's place in it; for units the driver has no
// handle. So the program gets a token that names the process and the block. A process that opens it
// asks that process for the driver's handle, or for descriptors of the units (service.h, client.h).
// 64 bits that are Cistern's and a checksum tell a token from a handle of the driver. The driver
// does not know tokens. Any thread.
#pragma once

#include <cstdint>

#include "shim/cuda_api.h"

namespace cistern::shim {

inline constexpr uint32_t kIpcVersion = 4;  // of tokens and of messages

// The process that exports. `name` and `secret` are random, made with its first token. The name is
// that of its socket, where every user of the machine can read it. It tells a process from a later
// one with the same number. The secret is only in tokens and is never sent: a message shows a pass,
// a word or a proof, which are computed from it.
struct IpcProcess {
  uint64_t name;
  uint64_t secret;
  int32_t number;
  uint32_t network;  // its network namespace: its sockets cannot be reached from another one
};

struct IpcToken {
  uint64_t magic;
  uint32_t version;
  uint32_t checksum;
  IpcProcess process;
  uint64_t address;  // the block's, in that process
  uint64_t bytes;    // requested
  uint64_t chunk;    // the number of the export of its chunk, or of the block in units (exports.h)
};
static_assert(sizeof(IpcToken) == sizeof(CUipcMemHandle));

CUipcMemHandle make_token(const IpcProcess& process, uint64_t address, uint64_t bytes,
                          uint64_t chunk);
// False if the handle is no token, for example one of the driver's. The token's version may differ
// from kIpcVersion.
bool read_token(const CUipcMemHandle& handle, IpcToken* out);

inline bool same_process(const IpcProcess& a, const IpcProcess& b) {
  return a.name == b.name && a.secret == b.secret;
}

// The pass shows that the sender of a request has a token. It is the same in all requests to a
// process, so that the kernel's filter can check it. A process that takes the socket's name learns
// the pass.
uint64_t pass_of(const IpcProcess& process);
// The proof shows that the sender of an answer has the secret. It cannot be computed from the
// request with that number, or from other answers.
uint64_t proof_of(const IpcProcess& process, uint64_t number);
// The word shows that the peer on a line has the token. The line was opened for the request with
// that number (service.h).
uint64_t word_of(const IpcProcess& process, uint64_t number);
// A copy of the token for a message: with `shown`, the pass or the word, in place of the secret.
IpcToken showing(const IpcToken& token, uint64_t shown);

// Describes the calling process, with a new random name and secret; false if the system has no
// random numbers. No cancellation point.
bool describe_ipc_process(IpcProcess* out);
// The network namespace of the calling process, 0 if that is not known.
uint32_t network_namespace();

}  // namespace cistern::shim
