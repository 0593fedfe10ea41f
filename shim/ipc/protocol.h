// SPDX-License-Identifier: Apache-2.0
// The messages between a process that opens a token and the one that made it: one datagram there,
// one back, over sockets in the abstract namespace, which go with their process. Datagrams arrive
// whole or not at all, so that no peer can hold the other up with half a message, and the kernel
// says with each which user sent it (SCM_CREDENTIALS). Whatever a peer sends, only the fields below
// are read, and only if size, magic and version are right.
#pragma once

#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>

#include "shim/ipc/token.h"

namespace cistern::shim {

inline constexpr uint64_t kRequestMagic = 0x51c9a1d07be33f5e;
inline constexpr uint64_t kAnswerMagic = 0x6be2f8041c97d3aa;

struct IpcRequest {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
  uint64_t number;  // of the importer's choice; the answer has it again
  IpcToken token;
};

enum class IpcStatus : uint32_t {
  given,
  gone,     // the block was freed, or never was
  refused,  // another user asks
  version,  // the exporter speaks another version: the answer's
};

struct IpcAnswer {
  uint64_t magic;
  uint32_t version;
  IpcStatus status;
  uint64_t number;
  // Where `given`: the driver's handle of the chunk, and the block in it.
  CUipcMemHandle handle;
  uint64_t offset;
  uint64_t bytes;
};

// The address of the socket of a process; its length.
socklen_t ipc_address(const IpcProcess& process, sockaddr_un* out);

// A socket of Cistern's, under a high number, as programs expect the low ones for files of their
// own; used no more once the program has made that number another file. One thread at a time, but
// for still_ours().
class OwnSocket {
 public:
  // Bound to `address`, or (nullptr) to one that the kernel chooses. False, with errno.
  bool open(const sockaddr_un* address, socklen_t bytes);
  bool still_ours() const;
  void close_own();
  int number() const { return number_; }

  // A message that is there and the user who sent it; the size, or -1 without one. What is longer
  // than `size` is cut off and told as longer. `from`, where wanted, is the sender's address.
  ssize_t receive(void* message, size_t size, uid_t* user, sockaddr_un* from,
                  socklen_t* from_bytes) const;

 private:
  int number_ = -1;
  uint64_t device_ = 0, inode_ = 0;
};

}  // namespace cistern::shim
