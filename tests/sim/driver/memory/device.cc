// SPDX-License-Identifier: Apache-2.0
#include "memory/device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <cwchar>
#include <string>

#include "base/tsan.h"
#include "exec/context.h"
#include "watch/watcher.h"

namespace simcuda {
namespace {

// Poison at both ends of a large fresh allocation.
constexpr uint64_t kPoisonBytes = uint64_t{64} << 10;

// Freed memory whose pages are kept for the next allocation; beyond it they go back to the system.
constexpr uint64_t kKeepBytes = uint64_t{1} << 30;

constexpr uint64_t kMinSpanBytes = uint64_t{32} << 30;

uint64_t span_for(uint64_t total_bytes) {
  const uint64_t wanted = std::max(2 * total_bytes, kMinSpanBytes);
  return (wanted + Device::kUnitBytes - 1) / Device::kUnitBytes * Device::kUnitBytes;
}

uint64_t units_for(uint64_t bytes) { return (bytes + Device::kUnitBytes - 1) / Device::kUnitBytes; }

std::vector<std::unique_ptr<Device>>& devices() {
  static auto& all = *new std::vector<std::unique_ptr<Device>>;
  return all;
}

constinit std::atomic<uint64_t> g_next_id{1};

// A fill of less stores its bytes.
constexpr uint64_t kLeastWriteBytes = uint64_t{64} << 10;

// Few calls, also for a sanitizer: what is filled already is copied behind itself.
void set_all(CUdeviceptr address, unsigned value, unsigned element, uint64_t bytes) {
  const UnseenByTsan unseen;
  const auto to = static_cast<char*>(memory_at(address));
  static_assert(sizeof(wchar_t) == 4);
  if (element == 1) {
    std::memset(to, static_cast<int>(value), bytes);
  } else if (element == sizeof(wchar_t)) {
    std::wmemset(reinterpret_cast<wchar_t*>(to), static_cast<wchar_t>(value), bytes / element);
  } else {
    std::memcpy(to, &value, element);
    for (uint64_t done = element; done < bytes; done *= 2) {
      std::memcpy(to + done, to, std::min(done, bytes - done));
    }
  }
}

}  // namespace

uint64_t next_allocation_id() { return g_next_id.fetch_add(1, std::memory_order_relaxed); }

Device::Device(int ordinal, uint64_t total_bytes)
    : ordinal_(ordinal),
      total_bytes_(total_bytes),
      span_bytes_(span_for(total_bytes)),
      primary_(new Context(*this, Context::Role::kPrimary)),
      filled_((unit_count() + 63) / 64),
      touched_(unit_count()),
      open_(std::bit_width(SmallBlock::kSlots)) {
  free_units_.give(0, unit_count());
}

bool Device::open() {
  // Who imports a memory pool reads the ordinal from the name.
  const std::string name = "simcuda-device-" + std::to_string(ordinal_);
  file_ = memfd_create(name.c_str(), MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, static_cast<off_t>(span_bytes_)) != 0) return false;
  struct stat status;
  if (fstat(file_, &status) != 0) return false;
  file_device_ = status.st_dev;
  file_id_ = status.st_ino;
  // Room to align: the driver's large allocations start at multiples of 2 MiB.
  void* room = mmap(nullptr, span_bytes_ + kUnitBytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return false;
  const auto start = reinterpret_cast<CUdeviceptr>(room);
  base_ = (start + kUnitBytes - 1) / kUnitBytes * kUnitBytes;
  return mmap(memory_at(base_), span_bytes_, PROT_READ | PROT_WRITE,
              MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file_, 0) != MAP_FAILED;
}

bool Device::charge(uint64_t bytes) {
  uint64_t used = used_bytes_.load(std::memory_order_relaxed);
  do {
    if (bytes > total_bytes_ - used) return false;
  } while (!used_bytes_.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

CUdeviceptr Device::allocate(const Allocation& wanted) {
  Allocation made = wanted;
  {
    const std::lock_guard lock(mutex_);
    made.base = wanted.bytes < kSmallLimit ? allocate_small(wanted) : allocate_large(wanted);
  }
  if (made.base != 0) watch_begun(made);
  return made.base;
}

// Units for a new use; `fresh` says that nothing is left in them from an earlier one.
std::optional<uint64_t> Device::take_units(uint64_t count, bool* fresh) {
  const auto first = free_units_.take(count);
  if (!first) return std::nullopt;
  *fresh = true;
  for (uint64_t unit = *first; unit < *first + count; ++unit) {
    if (!touched_[unit]) {
      touched_[unit] = true;
      continue;
    }
    *fresh = false;
    kept_bytes_ -= kUnitBytes;
  }
  return first;
}

void Device::give_units(uint64_t first, uint64_t count) {
  if (kept_bytes_ + count * kUnitBytes <= kKeepBytes) {
    kept_bytes_ += count * kUnitBytes;
  } else {
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
              static_cast<off_t>(first * kUnitBytes), static_cast<off_t>(count * kUnitBytes));
    forget_fills(first, count);
    std::fill_n(touched_.begin() + static_cast<ptrdiff_t>(first), count, false);
  }
  free_units_.give(first, count);
}

CUdeviceptr Device::allocate_large(const Allocation& wanted) {
  const uint64_t count = units_for(wanted.bytes);
  if (wanted.bytes > total_bytes_ || !charge(count * kUnitBytes)) return 0;
  bool fresh = false;
  const auto first = take_units(count, &fresh);
  if (!first) {
    refund(count * kUnitBytes);
    return 0;
  }
  Allocation& allocation = large_.emplace(*first, wanted).first->second;
  allocation.base = unit_address(*first);
  allocation.id = next_allocation_id();
  if (fresh) poison_ends(allocation.base, wanted.bytes);
  return allocation.base;
}

void Device::poison_ends(CUdeviceptr address, uint64_t bytes) {
  const uint64_t poison = std::min<uint64_t>(kPoisonBytes, bytes);
  for (const CUdeviceptr end : {address, address + bytes - poison}) {
    if (!write_through(end, kPoison, 1, poison)) set_all(end, kPoison, 1, poison);
  }
}

bool Device::is_filled_first(uint64_t unit) {
  const uint64_t bit = uint64_t{1} << (unit % 64);
  return (filled_[unit / 64].fetch_or(bit, std::memory_order_relaxed) & bit) == 0;
}

void Device::forget_fills(uint64_t first, uint64_t count) {
  for (uint64_t unit = first; unit < first + count; ++unit) {
    filled_[unit / 64].fetch_and(~(uint64_t{1} << (unit % 64)), std::memory_order_relaxed);
  }
}

// A write to the file takes half of the time that stores take to pages that are not there: these
// fault for each page, which is zeroed first. The pages are mapped afterwards. False where not all
// is written, as where the number is a file of the program's now: programs close what they did not
// open.
bool Device::write_through(CUdeviceptr address, unsigned value, unsigned element,
                           uint64_t bytes) const {
  const UnseenByTsan unseen;
  struct stat status;
  if (fstat(file_, &status) != 0 || status.st_dev != file_device_ || status.st_ino != file_id_) {
    return false;
  }
  rlimit limit;  // what lies behind it would end the program by a signal
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < offset_of(address) + bytes) {
    return false;
  }
  // Not on the stack: a program's thread may have one of 16 KiB.
  constexpr uint64_t kPieceBytes = 16384;
  const std::unique_ptr<char[]> piece(new char[kPieceBytes]);
  set_all(reinterpret_cast<CUdeviceptr>(piece.get()), value, element, kPieceBytes);
  std::vector<iovec> pieces(bytes / kPieceBytes, {piece.get(), kPieceBytes});
  if (const uint64_t rest = bytes % kPieceBytes; rest != 0) pieces.push_back({piece.get(), rest});
  const ssize_t written = pwritev(file_, pieces.data(), static_cast<int>(pieces.size()),
                                  static_cast<off_t>(offset_of(address)));
  if (written != static_cast<ssize_t>(bytes)) return false;  // some of it is no harm
  const uint64_t page = address & ~uint64_t{4095};
  madvise(memory_at(page), address + bytes - page, MADV_POPULATE_READ);
  return true;
}

void Device::fill(CUdeviceptr address, unsigned value, unsigned element, uint64_t bytes) {
  while (bytes != 0) {
    const uint64_t unit = (address - base_) / kUnitBytes;
    const uint64_t here = std::min<uint64_t>(bytes, unit_address(unit + 1) - address);
    const bool first = here >= kLeastWriteBytes && is_filled_first(unit);
    if (!first || !write_through(address, value, element, here)) {
      set_all(address, value, element, here);
    }
    address += here;
    bytes -= here;
  }
}

CUdeviceptr Device::take_block(uint64_t bytes, uint64_t wanted_bytes) {
  if (!charge(bytes)) return 0;
  const std::lock_guard lock(mutex_);
  bool fresh = false;
  const auto first = take_units(bytes / kUnitBytes, &fresh);
  if (!first) {
    refund(bytes);
    return 0;
  }
  const CUdeviceptr address = unit_address(*first);
  // Small requests share units: all of the first one is theirs.
  if (fresh && wanted_bytes < kUnitBytes) {
    fill(address, kPoison, 1, kUnitBytes);
  } else if (fresh) {
    poison_ends(address, wanted_bytes);
  }
  return address;
}

void Device::give_block(CUdeviceptr address, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  give_units((address - base_) / kUnitBytes, bytes / kUnitBytes);
  refund(bytes);
}

CUdeviceptr Device::allocate_small(const Allocation& wanted) {
  const size_t slots = slots_for(wanted.bytes);
  auto allocation = std::make_unique<Allocation>(wanted);
  allocation->id = next_allocation_id();
  for (size_t bucket = static_cast<size_t>(std::bit_width(slots)) - 1; bucket < open_.size();
       ++bucket) {
    for (auto at = open_[bucket].begin(); at != open_[bucket].end();) {
      const uint64_t unit = *at++;  // the unit may leave this list
      if (shared_.at(unit).block.longest_run_bound() < slots) continue;
      const CUdeviceptr base = take_slots(unit, slots, allocation);
      if (base != 0) return base;
    }
  }
  const auto opened = open_shared_unit();
  const CUdeviceptr base = opened ? take_slots(*opened, slots, allocation) : 0;
  if (opened && base == 0) close_shared_unit(*opened);
  return base;
}

// A shared unit nobody uses is not charged, so that one kept for the next request costs the
// device nothing. Returns 0 if the unit has no such run or the device no room.
CUdeviceptr Device::take_slots(uint64_t unit, size_t slots,
                               std::unique_ptr<Allocation>& allocation) {
  Shared& chosen = shared_.at(unit);
  if (chosen.block.empty() && !charge(kUnitBytes)) return 0;
  Allocation* const raw = allocation.get();
  const size_t slot = chosen.block.take(slots, allocation);
  rebucket(chosen);
  if (slot == SmallBlock::kNoSlot) return 0;
  raw->base = unit_address(unit) + slot * SmallBlock::kSlotBytes;
  return raw->base;
}

std::optional<uint64_t> Device::open_shared_unit() {
  bool fresh = false;
  const auto unit = take_units(1, &fresh);
  if (!unit) return std::nullopt;
  Shared& opened = shared_[*unit];
  opened.bucket = open_.size() - 1;
  opened.place = open_[opened.bucket].insert(open_[opened.bucket].end(), *unit);
  if (fresh) fill(unit_address(*unit), kPoison, 1, kUnitBytes);
  return unit;
}

void Device::close_shared_unit(uint64_t unit) {
  const auto closed = shared_.find(unit);
  open_[closed->second.bucket].erase(closed->second.place);
  shared_.erase(closed);
  give_units(unit, 1);
}

void Device::rebucket(Shared& moved) {
  const auto width = static_cast<size_t>(std::bit_width(moved.block.longest_run_bound()));
  const size_t bucket = width == 0 ? 0 : width - 1;
  if (bucket == moved.bucket) return;
  open_[bucket].splice(open_[bucket].end(), open_[moved.bucket], moved.place);
  moved.bucket = bucket;
}

std::optional<Allocation> Device::release(CUdeviceptr base) {
  if (!owns(base)) return std::nullopt;
  const uint64_t unit = (base - base_) / kUnitBytes;
  const uint64_t within = (base - base_) % kUnitBytes;
  const std::lock_guard lock(mutex_);
  if (shared_.contains(unit)) return release_small(unit, within);
  return within == 0 ? release_large(unit) : std::nullopt;
}

std::optional<Allocation> Device::release_small(uint64_t unit, uint64_t within) {
  if (within % SmallBlock::kSlotBytes != 0) return std::nullopt;
  Shared& holder = shared_.at(unit);
  const auto allocation = holder.block.give_back(within / SmallBlock::kSlotBytes);
  if (!allocation) return std::nullopt;
  rebucket(holder);
  if (holder.block.empty()) {
    refund(kUnitBytes);
    // One empty unit is kept: a program that allocates and frees one buffer stays cheap.
    if (open_[holder.bucket].size() > 1) close_shared_unit(unit);
  }
  return *allocation;
}

std::optional<Allocation> Device::release_large(uint64_t first) {
  const auto found = large_.find(first);
  if (found == large_.end()) return std::nullopt;
  const Allocation allocation = found->second;
  large_.erase(found);
  give_units(first, units_for(allocation.bytes));
  refund(units_for(allocation.bytes) * kUnitBytes);
  return allocation;
}

void Device::release_all(const Context& context) {
  std::vector<Allocation> owned;
  {
    const std::lock_guard lock(mutex_);
    const auto collect = [&](const Allocation& allocation) {
      if (allocation.context == &context) owned.push_back(allocation);
    };
    for (const auto& [unit, shared] : shared_) shared.block.for_each(collect);
    for (const auto& [unit, allocation] : large_) collect(allocation);
  }
  for (const Allocation& allocation : owned) {
    watch_ended(allocation);
    release(allocation.base);
  }
}

// Caller holds the mutex.
const Allocation* Device::at_or_before(uint64_t unit, uint64_t within) const {
  if (const auto shared = shared_.find(unit); shared != shared_.end()) {
    return shared->second.block.at_or_before(within / SmallBlock::kSlotBytes);
  }
  const auto after = large_.upper_bound(unit);
  return after == large_.begin() ? nullptr : &std::prev(after)->second;
}

// The table's own record. Caller holds the mutex.
Allocation* Device::starting_at(CUdeviceptr base) {
  if (!owns(base)) return nullptr;
  const Allocation* found = at_or_before((base - base_) / kUnitBytes, (base - base_) % kUnitBytes);
  return found != nullptr && found->base == base ? const_cast<Allocation*>(found) : nullptr;
}

bool Device::set_ending(CUdeviceptr base) {
  const std::lock_guard lock(mutex_);
  Allocation* allocation = starting_at(base);
  if (allocation == nullptr || allocation->ending) return false;
  return allocation->ending = true;
}

void Device::clear_ending(CUdeviceptr base) {
  const std::lock_guard lock(mutex_);
  if (Allocation* allocation = starting_at(base)) allocation->ending = false;
}

std::optional<Allocation> Device::find(CUdeviceptr address) const {
  if (!owns(address)) return std::nullopt;
  const std::lock_guard lock(mutex_);
  const Allocation* found =
      at_or_before((address - base_) / kUnitBytes, (address - base_) % kUnitBytes);
  if (found == nullptr || !found->contains(address)) return std::nullopt;
  return *found;
}

bool open_devices(const std::vector<uint64_t>& memory_bytes) {
  int ordinal = 0;
  for (uint64_t bytes : memory_bytes) {
    auto device = std::make_unique<Device>(ordinal++, bytes);
    if (!device->open()) return false;
    devices().push_back(std::move(device));
  }
  return true;
}

int device_count() { return static_cast<int>(devices().size()); }

Device* find_device(CUdevice ordinal) {
  if (ordinal < 0 || ordinal >= device_count()) return nullptr;
  return devices()[static_cast<size_t>(ordinal)].get();
}

Device* device_of(CUdeviceptr address) {
  for (const auto& device : devices()) {
    if (device->owns(address)) return device.get();
  }
  return nullptr;
}

void fill_memory(CUdeviceptr address, unsigned value, unsigned element, uint64_t bytes) {
  if (Device* const device = device_of(address))
    return device->fill(address, value, element, bytes);
  set_all(address, value, element, bytes);
}

}  // namespace simcuda
