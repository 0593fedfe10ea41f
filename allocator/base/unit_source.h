// SPDX-License-Identifier: Apache-2.0
// Physical memory apart from addresses, for the expandable pool: where units come from, and how
// they get addresses. For CUDA: the virtual memory management calls (CUDA Driver API, "Virtual
// Memory Management"); none of them is ordered by streams. What is unmapped must be clean
// (allocator/reclaim/reclaim.h): neither earlier work nor a peer's may touch it any more.
//
// Any thread; calls may reach the driver and block, so no lock of ours is held around one. The
// codes are the source's own, as in source.h. None needs the context to be alive: units and ranges
// outlive it, and are given back after its end.
#pragma once

#include <cstdint>

namespace cistern::alloc {

// A physical allocation of UnitSource::unit_bytes(). 0: none.
using Unit = uint64_t;

class UnitSource {
 public:
  // The size of every unit, and of what addresses are aligned to: a power of two, 2 MiB or more; 0
  // where the device has no such memory.
  virtual uint64_t unit_bytes() = 0;

  // A range of addresses, aligned to a unit, with nothing behind it.
  virtual int reserve_addresses(uint64_t bytes, uint64_t* address) = 0;
  // Nothing is mapped in it.
  virtual void free_addresses(uint64_t address, uint64_t bytes) = 0;

  // How many create() might give now, as far as the device knows.
  virtual uint64_t most_units() { return UINT64_MAX; }

  // kNotNow is no answer of this: a capture that forbids it is the program's to see, as with
  // MemorySource::obtain().
  virtual int create(Unit* unit) = 0;
  // It is mapped nowhere.
  virtual void release(Unit unit) = 0;

  // Puts the units side by side from `address` on, for use by the device and by all that have peer
  // access to it. All of them or none.
  virtual int map(uint64_t address, const Unit* units, uint32_t count) = 0;
  // Takes `count` units away that are mapped from `address` on. kNotNow during a capture; any other
  // failure leaves all of them mapped.
  virtual int unmap(uint64_t address, uint32_t count) = 0;
  // The same for a unit of a context that is gone, whoever has its place by now; also in a capture.
  virtual int unmap_of_gone(uint64_t address, uint64_t bytes) = 0;

 protected:
  ~UnitSource() = default;
};

}  // namespace cistern::alloc
