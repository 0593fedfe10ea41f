// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/client.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "allocator/base/os.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kMs = 1'000'000;
// The question is asked again so often: to a process that ended meanwhile it cannot be sent, which
// is how its end is seen.
constexpr uint64_t kAskAgainNs = 100 * kMs;
constexpr uint64_t kFullPauseNs = kMs;  // the exporter's queue is full

uint64_t new_number() {
  static constinit std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// Looks for the answer until `until_ns`. False: it did not come.
bool await_answer(const OwnSocket& socket, const IpcRequest& request, uint64_t until_ns,
                  IpcAnswer* out, IpcReply* reply) {
  for (uint64_t now = alloc::os::now_ns(); now < until_ns; now = alloc::os::now_ns()) {
    pollfd readable{socket.number(), POLLIN, 0};
    poll(&readable, 1, static_cast<int>((until_ns - now) / kMs + 1));
    IpcAnswer message;
    uid_t user = 0;
    const ssize_t size = socket.receive(&message, sizeof message, &user, nullptr, nullptr);
    if (size < 0) continue;
    if (user != getuid()) {
      *reply = IpcReply::refused;
      return true;
    }
    if (read_answer(&message, static_cast<size_t>(size), request.number, request.token, out,
                    reply)) {
      return true;
    }
  }
  return false;
}

IpcReply ask_on(const OwnSocket& socket, const IpcRequest& request, IpcAnswer* out) {
  const uint64_t end = alloc::os::now_ns() + uint64_t{kIpcWaitMs} * kMs;
  for (uint64_t now = alloc::os::now_ns(); now < end; now = alloc::os::now_ns()) {
    if (send(socket.number(), &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == ECONNREFUSED || errno == ENOTCONN || errno == EPIPE) return IpcReply::nobody;
      alloc::os::sleep_ns(kFullPauseNs);
      continue;
    }
    IpcReply reply;
    const uint64_t until = now + kAskAgainNs < end ? now + kAskAgainNs : end;
    if (await_answer(socket, request, until, out, &reply)) return reply;
  }
  return IpcReply::silent;
}

}  // namespace

IpcReply ask_exporter(const IpcToken& token, IpcAnswer* out) {
  const NoCancel asks;
  const int saved = errno;
  OwnSocket socket;
  IpcReply reply = IpcReply::failed;
  if (token.version != kIpcVersion) {
    reply = IpcReply::version;
  } else if (socket.open(nullptr, 0)) {
    sockaddr_un address;
    const socklen_t bytes = ipc_address(token.process, &address);
    const IpcRequest request{kRequestMagic, kIpcVersion, 0, new_number(), token};
    // Connected, it gets messages from the exporter's socket alone.
    reply = connect(socket.number(), reinterpret_cast<const sockaddr*>(&address), bytes) == 0
                ? ask_on(socket, request, out)
                : IpcReply::nobody;
    socket.close_own();
  }
  errno = saved;
  return reply;
}

bool read_answer(const void* message, size_t size, uint64_t number, const IpcToken& token,
                 IpcAnswer* out, IpcReply* reply) {
  if (size != sizeof *out) return false;
  memcpy(out, message, sizeof *out);
  if (out->magic != kAnswerMagic || out->number != number) return false;
  uint64_t end;
  if (out->version != kIpcVersion || out->status == IpcStatus::version) {
    *reply = IpcReply::version;
  } else if (out->status == IpcStatus::refused) {
    *reply = IpcReply::refused;
  } else if (out->status != IpcStatus::given || out->bytes != token.bytes || out->bytes == 0 ||
             __builtin_add_overflow(out->offset, out->bytes, &end)) {
    *reply = IpcReply::gone;
  } else {
    *reply = IpcReply::given;
  }
  return true;
}

}  // namespace cistern::shim
