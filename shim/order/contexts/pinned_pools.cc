// SPDX-License-Identifier: Apache-2.0
#include "shim/order/contexts/pinned_pools.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "allocator/base/os.h"
#include "allocator/base/threads.h"
#include "allocator/host/system.h"
#include "shim/entry/driver.h"
#include "shim/order/ask.h"
#include "shim/order/captures/capture_gate.h"
#include "shim/order/contexts/context_slot.h"
#include "shim/order/shared.h"
#include "shim/order/streams/stream_marks.h"
#include "shim/process/background.h"
#include "shim/process/no_cancel.h"
#include "shim/process/settings.h"
#include "shim/record/record.h"

namespace cistern::shim {
namespace {

constexpr auto kMemory = alloc::Memory::pinned;

// How long to wait for the work of all contexts, before memory that waits for it can be released.
constexpr uint64_t kPoolPatienceNs = 2'000'000'000;

struct All {
  alloc::Index index;
  alloc::Ledger ledger;
  alloc::Cap cap;
  // Counts of the pools that are gone.
  alloc::Counter past_allocations, past_frees;
  // Pools by the number of their context and by flags; and by their own number, `count` of them.
  std::atomic<PinnedPool*> of_context[alloc::Reclaim::kMaxContexts][kPinnedFlagSets];
  std::atomic<PinnedPool*> by_number[kMostPinnedPools];
  std::atomic<int> count;
  std::atomic<int> party;  // its number in reclamation, plus one; 0: none yet
  std::atomic<bool> used;
};
constinit All all = {};

constinit UnmarkedSource no_work;

constinit alloc::Mutex beginning;  // held while a pool begins or ends

template <typename Visitor>
void for_each_pool_of(const Context& context, Visitor visit) {
  for (auto& place : all.of_context[context.number]) {
    PinnedPool* pinned = place.load(std::memory_order_acquire);
    if (pinned != nullptr && pinned->handle.load() != nullptr) visit(*pinned);
  }
}

// Caller holds the lock.
PinnedPool* new_pool() {
  const int number = all.count.load(std::memory_order_relaxed);
  auto* pinned = static_cast<PinnedPool*>(alloc::os::map(sizeof(PinnedPool), 4096));
  if (pinned == nullptr) return nullptr;
  new (pinned) PinnedPool{};
  pinned->number = static_cast<uint32_t>(number);
  all.by_number[number].store(pinned, std::memory_order_release);
  all.count.store(number + 1, std::memory_order_release);
  return pinned;
}

// Caller holds the lock. For the first pool. False: reclamation has no number left.
bool begin_party() {
  const int number = new_reclaim_number();
  if (number < 0) return false;
  const auto party = static_cast<uint32_t>(number);
  alloc::Reclaim& reclaim = shared().reclaim;
  reclaim.graphs().parked(party).init(&all.ledger);
  reclaim.join(party, &no_work);
  reclaim.has_no_work(party);
  for_each_context(
      [&](const Context& worker) { reclaim.reaches(party, worker.number, /*on=*/true); });
  reclaim.reaches(party, kCrowd, /*on=*/true);
  all.party.store(number + 1, std::memory_order_release);
  return true;
}

// Caller holds the lock. For the first pool.
void set_limit() {
  const double share = policy().fraction_of_cuda_pinned_memory_to_use;
  const uint64_t memory = alloc::host::usable_memory();
  const auto most = static_cast<uint64_t>(static_cast<double>(memory) * share);
  if (memory != 0) all.cap.set_limit(std::max(most, alloc::kDriverPage));
  all.used.store(true, std::memory_order_release);
}

// Caller holds the lock.
void begin(PinnedPool& pinned, Context& context, CUcontext handle, unsigned flags) {
  pinned.context = &context;
  pinned.source.init(handle, &context.source, flags, all.cap.limit(), release_idle_pinned_memory);
  // Programs may rely on the driver's behaviour: larger blocks begin at a page.
  const alloc::ChunkSizes sizes{
      alloc::StrategyKind::auto_growth, 0, 0, alloc::os::kPage, false, false};
  const alloc::FillMode fill = alloc::fill_mode(policy()) == alloc::FillMode::off
                                   ? alloc::FillMode::off
                                   : alloc::FillMode::separate;
  const alloc::DeviceParts parts{&all.ledger, &all.cap,   nullptr,
                                 fill,        &all.index, all.party.load() - 1};
  pinned.pool.init(&shared(), &pinned.source, parts, pinned.number, sizes);
  pinned.handle.store(handle);
}

// The caller visits the context, and the context is open: it does not end meanwhile.
PinnedPool* make_pool(Context& context, CUcontext handle, unsigned flags) {
  const alloc::LockGuard guard(beginning);
  std::atomic<PinnedPool*>& place = all.of_context[context.number][flags];
  PinnedPool* pinned = place.load();
  if (pinned != nullptr && pinned->handle.load() != nullptr) return pinned;
  if (all.party.load() == 0 && !begin_party()) return nullptr;
  if (!all.used.load()) set_limit();
  if (pinned == nullptr) pinned = new_pool();
  if (pinned == nullptr) return nullptr;
  place.store(pinned, std::memory_order_release);
  begin(*pinned, context, handle, flags);
  return pinned;
}

}  // namespace

PinnedPool* pinned_pool(Context& context, unsigned flags) {
  PinnedPool* pinned = all.of_context[context.number][flags].load(std::memory_order_acquire);
  if (pinned != nullptr && pinned->handle.load() == context.handle.load()) [[likely]]
    return pinned;
  const Visit visit(context);
  return visit.open() ? make_pool(context, visit.handle(), flags) : nullptr;
}

// All pools wait for the same work, so they share the time limit.
bool release_idle_pinned_memory() {
  bool any = false;
  uint64_t patience = kPoolPatienceNs;
  for_each_pinned_pool([&](PinnedPool& pinned) {
    const PinnedVisit visit(pinned);
    if (!visit.open()) return;
    const uint64_t start = alloc::os::now_ns();
    any |= pinned.pool.release_returnable(patience);
    patience -= std::min(patience, alloc::os::now_ns() - start);
  });
  return any;
}

PinnedPool* pinned_pool_of(const alloc::Chunk* chunk) {
  return pinned_pool_at(static_cast<int>(chunk->at().owner()));
}

int pinned_pools() { return all.count.load(std::memory_order_acquire); }

bool pinned_frees_unmarked() {
  const int party = all.party.load(std::memory_order_acquire) - 1;
  return party >= 0 && shared().reclaim.unmarked(static_cast<uint32_t>(party));
}

PinnedPool* pinned_pool_at(int number) {
  return all.by_number[number].load(std::memory_order_acquire);
}

alloc::Index& pinned_index() { return all.index; }
alloc::Ledger& pinned_ledger() { return all.ledger; }
const alloc::Cap& pinned_cap() { return all.cap; }

bool pinned_usage(PinnedUsage* out) {
  if (!all.used.load(std::memory_order_acquire)) return false;
  *out = {{}, all.past_allocations.get(), all.past_frees.get()};
  for_each_pinned_pool([&](PinnedPool& pinned) {
    const PinnedVisit visit(pinned);
    if (visit.handle() == nullptr) return;
    out->usage += pinned.pool.usage();
    out->allocations += pinned.pool.allocations();
    out->frees += pinned.pool.frees();
  });
  return true;
}

// --- contexts ---

// If the first pool is made meanwhile, it finds the worker, or its party is found here.
void pinned_pools_of_worker(uint32_t worker) {
  const alloc::LockGuard guard(beginning);
  const int party = all.party.load() - 1;
  if (party < 0) return;
  shared().reclaim.reaches(static_cast<uint32_t>(party), worker, /*on=*/true);
}

void await_pinned_pools(const Context& context) {
  for_each_pool_of(context, [](PinnedPool& pinned) {
    alloc::os::wait_while([&] { return pinned.visitors.load() != 0 || pinned.source.at_work(); });
  });
}

void pinned_pools_gone(const Context& context) {
  const alloc::LockGuard guard(beginning);
  for_each_pool_of(context, [](PinnedPool& pinned) {
    pinned.handle.store(nullptr);
    alloc::os::wait_while([&] { return pinned.visitors.load() != 0; });
    all.past_allocations.add(pinned.pool.allocations());
    all.past_frees.add(pinned.pool.frees());
    pinned.pool.forget_all();
  });
}

void reset_pinned_pools_after_fork() {
  beginning.reset();
  all.index.reset_after_fork();
  for_each_pinned_pool([](PinnedPool& pinned) { pinned.pool.reset_after_fork(); });
}

// --- the source ---

void PinnedSource::init(CUcontext context, CudaSource* owner, unsigned flags, uint64_t most_bytes,
                        bool (*release_from_others)()) {
  context_ = context;
  owner_ = owner;
  flags_ = flags;
  most_bytes_ = most_bytes;
  release_from_others_ = release_from_others;
}

bool PinnedSource::may_touch_context() const { return !closing() && may_call(); }

bool PinnedSource::refuses_release() { return !may_touch_context() || capture_gate().capturing(); }

bool PinnedSource::marks_anywhere() { return driver().cuCtxRecordEvent != nullptr; }

bool PinnedSource::request_background_work(bool soon) {
  return owner_->request_background_work(soon);
}

int PinnedSource::obtain(uint64_t bytes, uint64_t* address) {
  const NoCancel in_hand;
  void* memory = nullptr;
  const CUresult result = noted(driver().cuMemHostAlloc(&memory, bytes, flags_), context_);
  *address = reinterpret_cast<uint64_t>(memory);
  if (result == CUDA_SUCCESS) note_obtained({kMemory, /*device=*/0, context_}, *address, bytes);
  return told("takes pinned memory", *address, bytes, result);
}

// No call frees pinned memory in the order of a stream.
int PinnedSource::release_for_program(uint64_t address, const alloc::OrderedFree* /*ordered*/) {
  const NoCancel in_hand;
  const ChunkRelease release(kMemory, address);
  const CUresult freed = noted(driver().cuMemFreeHost(reinterpret_cast<void*>(address)), context_);
  return release.ended(told("frees pinned memory for the program", address, 0, freed));
}

// The error may be the refusal of this call, or belong to earlier work. So the driver is asked
// whether it still knows the memory.
int PinnedSource::release(uint64_t address) {
  const GatePass pass;
  const alloc::CountedIn at_work(at_work_);
  if (!pass || !may_touch_context()) return alloc::kNotNow;
  const ContextScope scope(context_);
  if (!scope) return alloc::kNotNow;
  auto* memory = reinterpret_cast<void*>(address);
  const ChunkRelease release(kMemory, address);
  const CUresult freed = noted(driver().cuMemFreeHost(memory), context_);
  unsigned flags;
  const bool known = freed != CUDA_SUCCESS && may_call() && driver().cuMemHostGetFlags != nullptr &&
                     driver().cuMemHostGetFlags(&flags, memory) == CUDA_SUCCESS;
  return release.ended(told("returns pinned memory", address, 0, known ? alloc::kNotNow : freed));
}

// No other thread may touch the ranges, so the calling thread writes them itself, even during a
// capture.
int PinnedSource::fill(const alloc::FillRange* ranges, int count) {
  const alloc::CountedIn at_work(at_work_);
  if (closing()) return alloc::kContextGone;
  for (int i = 0; i < count; ++i) {
    std::memset(reinterpret_cast<void*>(ranges[i].address), policy().fill_byte(), ranges[i].bytes);
  }
  return alloc::kSuccess;
}

}  // namespace cistern::shim
