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
#include "shim/ipc/protocol.h"
#include "shim/process/no_cancel.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kMs = 1'000'000;
// The question is repeated this often. Sending it fails once the other process has ended, and only
// that shows the end.
constexpr uint64_t kAskAgainNs = 100 * kMs;
constexpr uint64_t kFullPauseNs = kMs;  // the exporter's queue is full

// A number that no process uses twice, and no other process uses: it identifies a line.
bool new_number(uint64_t* out) {
  return getrandom(out, sizeof *out, GRND_NONBLOCK) == static_cast<ssize_t>(sizeof *out);
}

// A question in progress.
struct Asking {
  const OwnSocket& socket;
  const Question& question;
  uint64_t end;
  IpcAnswer* out;
  IpcFiles* files;
  IpcSender line{};      // the sender of the last invitation
  bool on_line = false;  // connected to it

  uint64_t next_time() const { return std::min(alloc::os::now_ns() + kAskAgainNs, end); }
};

// Waits for the answer until `until_ns`. False: it did not come. Once on the line, further
// invitations are ignored. During the wait the program may reuse the socket's number for another
// file.
bool await_answer(Asking* a, uint64_t until_ns, IpcReply* reply) {
  for (uint64_t now = alloc::os::now_ns(); now < until_ns; now = alloc::os::now_ns()) {
    pollfd readable{a->socket.number(), POLLIN, 0};
    poll(&readable, 1, static_cast<int>((until_ns - now) / kMs + 1));
    IpcAnswer message;
    IpcSender from;
    IpcFiles came;
    bool cut = false;
    const ssize_t size = a->socket.receive_with_files(&message, sizeof message, &from, &came, &cut);
    if (size < 0 && !a->socket.still_ours()) {
      *reply = IpcReply::failed;
      return true;
    }
    if (size < 0) continue;
    if (!is_own_user(from.user)) {
      *reply = IpcReply::refused;
      return true;
    }
    const auto bytes = static_cast<size_t>(size);
    if (!read_answer(&message, bytes, a->question, came.count(), a->out, reply)) continue;
    if (*reply == IpcReply::come && (a->on_line || !from.has_address())) continue;
    a->line = from;
    if (cut) *reply = IpcReply::failed;
    if (*reply == IpcReply::given) a->files->take_all(&came);
    return true;
  }
  return false;
}

// Whether a message that could not be sent may be sent later.
bool queue_is_full() { return errno == EAGAIN || errno == ENOBUFS || errno == ENOMEM; }

// Asks on the line. Repeats the question, because a line that was closed meanwhile refuses it.
// False: the line was closed, and the caller may ask for another.
bool ask_on_line(Asking* a, IpcReply* reply) {
  a->on_line = a->socket.connect_to(a->line);
  bool heard = false;
  while (a->on_line && !heard) {
    // If the queue is full, the same question is already in it.
    const bool asked =
        a->socket.send_connected(&a->question.on_line, sizeof(IpcRequest), {}) || queue_is_full();
    heard = asked && await_answer(a, a->next_time(), reply);
    const bool over = !heard && alloc::os::now_ns() >= a->end;
    if (over) *reply = IpcReply::silent;
    heard |= over;
    a->on_line = asked;
  }
  if (!heard) a->socket.disconnect();
  return heard;
}

IpcReply not_sent(const OwnSocket& socket) {
  return socket.still_ours() ? IpcReply::nobody : IpcReply::failed;
}

IpcReply ask_until_end(Asking* a, const IpcProcess& exporter) {
  sockaddr_un name;
  const socklen_t bytes = ipc_address(exporter, &name);
  do {
    IpcReply reply;
    if (!a->socket.send_to(name, bytes, &a->question.request, sizeof(IpcRequest))) {
      if (!queue_is_full()) return not_sent(a->socket);
      alloc::os::sleep_ns(kFullPauseNs);
    } else if (await_answer(a, a->next_time(), &reply)) {
      if (reply != IpcReply::come || ask_on_line(a, &reply)) return reply;
    }
  } while (alloc::os::now_ns() < a->end);
  return IpcReply::silent;
}

IpcReply ask_on(const OwnSocket& socket, const IpcProcess& exporter, const Question& question,
                IpcPatience* patience, IpcAnswer* out, IpcFiles* files) {
  const uint64_t begin = alloc::os::now_ns();
  Asking asking{socket, question, begin + patience->left_ns, out, files};
  const IpcReply reply = ask_until_end(&asking, exporter);
  const uint64_t took = alloc::os::now_ns() - begin;
  if (took > IpcPatience::kPromptNs) {
    patience->left_ns -= std::min(took - IpcPatience::kPromptNs, patience->left_ns);
  }
  return reply;
}

// Whether the block lies in the units that the answer names, and whether the right number of
// descriptors came.
bool units_are_right(const IpcAnswer& answer, uint64_t end, uint32_t first, uint32_t files) {
  constexpr uint64_t kMostUnitBytes = uint64_t{1} << 32;  // so that no product overflows
  if (answer.unit_bytes == 0) return answer.units == 0 && files == 0;
  return std::has_single_bit(answer.unit_bytes) && answer.unit_bytes <= kMostUnitBytes &&
         answer.offset < answer.unit_bytes && answer.units <= UINT32_MAX &&
         answer.units == (end - 1) / answer.unit_bytes + 1 && first < answer.units &&
         files == std::min<uint64_t>(answer.units - first, kMostFiles);
}

}  // namespace

// If the program closes the socket, the question goes out by another one.
IpcReply ask_exporter(const IpcToken& token, uint32_t first, IpcPatience* patience, IpcAnswer* out,
                      IpcFiles* files) {
  if (token.version != kIpcVersion) return IpcReply::version;
  const NoCancel asks;
  const int saved = errno;
  close_what_children_get();
  OwnSocket socket;
  const InHand<OwnSocket> known(&socket);
  IpcReply reply = IpcReply::failed;
  bool lost = true;
  for (int tries = 4; lost && tries > 0; --tries) {
    uint64_t number;
    if (!new_number(&number) || !socket.open_to_ask(token.process, number)) break;
    const Question question = question_about(token, first, number);
    reply = ask_on(socket, token.process, question, patience, out, files);
    lost = reply == IpcReply::failed && !socket.still_ours();
    socket.close_own();
  }
  errno = saved;
  return reply;
}

Question question_about(const IpcToken& token, uint32_t first, uint64_t number) {
  const auto request = [&](uint64_t shown) {
    return IpcRequest{kRequestMagic, kIpcVersion, first, number, showing(token, shown)};
  };
  return {request(pass_of(token.process)), request(word_of(token.process, number)),
          proof_of(token.process, number)};
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
  } else if (out->status == IpcStatus::come) {
    *reply = files == 0 ? IpcReply::come : IpcReply::gone;
  } else if (out->status != IpcStatus::given || out->bytes != request.token.bytes ||
             out->bytes == 0 || __builtin_add_overflow(out->offset, out->bytes, &end) ||
             !units_are_right(*out, end, request.first, files)) {
    *reply = IpcReply::gone;
  } else {
    *reply = IpcReply::given;
  }
  return true;
}

}  // namespace cistern::shim
