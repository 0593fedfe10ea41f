// SPDX-License-Identifier: Apache-2.0
#include "shim/ipc/service.h"

#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "allocator/base/mutex.h"
#include "allocator/base/os.h"
#include "shim/ipc/user.h"
#include "shim/process/no_cancel.h"
#include "shim/process/own_thread.h"

namespace cistern::shim {
namespace {

constexpr int kPauseMs = 1000;  // alone() is asked at least as often

constinit alloc::Mutex starting;
constinit OwnSocket socket_{};
constinit std::atomic<bool> runs{false};
constinit IpcPools pools_{};
constinit std::atomic<bool> ends{false};     // the process
constinit std::atomic<bool> calling{false};  // the driver, perhaps
constinit std::atomic<IpcFiles*> in_hand{nullptr};

// For pools_.units.
bool units_unless_the_end(const HeldBlock& block, uint32_t first, IpcAnswer* answer,
                          IpcFiles* files) {
  calling.store(true);
  const bool had = ends.load() || pools_.units(block, first, answer, files);
  calling.store(false);
  return had;
}

// False: there was no message.
bool answer_one() {
  IpcRequest request;
  uid_t user = 0;
  sockaddr_un from;
  socklen_t from_bytes = 0;
  const ssize_t size = socket_.receive(&request, sizeof request, &user, &from, &from_bytes);
  if (size < 0) return false;
  IpcFiles files;
  in_hand.store(&files);
  const IpcAnswer answer = answer_message(&request, static_cast<size_t>(size), user,
                                          {pools_.find, units_unless_the_end}, &files);
  if (answer.magic == kAnswerMagic && from_bytes > sizeof from.sun_family) {
    socket_.send_to(from, from_bytes, &answer, sizeof answer, files);
  }
  files.close_all();
  in_hand.store(nullptr);
  return true;
}

// Under the name of the process, or a new one if that is taken.
bool open_socket() {
  const IpcProcess* process = begin_exporting();
  while (process != nullptr && !socket_.open_for(*process)) {
    if (errno != EADDRINUSE || !take_another_name()) return false;
    process = exporting_process();
  }
  if (process != nullptr && is_own_user(getuid())) return true;
  socket_.close_own();
  return false;
}

void* run(void*) {
  const OwnThread counted;
  while (socket_.still_ours() || open_socket()) {
    pollfd readable{socket_.number(), POLLIN, 0};
    const int ready = poll(&readable, 1, kPauseMs);
    if (alone()) {
      become_thread_of_the_program();
      return nullptr;
    }
    // The number may be the program's file by now.
    if (ready > 0 && socket_.still_ours()) answer_one();
  }
  runs.store(false, std::memory_order_release);
  return nullptr;
}

}  // namespace

// Where the thread could not open the socket again, a later export tries to.
bool serve_importers(const IpcPools& pools) {
  const NoCancel starts;
  const alloc::LockGuard guard(starting);
  if (runs.load(std::memory_order_acquire)) return true;
  const int saved = errno;
  pools_ = pools;
  bool started = open_socket();
  if (started) {
    runs.store(true, std::memory_order_release);
    started = start_own_thread(run) == 0;
    if (!started) {
      runs.store(false, std::memory_order_release);
      socket_.close_own();
    }
  }
  errno = saved;
  return started;
}

// Also what the filter lets by where a kernel has none.
static bool shows_pass(const IpcProcess& shown, const IpcProcess& own) {
  return shown.name == own.name && shown.secret == pass_of(own);
}

IpcAnswer answer_message(const void* message, size_t size, uid_t user, const IpcPools& pools,
                         IpcFiles* files) {
  IpcAnswer answer{};
  IpcRequest request;
  const IpcProcess* own = exporting_process();
  if (size != sizeof request || own == nullptr) return answer;
  memcpy(&request, message, sizeof request);
  if (request.magic != kRequestMagic || !shows_pass(request.token.process, *own)) return answer;
  CUipcMemHandle handle;
  memcpy(&handle, &request.token, sizeof handle);
  IpcToken token;
  if (!is_own_user(user)) {
    answer.status = IpcStatus::refused;
  } else if (request.version != kIpcVersion) {
    answer.status = IpcStatus::version;
  } else if (!read_token(handle, &token) || token.version != kIpcVersion) {
    answer.status = IpcStatus::gone;
  } else {
    token.process.secret = own->secret;
    answer = answer_for(token, request.first, pools, files);
    if (answer.status == IpcStatus::given) {
      answer.handle = sealed(answer.handle, *own, request.number);
    }
  }
  answer.magic = kAnswerMagic;
  answer.version = kIpcVersion;
  answer.proof = proof_of(*own, request.number);
  return answer;
}

void stop_service() {
  constexpr uint64_t kMostNs = 100'000'000;
  ends.store(true);
  alloc::os::wait_until([] { return !calling.load(); }, kMostNs);
}

void reset_service_after_fork() {
  calling.store(false);
  starting.reset();
  runs.store(false);
  socket_.close_own();
  // They are on the stack of the parent's thread, of which the child has a copy.
  if (IpcFiles* files = in_hand.exchange(nullptr); files != nullptr) files->close_all();
}

}  // namespace cistern::shim
