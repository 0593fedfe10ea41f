// SPDX-License-Identifier: Apache-2.0
#include "allocator/record/names.h"

#include <algorithm>
#include <cstring>

#include "allocator/base/os.h"

namespace cistern::alloc {

// --- texts ---

namespace {

constexpr size_t kTextBytes = size_t{256} << 10;  // mapped at a time

// FNV-1a.
uint32_t hash_of(std::string_view text) {
  uint32_t hash = 2166136261u;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
  return hash;
}

}  // namespace

// A name is complete before it stands in its bucket, and does not change.
uint32_t Names::known(uint32_t hash, std::string_view text) const {
  const std::atomic<uint32_t>* buckets = buckets_.load(std::memory_order_acquire);
  if (buckets == nullptr) return 0;
  uint32_t i = buckets[hash % kBuckets].load(std::memory_order_acquire);
  const Name* names = names_.load(std::memory_order_relaxed);
  while (i != 0 && (names[i].hash != hash || names[i].text != text)) i = names[i].next;
  return i;
}

uint32_t Names::number(std::string_view text) {
  text = text.substr(0, kLongest);
  const uint32_t hash = hash_of(text);
  if (const uint32_t name = known(hash, text)) return name;
  const LockGuard guard(mutex_);
  if (const uint32_t name = known(hash, text)) return name;
  const uint32_t last = count_.load(std::memory_order_relaxed);
  if (!make_room() || last == kMostNames) return 0;
  const char* kept = keep(text);
  if (kept == nullptr) return 0;
  std::atomic<uint32_t>& bucket = buckets_.load(std::memory_order_relaxed)[hash % kBuckets];
  names_.load(std::memory_order_relaxed)[last + 1] = {hash, bucket.load(), kept};
  // Counted first: in a child forked between the two, the number is not handed out again.
  count_.store(last + 1, std::memory_order_release);
  bucket.store(last + 1, std::memory_order_release);
  return last + 1;
}

const char* Names::text(uint32_t name) const {
  return name == 0 ? "" : names_.load(std::memory_order_acquire)[name].text;
}

// The tables: demand-paged, so that few names take few pages. The buckets come last, as known()
// begins with them.
bool Names::make_room() {
  if (buckets_.load(std::memory_order_relaxed) != nullptr) return true;
  if (names_.load(std::memory_order_relaxed) == nullptr) {
    names_.store(static_cast<Name*>(os::map((kMostNames + 1) * sizeof(Name))));
  }
  if (names_.load(std::memory_order_relaxed) == nullptr) return false;
  void* buckets = os::map(kBuckets * sizeof(std::atomic<uint32_t>));
  buckets_.store(static_cast<std::atomic<uint32_t>*>(buckets), std::memory_order_release);
  return buckets != nullptr;
}

const char* Names::keep(std::string_view text) {
  if (left_ < text.size() + 1) {
    if (mapped_ == kMostBytes) return nullptr;
    text_ = static_cast<char*>(os::map(kTextBytes));
    left_ = text_ == nullptr ? 0 : kTextBytes;
    mapped_ += left_;
    if (text_ == nullptr) return nullptr;
  }
  char* kept = text_;
  std::memcpy(kept, text.data(), text.size());  // the mapping is zeros
  text_ += text.size() + 1;
  left_ -= text.size() + 1;
  return kept;
}

// --- names of handles ---

void HandleNames::set(const void* handle, uint32_t name) {
  if (handle == nullptr) return;
  const LockGuard guard(mutex_);
  Place* places = places_.load(std::memory_order_relaxed);
  if (places == nullptr) {
    places = static_cast<Place*>(os::map(kPlaces * sizeof(Place)));
    if (places == nullptr) return;
    places_.store(places, std::memory_order_release);
  }
  uint32_t i = first_place(handle);
  const void* there = places[i].handle.load(std::memory_order_relaxed);
  while (there != nullptr && there != handle) {
    i = (i + 1) % kPlaces;
    there = places[i].handle.load(std::memory_order_relaxed);
  }
  if (there == nullptr && taken_ == kMostHandles) return;
  places[i].name.store(name, std::memory_order_relaxed);
  if (there == handle) return;
  ++taken_;
  places[i].handle.store(handle, std::memory_order_release);
}

uint32_t HandleNames::of(const void* handle) const {
  const Place* places = places_.load(std::memory_order_acquire);
  if (handle == nullptr || places == nullptr) return 0;
  for (uint32_t i = first_place(handle);; i = (i + 1) % kPlaces) {
    const void* there = places[i].handle.load(std::memory_order_acquire);
    if (there == handle) return places[i].name.load(std::memory_order_relaxed);
    if (there == nullptr) return 0;
  }
}

// --- call stacks ---

namespace {

// FNV-1a over the fields.
uint32_t hash_of(const Frame* frames, int count) {
  uint64_t hash = 14695981039346656037u;
  const auto mix = [&hash](uint64_t value) { hash = (hash ^ value) * 1099511628211u; };
  for (int i = 0; i < count; ++i) {
    mix(frames[i].file);
    mix(frames[i].function);
    mix(frames[i].line);
    mix(frames[i].offset);
  }
  return static_cast<uint32_t>(hash ^ (hash >> 32));
}

}  // namespace

uint32_t CallSites::known(uint64_t hash) const {
  const std::atomic<uint64_t>* slots = slots_.load(std::memory_order_acquire);
  if (slots == nullptr) return 0;
  for (size_t way = 0; way < kWays; ++way) {
    const uint64_t slot = slots[(hash + way) % kSlots].load(std::memory_order_acquire);
    if ((slot ^ hash) >> kSiteBits == 0) return slot % (1u << kSiteBits);
  }
  return 0;
}

uint32_t CallSites::add(uint64_t hash, const Frame* frames, int count) {
  const LockGuard guard(mutex_);
  const uint32_t site = make_room() ? site_with(frames, count) : 0;
  if (site != 0) remember(hash, site);
  return site;
}

int CallSites::frames(uint32_t site, Frame* out) const {
  const Site& s = sites_[site];
  std::copy_n(frames_ + s.first_frame, s.frames, out);
  return static_cast<int>(s.frames);
}

// The tables: demand-paged, so that few sites take few pages.
bool CallSites::make_room() {
  const auto table = [](auto& where, size_t entries) {
    using Entry = std::remove_reference_t<decltype(*where)>;
    if (where == nullptr) where = static_cast<Entry*>(os::map(entries * sizeof(Entry)));
    return where != nullptr;
  };
  if (slots_.load(std::memory_order_relaxed) != nullptr) return true;
  if (!table(sites_, kMostSites + 1) || !table(frames_, kMostFramesKept) ||
      !table(buckets_, kBuckets)) {
    return false;
  }
  std::atomic<uint64_t>* slots = nullptr;
  if (!table(slots, kSlots)) return false;
  slots_.store(slots, std::memory_order_release);
  return true;
}

uint32_t CallSites::site_with(const Frame* frames, int count) {
  const uint32_t hash = hash_of(frames, count);
  uint32_t& bucket = buckets_[hash % kBuckets];
  const auto length = static_cast<uint32_t>(count);
  for (uint32_t i = bucket; i != 0; i = sites_[i].next) {
    const Site& s = sites_[i];
    if (s.hash == hash && s.frames == length &&
        std::equal(frames, frames + count, frames_ + s.first_frame)) {
      return i;
    }
  }
  const uint32_t last = count_.load(std::memory_order_relaxed);
  if (last == kMostSites || kMostFramesKept - frames_kept_ < length) return 0;
  std::copy_n(frames, count, frames_ + frames_kept_);
  sites_[last + 1] = {hash, bucket, frames_kept_, length};
  frames_kept_ += length;
  // In this order: in a child forked between the two, the number is not handed out again.
  count_.store(last + 1, std::memory_order_release);
  bucket = last + 1;
  return last + 1;
}

// In an empty slot, else in place of another hash. The lock is held.
void CallSites::remember(uint64_t hash, uint32_t site) {
  std::atomic<uint64_t>* slots = slots_.load(std::memory_order_relaxed);
  size_t chosen = (hash + (hash >> 32) % kWays) % kSlots;
  for (size_t way = 0; way < kWays; ++way) {
    const uint64_t slot = slots[(hash + way) % kSlots].load(std::memory_order_relaxed);
    if (slot == 0 || (slot ^ hash) >> kSiteBits == 0) {
      chosen = (hash + way) % kSlots;
      break;
    }
  }
  slots[chosen].store((hash >> kSiteBits << kSiteBits) | site, std::memory_order_release);
}

// --- open ranges of a thread ---

RangeStack::Domain* RangeStack::find(uint32_t domain) {
  for (unsigned i = 0; i < domains_used; ++i) {
    if (domains[i].name == domain) return &domains[i];
  }
  return nullptr;
}

// What came after one that had no room has none either, or pops would take the wrong ones.
bool RangeStack::has_room(uint32_t domain) const {
  if (depth == kMostDeep) return false;
  const Domain* d = const_cast<RangeStack*>(this)->find(domain);
  return d == nullptr || d->beyond == 0;
}

int RangeStack::push(const Entry& entry) {
  Domain* d = find(entry.domain);
  for (unsigned i = 0; d == nullptr && i < domains_used; ++i) {
    if (domains[i].pushed == 0) *(d = &domains[i]) = {entry.domain, 0, 0};
  }
  if (d == nullptr) {
    if (domains_used == kMostDomains) return kNotTracked;
    *(d = &domains[domains_used++]) = {entry.domain, 0, 0};
  }
  if (depth == kMostDeep || d->beyond != 0) {
    ++d->beyond;
  } else {
    entries[depth++] = entry;
  }
  return static_cast<int>(d->pushed++);
}

RangeStack::Popped RangeStack::pop(uint32_t domain) {
  Domain* d = find(domain);
  if (d == nullptr || d->pushed == 0) return {kNothingPushed, false, {}};
  Popped popped{static_cast<int>(--d->pushed), d->beyond == 0, {}};
  if (d->beyond != 0) {
    --d->beyond;
    return popped;
  }
  unsigned i = depth - 1;
  while (entries[i].domain != domain || entries[i].start != 0) --i;
  take_out(i, &popped.entry);
  return popped;
}

bool RangeStack::start(const Entry& entry) {
  if (depth == kMostDeep) return false;
  entries[depth++] = entry;
  return true;
}

bool RangeStack::end(uint64_t start, Entry* out) {
  for (unsigned i = depth; i-- > 0;) {
    if (entries[i].start != start) continue;
    take_out(i, out);
    return true;
  }
  return false;
}

bool RangeStack::end_of_domain(uint32_t domain, Entry* out) {
  if (Domain* d = find(domain)) d->pushed = d->beyond = 0;
  for (unsigned i = depth; i-- > 0;) {
    if (entries[i].domain != domain) continue;
    take_out(i, out);
    return true;
  }
  return false;
}

void RangeStack::take_out(unsigned index, Entry* out) {
  *out = entries[index];
  --depth;
  std::memmove(entries + index, entries + index + 1, (depth - index) * sizeof(Entry));
}

// --- paths of ranges ---

// A node is complete before it stands in its bucket, and does not change.
uint32_t RangeTree::known(uint32_t parent, uint32_t name) const {
  const Tables* tables = tables_.load(std::memory_order_acquire);
  if (tables == nullptr) return 0;
  const Node* nodes = tables->nodes;
  uint32_t i = tables->buckets[bucket_of(parent, name)].load(std::memory_order_acquire);
  while (i != 0 && (nodes[i].parent != parent || nodes[i].name != name)) i = nodes[i].next;
  return i;
}

RangeTree::Found RangeTree::range(uint32_t parent, uint32_t name) {
  if (const uint32_t range = known(parent, name)) return {range, false};
  const LockGuard guard(mutex_);
  if (const uint32_t range = known(parent, name)) return {range, false};
  const uint32_t last = count_.load(std::memory_order_relaxed);
  if (last == kMostRanges) return {0, false};
  Tables* tables = tables_.load(std::memory_order_relaxed);
  if (tables == nullptr) {
    tables = static_cast<Tables*>(os::map(sizeof(Tables)));
    if (tables == nullptr) return {0, false};
    tables_.store(tables, std::memory_order_release);
  }
  std::atomic<uint32_t>& bucket = tables->buckets[bucket_of(parent, name)];
  tables->nodes[last + 1] = {parent, name, bucket.load(std::memory_order_relaxed)};
  // Counted first: in a child forked between the two, the number is not handed out again.
  count_.store(last + 1, std::memory_order_release);
  bucket.store(last + 1, std::memory_order_release);
  return {last + 1, true};
}

}  // namespace cistern::alloc
