// SPDX-License-Identifier: Apache-2.0
#include "shim/kinds/charges.h"

#include "allocator/base/records.h"
#include "allocator/base/threads.h"
#include "shim/process/log.h"

namespace cistern::shim {

constinit bool charges_wanted = false;

struct ChargeRecord {
  ChargeRecord* next;  // in its bucket; also the Arena's link
  uint64_t key;
  uint64_t bytes;
  uint64_t place;     // 0: not charged by its pages
  CUcontext context;  // nullptr: outlives contexts
  CUdevice device;
  MemoryKind kind;
};

namespace {

constinit alloc::Mutex mutex;
constinit alloc::KeyedTable<ChargeRecord, 16> records{};
constinit alloc::Arena<ChargeRecord> arena{};
constinit alloc::SharedPages shared_pages{};

// Whether the device memory that a block takes depends on where the driver places the block.
bool by_place(MemoryKind kind, uint64_t bytes) {
  const bool small = kind == MemoryKind::direct && bytes < alloc::kDriverSharesBelow;
  return small || kind == MemoryKind::stream_ordered;
}

// The charge for memory whose place is unknown or does not matter.
alloc::Cap::Weight weight(MemoryKind kind, uint64_t bytes) {
  if (kind == MemoryKind::managed) return {};
  return by_place(kind, bytes) ? alloc::Cap::at_least(bytes) : alloc::Cap::alone(bytes);
}

// `place`: the address if the charge is for the pages there, else 0.
void end_charge(MemoryKind kind, Device& device, uint64_t place, uint64_t bytes) {
  device.ledger.taken[static_cast<int>(kind)].sub(bytes);
  if (place != 0) return shared_pages.leave(device.cap, place, bytes);
  device.cap.refund(weight(kind, bytes));
}

void count(Device& device, MemoryKind kind, uint64_t bytes) {
  const int i = static_cast<int>(kind);
  device.ledger.taken[i].add(bytes);
  device.ledger.taken_peak[i].raise_to(device.ledger.taken[i].get());
  device.used.store(true, std::memory_order_release);
}

void tell_refused(Device& device, CUdevice ordinal, uint64_t bytes) {
  device.ledger.refused_by_cap.add();
  if (!log_enabled(config::LogLevel::kInfo)) return;
  const auto mib = [](uint64_t n) { return static_cast<double>(n) / (1 << 20); };
  log(config::LogLevel::kInfo,
      "out of memory: %.1f MiB requested on device %d outside the pools; the cap has counted "
      "%.1f of %.1f MiB; CISTERN_GPU_LIMIT may be too low",
      mib(bytes), ordinal, mib(device.cap.charged()), mib(device.cap.limit()));
}

// Inserts a record. An earlier record with the same key is of memory whose free no hook saw: it is
// refunded.
void replace(ChargeRecord* record) {
  ChargeRecord* stale;
  {
    const alloc::LockGuard guard(mutex);
    stale = records.find(record->key);
    if (stale != nullptr) records.remove(stale);
    records.insert(record);
  }
  if (stale != nullptr) settle_charge(stale, true);
}

}  // namespace

void open_charges(const config::Policy& policy) {
  charges_wanted = policy.any_cap() || policy.report.value != config::ReportFormat::kNone;
}

Charge::Charge(MemoryKind kind, CUdevice device, uint64_t bytes)
    : kind_(kind), device_(device), bytes_(bytes), charged_(nullptr) {
  Device* known = bytes == 0 ? nullptr : known_device(device);
  if (known == nullptr) return;
  charged_ = known;
  refused_ = !fits(bytes, [&] { return hold(bytes); });
  if (refused_) charged_ = nullptr;
}

Charge::~Charge() {
  if (charged_ == nullptr) return;
  if (place_ != 0) {
    shared_pages.leave(charged_->cap, place_, bytes_);
  } else {
    charged_->cap.refund(held_);
  }
}

// If the charge depends on the block's place, and the cap may lack room for it, the cap must have
// room for the least charge, but nothing is held. Otherwise a block that does not fit would keep
// that room from other threads, again and again if the program retries.
bool Charge::hold(uint64_t bytes) {
  alloc::Cap& cap = charged_->cap;
  const alloc::Cap::Weight least = weight(kind_, bytes);
  const bool placed = by_place(kind_, bytes);
  if (placed && !cap.has_room(alloc::Cap::at_most(bytes))) return cap.has_room(least);
  if (!cap.charge(least)) return false;
  held_ = least;
  return true;
}

bool Charge::return_idle() {
  return device_ == kNoDevice ? release_idle_memory() : release_idle_memory(device_);
}

// If the cap has no room, idle memory is released. Other threads fill and empty their pools
// meanwhile, so this tries again as long as this thread or another released anything.
template <typename Exchange>
bool Charge::fits(uint64_t bytes, Exchange exchange) {
  constexpr int kAttempts = 16;
  Device& d = *charged_;
  bool fit = exchange(), progress = bytes <= d.max_request_bytes.load();
  for (int i = 0; i < kAttempts && !fit && progress; ++i) {
    progress = release_idle_memory(device_);
    fit = exchange();
  }
  if (!fit) tell_refused(d, device_, bytes);
  return fit;
}

bool Charge::resize(uint64_t bytes) {
  if (charged_ == nullptr || bytes == bytes_) return true;
  const alloc::Cap::Weight wanted = weight(kind_, bytes);
  refused_ = !fits(bytes, [&] { return charged_->cap.exchange(held_, wanted); });
  if (refused_) return false;
  bytes_ = bytes;
  held_ = wanted;
  return true;
}

bool Charge::place(uint64_t address) {
  if (charged_ == nullptr || charged_->cap.limit() == 0 || !by_place(kind_, bytes_)) return true;
  refused_ =
      !fits(bytes_, [&] { return shared_pages.enter(charged_->cap, held_, address, bytes_); });
  if (!refused_) place_ = address;
  return !refused_;
}

void Charge::keep(uint64_t key, CUcontext context) {
  ChargeRecord* record = charged_ != nullptr ? arena.take() : nullptr;
  if (record == nullptr) return;  // without a record it could never be refunded: not charged
  record->key = key;
  record->bytes = bytes_;
  record->place = place_;
  record->context = context;
  record->device = device_;
  record->kind = kind_;
  hand_over();
  replace(record);
}

void Charge::hand_over() {
  count(*charged_, kind_, bytes_);
  charged_ = nullptr;
}

void refund(MemoryKind kind, CUdevice device, uint64_t bytes) {
  end_charge(kind, device_state(device), /*place=*/0, bytes);
}

ChargeRecord* take_charge(uint64_t key) {
  const alloc::LockGuard guard(mutex);
  ChargeRecord* record = records.find(key);
  if (record != nullptr) records.remove(record);
  return record;
}

void settle_charge(ChargeRecord* record, bool freed) {
  if (!freed) {
    const alloc::LockGuard guard(mutex);
    records.insert(record);
    return;
  }
  end_charge(record->kind, device_state(record->device), record->place, record->bytes);
  arena.give_back(record);
}

void context_charges_gone(CUcontext context) {
  if (!charging()) return;
  ChargeRecord* gone;
  {
    const alloc::LockGuard guard(mutex);
    gone = records.remove_all([&](const ChargeRecord& r) { return r.context == context; });
  }
  while (gone != nullptr) {
    ChargeRecord* record = gone;
    gone = record->next;
    settle_charge(record, true);
  }
}

void reset_charges_after_fork() {
  mutex.reset();
  arena.reset_after_fork();
  shared_pages.reset_after_fork();
}

}  // namespace cistern::shim
