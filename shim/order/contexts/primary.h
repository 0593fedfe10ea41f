// SPDX-License-Identifier: Apache-2.0
// The primary contexts, and how often the program has retained each. Most releases do not end one,
// and then nothing has to be kept away from it meanwhile. Any thread.
#pragma once

#include "shim/cuda_api.h"

namespace cistern::shim {

// NVIDIA's runtime is taken to be about to retain this one (context_life.h). False if that was said
// of one before, unless that retain failed, or the primary context has ended since.
bool await_primary(CUdevice device, CUcontext handle);
void primary_refused(CUdevice device);
// The program has retained the primary context of `device` once more.
void primary_retained(CUdevice device, CUcontext handle);
// The primary context as that was last told, also if it has ended since; nullptr if the program
// never retained it.
CUcontext primary_of(CUdevice device);
// It is gone, or was reset, and what retained it before may count no more.
void primary_ended(CUdevice device);

// The program releases the primary context of `device`: encloses the driver's call.
//
// Of the releases that began, the last by count may end it. A count that is too low (a retain was
// not seen, a release failed) is safe; a release that was not seen makes it too high, and then
// nothing is kept away from a context that ends. One that is not the last by count could be the
// last to reach the driver: the one that is waits for it.
class PrimaryRelease {
 public:
  explicit PrimaryRelease(CUdevice device);
  ~PrimaryRelease();
  PrimaryRelease(const PrimaryRelease&) = delete;
  PrimaryRelease& operator=(const PrimaryRelease&) = delete;

  bool may_end() const { return !spare_; }

 private:
  struct Primary* const primary_;  // nullptr: no such device
  bool spare_ = false;             // others have retained it, and their releases have not begun
};

}  // namespace cistern::shim
