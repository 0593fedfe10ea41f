// SPDX-License-Identifier: Apache-2.0
#include "shim/pooled/free_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <optional>

#include "allocator/base/os.h"
#include "shim/entry/driver.h"
#include "shim/entry/unknown.h"
#include "shim/order/ask.h"
#include "shim/order/barrier/visible_work.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/careful.h"
#include "shim/order/contexts/context_life.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/order/ties.h"
#include "shim/process/log.h"

namespace cistern::shim {
namespace {

// --- open devices ---

// Devices that reach memory of the GPU without a call of CUDA: network cards (GPUDirect RDMA),
// gdrcopy, which maps that memory for the processor, and GPUDirect storage. A program that uses one
// may look at what its work writes, as the host does with pinned memory, and no hook sees it. So
// once such a device is open, everything is visible (visible_work.h): frees wait.
//
// Most such programs announce it by a CUDA call: they set SYNC_MEMOPS, ask for P2P tokens, or share
// the range as a dmabuf. Those calls have hooks. Programs that need no such call are found here.
// With nvidia-peermem, ibv_reg_mr() takes the address as it is, and kernel modules ask each other
// for the pages (nvidia_p2p_get_pages). gdrdrv and nvidia-fs do the same. But each of them needs an
// open descriptor of its device. Wrapping open() is not enough: it has many variants, libraries
// make the system call themselves, and descriptors also come by fork and by sockets.
//
// A look at all descriptors takes about 50 microseconds. So a look happens only when a free would
// leave its order to the GPU (work.h), since such devices do not keep that order: at the first
// such free, then at most ten times a second. With very many descriptors looks are rarer: they take
// at most a hundredth of the process's time.

constexpr const char* kDevices[] = {"/dev/infiniband/uverbs", "/dev/gdrdrv", "/dev/nvidia-fs"};

constexpr uint64_t kBetweenLooksNs = 100'000'000, kLookShare = 100;
constinit std::atomic<uint64_t> next_look_ns{0};
constinit char found_open[160] = "";  // written once, before everything becomes visible

// The path may lie below a container's root. Only a number may follow the name.
bool names_device(const char* path) {
  const auto names = [=](const char* device) {
    const char* at = std::strstr(path, device);
    if (at == nullptr) return false;
    at += std::strlen(device);
    return at[std::strspn(at, "0123456789")] == '\0';
  };
  return std::any_of(std::begin(kDevices), std::end(kDevices), names);
}

bool is_device(int descriptor) {
  char link[32], path[512];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length <= 0) return false;
  path[length] = '\0';
  if (!names_device(path)) return false;
  std::snprintf(found_open, sizeof found_open, "the program has %.120s open", path);
  return true;
}

// Reads no directory: that takes a descriptor, and programs expect the low numbers for their own
// files. The kernel gives out the lowest free number, so there are no wide gaps.
bool any_is_open() {
  constexpr int kWidestGap = 256;
  for (int descriptor = 0, gap = 0; gap < kWidestGap; ++descriptor) {
    const bool open = fcntl(descriptor, F_GETFD) >= 0;
    gap = open ? 0 : gap + 1;
    if (open && is_device(descriptor)) return true;
  }
  return false;
}

// One thread looks at a time, because it first puts off the next look. Any thread; allocates and
// opens nothing.
void look_for_open_devices() {
  if (everything_is_visible.load(std::memory_order_relaxed)) return;
  constexpr uint64_t kLongestLookNs = 1'000'000'000;
  const uint64_t start = alloc::os::now_ns();
  uint64_t due = next_look_ns.load(std::memory_order_relaxed);
  if (start < due || !next_look_ns.compare_exchange_strong(due, start + kLongestLookNs)) return;
  const int error = errno;
  const bool any = any_is_open();
  errno = error;
  const uint64_t end = alloc::os::now_ns();
  next_look_ns.store(end + std::max(kBetweenLooksNs, kLookShare * (end - start)));
  if (!any) return;
  everything_becomes_visible(found_open);
  log(config::LogLevel::kInfo,
      "%s, which may access device memory; from now on frees wait for all work", found_open);
}

// --- the wait ---

constexpr size_t kUnusedBytes = 4096;

// False for a direct allocation, whose free goes to the driver and waits there, and for an invalid
// free.
bool goes_to_a_pool(alloc::ContextPool& pool, alloc::Chunk* chunk, CUdeviceptr address) {
  uint64_t start, bytes;
  return chunk->is() != alloc::Role::direct && pool.find(chunk, address, &start, &bytes) &&
         start == address;
}

class CountedWait {
 public:
  explicit CountedWait(Context& owner) : ledger_(device_state(owner.device).ledger) {}
  ~CountedWait() {
    const uint64_t took_ns = alloc::os::now_ns() - start_;
    ledger_.free_waits.add();
    ledger_.free_wait_ns.add(took_ns);
    count_->add(took_ns);
  }
  // The wait is for all work, not only for work that the host sees.
  void becomes_for_all(FreeWaitReason why) { count_ = &free_counts.waited(why); }
  CountedWait(const CountedWait&) = delete;
  CountedWait& operator=(const CountedWait&) = delete;

