// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/client.h"

#include <poll.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>

#include "allocator/base/os.h"
#include "shim/ipc/user.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kMs = 1'000'000;
// The question is asked again so often: to a process that ended meanwhile it cannot be sent, which
// is how its end is seen.
constexpr uint64_t kAskAgainNs = 100 * kMs;
constexpr uint64_t kFullPauseNs = kMs;  // the exporter's queue is full

// One that no process uses twice, nor another one: a handle is sealed with it.
bool new_number(uint64_t* out) {
  return getrandom(out, sizeof *out, GRND_NONBLOCK) == static_cast<ssize_t>(sizeof *out);
}

// Looks for the answer until `until_ns`. False: it did not come.
bool await_answer(const OwnSocket& socket, const Question& question, uint64_t until_ns,
                  IpcAnswer* out, IpcFiles* files, IpcReply* reply) {
  for (uint64_t now = alloc::os::now_ns(); now < until_ns; now = alloc::os::now_ns()) {
    pollfd readable{socket.number(), POLLIN, 0};
    poll(&readable, 1, static_cast<int>((until_ns - now) / kMs + 1));
    IpcAnswer message;
    uid_t user = 0;
    IpcFiles came;
    bool cut = false;
    const ssize_t size = socket.receive_with_files(&message, sizeof message, &user, &came, &cut);
    if (size < 0) continue;
    if (!is_own_user(user)) {
      *reply = IpcReply::refused;
      return true;
    }
    const uint32_t count = came.count();
    if (!read_answer(&message, static_cast<size_t>(size), question, count, out, reply)) continue;
    if (cut) *reply = IpcReply::failed;
    if (*reply == IpcReply::given) files->take_all(&came);
    return true;
  }
  return false;
}

IpcReply ask_until(uint64_t end, const OwnSocket& socket, const Question& question, IpcAnswer* out,
                   IpcFiles* files) {
  const IpcRequest& request = question.request;
  for (uint64_t now = alloc::os::now_ns(); now < end; now = alloc::os::now_ns()) {
    if (send(socket.number(), &request, sizeof request, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
      if (errno == ECONNREFUSED || errno == ENOTCONN || errno == EPIPE) return IpcReply::nobody;
      alloc::os::sleep_ns(kFullPauseNs);
      continue;
    }
    IpcReply reply;
    const uint64_t until = now + kAskAgainNs < end ? now + kAskAgainNs : end;
    if (await_answer(socket, question, until, out, files, &reply)) return reply;
  }
  return IpcReply::silent;
}

IpcReply ask_on(const OwnSocket& socket, const Question& question, IpcPatience* patience,
                IpcAnswer* out, IpcFiles* files) {
  const uint64_t begin = alloc::os::now_ns();
  const IpcReply reply = ask_until(begin + patience->left_ns, socket, question, out, files);
  const uint64_t took = alloc::os::now_ns() - begin;
  if (took > IpcPatience::kPromptNs) {
    patience->left_ns -= std::min(took - IpcPatience::kPromptNs, patience->left_ns);
  }
  return reply;
}

// Whether the block lies in the units that the exporter tells of, and as many descriptors came as
// have to.
bool units_are_right(const IpcAnswer& answer, uint64_t end, uint32_t first, uint32_t files) {
  constexpr uint64_t kMostUnitBytes = uint64_t{1} << 32;  // so that all together are no overflow
  if (answer.unit_bytes == 0) return answer.units == 0 && files == 0;
  return std::has_single_bit(answer.unit_bytes) && answer.unit_bytes <= kMostUnitBytes &&
         answer.offset < answer.unit_bytes && answer.units <= UINT32_MAX &&
         answer.units == (end - 1) / answer.unit_bytes + 1 && first < answer.units &&
         files == std::min<uint64_t>(answer.units - first, kMostFiles);
}

}  // namespace

IpcReply ask_exporter(const IpcToken& token, uint32_t first, IpcPatience* patience, IpcAnswer* out,
                      IpcFiles* files) {
  const NoCancel asks;
  const int saved = errno;
  OwnSocket socket;
  IpcReply reply = IpcReply::failed;
  uint64_t number = 0;
  if (token.version != kIpcVersion) {
    reply = IpcReply::version;
  } else if (new_number(&number)) {
    const Question question = question_about(token, first, number);
    bool there = false;
    if (socket.open_to(token.process, question.request.number, &there)) {
      reply = ask_on(socket, question, patience, out, files);
      socket.close_own();
    } else if (!there) {
      reply = IpcReply::nobody;
    }
  }
  errno = saved;
  return reply;
}

Question question_about(const IpcToken& token, uint32_t first, uint64_t number) {
  return {{kRequestMagic, kIpcVersion, first, number, without_secret(token)},
          proof_of(token.process, number),
          token.process};
}

bool read_answer(const void* message, size_t size, const Question& question, uint32_t files,
                 IpcAnswer* out, IpcReply* reply) {
  const IpcRequest& request = question.request;
  if (size != sizeof *out) return false;
  memcpy(out, message, sizeof *out);
  if (out->magic != kAnswerMagic || out->proof != question.proof) return false;
  uint64_t end;
  if (out->version != kIpcVersion || out->status == IpcStatus::version) {
    *reply = IpcReply::version;
  } else if (out->status == IpcStatus::refused) {
    *reply = IpcReply::refused;
  } else if (out->status == IpcStatus::unable) {
    *reply = IpcReply::unable;
  } else if (out->status != IpcStatus::given || out->bytes != request.token.bytes ||
             out->bytes == 0 || __builtin_add_overflow(out->offset, out->bytes, &end) ||
             !units_are_right(*out, end, request.first, files)) {
    *reply = IpcReply::gone;
  } else {
    out->handle = sealed(out->handle, question.exporter, request.number);
    *reply = IpcReply::given;
  }
  return true;
}

}  // namespace cistern::shim
