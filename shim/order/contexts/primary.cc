// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/context.h"

#include <atomic>

#include "allocator/base/os.h"
#include "shim/order/shared.h"

namespace cistern::shim {

struct Primary {
  std::atomic<CUcontext> handle;
  std::atomic<CUcontext> awaited;  // seen before any thread had retained it
  std::atomic<int> retained;       // less the releases that have begun
  std::atomic<int> releasing;      // threads whose release is not the last
};

namespace {

constinit Primary primaries[kMaxDevices] = {};

Primary* primary_on(CUdevice device) {
  return device < 0 || device >= kMaxDevices ? nullptr : &primaries[device];
}

// Takes one retain out of the count, if there is one. Returns the count before.
int take_one(std::atomic<int>& retained) {
  int before = retained.load();
  while (before > 0 && !retained.compare_exchange_weak(before, before - 1)) {
  }
  return before;
}

}  // namespace

bool await_primary(CUdevice device, CUcontext handle) {
  Primary* primary = primary_on(device);
  CUcontext none = nullptr;
  return primary != nullptr && primary->awaited.compare_exchange_strong(none, handle);
}

void primary_retained(CUdevice device, CUcontext handle) {
  Primary* primary = primary_on(device);
  if (primary == nullptr) return;
  primary->handle.store(handle);
  primary->retained.fetch_add(1);
}

void primary_refused(CUdevice device) {
  if (Primary* primary = primary_on(device)) primary->awaited.store(nullptr);
}

CUcontext primary_of(CUdevice device) {
  const Primary* primary = primary_on(device);
  return primary == nullptr ? nullptr : primary->handle.load(std::memory_order_acquire);
}

void primary_ended(CUdevice device) {
  Primary* primary = primary_on(device);
  if (primary == nullptr) return;
  primary->retained.store(0);
  primary->awaited.store(nullptr);
}

PrimaryRelease::PrimaryRelease(CUdevice device) : primary_(primary_on(device)) {
  constexpr uint64_t kPatienceNs = 2'000'000'000;
  if (primary_ == nullptr) return;
  primary_->releasing.fetch_add(1);  // before another thread finds its release to be the last
  spare_ = take_one(primary_->retained) > 1;
  if (spare_) return;
  primary_->releasing.fetch_sub(1);
  alloc::os::wait_until([this] { return primary_->releasing.load() == 0; }, kPatienceNs);
}

PrimaryRelease::~PrimaryRelease() {
  if (spare_) primary_->releasing.fetch_sub(1);
}

}  // namespace cistern::shim
