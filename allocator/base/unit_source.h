// SPDX-License-Identifier: Apache-2.0
// Physical memory apart from addresses, for the expandable pool: where units come from, and how
// they get addresses. For CUDA: the virtual memory management calls (CUDA Driver API, "Virtual
// Memory Management"); none of them is ordered by streams. What is unmapped must be clean
// (allocator/reclaim/reclaim.h): neither earlier work nor a peer's may touch it any more.
//
// Any thread; calls may reach the driver and block, so no lock of ours is held around one. The
// codes are the source's own, as in source.h. No call needs a live context: units and ranges
// outlive it, and are given back after its end.
#pragma once

#include <cstdint>

namespace cistern::alloc {

// A physical allocation of UnitSource::unit_bytes(). 0: none.
using Unit = uint64_t;

class UnitSource {
 public:
  // The size of every unit in bytes, and the alignment of ranges: a power of two, 2 MiB or more. 0
  // if the device has no such memory.
  virtual uint64_t unit_bytes() = 0;

  // Reserves a range of addresses, aligned to a unit, with no memory behind it.
  virtual int reserve_addresses(uint64_t bytes, uint64_t* address) = 0;
  // Frees the range. Nothing may be mapped in it.
  virtual void free_addresses(uint64_t address, uint64_t bytes) = 0;

  // An upper limit on the units that create() can give now, as far as the device knows.
  virtual uint64_t most_units() { return UINT64_MAX; }

  // Never returns kNotNow: if a capture forbids the call, the program gets the driver's code, as
  // with MemorySource::obtain().
  virtual int create(Unit* unit) = 0;
  // The unit must not be mapped anywhere.
  virtual void release(Unit unit) = 0;

  // Maps the units side by side from `address` on, with access for the device and for its peers.
  // Maps all of them or none.
  virtual int map(uint64_t address, const Unit* units, uint32_t count) = 0;
  // Unmaps the `count` units from `address` on. kNotNow during a capture. Any failure leaves all of
  // them mapped.
  virtual int unmap(uint64_t address, uint32_t count) = 0;
  // As unmap(), for `bytes` of a context that is gone, even if another context has taken its place.
  // Works in a capture too.
  virtual int unmap_of_gone(uint64_t address, uint64_t bytes) = 0;

 protected:
  ~UnitSource() = default;
};

}  // namespace cistern::alloc
