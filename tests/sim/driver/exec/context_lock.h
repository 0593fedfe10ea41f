// SPDX-License-Identifier: Apache-2.0
//
// The lock of a context, which cuMemFree and cuMemFreeHost hold while they wait
// (SIMCUDA_FREE=locks). On an H100 with driver 580 other threads could meanwhile neither hand over
// work nor record events, allocate, free or make a stream in that context. They could ask an event,
// a stream or how much memory is free, and allocate in stream order. Any thread.
#pragma once

#include "table/calls.h"

namespace simcuda {

class Context;

// In a free, for as long as it waits and frees. Caller does not hold exec_mutex().
class FreeLock {
 public:
  explicit FreeLock(Context& context);
  ~FreeLock();
  FreeLock(const FreeLock&) = delete;
  FreeLock& operator=(const FreeLock&) = delete;

 private:
  Context* const context_;  // null: no free holds a lock
};

// At the start of a call: waits while a free of another thread holds the lock of the context that
// is current, if such calls need it. Caller does not hold exec_mutex().
void await_free_lock(Call call);

}  // namespace simcuda
