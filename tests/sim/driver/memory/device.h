// SPDX-License-Identifier: Apache-2.0
//
// A simulated device: its memory, and where allocations are placed in it. The memory is one memfd
// mapped over a range of addresses larger than the device, so that, as with a real GPU's page
// tables, only the bytes charged run out, never a contiguous stretch. Requests below 1 MiB share
// 2 MiB blocks at 512-byte spacing; larger ones are charged in 2 MiB units.
//
// Fresh units are poisoned with 0xA5 (large allocations only at both ends: what is not touched
// costs no memory); memory handed out again holds what was left in it. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/cuda.h"
#include "memory/allocation.h"
#include "memory/extents.h"
#include "memory/small_block.h"

namespace simcuda {

// Where the bytes are: device memory is host memory.
inline void* memory_at(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

class Context;

class Device {
 public:
  static constexpr uint64_t kUnitBytes = uint64_t{2} << 20;
  static constexpr uint64_t kSmallLimit = uint64_t{1} << 20;
  static constexpr uint8_t kPoison = 0xA5;

  Device(int ordinal, uint64_t total_bytes);

  // Maps the memory; false where the system refuses.
  bool open();

  int ordinal() const { return ordinal_; }
  uint64_t total_bytes() const { return total_bytes_; }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  Context& primary() const { return *primary_; }

  // The start of a new allocation described by `wanted` (its bytes, kind and owner); 0 when the
  // device has no room.
  CUdeviceptr allocate(const Allocation& wanted);

  // Ends the allocation that starts here; none if none does.
  std::optional<Allocation> release(CUdeviceptr base);

  // A stream will end the allocation that starts here; false if none does or one will already.
  bool set_ending(CUdeviceptr base);
  // The stream did not take it.
  void clear_ending(CUdeviceptr base);

  // Ends every allocation of this context.
  void release_all(const Context& context);

  std::optional<Allocation> find(CUdeviceptr address) const;
  bool owns(CUdeviceptr address) const { return address - base_ < span_bytes_; }

  // Whole units for a memory pool, which places its own allocations in them; 0 when the device has
  // no room. `wanted_bytes` of them are for the request at hand. They are given back in any parts.
  CUdeviceptr take_block(uint64_t bytes, uint64_t wanted_bytes);
  void give_block(CUdeviceptr address, uint64_t bytes);

  // Accounts for memory that lives elsewhere (physical handles); false when it does not fit.
  bool charge(uint64_t bytes);
  void refund(uint64_t bytes) { used_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }

  // The file behind the memory, and an address's place in it: what another process maps.
  int file() const { return file_; }
  uint64_t offset_of(CUdeviceptr address) const { return address - base_; }

  // fill_memory of memory that it owns.
  void fill(CUdeviceptr address, unsigned value, unsigned element, uint64_t bytes);

 private:
  // A unit shared by small allocations, and its place in open_.
  struct Shared {
    SmallBlock block;
    size_t bucket = 0;
    std::list<uint64_t>::iterator place{};
  };

  CUdeviceptr allocate_small(const Allocation& wanted);
  CUdeviceptr allocate_large(const Allocation& wanted);
  CUdeviceptr take_slots(uint64_t unit, size_t slots, std::unique_ptr<Allocation>& allocation);
  std::optional<Allocation> release_small(uint64_t unit, uint64_t within);
  std::optional<Allocation> release_large(uint64_t first);
  std::optional<uint64_t> open_shared_unit();
  void close_shared_unit(uint64_t unit);
  void rebucket(Shared& moved);
  const Allocation* at_or_before(uint64_t unit, uint64_t within) const;
  Allocation* starting_at(CUdeviceptr base);

  void poison_ends(CUdeviceptr address, uint64_t bytes);
  bool is_filled_first(uint64_t unit);
  void forget_fills(uint64_t first, uint64_t count);
  bool write_through(CUdeviceptr address, unsigned value, unsigned element, uint64_t bytes) const;
  std::optional<uint64_t> take_units(uint64_t count, bool* fresh);
  void give_units(uint64_t first, uint64_t count);

  uint64_t unit_count() const { return span_bytes_ / kUnitBytes; }
  CUdeviceptr unit_address(uint64_t unit) const { return base_ + unit * kUnitBytes; }

  const int ordinal_;
  const uint64_t total_bytes_;
  const uint64_t span_bytes_;
  Context* const primary_;
  CUdeviceptr base_ = 0;
  int file_ = -1;
  dev_t file_device_ = 0;
  ino_t file_id_ = 0;
  std::atomic<uint64_t> used_bytes_{0};
  std::vector<std::atomic<uint64_t>> filled_;  // a bit for each unit in which a fill made pages

  mutable std::mutex mutex_;
  Extents free_units_;
  std::vector<bool> touched_;             // by unit: holds leftovers of an earlier allocation
  uint64_t kept_bytes_ = 0;               // in free units whose pages were not given back
  std::map<uint64_t, Allocation> large_;  // by first unit
  std::unordered_map<uint64_t, Shared> shared_;  // by unit
  // Shared units by their longest free run: list b holds runs of 2^b to 2^(b+1) - 1 slots.
  std::vector<std::list<uint64_t>> open_;
};

// Once, from cuInit.
bool open_devices(const std::vector<uint64_t>& memory_bytes);

int device_count();
// Null for an ordinal that does not exist.
Device* find_device(CUdevice ordinal);
// The device whose memory holds this address, allocated or not.
Device* device_of(CUdeviceptr address);

// Fills memory, whose ever it is, with a value of 1, 2 or 4 bytes, to whose multiple it is aligned.
void fill_memory(CUdeviceptr address, unsigned value, unsigned element, uint64_t bytes);

}  // namespace simcuda
