// SPDX-License-Identifier: Apache-2.0
// Keeps our own driver calls and the program's stream captures apart: an event recorded or a chunk
// freed while some stream captures would invalidate the capture, whatever its mode and thread.
//
// A driver call of our own must enter the gate; if that fails, it may not be made now. A capture
// that begins closes the gate and waits, at most 200 ms, until the calls inside are done. A call
// that takes longer waits for the device, which may wait for the thread that begins the capture.
// Beginning the capture then does no harm: the driver checks for captures only when a call begins.
//
// Calls that must be made are in a scope of LetByCaptures. Captures forbid them only to a thread
// whose mode is not relaxed (cuda.h, cuThreadExchangeStreamCaptureMode). Any thread.
#pragma once

#include <atomic>

#include "allocator/base/threads.h"
#include "allocator/reclaim/tickets.h"
#include "shim/cuda_api.h"
#include "shim/entry/driver.h"
#include "shim/process/background.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"

namespace cistern::shim {

class CaptureGate {
 public:
  // A capture starts: announce() before the driver is asked, then began() or withdraw().
  void announce();
  void withdraw();
  // `since`: GraphLives::begin(), from before the capture. `into_graph`: the program named one.
  void began(CUstream stream, CUcontext context, alloc::Epoch since = 0, bool into_graph = false);
  // A capture ended, or its stream is gone.
  void ended(CUstream stream);
  // All captures of a context ended with it.
  void context_gone(CUcontext context);

  struct Capture {
    CUstream stream;
    CUcontext context;
    alloc::Epoch since;
    bool into_graph;
  };
  // The capture of this stream; if several streams have this handle, the oldest one's. All zero
  // bytes if it is not listed.
  Capture capture_of(CUstream stream) const;
  // `since` of the oldest capture; 0 if not all captures are listed; GraphLives::kEverything if
  // there is none.
  alloc::Epoch oldest() const;

  bool capturing() const { return captures_.load(std::memory_order_acquire) != 0; }
  // Whether a capture of this stream is in progress.
  bool capturing(CUstream stream) const;

  // For one driver call of our own: false while a capture is in progress or about to start.
  bool enter();
  void leave();

  void reset_after_fork() { mutex_.reset(); }

 private:
  static constexpr int kMaxCaptures = 1024;

  void remove(Capture* capture);

  std::atomic<int> captures_{0};  // announced or in progress
  std::atomic<int> inside_{0};    // driver calls of our own
  // The streams that capture. A capture that finds no room in the list keeps the gate closed for
  // good. That is safe, and no real program captures on so many streams at once.
  mutable alloc::Mutex mutex_;
  Capture list_[kMaxCaptures] = {};
  int used_ = 0;
};

// The gate of the process.
CaptureGate& capture_gate();

// Enters the gate for a scope; false if it is closed, and then no driver call of our own may be
// made.
class GatePass {
 public:
  GatePass() : passed_(capture_gate().enter()) {}
  ~GatePass() {
    if (passed_) capture_gate().leave();
  }
  GatePass(const GatePass&) = delete;
  GatePass& operator=(const GatePass&) = delete;
  explicit operator bool() const { return passed_; }

 private:
  const NoCancel counted_inside_;
  bool passed_;
};

// While one exists, captures do not forbid driver calls of this thread. Either no capture is in
// progress and none can begin, or the thread is in relaxed mode. If Cistern is inactive, the gate
// knows no captures, so the thread is then always in relaxed mode.
class LetByCaptures {
 public:
  LetByCaptures() {
    const auto exchange = driver().cuThreadExchangeStreamCaptureMode;
    if ((!pass_ || !active()) && exchange != nullptr) changed_ = exchange(&mode_) == CUDA_SUCCESS;
  }
  ~LetByCaptures() {
    if (changed_ && may_call()) driver().cuThreadExchangeStreamCaptureMode(&mode_);
  }
  LetByCaptures(const LetByCaptures&) = delete;
  LetByCaptures& operator=(const LetByCaptures&) = delete;

 private:
  const GatePass pass_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool changed_ = false;
};

}  // namespace cistern::shim
