// SPDX-License-Identifier: Apache-2.0
#include "shim/order/capture_gate.h"

#include <algorithm>
#include <atomic>

#include "allocator/base/mutex.h"
#include "allocator/base/os.h"

namespace cistern::shim {
namespace {

constinit std::atomic<int> captures{0};  // announced or in progress
constinit std::atomic<int> inside{0};    // driver calls of our own
constexpr uint64_t kPatienceNs = 200'000'000;

// The streams that capture. One that finds no room here keeps the gate closed for good: safe, and
// no real program captures on so many at once.
constexpr int kMaxCaptures = 1024;
constinit alloc::Mutex mutex;
struct Capture {
  CUstream stream;
  CUcontext context;
};
constinit Capture list[kMaxCaptures] = {};
constinit int used = 0;

// Removes the captures that `match`, at most `most`.
template <typename Match>
void remove(Match match, int most) {
  alloc::LockGuard guard(mutex);
  for (int i = 0; i < used && most > 0;) {
    if (!match(list[i])) {
      ++i;
      continue;
    }
    list[i] = list[--used];
    captures.fetch_sub(1, std::memory_order_release);
    --most;
  }
}

constinit CaptureGate gate;

}  // namespace

CaptureGate& capture_gate() { return gate; }

// announce() and enter() each write first and look second, both sequentially consistent: at least
// one of the two sees the other.
void CaptureGate::announce() {
  captures.fetch_add(1, std::memory_order_seq_cst);
  alloc::os::wait_until([] { return inside.load(std::memory_order_seq_cst) == 0; }, kPatienceNs);
}

bool CaptureGate::enter() {
  if (captures.load(std::memory_order_relaxed) != 0) return false;
  inside.fetch_add(1, std::memory_order_seq_cst);
  if (captures.load(std::memory_order_seq_cst) == 0) return true;
  leave();
  return false;
}

void CaptureGate::leave() { inside.fetch_sub(1, std::memory_order_release); }

void CaptureGate::withdraw() { captures.fetch_sub(1, std::memory_order_release); }

void CaptureGate::began(CUstream stream, CUcontext context) {
  alloc::LockGuard guard(mutex);
  if (used < kMaxCaptures) list[used++] = {stream, context};
}

// A handle may stand for several streams (the per-thread default one): one capture at a time.
void CaptureGate::ended(CUstream stream) {
  remove([stream](const Capture& c) { return c.stream == stream; }, 1);
}

void CaptureGate::context_gone(CUcontext context) {
  remove([context](const Capture& c) { return c.context == context; }, kMaxCaptures);
}

bool CaptureGate::capturing() const { return captures.load(std::memory_order_acquire) != 0; }

bool CaptureGate::capturing(CUstream stream) const {
  if (!capturing()) return false;
  alloc::LockGuard guard(mutex);
  return std::any_of(list, list + used, [stream](const Capture& c) { return c.stream == stream; });
}

void CaptureGate::reset_after_fork() { mutex.reset(); }

}  // namespace cistern::shim
