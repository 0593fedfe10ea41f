// SPDX-License-Identifier: Apache-2.0
#include "base/gate.h"

#include <pthread.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "base/clock.h"
#include "base/faults.h"
#include "base/misfortune.h"
#include "base/settings.h"
#include "base/trace.h"
#include "exec/capture.h"
#include "exec/context_lock.h"
#include "exec/scheduler.h"
#include "memory/device.h"
#include "watch/oracle.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

thread_local bool t_in_callback = false;

void forked() { g_watch.fetch_or(kForked); }

constinit bool g_trace_lost = false;    // a trace is wanted but its file cannot be written
constinit bool g_reports_lost = false;  // the same for the watcher's findings

// Reads the settings before the first call is answered, initialised or not.
void wake_up() {
  static const bool done = [] {
    const Settings& all = settings();
    if (!all.trace_file.empty()) {
      g_trace_lost = !open_trace(all.trace_file.c_str());
      if (!g_trace_lost) g_watch.fetch_or(kTrace);
    }
    if (!all.faults.fail.empty()) g_watch.fetch_or(kFaults);
    if (!all.faults.latency.empty()) g_watch.fetch_or(kLatency);
    if (!all.faults.pressure.empty() || !all.faults.lose.empty()) g_watch.fetch_or(kMisfortune);
    prepare_faults(all.faults);
    prepare_misfortune(all.faults);
    if (all.free_locks) g_watch.fetch_or(kFreeLocks);
    if (all.virtual_clock) use_virtual_clock();
    if (all.seed) start_scheduler(*all.seed);
    g_reports_lost = !start_watching(all);
    if (watching()) g_watch.fetch_or(kWatcher);
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
    if (watch & kEnded) return CUDA_ERROR_DEINITIALIZED;
    if ((watch & kCold) && !is_init) return CUDA_ERROR_NOT_INITIALIZED;
    if (t_in_callback && !is_init) return CUDA_ERROR_NOT_PERMITTED;
  }
  if (watch & kMisfortune) {
    if (const CUresult code = meet_misfortune(id); code != CUDA_SUCCESS) return code;
  }
  if ((watch & kCaptures) && (traits & kUnsafe)) return refuse_unsafe_call();
  return CUDA_SUCCESS;
}

// The out-parameters of a call, to be put back where it is said to have failed.
class OutParameters {
 public:
  OutParameters(const Arg* args, int count) : args_(args), count_(count) {
    for_each([](Saved& saved, void* now) { std::memcpy(saved.bytes, now, saved.size); });
  }
  void put_back() {
    for_each([](Saved& saved, void* now) { std::memcpy(now, saved.bytes, saved.size); });
  }

 private:
  static constexpr int kMost = 4;
  struct Saved {
    char bytes[8];
    uint8_t size;
  };

  template <class Visit>
  void for_each(Visit&& visit) {
    int next = 0;
    for (int i = 0; i < count_ && next < kMost; ++i) {
      const Arg& arg = args_[i];
      const bool is_out = arg.form == Arg::Form::kOutNumber || arg.form == Arg::Form::kOutPointer;
      if (!is_out || arg.value == 0) continue;
      Saved& saved = saved_[next++];
      saved.size = arg.size;
      visit(saved, reinterpret_cast<void*>(static_cast<uintptr_t>(arg.value)));
    }
  }

  const Arg* const args_;
  const int count_;
  Saved saved_[kMost];
};

CUresult do_work(Call id, unsigned watch, WorkRef work) {
  if ((watch & kLatency) && !(info(id).traits & kOrdered)) advance_ns(latency_ns(id));
  if (watch & kWatcher) set_current_call(id);
  if (watch & kFreeLocks) await_free_lock(id);
  const CUresult result = work.run(work.object);
  if (watch & kLatency) advance_ns(planted_latency_after_ns(id));
  return result;
}

CUresult do_with_faults(Call id, unsigned watch, WorkRef work, const Arg* args, int count) {
  const Fault fault = planted_fault(id);
  if (fault.code == CUDA_SUCCESS) return do_work(id, watch, work);
  if (!fault.after_work) return fault.code;
  OutParameters before(args, count);
  if (const CUresult code = do_work(id, watch, work); code != CUDA_SUCCESS) return code;
  before.put_back();
  return fault.code;
}

}  // namespace

CUresult call_watched(Call id, WorkRef work, const Arg* args, int count) {
  const NoCancellation none;
  wake_up();
  const unsigned watch = g_watch.load(std::memory_order_acquire);
  CUresult result = refuse(id, watch);
  if (result == CUDA_SUCCESS) {
    result =
        (watch & kFaults) ? do_with_faults(id, watch, work, args, count) : do_work(id, watch, work);
  }
  if (result == CUDA_ERROR_OUT_OF_MEMORY && judging()) thread_is_refused();
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
  if (g_reports_lost) {
    std::fprintf(stderr, "simcuda: error: SIMCUDA_RACES_FILE; value \"%s\"; %s\n",
                 all.races_file.c_str(), "allowed: a file that can be written");
    return CUDA_ERROR_INVALID_VALUE;
  }
  if (all.memory_bytes.empty()) return CUDA_ERROR_NO_DEVICE;
  if (!open_devices(all.memory_bytes)) return CUDA_ERROR_OPERATING_SYSTEM;
  pthread_atfork(nullptr, nullptr, forked);
  std::atexit([] { g_watch.fetch_or(kEnded); });
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
