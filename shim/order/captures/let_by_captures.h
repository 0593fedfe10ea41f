// SPDX-License-Identifier: Apache-2.0
// For calls of Cistern's own that must be made. Captures forbid them only to a thread whose mode is
// not relaxed (cuda.h, cuThreadExchangeStreamCaptureMode). Any thread.
#pragma once

#include "shim/entry/driver.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/process/background.h"
#include "shim/process/settings.h"

namespace cistern::shim {

// Keeps captures from forbidding the calls of a scope: there is none meanwhile, or the calling
// thread is in the mode in which they forbid nothing. Without pools the gate knows of none.
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
