// SPDX-License-Identifier: Apache-2.0
#include "shim/sites/sites.h"

#include <algorithm>
#include <atomic>

#include "allocator/base/keep_errno.h"
#include "allocator/record/call_sites.h"
#include "shim/process/names.h"
#include "shim/process/thread.h"
#include "shim/sites/code_files.h"
#include "shim/sites/unwinder.h"

namespace cistern::shim {
namespace {

using alloc::Frame;
using alloc::kMostFrames;

constexpr int kOwnFrames = 16;  // of Cistern itself, at most

constinit std::atomic<bool> on{false};
constinit alloc::CallSites sites{};

// The unwinder may call functions that are hooked, and so come back here.
class Once {
 public:
  Once() : first_(!this_thread.finds_site) { this_thread.finds_site = true; }
  ~Once() {
    if (first_) this_thread.finds_site = false;
  }
  Once(const Once&) = delete;
  Once& operator=(const Once&) = delete;
  explicit operator bool() const { return first_; }

 private:
  const bool first_;
};

struct Stack {
  void* room[kMostFrames + kOwnFrames];
  void** addresses;  // behind Cistern's own
  int count;
};

void leave_out_own_frames(Stack& stack) {
  int own = 0;
  while (own < stack.count && in_this_object(reinterpret_cast<uint64_t>(stack.room[own]))) ++own;
  stack.addresses = stack.room + own;
  stack.count = std::min(stack.count - own, kMostFrames);
}

struct Hash {
  uint64_t value;
  void mix(uint64_t next) {
    value = (value ^ next) * 0x9E3779B97F4A7C15u;
    value ^= value >> 32;
  }
};

// A stack that was not seen before, or not since a library was loaded or unloaded. A return address
// is that of the instruction after the call, which may be another function's.
[[gnu::cold, gnu::noinline]] uint32_t new_site(const Stack& stack, uint64_t hash) {
  CodeAddress codes[kMostFrames];
  for (int i = 0; i < stack.count; ++i) {
    codes[i].address = reinterpret_cast<uint64_t>(stack.addresses[i]) - 1;
  }
  find_files(codes, stack.count);
  Frame frames[kMostFrames];
  for (int i = 0; i < stack.count; ++i) {
    frames[i] = {.file = codes[i].file, .function = 0, .line = 0, .offset = codes[i].offset};
  }
  return sites.add(hash, frames, stack.count);
}

}  // namespace

void switch_sites_on() { on.store(true, std::memory_order_relaxed); }

bool sites_on() { return on.load(std::memory_order_relaxed); }

uint32_t capture_site() {
  if (!sites_on()) return 0;
  const Once once;
  if (!once) return 0;
  const alloc::KeepErrno keep;
  const LoadedFiles loaded = loaded_files();
  Stack stack;
  stack.count = return_addresses(stack.room, kMostFrames + kOwnFrames, loaded);
  leave_out_own_frames(stack);
  if (stack.count <= 0) return 0;
  Hash hash{loaded.changes()};
  for (int i = 0; i < stack.count; ++i) {
    hash.mix(reinterpret_cast<uint64_t>(stack.addresses[i]));
  }
  const uint32_t known = sites.known(hash.value);
  return known != 0 ? known : new_site(stack, hash.value);
}

uint32_t site_count() { return sites.count(); }

int site_frames(uint32_t site, Frame* out) { return sites.frames(site, out); }

void reset_sites_after_fork() {
  sites.reset_after_fork();
  names().reset_after_fork();
  reset_unwinder_after_fork();
}

}  // namespace cistern::shim
