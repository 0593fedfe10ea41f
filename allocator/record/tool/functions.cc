// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/tool/functions.h"

#include <cxxabi.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace cistern::alloc::tool {
namespace {

// --- in the other process ---

struct File {
  Symbols symbols;
  std::optional<SourceLines> lines;  // once they were asked for
};

// Of each file asked for; nullptr where it has no symbols that can be read.
File* file_of(const std::string& path) {
  static std::map<std::string, std::optional<File>> files;
  const auto [file, is_new] = files.try_emplace(path);
  if (is_new && !file->second.emplace().symbols.open(path.c_str())) file->second.reset();
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

Function look_up(const std::string& path, uint64_t offset) {
  File* file = path.empty() ? nullptr : file_of(path);
  uint64_t begin = 0;
  const char* name = file == nullptr ? nullptr : file->symbols.find(offset, &begin);
  if (name == nullptr) return {};
  const std::string_view symbol(name, strnlen(name, kLongestFunction));
  if (!file->lines) file->lines.emplace(file->symbols);
  return {demangled(std::string(symbol)), offset - begin, is_wrapper(symbol),
          file->lines->at(begin, offset)};
}

// --- between the two ---

// A question is an offset and a path; an answer how far into the function, whether that is a
// wrapper, and its name and place with a NUL between.
struct Message {
  uint64_t number;
  bool wrapper;
  char text[2 * kLongestFunction + 1];

  bool send_to(int socket, std::string_view what) {
    const size_t length = std::min(what.size(), sizeof text);
    std::memcpy(text, what.data(), length);
    const size_t bytes = offsetof(Message, text) + length;
    return send(socket, this, bytes, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes);
  }
  std::optional<std::string> receive_from(int socket) {
    const ssize_t bytes = recv(socket, this, sizeof *this, 0);
    constexpr auto kHead = static_cast<ssize_t>(offsetof(Message, text));
    if (bytes < kHead) return std::nullopt;
    return std::string(text, static_cast<size_t>(bytes - kHead));
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
    const Function found = look_up(*path, message.number);
    message.number = found.into;
    message.wrapper = found.wrapper;
    if (!message.send_to(socket, found.name + '\0' + found.place.substr(0, kLongestFunction)))
      break;
  }
  _exit(0);
}

class Answerer {
 public:
  // Nothing from one that fails.
  Function ask(const std::string& path, uint64_t offset) {
    if (socket_ < 0 && !start()) return {};
    static Message message;
    message.number = offset;
    if (message.send_to(socket_, path)) {
      if (const std::optional<std::string> text = message.receive_from(socket_)) {
        const size_t end = std::min(text->find('\0'), text->size() - 1);
        return {text->substr(0, end), message.number, message.wrapper, text->substr(end + 1)};
      }
    }
    close(std::exchange(socket_, -1));
    ++failures_;
    return {};
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

// A list asks for one frame several times in a row, also for one that the other process failed at.
Function function_at(const std::string& path, uint64_t offset) {
  struct Known {
    std::string path;
    uint64_t offset = 0;
    Function found;
  };
  static Answerer answerer;
  static std::array<Known, 64> last;
  if (path.empty() || path.size() > kLongestFunction) return {};
  Known& known = last[offset % last.size()];
  if (known.path != path || known.offset != offset) {
    known = {path, offset, answerer.ask(path, offset)};
  }
  return known.found;
}

}  // namespace cistern::alloc::tool
