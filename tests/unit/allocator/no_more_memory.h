// SPDX-License-Identifier: Apache-2.0
// A system that has no memory left.
#pragma once

#include <sys/resource.h>

namespace cistern::test {

// A sanitizer needs some itself at any time: no test may take it away there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kMayBeOut = false;
#else
constexpr bool kMayBeOut = true;
#endif

// While it exists the system gives this process no more memory that may be written.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    getrlimit(RLIMIT_DATA, &before_);
    // Linux takes a limit of 0 for Valgrind's, and gives memory all the same.
    const rlimit little{4096, before_.rlim_max};
    setrlimit(RLIMIT_DATA, &little);
  }
  ~NoMoreMemory() { setrlimit(RLIMIT_DATA, &before_); }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

 private:
  rlimit before_{};
};

}  // namespace cistern::test
