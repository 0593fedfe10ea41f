// SPDX-License-Identifier: Apache-2.0
#include "shim/order/cuda_source.h"

#include "allocator/base/threads.h"
#include "allocator/reclaim/reclaim.h"
#include "shim/entry/driver.h"
#include "shim/entry/unknown.h"
#include "shim/ipc/exporter.h"
#include "shim/nvtx/ranges.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/shared.h"
#include "shim/process/background.h"
#include "shim/process/log.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"
#include "shim/process/thread.h"
#include "shim/record/record.h"

namespace cistern::shim {

using alloc::Mark;
using alloc::MarkState;

namespace {

// Whether this driver can record one event for a whole context (CUDA 12.5 and newer).
bool records_contexts() { return driver().cuCtxRecordEvent != nullptr; }

// Frees memory of the current context; kNotNow if it is still allocated. A free's error may be the
// refusal of this call, or belong to earlier work. So the driver is asked whether it still knows
// the address. The error is returned only if the driver does not, or if the context is gone. In
// doubt the memory is kept.
int free_or_keep(CUdeviceptr address, CUcontext context) {
  const CUresult freed = noted(driver().cuMemFree_v2(address), context);
  if (freed == CUDA_SUCCESS) return freed;
  if (!may_call()) return alloc::kNotNow;
  CUdeviceptr base;
  size_t bytes;
  switch (driver().cuMemGetAddressRange_v2(&base, &bytes, address)) {
    case CUDA_ERROR_NOT_FOUND:
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_CONTEXT:
    case CUDA_ERROR_CONTEXT_IS_DESTROYED:
    case CUDA_ERROR_DEINITIALIZED:
      return freed;
    default:
      return alloc::kNotNow;
  }
}

constexpr auto kMemory = alloc::Memory::linear;

// The free bytes of the current context's device, as the driver reports them.
uint64_t driver_free() {
  size_t free = 0, total;
  return driver().cuMemGetInfo_v2(&free, &total) == CUDA_SUCCESS ? free : 0;
}

// so_far(): no other thread of this process has moved memory to or from the driver meanwhile.
class LoneMove {
 public:
  explicit LoneMove(CUdevice device) : ledger_(device_state(device).ledger) {}
  bool so_far() const {
    const bool others = shared().threads_obtaining.load() != 0 || shared().movers.now() > 1;
    return !others && moves_ == moves();
  }

