// SPDX-License-Identifier: Apache-2.0
#include "allocator/host/host_pool.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "allocator/base/os.h"
#include "allocator/host/system.h"

namespace cistern::alloc::host {
namespace {

constexpr uint64_t kMinChunkBytes = uint64_t{1} << 20;
// The step in which bytes become usable.
constexpr uint64_t kCommitPages = (uint64_t{16} << 20) / kPage;
// Page numbers have 32 bits.
constexpr uint64_t kMostPages = uint64_t{1} << 31;
// The bytes that are made into records at once.
constexpr uint64_t kRecordPages = 16;
// From this size on, fresh pages are cheaper than writing zeros.
constexpr uint64_t kDiscardBytes = uint64_t{256} << 10;

uint64_t align_up(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

uint64_t pages_of(uint64_t bytes) { return (bytes + kPage - 1) / kPage; }

Touched all_of(uint64_t first, uint64_t count) {
  return {static_cast<uint32_t>(first), static_cast<uint32_t>(first + count),
          static_cast<uint32_t>(count)};
}

}  // namespace

Touched Touched::with(const Touched& other) const {
  if (pages == 0) return other;
  if (other.pages == 0) return *this;
  const uint32_t from = std::min(first, other.first), to = std::max(end, other.end);
  return {from, to, std::min(pages + other.pages, to - from)};
}

Touched Touched::within(uint64_t from, uint64_t to) const {
  const auto begin = static_cast<uint32_t>(std::max<uint64_t>(from, first));
  const auto stop = static_cast<uint32_t>(std::min<uint64_t>(to, end));
  if (begin >= stop) return {};
  return {begin, stop, std::min(pages, stop - begin)};
}

// --- chunks ---

HostChunk* HostPool::chunk_of(uintptr_t address) const {
  const uint64_t unit = address >> kUnitBits;
  if (unit >> (kLeafBits + kRootBits) != 0) return nullptr;
  Leaf* leaf = roots_[unit >> kLeafBits].load(std::memory_order_acquire);
  if (leaf == nullptr) return nullptr;
  const uint16_t number = (*leaf)[unit % (1 << kLeafBits)].load(std::memory_order_acquire);
  if (number == 0) return nullptr;
  HostChunk* chunk = &chunks_.load(std::memory_order_acquire)[number - 1];
  return address - chunk->base.load() < chunk->bytes.load() ? chunk : nullptr;
}

// With the lock. False if there is no memory for the table.
bool HostPool::name_units(uintptr_t base, uint64_t bytes, uint16_t number) {
  for (uint64_t unit = base >> kUnitBits; unit <= (base + bytes - 1) >> kUnitBits; ++unit) {
    std::atomic<Leaf*>& root = roots_[unit >> kLeafBits];
    if (root.load() == nullptr) {
      root.store(static_cast<Leaf*>(os::map(sizeof(Leaf))), std::memory_order_release);
    }
    if (root.load() == nullptr) return false;
    (*root.load())[unit % (1 << kLeafBits)].store(number, std::memory_order_release);
  }
  return true;
}

bool HostPool::same_chunk(const void* a, const void* b) const {
  return chunk_of(reinterpret_cast<uintptr_t>(a)) == chunk_of(reinterpret_cast<uintptr_t>(b));
}

// With the lock. nullptr if the system has no address space left, or the table has no room.
HostChunk* HostPool::add_chunk(uint64_t bytes, uint64_t mapped, uint64_t alignment, bool own) {
  HostChunk* chunks = chunks_.load(std::memory_order_relaxed);
  if (chunks == nullptr) {
    chunks = static_cast<HostChunk*>(os::map(kMaxChunks * sizeof(HostChunk)));
    if (chunks == nullptr) return nullptr;
    chunks_.store(chunks, std::memory_order_release);
  }
  const int used = used_.load(std::memory_order_relaxed);
  int place = 0;
  while (place < used && chunks[place].base.load(std::memory_order_relaxed) != 0) ++place;
  if (place == kMaxChunks) return nullptr;
  auto** at = static_cast<HostExtent**>(os::map(bytes / kPage * sizeof(HostExtent*)));
  if (at == nullptr) return nullptr;
  void* memory = reserve_unnamed(bytes, mapped, alignment);
  const auto base = reinterpret_cast<uintptr_t>(memory);
  const auto number = static_cast<uint16_t>(place + 1);
  if (memory == nullptr || !name_units(base, bytes, number)) {
    os::unmap(at, bytes / kPage * sizeof(HostExtent*));
    if (memory != nullptr) os::unmap(memory, mapped);
    return nullptr;
  }
  HostChunk& chunk = chunks[place];
  chunk.own = own;
  chunk.fresh = chunk.committed = chunk.live = chunk.on_the_way = 0;
  chunk.locked.store(0);
  chunk.at = at;
  chunk.mapped.store(mapped, std::memory_order_relaxed);
  chunk.bytes.store(bytes, std::memory_order_relaxed);
  chunk.base.store(base, std::memory_order_release);
  if (place == used) used_.store(used + 1, std::memory_order_release);
  ++sums_.chunks;
  sums_.reserved += bytes;
  if (policy_.eager && policy_.locks) commit(&chunk, mapped / kPage);
  return &chunk;
}

// With the lock: makes the pages before `pages` usable.
bool HostPool::commit(HostChunk* chunk, uint64_t pages) {
  if (pages <= chunk->committed) return true;
  const uint64_t before = chunk->committed;
  const uint64_t ample = std::min(align_up(pages, kCommitPages), chunk->mapped.load() / kPage);
  const auto try_to = [&](uint64_t end) {
    if (!pages::commit(chunk->address_of(before), (end - before) * kPage)) return false;
    chunk->committed = end;
    return true;
  };
  if (!try_to(ample) && !try_to(pages)) return false;
  sums_.committed += (chunk->committed - before) * kPage;
  if (policy_.locks) lock_pages(chunk, before, chunk->committed);
  return true;
}

// With the lock. Only the beginning of a chunk is locked. After a refusal no more pages are.
void HostPool::lock_pages(HostChunk* chunk, uint64_t first, uint64_t end) {
  const uint64_t wanted = (end - first) * kPage;
  const uint64_t room = policy_.most_locked - std::min(policy_.most_locked, sums_.locked);
  const uint64_t bytes = std::min(wanted, room / kPage * kPage);
  uint64_t locked = 0;
  // If the system allows fewer bytes than expected, finds how many: tries half as much, then,
  // behind the locked pages, half of the rest.
  for (uint64_t more = lock_was_refused_ ? 0 : bytes; more != 0;) {
    const uint64_t from = first + locked / kPage;
    if (pages::lock(chunk->address_of(from), more, policy_.eager)) {
      locked += more;
      more = std::min(more, bytes - locked);
    } else {
      more = more / 2 / kPage * kPage;
    }
  }
  if (locked != 0) {
    chunk->locked.store(first + locked / kPage);
    sums_.locked += locked;
    if (locked == wanted) return;
  }
  sums_.refused += wanted - locked;
  lock_was_refused_ = true;
}

void HostPool::lock_again() {
  const LockGuard guard(mutex_);
  HostChunk* chunks = chunks_.load(std::memory_order_relaxed);
  for (int i = 0, n = used_.load(std::memory_order_relaxed); i < n; ++i) {
    const uint64_t locked = chunks[i].locked.load() * kPage;
    if (chunks[i].base.load() == 0 || locked == 0) continue;
    if (pages::lock(chunks[i].address_of(0), locked, /*eager=*/false)) continue;
    chunks[i].locked.store(0);
    sums_.locked -= locked;
    sums_.refused += locked;
    lock_was_refused_ = true;  // or what is locked later would not be a beginning
  }
}

void HostPool::unlock_in_child() {
  HostChunk* chunks = chunks_.load(std::memory_order_relaxed);
  for (int i = 0, n = used_.load(std::memory_order_relaxed); i < n; ++i) chunks[i].locked.store(0);
  sums_.locked = 0;
  policy_.locks = false;
  mutex_.reset();
}

// --- free extents ---

void HostPool::take_out(HostExtent* extent) {
  HostChunk* chunk = extent->chunk;
  bins_.remove(extent);
  chunk->at[extent->first] = nullptr;
  chunk->at[extent->first + extent->count - 1] = nullptr;
  if (extent->touched.pages != 0) forget_idle(extent);
}

void HostPool::note_idle(HostExtent* extent) {
  sums_.idle += extent->touched.pages * kPage;
  if (extent->freed_at_ns == kNeverOld) return;
  extent->older = newest_idle_;
  extent->newer = nullptr;
  (newest_idle_ != nullptr ? newest_idle_->newer : oldest_idle_) = extent;
  newest_idle_ = extent;
  releasable_ += extent->touched.pages * kPage;
}

void HostPool::forget_idle(HostExtent* extent) {
  sums_.idle -= extent->touched.pages * kPage;
  if (extent->freed_at_ns == kNeverOld) return;
  (extent->older != nullptr ? extent->older->newer : oldest_idle_) = extent->newer;
  (extent->newer != nullptr ? extent->newer->older : newest_idle_) = extent->older;
  releasable_ -= extent->touched.pages * kPage;
}

// With the lock: the most records that may be in use at a time. An extent that is taken out has a
// record itself, and another one may lie behind it.
uint64_t HostPool::records_wanted() const {
  return handed_out_.load(std::memory_order_relaxed) + sums_.chunks + 2 * taken_out_;
}

// With the lock: whether there are records_wanted() + `more` records. Makes some if not, perhaps
// from a free extent.
bool HostPool::have_records(uint64_t more) {
  while (records_ < records_wanted() + more) {
    if (!make_records()) return false;
  }
  return true;
}

// If the system has no memory for records, they lie in pages of the pool for good.
bool HostPool::make_records() {
  void* memory = os::map(kRecordPages * kPage);
  bool zero;
  if (memory == nullptr) {
    memory = take_free(kRecordPages, kPage, &zero);
    if (memory == nullptr && current_ != nullptr) {
      memory = take_fresh(current_, kRecordPages, kPage);
    }
    if (memory == nullptr) return false;
    handed_out_.fetch_add(1, std::memory_order_relaxed);
    sums_.live += kRecordPages * kPage;
  }
  constexpr uint64_t kRecords = kRecordPages * kPage / sizeof(HostExtent);
  auto* records = static_cast<HostExtent*>(memory);
  for (uint64_t i = 0; i < kRecords; ++i) give_record(&records[i]);
  records_ += kRecords;
  return true;
}

HostExtent* HostPool::take_record() { return std::exchange(spare_records_, spare_records_->next); }

void HostPool::give_record(HostExtent* record) {
  record->next = std::exchange(spare_records_, record);
}

bool HostPool::note_split(const void* memory) {
  if (memory != nullptr && backed_from(memory) != UINT64_MAX) return false;
  const LockGuard guard(mutex_);
  if (!have_records(1)) return false;
  handed_out_.fetch_add(1, std::memory_order_relaxed);
  return true;
}

// With the lock: frees a run of pages and merges it with its neighbours.
void HostPool::put(HostChunk* chunk, uint64_t first, uint64_t count, Touched touched,
                   uint64_t now_ns) {
  uint64_t largest = touched.pages;
  const auto join = [&](HostExtent* other) {
    take_out(other);
    first = std::min<uint64_t>(first, other->first);
    touched = touched.with(other->touched);
    // A small run that was just freed does not delay a large one that was freed long ago.
    if (other->touched.pages > largest) {
      largest = other->touched.pages;
      if (other->freed_at_ns != kNeverOld) now_ns = other->freed_at_ns;
    }
    count += other->count;
    give_record(other);
  };
  const uint64_t end = first + count;
  if (first != 0 && chunk->at[first - 1] != nullptr) join(chunk->at[first - 1]);
  if (end < chunk->pages() && chunk->at[end] != nullptr) join(chunk->at[end]);
  HostExtent* extent = take_record();
  extent->chunk = chunk;
  extent->first = static_cast<uint32_t>(first);
  extent->count = static_cast<uint32_t>(count);
  extent->touched = touched;
  extent->freed_at_ns = now_ns;
  chunk->at[first] = chunk->at[first + count - 1] = extent;
  bins_.insert(extent);
  if (touched.pages != 0) note_idle(extent);
}

void* HostPool::take_free(uint64_t pages, uint64_t alignment, bool* zero) {
  const uint64_t align_pages = alignment / kPage;
  const auto start_in = [&](const HostExtent* e) {
    return (align_up(e->chunk->address_of(e->first), alignment) - e->chunk->address_of(0)) / kPage;
  };
  HostExtent* found = bins_.find(pages, UINT64_MAX, kProbes);
  if (found != nullptr && start_in(found) + pages > found->first + found->count) {
    found = bins_.find(pages + align_pages - 1, UINT64_MAX, kProbes);
  }
  if (found == nullptr) return nullptr;
  take_out(found);
  const HostExtent whole = *found;
  give_record(found);
  const uint64_t start = start_in(&whole), end = start + pages,
                 whole_end = whole.first + whole.count;
  const auto put_rest = [&](uint64_t from, uint64_t to) {
    if (from == to) return;
    put(whole.chunk, from, to - from, whole.touched.within(from, to), whole.freed_at_ns);
  };
  put_rest(whole.first, start);
  put_rest(end, whole_end);
  whole.chunk->live += pages;
  *zero = whole.touched.within(start, end).pages == 0;
  return reinterpret_cast<void*>(whole.chunk->address_of(start));
}

// Takes pages of the chunk that were never handed out.
void* HostPool::take_fresh(HostChunk* chunk, uint64_t pages, uint64_t alignment) {
  const uintptr_t base = chunk->address_of(0);
  const uint64_t start = (align_up(base + chunk->fresh * kPage, alignment) - base) / kPage;
  if (start + pages > chunk->pages() || !commit(chunk, start + pages)) return nullptr;
  const uint64_t skipped = chunk->fresh;
  chunk->fresh = start + pages;
  if (start != skipped) put(chunk, skipped, start - skipped, /*touched=*/{}, /*now_ns=*/0);
  chunk->live += pages;
  return reinterpret_cast<void*>(chunk->address_of(start));
}

// The rest of the current chunk is too small for a request; it serves smaller ones.
void HostPool::offer_rest_of_current() {
  HostChunk* chunk = current_;
  current_ = nullptr;
  if (chunk == nullptr || !commit(chunk, chunk->pages())) return;
  const uint64_t first = chunk->fresh, count = chunk->pages() - first;
  chunk->fresh = chunk->pages();
  if (count != 0) put(chunk, first, count, /*touched=*/{}, /*now_ns=*/0);
}

// Takes a smaller chunk if the system has no room for one of the usual size.
void* HostPool::take_from_new_chunk(uint64_t pages, uint64_t alignment) {
  if (auto* limit = std::exchange(policy_.most_chunk_bytes, nullptr); limit != nullptr) {
    policy_.chunk_bytes = std::min(policy_.chunk_bytes, limit());
  }
  const uint64_t usual = align_up(std::max(policy_.chunk_bytes, kMinChunkBytes), kPage);
  const bool own = pages * kPage > usual || pages * kPage >= policy_.own_bytes;
  uint64_t bytes = own ? pages * kPage : usual;
  HostChunk* chunk;
  while ((chunk = add_chunk(bytes, bytes, std::max(alignment, kChunkAlignment), own)) == nullptr) {
    if (bytes == pages * kPage) return nullptr;
    bytes = std::max(align_up(bytes / 2, kPage), pages * kPage);
  }
  void* memory = take_fresh(chunk, pages, alignment);
  if (memory == nullptr) {
    unmap(retire(chunk));  // nothing in it was touched
    return nullptr;
  }
  if (!own) {
    offer_rest_of_current();
    current_ = chunk;
  }
  return memory;
}

// --- taking and giving back ---

// With the lock.
void* HostPool::take_pages(uint64_t pages, uint64_t alignment, bool* zero) {
  void* memory = nullptr;
  *zero = true;
  if (pages * kPage < policy_.own_bytes) {
    memory = take_free(pages, alignment, zero);
    if (memory != nullptr) return memory;
    *zero = true;
    if (current_ != nullptr) memory = take_fresh(current_, pages, alignment);
  }
  if (memory == nullptr) memory = take_from_new_chunk(pages, alignment);
  // Free memory may lie in chunks that are too small for the request.
  if (memory == nullptr && retire_free_chunks()) memory = take_from_new_chunk(pages, alignment);
  return memory;
}

void* HostPool::take(uint64_t bytes, uint64_t alignment, bool* zero) {
  const uint64_t pages = pages_of(bytes);
  void* memory;
  bool is_zero, tell = false;
  HostUsage sums;
  {
    const LockGuard guard(mutex_);
    // One more extent will come back, and perhaps there is a new chunk.
    const bool may_come_back = pages < kMostPages && have_records(2);
    memory = may_come_back ? take_pages(pages, alignment, &is_zero) : nullptr;
    if (memory == nullptr) {
      ++sums_.failed;
      return nullptr;
    }
    handed_out_.fetch_add(1, std::memory_order_relaxed);
    sums_.live += pages * kPage;
    sums = sums_;
    if (lock_was_refused_) tell = !std::exchange(refusal_told_, true);
  }
  if (tell && policy_.lock_refused != nullptr) {
    policy_.lock_refused(sums.locked, sums.locked + sums.refused);
  }
  if (*zero && !is_zero) {
    const bool touched_anew = sums.locked == 0 && bytes >= kDiscardBytes;
    const auto start = reinterpret_cast<uintptr_t>(memory);
    if (!touched_anew || !pages::discard(start, bytes, /*locked=*/false)) memset(memory, 0, bytes);
    is_zero = true;
  }
  *zero = is_zero;
  return memory;
}

bool HostPool::give_back(void* memory, uint64_t bytes) {
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const uint64_t pages = pages_of(bytes);
  Retired retired;
  bool too_much;
  {
    const LockGuard guard(mutex_);
    HostChunk* chunk = chunk_of(address);
    if (chunk == nullptr) return false;
    const uint64_t first = (address - chunk->address_of(0)) / kPage;
    chunk->live -= pages;
    sums_.live -= pages * kPage;
    handed_out_.fetch_sub(1, std::memory_order_relaxed);
    put(chunk, first, pages, all_of(first, pages), os::now_ns());
    retired = retire_if_unused(chunk);
    too_much = too_much_idle();
  }
  unmap(retired);
  if (too_much) {
    full_.store(true, std::memory_order_relaxed);
    // An eighth more, so that not each free that follows does the same.
    release_beyond(may_be_idle() / 8 * 7);
  }
  return true;
}

void HostPool::keep_idle(uint64_t most_bytes) {
  most_idle_.store(most_bytes, std::memory_order_relaxed);
}

HostUsage HostPool::usage() const {
  const LockGuard guard(mutex_);
  return sums_;
}

}  // namespace cistern::alloc::host
