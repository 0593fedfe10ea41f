// SPDX-License-Identifier: Apache-2.0
//
// The one way into every driver call: `call(id, work, arguments...)`. With nothing to watch it is
// one atomic load and the work itself; a process that is not initialised, was forked, traces,
// fails on purpose or captures takes the watched way. Any thread.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "base/cuda.h"
#include "table/calls.h"

namespace simcuda {

// Reasons to leave the fast path. kCold: cuInit has not succeeded yet.
enum Watch : unsigned {
  kCold = 1,
  kForked = 2,
  kTrace = 4,
  kFaults = 8,
  kLatency = 16,
  kCaptures = 32,     // a capture is under way: some calls are forbidden
  kCallbacks = 64,    // host callbacks have been used: they must not call CUDA
  kMisfortune = 128,  // devices lose memory, or are lost, by the count of calls
  kWatcher = 256,     // the watcher wants to know which call a thread is in
  kEnded = 512,       // the process ends, and the driver's exit handler has run
  kFreeLocks = 1024,  // a free that waits holds its context's lock
};

inline constinit std::atomic<unsigned> g_watch{kCold};

// One argument as the trace shows it. An out-parameter is read after the call, on success only.
struct Arg {
  enum class Form : uint8_t { kNumber, kPointer, kText, kStream, kOutNumber, kOutPointer };
  const char* name;
  uint64_t value;
  Form form;
  uint8_t size;  // bytes behind an out-parameter
};

template <class T>
Arg in(const char* name, T value) {
  if constexpr (std::is_pointer_v<T>) {
    return {name, reinterpret_cast<uintptr_t>(value), Arg::Form::kPointer, 0};
  } else {
    return {name, static_cast<uint64_t>(value), Arg::Form::kNumber, 0};
  }
}

inline Arg address(const char* name, CUdeviceptr value) {
  return {name, value, Arg::Form::kPointer, 0};
}

inline Arg text(const char* name, const char* value) {
  return {name, reinterpret_cast<uintptr_t>(value), Arg::Form::kText, 0};
}

inline Arg stream(CUstream value) {
  return {nullptr, reinterpret_cast<uintptr_t>(value), Arg::Form::kStream, 0};
}

template <class T>
Arg out(const char* name, T* value) {
  const bool handle = std::is_pointer_v<T> || std::is_same_v<T, CUdeviceptr>;
  return {name, reinterpret_cast<uintptr_t>(value),
          handle ? Arg::Form::kOutPointer : Arg::Form::kOutNumber, sizeof(T)};
}

// A CUdeviceptr and a plain 64-bit count are one type: this says "a count".
template <class T>
Arg out_count(const char* name, T* value) {
  return {name, reinterpret_cast<uintptr_t>(value), Arg::Form::kOutNumber, sizeof(T)};
}

// No call is a cancellation point, whatever it does inside: a thread that is cancelled in the midst
// of one would leave it half done.
class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = 0;
};

// The work of a call, without copying or allocating.
struct WorkRef {
  void* object;
  CUresult (*run)(void* object);
};

CUresult call_watched(Call id, WorkRef work, const Arg* args, int count);

template <class Work, class... Args>
inline CUresult call(Call id, Work&& work, const Args&... args) {
  if (g_watch.load(std::memory_order_acquire) == 0) [[likely]]
    return work();
  const WorkRef ref{const_cast<void*>(static_cast<const void*>(&work)), [](void* object) {
                      return (*static_cast<std::remove_reference_t<Work>*>(object))();
                    }};
  const Arg list[sizeof...(Args) + 1] = {args..., Arg{}};
  return call_watched(id, ref, list, sizeof...(Args));
}

// Nothing is watched for cuInit any more; returns the code of cuInit.
CUresult initialise();

// True while this thread runs a host callback on behalf of a stream.
class InCallback {
 public:
  InCallback();
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
};

// Time the work of this call takes on its stream (SIMCUDA_LATENCY).
uint64_t latency_ns(Call id);

}  // namespace simcuda
