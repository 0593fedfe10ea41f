// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/functions.h"

#include <cxxabi.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "allocator/record/symbols.h"

namespace cistern::alloc::tool {
namespace {

// --- in the other process ---

// Of each file asked for; without a value where it has no symbols that can be read.
const Symbols* symbols_of(const std::string& path) {
  static std::map<std::string, std::optional<Symbols>> files;
  const auto [file, is_new] = files.try_emplace(path);
  if (is_new && !file->second.emplace().open(path.c_str())) file->second.reset();
  return file->second ? &*file->second : nullptr;
}

// The process ends by SIGPROF where one name takes longer than this, in processor time.
void limit_name(long microseconds) {
  const itimerval once{{0, 0}, {0, microseconds}};
  setitimer(ITIMER_PROF, &once, nullptr);
}

// A few hundred bytes can stand for a name of terabytes.
std::string demangled(const std::string& name) {
  int status = 0;
  limit_name(kMostNameUs);
  const std::unique_ptr<char, decltype(&std::free)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  limit_name(0);
  const size_t length = status == 0 ? strnlen(text.get(), kLongestFunction + 1) : 0;
  return length == 0 || length > kLongestFunction ? name : std::string(text.get(), length);
}

std::string name_at(const std::string& path, uint64_t offset, uint64_t* into) {
  const Symbols* symbols = path.empty() ? nullptr : symbols_of(path);
  uint64_t begin = 0;
  const char* name = symbols == nullptr ? nullptr : symbols->find(offset, &begin);
  if (name == nullptr) return "";
  *into = offset - begin;
  return demangled(std::string(name, strnlen(name, kLongestFunction)));
}

// --- between the two ---

// A question is an offset and a path, an answer how far into the function and its name.
struct Message {
  uint64_t number;
  char text[kLongestFunction + 1];

  bool send_to(int socket, uint64_t with, const std::string& what) {
    number = with;
    const size_t length = std::min(what.size(), kLongestFunction);
    std::memcpy(text, what.data(), length);
    const size_t bytes = sizeof number + length;
    return send(socket, this, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
  }
  std::optional<std::string> receive_from(int socket) {
    const ssize_t bytes = recv(socket, this, sizeof *this, 0);
    if (bytes < static_cast<ssize_t>(sizeof number)) return std::nullopt;
    return std::string(text, static_cast<size_t>(bytes) - sizeof number);
  }
};

void limit(__rlimit_resource_t what, rlim_t most) {
  rlimit both;
  getrlimit(what, &both);
  both.rlim_cur = std::min(most, both.rlim_max);
  setrlimit(what, &both);
}

// From now on, beyond what the process has used.
void limit_seconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = used.ru_utime.tv_sec + used.ru_stime.tv_sec;
  limit(RLIMIT_CPU, static_cast<rlim_t>(seconds) + kMostSeconds);
}

[[noreturn]] void answer(int socket) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map terabytes
  limit(RLIMIT_DATA, kMostBytes);
#endif
  static Message message;
  while (const std::optional<std::string> path = message.receive_from(socket)) {
    limit_seconds();
    uint64_t into = 0;
    const std::string name = name_at(*path, message.number, &into);
    if (!message.send_to(socket, into, name)) break;
  }
  _exit(0);
}

class Answerer {
 public:
  // "" from one that fails.
  std::string ask(const std::string& path, uint64_t offset, uint64_t* into) {
    if (socket_ < 0 && !start()) return "";
    static Message message;
    if (message.send_to(socket_, offset, path)) {
      if (const std::optional<std::string> name = message.receive_from(socket_)) {
        *into = message.number;
        return *name;
      }
    }
    close(std::exchange(socket_, -1));
    ++failures_;
    return "";
  }

 private:
  bool start() {
    int ends[2];
    if (failures_ == kMostFailures) return false;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return false;
    std::fflush(nullptr);
    const pid_t process = fork();
    if (process == 0) {
      close(ends[0]);
      answer(ends[1]);
    }
    close(ends[1]);
    if (process > 0) socket_ = ends[0];
    if (process < 0) close(ends[0]);
    return process > 0;
  }

  int socket_ = -1, failures_ = 0;
};

}  // namespace

std::string function_at(const std::string& path, uint64_t offset, uint64_t* into) {
  static Answerer answerer;
  return path.empty() || path.size() > kLongestFunction ? "" : answerer.ask(path, offset, into);
}

}  // namespace cistern::alloc::tool
