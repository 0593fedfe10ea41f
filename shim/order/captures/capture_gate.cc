// SPDX-License-Identifier: Apache-2.0
#include "shim/order/captures/capture_gate.h"

#include <algorithm>

#include "allocator/base/os.h"
#include "allocator/reclaim/graph_lives.h"

namespace cistern::shim {
namespace {

constexpr uint64_t kPatienceNs = 200'000'000;

constinit CaptureGate gate;

}  // namespace

CaptureGate& capture_gate() { return gate; }

// announce() and enter() each write first and read second, both sequentially consistent: at least
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

void CaptureGate::began(CUstream stream, CUcontext context, alloc::Epoch since, bool into_graph) {
  alloc::LockGuard guard(mutex_);
  if (used_ < kMaxCaptures) list_[used_++] = {stream, context, since, into_graph};
}

CaptureGate::Capture CaptureGate::capture_of(CUstream stream) const {
  alloc::LockGuard guard(mutex_);
  Capture oldest = {};
  for (const Capture* c = list_; c != list_ + used_; ++c) {
    const bool older = oldest.stream == nullptr || c->since < oldest.since;
    if (c->stream == stream && older) oldest = *c;
  }
  return oldest;
}

alloc::Epoch CaptureGate::oldest() const {
  alloc::LockGuard guard(mutex_);
  if (used_ != captures_.load(std::memory_order_acquire)) return 0;
  alloc::Epoch oldest = alloc::GraphLives::kEverything;
  for (const Capture* c = list_; c != list_ + used_; ++c) oldest = std::min(oldest, c->since);
  return oldest;
}

// One handle may stand for the streams of several threads (the per-thread default stream), so only
// one capture is removed: the youngest, because the capture that goes on may be older.
void CaptureGate::ended(CUstream stream) {
  alloc::LockGuard guard(mutex_);
  Capture* youngest = nullptr;
  for (Capture* c = list_; c != list_ + used_; ++c) {
    const bool younger = youngest == nullptr || c->since > youngest->since;
    if (c->stream == stream && younger) youngest = c;
  }
  if (youngest != nullptr) remove(youngest);
}

void CaptureGate::context_gone(CUcontext context) {
  alloc::LockGuard guard(mutex_);
  for (int i = used_ - 1; i >= 0; --i) {
    if (list_[i].context == context) remove(&list_[i]);
  }
}

void CaptureGate::remove(Capture* capture) {
  *capture = list_[--used_];
  captures_.fetch_sub(1, std::memory_order_release);
}

bool CaptureGate::capturing(CUstream stream) const {
  if (!capturing()) return false;
  alloc::LockGuard guard(mutex_);
  return std::any_of(list_, list_ + used_,
                     [stream](const Capture& c) { return c.stream == stream; });
}

}  // namespace cistern::shim