 private:
  uint64_t moves() const {
    return ledger_.obtained.get() + ledger_.releases() + shared().movers.begun();
  }
  const alloc::Ledger& ledger_;
  const uint64_t moves_ = moves();
};

// Smaller chunks may share pages with others, so their release shows nothing.
constexpr uint64_t kLooksFrom = uint64_t{2} << 20;

}  // namespace

static_assert(alloc::kSuccess == CUDA_SUCCESS && alloc::kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY);
static_assert(alloc::kContextGone == CUDA_ERROR_CONTEXT_IS_DESTROYED);

void CudaSource::init(CUcontext context, CUdevice device, uint32_t number, const Others* others) {
  context_ = context;
  device_ = device;
  others_ = others;
  spares_ = 0;
  own_stream_.store(nullptr, std::memory_order_relaxed);
  clean_release_.store(CleanRelease::unknown, std::memory_order_relaxed);
  clean_releases_in_vain_.store(0, std::memory_order_relaxed);
  unsettled_.store(false, std::memory_order_relaxed);
  stream_marks_.init(context);
  units_.init({context, device, number, &closing_, &at_work_, others->peers},
              policy().expandable());
}

int CudaSource::obtain(uint64_t bytes, uint64_t* address) {
  const NoCancel in_hand;
  CUdeviceptr p = 0;
  const CUresult result = noted(driver().cuMemAlloc_v2(&p, bytes), context_);
  *address = p;
  if (result == CUDA_SUCCESS) note_obtained({kMemory, device_, context_}, p, bytes);
  return told("takes", p, bytes, result);
}

// Memory that is freed in the order of a stream may stay with the driver, as in release_clean().
int CudaSource::release_for_program(uint64_t address, const alloc::OrderedFree* ordered) {
  const NoCancel in_hand;
  end_exports_at(address);
  const ChunkRelease release(kMemory, address);
  if (ordered != nullptr) {
    const int result = ordered->free(address);
    if (result == CUDA_SUCCESS) unsettled_.store(true);
    return release.ended(told("frees in stream order for the program", address, 0, result));
  }
  const CUresult result = noted(driver().cuMemFree_v2(address), context_);
  return release.ended(told("frees for the program", address, 0, result));
}

// The calling thread's current context may differ from the block's. While a capture is in progress,
// only a thread that has changed its capture mode may free (out_of_memory.cc), and it makes no
// other driver call.
int CudaSource::release(uint64_t address) {
  const GatePass pass;
  const alloc::CountedIn at_work(at_work_);
  if ((!pass && !this_thread.may_free_in_capture) || !may_touch_context()) return alloc::kNotNow;
  const ContextScope scope(context_);
  if (!scope) return alloc::kNotNow;
  end_exports_at(address);
  const ChunkRelease release(kMemory, address);
  if (pass) return release.ended(told("returns", address, 0, free_or_keep(address, context_)));
  const bool freed = driver().cuMemFree_v2(address) == CUDA_SUCCESS;
  return release.ended(told("returns", address, 0, freed ? alloc::kSuccess : alloc::kNotNow));
}

// A stream that no work of the program is ordered with. It ends with the context, which must be
// current. nullptr: the driver refused to create it.
CUstream CudaSource::own_stream() {
  CUstream stream = own_stream_.load();
  if (stream != nullptr) return stream;
  CUstream made = nullptr;
  if (driver().cuStreamCreate(&made, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) return nullptr;
  if (own_stream_.compare_exchange_strong(stream, made)) return made;
  driver().cuStreamDestroy_v2(made);
  return stream;
}

// cuMemFree waits for all work of the device, cuMemFreeAsync only for its stream. A driver that
// cannot free memory of cuMemAlloc that way returns an error and frees nothing. Another driver may
// keep the memory until the device is idle. So the effect of the first large releases is checked.
int CudaSource::release_clean(uint64_t address, uint64_t bytes) {
  const GatePass pass;
  const alloc::CountedIn at_work(at_work_);
  if ((!pass && !this_thread.may_free_in_capture) || !may_touch_context()) return alloc::kNotNow;
  const ContextScope scope(context_);
  CUstream stream = scope ? own_stream() : nullptr;
  if (stream == nullptr) return alloc::kNotNow;
  const bool unknown = clean_release_.load() == CleanRelease::unknown && bytes >= kLooksFrom;
  const LoneMove lone(device_);
  const bool looks = unknown && lone.so_far();
  const uint64_t before = looks ? driver_free() : 0;
  end_exports_at(address);
  const ChunkRelease release(kMemory, address);
  const CUresult freed = noted(driver().cuMemFreeAsync(address, stream), context_);
  release.ended(told("returns in stream order", address, bytes, freed));
  if (freed != CUDA_SUCCESS) {
    const bool refused = freed == CUDA_ERROR_INVALID_VALUE || freed == CUDA_ERROR_NOT_SUPPORTED;
    if (refused) clean_release_.store(CleanRelease::helps_not);
    return alloc::kNotNow;
  }
  if (may_call()) driver().cuStreamSynchronize(stream);
  const bool looked = looks && may_call();
  const bool helped = looked && driver_free() >= before + bytes / 2;
  if (!helped) unsettled_.store(true);
  if (looked && lone.so_far()) note_clean_release(helped);
  return alloc::kSuccess;
}

// Another process may have taken the memory of one release, but hardly of several.
void CudaSource::note_clean_release(bool helped) {
  constexpr int kLooks = 4;
  if (helped) {
    clean_release_.store(CleanRelease::helps);
  } else if (clean_releases_in_vain_.fetch_add(1) + 1 >= kLooks) {
    clean_release_.store(CleanRelease::helps_not);
  }
}

bool CudaSource::settle_clean_releases() {
  const GatePass pass;
  const alloc::CountedIn at_work(at_work_);
  if (!pass || !may_touch_context()) return false;
  if (!unsettled_.exchange(false)) return false;  // cleared first: a new release sets it again
  const ContextScope scope(context_);
  const bool settled = scope && noted(driver().cuCtxSynchronize(), context_) == CUDA_SUCCESS;
  if (!settled) unsettled_.store(true);
  return settled;
}

bool CudaSource::pays_what_it_owes(bool waits) { return waits ? pay_for_release() : !owes_now(); }

bool CudaSource::request_background_work(bool soon) {
  return others_->request_background_work(soon);
}

bool CudaSource::may_touch_context() const { return !closing() && !careful_.load() && may_call(); }

bool CudaSource::refuses_release() { return !may_touch_context() || capture_gate().capturing(); }

// The stream may hold fills of other threads, but no work of the program. The fills that were begun
// are waited for even if a later one failed: memory that is handed out must not be written any
// more.
int CudaSource::fill(const alloc::FillRange* ranges, int count) {
  const Driver& d = driver();
  const GatePass pass;
  if (!pass) return alloc::kNotNow;
  const alloc::CountedIn at_work(at_work_);
  if (!may_touch_context() || d.cuMemsetD8Async == nullptr) return alloc::kContextGone;
  const ContextScope scope(context_);
  CUstream stream = scope ? own_stream() : nullptr;
  if (stream == nullptr) return alloc::kContextGone;
  const auto byte = static_cast<unsigned char>(policy().fill_byte());
  CUresult result = CUDA_SUCCESS;
  for (int i = 0; i < count && result == CUDA_SUCCESS; ++i) {
    result = noted(d.cuMemsetD8Async(ranges[i].address, byte, ranges[i].bytes, stream), context_);
  }
  const CUresult waited = wait_for(stream);
  return result != CUDA_SUCCESS ? result : waited;
}

// A wait may fail with the error of other work, and may not have happened. So the stream is queried
// until it is done, in relaxed capture mode, since a capture may begin meanwhile. After several
// errors in a row the context is lost, and its memory with it.
CUresult CudaSource::wait_for(CUstream stream) const {
  constexpr int kErrors = 4;
  constexpr uint64_t kPauseNs = 20'000;
  const Driver& d = driver();
  CUresult result = noted(d.cuStreamSynchronize(stream), context_);
  if (result == CUDA_SUCCESS || !may_call()) return result;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  const bool relaxed = d.cuThreadExchangeStreamCaptureMode(&mode) == CUDA_SUCCESS;
  int errors = 1;
  while (result != CUDA_SUCCESS && errors < kErrors && may_call()) {
    if (result == CUDA_ERROR_NOT_READY) alloc::os::sleep_ns(kPauseNs);
    result = d.cuStreamQuery(stream);
    const bool error = result != CUDA_SUCCESS && result != CUDA_ERROR_NOT_READY;
    errors = error ? errors + 1 : 0;
  }
  if (relaxed && may_call()) d.cuThreadExchangeStreamCaptureMode(&mode);
  return result;
}

bool CudaSource::release_clean_untried() {
  return can_release_clean() && clean_release_.load() == CleanRelease::unknown;
}

// Measured on an H100 with driver 580: the driver has the memory back at once. If frees do not wait
// (CISTERN_FREE_SYNC=false), most memory is freed while work goes on. Then nothing is promised
// before a release was seen to help.
bool CudaSource::release_clean_trusted() {
  const bool unseen = clean_release_.load() == CleanRelease::unknown;
  const bool expected = policy().free_sync != config::FreeSync::kFalse &&
                        clean_releases_in_vain_.load(std::memory_order_relaxed) == 0;
  return can_release_clean() && (!unseen || expected);
}

bool CudaSource::can_release_clean() {
  return driver().cuMemFreeAsync != nullptr && clean_release_.load() != CleanRelease::helps_not &&
         may_touch_context() && (this_thread.may_free_in_capture || !capture_gate().capturing());
}

bool CudaSource::release_from_other_pools() { return others_->release_from_other_pools(device_); }

bool CudaSource::graph_is_open(uint32_t run) { return shim::graph_is_open(run); }

void CudaSource::graphs_overlap() {
  static constinit std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  const StaticModeSeen seen = static_mode_seen();
  log(config::LogLevel::kWarn,
      "graphs run at the same time; value seen %s=%d; allowed: one after the other; each of them "
      "gets an arena of its own",
      seen.name, seen.value);
}

void CudaSource::plan_made(uint64_t bytes, uint64_t requests) {
  log(config::LogLevel::kInfo, "the program repeats %llu requests; a plan for them takes %.1f MiB",
      static_cast<unsigned long long>(requests), static_cast<double>(bytes) / (1 << 20));
}

void CudaSource::shortage_ended(alloc::Step step, uint64_t bytes) {
  static constexpr const char* kWhat[alloc::kSteps] = {
      "memory that had become clean meanwhile",
      "a new chunk after idle memory was returned",
      "a smaller chunk",
      "a driver allocation of exactly that size",
      "a free block found elsewhere",
      "nothing; the program gets out of memory",
  };
  log(config::LogLevel::kInfo, "memory is short on device %d: %llu bytes requested, served by %s",
      device_, static_cast<unsigned long long>(bytes), kWhat[static_cast<int>(step)]);
}

bool CudaSource::take_event(CUevent* event) {
  if (spares_ > 0) {
    *event = spare_[--spares_];
    return true;
  }
  const ContextScope scope(context_);
  return scope && create_event(event);
}

bool CudaSource::mark(Mark* out) {
  look_for_unknown_links();  // if work is unseen, a mark proves nothing
  const GatePass pass;
  if (!pass || !may_touch_context()) return false;
  if (!records_contexts()) {
    if (in_background()) return false;
    const bool made = stream_marks_.mark(out);
    told("marks the work so far, by streams", 0, 0, made ? CUDA_SUCCESS : alloc::kNotNow);
    return made;
  }
  CUevent event;
  if (!take_event(&event)) return false;
  *out = reinterpret_cast<Mark>(event);
  const CUresult recorded = noted(driver().cuCtxRecordEvent(context_, event), context_);
  if (told("marks the work so far", 0, 0, recorded) == CUDA_SUCCESS) return true;
  forget(*out);
  return false;
}

bool CudaSource::ending() { return closing(); }

bool CudaSource::marks_may_come() {
  const bool marks = !careful_.load() && (records_contexts() || stream_marks_.possible());
  return marks || synchronising_.load() != 0;
}

// An event on the legacy stream orders other streams (stream_marks.h). So it is recorded only
// inside a call of the program whose own driver call would have ordered them as well.
bool CudaSource::marks_anywhere() { return records_contexts(); }

void CudaSource::look_at_ties() {
  if (!records_contexts()) others_->look_at_ties();
}

uint64_t CudaSource::memory_bytes() { return device_state(device_).max_request_bytes.load(); }

MarkState CudaSource::query(Mark mark) {
  const GatePass pass;
  if ((!pass && !this_thread.may_free_in_capture) || !may_touch_context()) {
    return MarkState::pending;
  }
  return records_contexts() ? state_of(reinterpret_cast<CUevent>(mark), context_)
                            : stream_marks_.query(mark);
}

void CudaSource::forget(Mark mark) {
  if (!records_contexts()) return stream_marks_.forget(mark);
  spare_[spares_++] = reinterpret_cast<CUevent>(mark);
}

bool CudaSource::stream_leaves(CUstream stream) {
  const GatePass pass;
  return pass && !closing() && !careful_.load() && stream_marks_.stream_leaves(stream);
}

}  // namespace cistern::shim
