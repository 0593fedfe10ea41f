// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"

#include <pthread.h>

#include <cstdio>
#include <mutex>

#include "base/clock.h"
#include "base/faults.h"
#include "base/settings.h"
#include "base/trace.h"
#include "exec/capture.h"
#include "memory/device.h"

namespace simcuda {
namespace {

thread_local bool t_in_callback = false;

void forked() { g_watch.fetch_or(kForked); }

constinit bool g_trace_lost = false;  // a trace is wanted but its file cannot be written

// Reads the settings before the first call is answered, initialised or not.
void wake_up() {
  static const bool done = [] {
    const Settings& all = settings();
    if (!all.trace_file.empty()) {
      g_trace_lost = !open_trace(all.trace_file.c_str());
      if (!g_trace_lost) g_watch.fetch_or(kTrace);
    }
    if (!all.fail.empty()) g_watch.fetch_or(kFaults);
    if (!all.latency.empty()) g_watch.fetch_or(kLatency);
    prepare_faults(all);
    return true;
  }();
  static_cast<void>(done);
}

// Answers that come before the work: state of the process, a planted fault, a capture's rules.
CUresult refuse(Call id, unsigned watch) {
  const uint8_t traits = info(id).traits;
  if (!(traits & kAnytime)) {
    const bool is_init = id == Call::cuInit;
    if (watch & kForked) return CUDA_ERROR_NOT_INITIALIZED;
    if ((watch & kCold) && !is_init) return CUDA_ERROR_NOT_INITIALIZED;
    if (t_in_callback && !is_init) return CUDA_ERROR_NOT_PERMITTED;
  }
  if (watch & kFaults) {
    if (const CUresult code = planted_fault(id); code != CUDA_SUCCESS) return code;
  }
  if ((watch & kCaptures) && (traits & kUnsafe)) return refuse_unsafe_call();
  return CUDA_SUCCESS;
}

}  // namespace

CUresult call_watched(Call id, WorkRef work, const Arg* args, int count) {
  wake_up();
  const unsigned watch = g_watch.load(std::memory_order_acquire);
  CUresult result = refuse(id, watch);
  if (result == CUDA_SUCCESS) {
    if ((watch & kLatency) && !(info(id).traits & kOrdered)) sleep_ns(latency_ns(id));
    result = work.run(work.object);
  }
  if ((watch & kTrace) && (info(id).traits & kTraced)) trace(id, args, count, result);
  return result;
}

CUresult initialise() {
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  if (!(g_watch.load() & kCold)) return CUDA_SUCCESS;
  const Settings& all = settings();
  if (!all.error.empty()) {
    std::fprintf(stderr, "simcuda: error: %s\n", all.error.c_str());
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (g_trace_lost) {
    std::fprintf(stderr, "simcuda: error: SIMCUDA_TRACE; value \"%s\"; %s\n",
                 all.trace_file.c_str(), "allowed: a file that can be written");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (all.memory_bytes.empty()) return CUDA_ERROR_NO_DEVICE;
  if (!open_devices(all.memory_bytes)) return CUDA_ERROR_OPERATING_SYSTEM;
  pthread_atfork(nullptr, nullptr, forked);
  g_watch.fetch_and(~unsigned{kCold});
  return CUDA_SUCCESS;
}

InCallback::InCallback() {
  t_in_callback = true;
  g_watch.fetch_or(kCallbacks);
}

InCallback::~InCallback() { t_in_callback = false; }

uint64_t latency_ns(Call id) {
  return (g_watch.load(std::memory_order_relaxed) & kLatency) ? planted_latency_ns(id) : 0;
}

}  // namespace simcuda
