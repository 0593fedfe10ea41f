// SPDX-License-Identifier: Apache-2.0
// A program that starts itself anew as an importer, which talks with it over two pipes: one order
// each way at a time. The importer is started before the owner uses CUDA, as CUDA asks.
#pragma once

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <initializer_list>

#include "../driver_codes.h"

// No other peer keeps an end of it open.
struct Channel {
  int ends[2];
  Channel() {
    if (pipe2(ends, O_CLOEXEC) != 0) std::_Exit(1);
  }
};

template <typename T>
void put(int end, const T& value) {
  if (write(end, &value, sizeof value) != sizeof value) std::_Exit(1);
}

template <typename T>
bool get(int end, T* value) {
  return read(end, value, sizeof *value) == sizeof *value;
}

// The other process, as each of the two sees it. `word` becomes its argument beside its pipes;
// `change` is called in it before it starts.
class Peer {
 public:
  Peer(int from, int to) : from_(from), to_(to) {}
  explicit Peer(const char* program, const char* word, void (*change)() = nullptr) {
    Channel there, back;
    process_ = fork();
    if (process_ != 0) {
      close(there.ends[0]);
      close(back.ends[1]);
      to_ = there.ends[1];
      from_ = back.ends[0];
      return;
    }
    close(there.ends[1]);
    close(back.ends[0]);
    for (const int end : {there.ends[0], back.ends[1]}) fcntl(end, F_SETFD, 0);
    if (change != nullptr) change();
    char from[16], to[16];
    std::snprintf(from, sizeof from, "%d", there.ends[0]);
    std::snprintf(to, sizeof to, "%d", back.ends[1]);
    execl(program, program, word, from, to, nullptr);
    std::_Exit(1);
  }

  template <typename T>
  void tell(const T& value) const {
    put(to_, value);
  }
  template <typename T>
  bool hear(T* value) const {
    return get(from_, value);
  }
  template <typename T>
  T must_hear() const {
    T value{};
    if (!hear(&value)) std::_Exit(1);
    return value;
  }

  // No more orders come: the peer ends. Its exit status, or 128 and its signal.
  int end() const {
    close(to_);
    int status = 0;
    waitpid(process_, &status, 0);
    close(from_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t process() const { return process_; }

 private:
  int from_ = -1, to_ = -1;
  pid_t process_ = 0;
};

inline bool started_as(int count, char** words, const char* role) {
  return count == 4 && std::strcmp(words[1], role) == 0;
}
inline Peer owner_of(char** words) { return Peer(std::atoi(words[2]), std::atoi(words[3])); }
