// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/capture_gate.h"

#include <algorithm>

#include "allocator/base/os.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kPatienceNs = 200'000'000;

constinit CaptureGate gate;

}  // namespace

CaptureGate& capture_gate() { return gate; }

// Removes the captures that `match`, but no more than `most` of them.
template <typename Match>
void CaptureGate::remove(Match match, int most) {
  alloc::LockGuard guard(mutex_);
  for (int i = 0; i < used_ && most > 0;) {
    if (!match(list_[i])) {
      ++i;
      continue;
    }
    list_[i] = list_[--used_];
    captures_.fetch_sub(1, std::memory_order_release);
    --most;
  }
}

// announce() and enter() each write first and look second, both sequentially consistent: at least
// one of the two sees the other.
void CaptureGate::announce() {
  captures_.fetch_add(1, std::memory_order_seq_cst);
  alloc::os::wait_until([this] { return inside_.load(std::memory_order_seq_cst) == 0; },
                        kPatienceNs);
}

bool CaptureGate::enter() {
  if (captures_.load(std::memory_order_relaxed) != 0) return false;
  inside_.fetch_add(1, std::memory_order_seq_cst);
  if (captures_.load(std::memory_order_seq_cst) == 0) return true;
  leave();
  return false;
}

void CaptureGate::leave() { inside_.fetch_sub(1, std::memory_order_release); }

void CaptureGate::withdraw() { captures_.fetch_sub(1, std::memory_order_release); }

void CaptureGate::began(CUstream stream, CUcontext context) {
  alloc::LockGuard guard(mutex_);
  if (used_ < kMaxCaptures) list_[used_++] = {stream, context};
}

// One handle may stand for the streams of several threads (the per-thread default stream), so only
// one capture is removed.
void CaptureGate::ended(CUstream stream) {
  remove([stream](const Capture& c) { return c.stream == stream; }, 1);
}

void CaptureGate::context_gone(CUcontext context) {
  remove([context](const Capture& c) { return c.context == context; }, kMaxCaptures);
}

bool CaptureGate::capturing(CUstream stream) const {
  if (!capturing()) return false;
  alloc::LockGuard guard(mutex_);
  return std::any_of(list_, list_ + used_,
                     [stream](const Capture& c) { return c.stream == stream; });
}

}  // namespace cistern::shim
