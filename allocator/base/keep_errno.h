// SPDX-License-Identifier: Apache-2.0
// Keeps errno as it is, for a scope that makes system calls.
#pragma once

#include <cerrno>

namespace cistern::alloc {

// The pools work inside the program's calls: they must not change the errno it sees.
class KeepErrno {
 public:
  KeepErrno() : saved_(errno) {}
  ~KeepErrno() { errno = saved_; }
  KeepErrno(const KeepErrno&) = delete;
  KeepErrno& operator=(const KeepErrno&) = delete;

 private:
  int saved_;
};

}  // namespace cistern::alloc