 private:
  alloc::Ledger& ledger_;
  WaitCount* count_ = &free_counts.for_visible;
  const uint64_t start_ = alloc::os::now_ns();
};

// No Visit lasts as long as the wait. Otherwise a release that does not end the context would wait
// for this thread, and the work that this thread waits for may wait for the releasing thread.
CUresult synchronise(Context& context, CUcontext handle, alloc::Ticket* latest) {
  const ContextScope scope(handle);
  if (!scope) return CUDA_SUCCESS;
  ContextWait all_work(context);
  const CUresult result = noted(driver().cuCtxSynchronize(), handle);
  if (result != CUDA_SUCCESS) return result;
  const Visit visit(context);
  if (!visit.open() || visit.handle() != handle) return result;  // it ends, or has ended
  all_work.succeeded();
  *latest = all_work.ticket();
  return result;
}

// Makes the driver free memory in the current context. kNeither: there was no memory for that.
constexpr CUresult kNeither = CUDA_ERROR_OUT_OF_MEMORY;

CUresult free_unused_page() {
  void* page = nullptr;
  const CUresult taken = noted(driver().cuMemHostAlloc(&page, kUnusedBytes, 0));
  return taken == CUDA_SUCCESS ? noted(driver().cuMemFreeHost(page)) : taken;
}

// If the driver refuses to free the block, the next call frees it.
CUresult free_unused_block(Context& owner) {
  CUdeviceptr block = owner.unused_block.exchange(0);
  if (block == 0 && noted(driver().cuMemAlloc_v2(&block, kUnusedBytes)) != CUDA_SUCCESS) {
    return free_unused_page();  // a failed context refuses that as well, and returns its error
  }
  const CUresult freed = noted(driver().cuMemFree_v2(block));
  if (freed != CUDA_SUCCESS) owner.unused_block.store(block);
  return freed;
}

CUresult free_in_driver(Context& context, CUcontext handle) {
  const ContextScope scope(handle);
  if (!scope) return CUDA_SUCCESS;
  const alloc::Ticket ticket = shared().reclaim.close();
  context.seen_empty.expect(ticket);
  const CUresult freed = free_unused_block(context);
  const Visit visit(context);
  const bool lives = visit.open() && visit.handle() == handle;
  // The driver need not know of copies from and to units.
  const bool all = context.source.units() == nullptr || !shared().reclaim.tied(context.number);
  if (freed == CUDA_SUCCESS && lives && all && !shared().reclaim.frozen() && !is_work_unseen()) {
    context.seen_empty.confirm(ticket, SeenEmpty::By::kDriverFree);
  }
  return freed;
}

// Waits for all work of a context, in a free that began outside captures. A capture may have begun
// during an earlier wait of this free: a synchronisation would invalidate it.
CUresult wait_for_context(Context& context, CUcontext handle, alloc::Ticket* latest) {
  if (!capture_gate().capturing()) return synchronise(context, handle, latest);
  const LetByCaptures allowed;
  *latest = alloc::Reclaim::kNow;
  return free_in_driver(context, handle);
}

// The contexts whose copies use memory of this one. To be called before any wait: copies that begin
// meanwhile may end only after the free.
ContextSet tied_to(const Context& owner) {
  ContextSet tied;
  alloc::Reclaim& reclaim = shared().reclaim;
  if (!reclaim.tied(owner.number)) return tied;
  for_each_context([&](Context& context) {
    const bool known = !context.careful.load() && reclaim.tied_to(owner.number, context.number);
    if (known) tied.add(context.number);
  });
  return tied;
}

// Waits for all work of those contexts, since no event covers the copies alone. Their own errors
// are not the result of this free.
void wait_for_tied(const ContextSet& tied) {
  for_each_context([&](Context& context) {
    if (!tied.has(context.number)) return;
    std::optional<Visit> visit(std::in_place, context);
    if (!visit->open()) return;
    CUcontext handle = visit->handle();
    visit.reset();
    alloc::Ticket ticket;
    wait_for_context(context, handle, &ticket);
  });
}

// Why the driver must decide what to wait for; none: it need not.
FreeWaitReason why_of_driver(Context& owner, bool pass) {
  if (!pass) return careful() ? FreeWaitReason::careful : FreeWaitReason::capture;
  if (any_peer_access()) return FreeWaitReason::peers;
  // The driver knows of copies to and from its own allocations, but not to and from mapped memory.
  const bool tied = shared().reclaim.tied(owner.number);
  return tied && owner.source.units() == nullptr ? FreeWaitReason::ties : FreeWaitReason::none;
}

// Waits for work that the host sees; the device keeps the order of the rest. Else returns why not.
FreeWaitReason leave_debt(Context& owner, std::optional<CountedWait>& counted) {
  if (const FreeWaitReason why = why_no_debt(owner); why != FreeWaitReason::none) return why;
  look_for_open_devices();
  if (any_visible_work(owner)) {
    counted.emplace(owner);
    await_visible_work(owner);
  }
  return owe(owner);
}

FreeWait wait_for_work(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                       CUdeviceptr address) {
  FreeWait wait;
  look_for_unknown_links();  // before the pass: it may close the gate
  const GatePass pass;       // and no cancellation of the thread during the visit
  if (!goes_to_a_pool(pool, chunk, address)) return wait;
  std::optional<Visit> visit(std::in_place, owner);
  if (!visit->open()) return wait;
  CUcontext handle = visit->handle();
  visit.reset();
  const ContextSet tied = tied_to(owner);
  std::optional<CountedWait> counted;
  FreeWaitReason why = why_of_driver(owner, static_cast<bool>(pass));
  const bool plain = why == FreeWaitReason::none;
  if (plain) why = leave_debt(owner, counted);
  if (why == FreeWaitReason::none) {
    if (!counted) free_counts.ordered.own_add();
    wait.latest = kClean;
    return wait;
  }
  if (!counted) counted.emplace(owner);
  counted->becomes_for_all(why);
  if (!plain) wait.answer = free_in_driver(owner, handle);
  const bool synchronises = plain || (wait.answer == kNeither && pass);
  if (synchronises) wait.answer = wait_for_context(owner, handle, &wait.latest);
  const bool by_units = pass && owner.source.units() != nullptr;
  if (synchronises || by_units) wait_for_tied(tied);
  if (wait.answer == kNeither) wait.answer = CUDA_SUCCESS;  // in a capture, and no memory left
  // The block has gone with its context. The driver's free would have ended before that.
  const bool gone = owner.handle.load(std::memory_order_acquire) != handle;
  wait.over = gone || wait.answer != CUDA_SUCCESS;
  return wait;
}

}  // namespace

FreeWait wait_in_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                      CUdeviceptr address) {
  return wait_for_work(owner, pool, chunk, address);
}

FreeWait wait_before_pinned_free(Context& owner, alloc::ContextPool& pool, alloc::Chunk* chunk,
                                 CUdeviceptr address) {
  FreeWait wait;
  if (policy().free_sync == config::FreeSync::kFalse) return wait;
  if (!owner.seen_empty.now(&wait.latest)) wait = wait_for_work(owner, pool, chunk, address);
  if (several_contexts()) wait.latest = alloc::Reclaim::kNow;  // other contexts may use it
  return wait;
}

}  // namespace cistern::shim
