// SPDX-License-Identifier: Apache-2.0
// For tests of IPC tokens: an exporting process that holds whatever blocks the test says, and peers
// that send what they like to its socket.
#pragma once

#include <unistd.h>

#include <cstring>
#include <mutex>

#include "shim/ipc/client.h"
#include "shim/ipc/service.h"

namespace cistern::test {

// The one block that the program holds, if it has bytes.
inline std::mutex held_mutex;
inline shim::HeldBlock held_block{};

inline void hold(const shim::HeldBlock& block) {
  const std::lock_guard guard(held_mutex);
  held_block = block;
}

inline bool find_held(uint64_t address, shim::HeldBlock* out) {
  const std::lock_guard guard(held_mutex);
  *out = held_block;
  return address - held_block.start < held_block.bytes;
}

inline CUipcMemHandle handle_of_driver(unsigned char byte) {
  CUipcMemHandle handle;
  std::memset(&handle, byte, sizeof handle);
  return handle;
}

inline CUcontext some_context() { return reinterpret_cast<CUcontext>(0x77); }

// A token for held_block, whose chunk has this handle of the driver.
inline shim::IpcToken exported(unsigned char byte) {
  CUipcMemHandle handle{};
  shim::IpcToken token{};
  shim::export_by_token(held_block, some_context(), handle_of_driver(byte), &handle);
  shim::read_token(handle, &token);
  return token;
}

inline shim::IpcRequest request_for(const shim::IpcToken& token) {
  return {shim::kRequestMagic, shim::kIpcVersion, 0, 5, token};
}

inline shim::IpcAnswer answered(const shim::IpcRequest& request) {
  return shim::answer_message(&request, sizeof request, getuid(), find_held);
}

// A datagram to the socket of a process, with a descriptor if that is not negative.
inline bool send_raw(const shim::IpcProcess& process, const void* message, size_t bytes, int file) {
  shim::OwnSocket socket;
  sockaddr_un address;
  const socklen_t length = shim::ipc_address(process, &address);
  if (!socket.open(nullptr, 0)) return false;
  iovec part{const_cast<void*>(message), bytes};
  alignas(cmsghdr) unsigned char control[CMSG_SPACE(sizeof file)] = {};
  msghdr head{};
  head.msg_name = &address;
  head.msg_namelen = length;
  head.msg_iov = &part;
  head.msg_iovlen = 1;
  if (file >= 0) {
    head.msg_control = control;
    head.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&head);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  const bool sent = sendmsg(socket.number(), &head, MSG_NOSIGNAL) >= 0;
  socket.close_own();
  return sent;
}

}  // namespace cistern::test
