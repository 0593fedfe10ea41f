// SPDX-License-Identifier: Apache-2.0
// For tests of IPC tokens: an exporting process that holds whatever blocks the test says, and peers
// that send what they like to its socket.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <utility>

#include "shim/ipc/client.h"
#include "shim/ipc/exporter.h"
#include "tests/catch.h"
#include "tests/hangs.h"

namespace cistern::test {

// The importer's context, which is of device 1: whether it is known, and the devices of the
// contexts that reach it.
inline bool context_is_known = true;
inline uint64_t devices_reaching = 0;

// The one block that the program holds, if it has bytes.
inline std::mutex held_mutex;
inline shim::HeldBlock held_block{};

inline void hold(const shim::HeldBlock& block) {
  const std::lock_guard guard(held_mutex);
  held_block = block;
}

inline bool find_held_block(uint64_t address, shim::HeldBlock* out) {
  const std::lock_guard guard(held_mutex);
  *out = held_block;
  return address - held_block.start < held_block.bytes;
}

// The units behind it, where it is in units: each is a descriptor of standard error, or of another
// file, if it is to be had at all.
struct HeldUnits {
  uint64_t offset, unit_bytes, units;
  std::function<bool()> had;
  std::function<void()> in_hand{};  // once they are
  int file = STDERR_FILENO;
};
inline HeldUnits held_units{};

inline void hold_units(HeldUnits units) {
  const std::lock_guard guard(held_mutex);
  held_units = std::move(units);
}

inline void let_units_be_had(std::function<bool()> had) {
  const std::lock_guard guard(held_mutex);
  held_units.had = std::move(had);
}

inline void let_units_be(int file) {
  const std::lock_guard guard(held_mutex);
  held_units.file = file;
}

inline bool files_of_held(const shim::HeldBlock&, uint32_t first, shim::IpcAnswer* answer,
                          shim::IpcFiles* files) {
  const std::lock_guard guard(held_mutex);
  answer->offset = held_units.offset;
  answer->unit_bytes = held_units.unit_bytes;
  answer->units = held_units.units;
  if (held_units.had != nullptr && !held_units.had()) return false;
  while (first++ < held_units.units && files->count() < shim::kMostFiles) {
    files->add(fcntl(held_units.file, F_DUPFD_CLOEXEC, 0));
  }
  if (held_units.in_hand != nullptr) held_units.in_hand();
  return true;
}

inline constexpr shim::IpcPools find_held{find_held_block, files_of_held};

inline CUipcMemHandle handle_of_driver(unsigned char byte) {
  CUipcMemHandle handle;
  std::memset(&handle, byte, sizeof handle);
  return handle;
}

// A process of its own, as far as tokens tell.
inline shim::IpcProcess made_up_process() {
  shim::IpcProcess process;
  REQUIRE(shim::describe_ipc_process(&process));
  return process;
}

inline CUcontext some_context() { return reinterpret_cast<CUcontext>(0x77); }

// A token for held_block, whose chunk has this handle of the driver.
inline shim::IpcToken exported(unsigned char byte) {
  CUipcMemHandle handle{};
  shim::IpcToken token{};
  shim::begin_exporting();
  shim::export_by_token(held_block, some_context(), handle_of_driver(byte), &handle);
  shim::read_token(handle, &token);
  return token;
}

inline shim::Question question_for(const shim::IpcToken& token) {
  return shim::question_about(token, 0, 5);
}
// As it comes to the socket of this process, and as it comes on a line.
inline shim::IpcRequest request_for(const shim::IpcToken& token) {
  return question_for(token).request;
}
inline shim::IpcRequest on_line_for(const shim::IpcToken& token) {
  return question_for(token).on_line;
}

inline shim::IpcAnswer answered(const shim::IpcRequest& request) {
  shim::IpcFiles files;
  return shim::answer_message(&request, sizeof request, getuid(), find_held, &files);
}
// Of a block that lies in a chunk, or the first units behind it.
inline shim::IpcReply ask(const shim::IpcToken& token, shim::IpcAnswer* answer) {
  shim::IpcFiles files;
  shim::IpcPatience patience;
  return shim::ask_exporter(token, 0, &patience, answer, &files);
}

inline long open_files() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return std::distance(begin(all), end(all));
}

// The service closes what it has sent while the importer has it already.
inline bool files_become(long wanted) {
  return comes_true([=] { return open_files() == wanted; });
}

// The open files of this process once its service, if it runs, has closed the lines on which it
// answered. It hears one message after the other, and answers this one, of another version, without
// a line.
inline long settled_files() {
  const shim::IpcProcess* process = shim::exporting_process();
  if (process == nullptr) return open_files();
  shim::IpcToken token{};
  token.process = *process;
  shim::IpcRequest request = request_for(token);
  ++request.version;
  sockaddr_un own{}, name;
  own.sun_family = AF_UNIX;  // the kernel chooses the rest
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  REQUIRE(bind(socket, reinterpret_cast<sockaddr*>(&own), sizeof own.sun_family) == 0);
  const socklen_t bytes = shim::ipc_address(*process, &name);
  shim::IpcAnswer answer;
  if (sendto(socket, &request, sizeof request, 0, reinterpret_cast<sockaddr*>(&name), bytes) > 0) {
    REQUIRE(recv(socket, &answer, sizeof answer, 0) == sizeof answer);
  }
  close(socket);
  return open_files();
}

// A datagram to the socket of a process, with a descriptor if that is not negative. False: it could
// not be sent, as into a queue that is full.
inline bool send_raw(const shim::IpcProcess& process, const void* message, size_t bytes, int file) {
  sockaddr_un address;
  const socklen_t length = shim::ipc_address(process, &address);
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return false;
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
  const bool sent = sendmsg(socket, &head, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0;
  close(socket);
  return sent;
}

}  // namespace cistern::test
