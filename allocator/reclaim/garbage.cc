// SPDX-License-Identifier: Apache-2.0
#include "allocator/reclaim/garbage.h"

#include <algorithm>
#include <bit>
#include <iterator>

#include "allocator/reclaim/reclaim.h"

namespace cistern::alloc {
namespace {

using When = GarbageRules::When;

// Items have a key and a weight. Finds the largest key such that all items with this or a larger
// key weigh `enough` together. Each pass over the items finds eight bits of the key. It needs no
// memory and no order.
class KeySearch {
 public:
  KeySearch(uint64_t largest, uint64_t enough)
      : shift_((static_cast<unsigned>(std::bit_width(largest)) + 7) / 8 * 8), missing_(enough) {}

  bool found() const { return shift_ == 0; }

  // In each pass call see() for every item, then narrow().
  void see(uint64_t key, uint64_t weight) {
    if (shift_ < 64 && key >> shift_ != prefix_) return;
    weights_[(key >> (shift_ - 8)) & 0xff] += weight;
  }

  void narrow() {
    uint64_t digit = 0xff;
    for (; digit > 0 && weights_[digit] < missing_; --digit) missing_ -= weights_[digit];
    prefix_ = prefix_ << 8 | digit;
    shift_ -= 8;
    std::fill(std::begin(weights_), std::end(weights_), 0);
  }

  uint64_t key() const { return prefix_; }
  // The weight that is needed from the items with exactly that key.
  uint64_t missing() const { return missing_; }

 private:
  unsigned shift_;  // bits of the key not known yet
  uint64_t missing_;
  uint64_t prefix_ = 0;
  uint64_t weights_[256] = {};
};

uint64_t bytes_of_gb(double gb) {
  constexpr double kMost = 0x1p62;
  const double bytes = gb * (1 << 30);
  return bytes < kMost ? static_cast<uint64_t>(bytes) : uint64_t{1} << 62;
}

uint64_t round_up(double bytes) {
  const auto whole = static_cast<uint64_t>(bytes);
  return whole + (static_cast<double>(whole) < bytes ? 1 : 0);
}

}  // namespace

// A setting counts only if it is set: the default -1 would keep everything back.
GarbageRules garbage_rules(const config::Policy& policy) {
  const auto& gb = policy.eager_delete_tensor_gb;
  const auto& fraction = policy.memory_fraction_of_eager_deletion;
  GarbageRules rules;
  if (!gb.set && !fraction.set) return rules;
  rules.threshold = gb.set && gb.value > 0 ? bytes_of_gb(gb.value) : 0;
  rules.fraction = fraction.value;
  const bool never = fraction.value <= 0 || (gb.set && gb.value < 0);
  rules.when = never                  ? When::at_synchronise
               : rules.threshold == 0 ? When::at_each_free
                                      : When::at_threshold;
  return rules;
}

void GarbageQueue::join(Garbage* garbage, Mutex* pool_mutex, uint32_t owner) {
  if (garbage_ != nullptr) leave();
  owner_ = owner;
  if (garbage == nullptr) return;
  LockGuard guard(garbage->mutex_);
  garbage_ = garbage;
  pool_mutex_ = pool_mutex;
  next_ = garbage->queues_;
  garbage->queues_ = this;
}

void GarbageQueue::leave() {
  LockGuard guard(garbage_->mutex_);
  GarbageQueue** link = &garbage_->queues_;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  garbage_ = nullptr;
}

void Garbage::init(const GarbageRules& rules, Reclaim* reclaim) {
  rules_ = rules;
  reclaim_ = reclaim;
}

// If a flush must know which of two blocks is older, no two have the same stamp.
Ticket Garbage::stamp(uint32_t context) const {
  if (rules_.fraction >= 1) return reclaim_->stamp(context);
  const Ticket own = reclaim_->close();
  reclaim_->stamp(context);  // a later ticket: a mark for it also covers this free
  return own;
}

template <typename Visitor>
void Garbage::for_each_queue(Visitor visit) {
  for (GarbageQueue* queue = queues_; queue != nullptr; queue = queue->next_) {
    if (queue->garbage_bytes() != 0) visit(*queue);
  }
}

template <typename See>
void Garbage::survey(See see) {
  const auto each = [](void* state, uint64_t bytes, Ticket stamp) {
    (*static_cast<See*>(state))(bytes, stamp);
  };
  for_each_queue([&](GarbageQueue& queue) { queue.survey(each, &see); });
}

void Garbage::flush() {
  LockGuard guard(mutex_);
  if (!due()) return;  // another thread came first
  flushes.add();
  const Cut cut = rules_.fraction < 1 ? find_cut() : Cut{};
  for_each_queue([&](GarbageQueue& queue) { queue.flush(cut); });
}

// Blocks that other threads free meanwhile fall on either side of the cut.
Cut Garbage::find_cut() {
  uint64_t total = 0, largest = 0;
  survey([&](uint64_t bytes, Ticket) {
    total += bytes;
    largest = std::max(largest, bytes);
  });
  KeySearch size(largest, round_up(rules_.fraction * static_cast<double>(total)));
  while (!size.found()) {
    survey([&](uint64_t bytes, Ticket) { size.see(bytes, bytes); });
    size.narrow();
  }
  Cut cut{size.key(), 0};
  Ticket oldest = ~Ticket{0};
  survey([&](uint64_t bytes, Ticket stamp) {
    if (bytes != cut.bytes) return;
    oldest = std::min(oldest, stamp);
    cut.newest = std::max(cut.newest, stamp);
  });
  if (oldest > cut.newest) return cut;
  KeySearch age(cut.newest - oldest, size.missing());
  while (!age.found()) {
    survey([&](uint64_t bytes, Ticket stamp) {
      if (bytes == cut.bytes) age.see(cut.newest - stamp, bytes);
    });
    age.narrow();
  }
  cut.newest -= age.key();
  return cut;
}

bool Garbage::flush_synchronised(uint32_t owner, Ticket ticket) {
  if (until_synchronise.get() == 0) return false;
  LockGuard guard(mutex_);
  uint64_t bytes = 0;
  for_each_queue([&](GarbageQueue& queue) {
    if (queue.owner_ == owner) bytes += queue.flush_freed_before(ticket);
  });
  return bytes != 0;
}

bool Garbage::flush_all() {
  if (until_threshold.get() + until_synchronise.get() == 0) return false;
  LockGuard guard(mutex_);
  uint64_t bytes = 0;
  for_each_queue([&](GarbageQueue& queue) { bytes += queue.flush_all(); });
  flushed_when_short.add(bytes);
  return bytes != 0;
}

}  // namespace cistern::alloc
