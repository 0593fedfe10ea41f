// SPDX-License-Identifier: Apache-2.0
#include "shim/order/streams/stream_registry.h"

namespace cistern::shim {
namespace {

constinit StreamRegistry registry;

}  // namespace

StreamRegistry& streams() { return registry; }

StreamRegistry::Entry* StreamRegistry::find(CUstream stream) {
  for (int i = 0; i < used_; ++i) {
    if (list_[i].stream == stream) return &list_[i];
  }
  return nullptr;
}

CUcontext StreamRegistry::add(const Entry& entry) {
  alloc::LockGuard guard(mutex_);
  if (Entry* stale = find(entry.stream)) {
    CUcontext before = stale->context;
    *stale = entry;
    return before;
  }
  Entry* place = find(nullptr);
  if (place == nullptr && used_ < kMaxStreams) place = &list_[used_++];
  if (place == nullptr) {
    unlisted_.fetch_add(1);
  } else {
    *place = entry;
  }
  return nullptr;
}

bool StreamRegistry::take_out(CUstream stream, Entry* entry) {
  alloc::LockGuard guard(mutex_);
  Entry* found = stream == nullptr ? nullptr : find(stream);
  if (found == nullptr) return false;
  *entry = *found;
  *found = {};
  place_of(stream).store(nullptr);
  return true;
}

CUcontext StreamRegistry::context_of(CUstream stream) {
  alloc::LockGuard guard(mutex_);
  const Entry* entry = stream == nullptr ? nullptr : find(stream);
  return entry == nullptr ? nullptr : entry->context;
}

// The stream's work may go on without an event. So the loss is noted before the list counts as
// complete again.
bool StreamRegistry::unlisted_gone() {
  alloc::LockGuard guard(mutex_);
  if (unlisted_.load() == 0) return given_up_.load();
  lose();
  unlisted_.fetch_sub(1);
  return true;
}

bool StreamRegistry::knows(CUstream stream) {
  std::atomic<CUstream>& place = place_of(stream);
  if (place.load() == stream) return true;
  alloc::LockGuard guard(mutex_);
  if (find(stream) == nullptr) return !complete();
  place.store(stream);
  return true;
}

void StreamRegistry::context_gone(CUcontext context) {
  alloc::LockGuard guard(mutex_);
  for (int i = 0; i < used_; ++i) {
    if (list_[i].context != context) continue;
    if (list_[i].stream != nullptr) place_of(list_[i].stream).store(nullptr);
    list_[i] = {};
  }
}

CUstream StreamRegistry::next_non_blocking(CUcontext context, int* position) {
  alloc::LockGuard guard(mutex_);
  while (*position < used_) {
    const Entry& entry = list_[(*position)++];
    if (entry.stream != nullptr && entry.context == context && !entry.blocking) return entry.stream;
  }
  return nullptr;
}

}  // namespace cistern::shim
