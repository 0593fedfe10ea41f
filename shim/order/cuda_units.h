// SPDX-License-Identifier: Apache-2.0
// CUDA's UnitSource: physical memory and addresses by the driver's virtual memory management. None
// of these calls belongs to a context, so a pool's units outlive the context and go back after its
// end. The calls go to the driver directly: the program's own virtual memory management
// (kinds/physical.h) never sees these units.
//
// create() and map() run inside calls of the program that request memory, and behave in a capture
// like those. The others are Cistern's own. unmap() passes the capture gate. release() and
// free_addresses() must be made in a capture too, by a thread with relaxed mode (cuda.h,
// cuThreadExchangeStreamCaptureMode). Any thread.
#pragma once

#include <atomic>

#include "allocator/base/unit_source.h"
#include "shim/cuda_api.h"

namespace cistern::shim {

class CudaUnits final : public alloc::UnitSource {
 public:
  // What the units of a context need of the source that owns them.
  struct Owner {
    CUcontext context;
    CUdevice device;
    uint32_t number;                     // the context's
    const std::atomic<int>* closing;     // threads in a call that may end the context
    std::atomic<int>* at_work;           // for whose end such a call waits
    uint64_t (*peers)(uint32_t number);  // the devices with access to the context's memory, as bits
  };

  // `wanted`: whether the settings ask for units. Makes driver calls, which need no context.
  void init(const Owner& owner, bool wanted);
  // The context is gone, and what is left may be given back: also while a capture is in progress,
  // for nothing will ask again.
  void context_gone() { gone_.store(true); }
  // Whether other processes can have units, and a descriptor of one for them, which the caller
  // closes; it has a high number. After an error there is none.
  bool can_be_files() const;
  CUresult export_file(alloc::Unit unit, int* file) const;
  // What the peers may do has changed: they get access to what is mapped there, or lose it.
  int access_changed(uint64_t address, uint64_t bytes);

  uint64_t unit_bytes() override { return unit_bytes_; }
  int reserve_addresses(uint64_t bytes, uint64_t* address) override;
  void free_addresses(uint64_t address, uint64_t bytes) override;
  uint64_t most_units() override;
  int create(alloc::Unit* unit) override;
  void release(alloc::Unit unit) override;
  int map(uint64_t address, const alloc::Unit* units, uint32_t count) override;
  int unmap(uint64_t address, uint32_t count) override;
  int unmap_of_gone(uint64_t address, uint64_t bytes) override;

 private:
  // What a unit can do beside being used by kernels and copies, as bits.
  enum Ability : uint8_t { kForRdma = 1, kAsFile = 2 };

  CUresult map_one(uint64_t address, alloc::Unit unit);
  void undo_map(uint64_t address, uint32_t count);
  bool unmap_stuck(uint64_t address);
  static CUresult unmap_for_sure(uint64_t address, uint64_t bytes, CUcontext context);
  static int unmap_gone(uint64_t address, uint64_t bytes, uint32_t count);
  uint8_t abilities() const;
  CUmemAllocationProp properties(uint8_t abilities) const;
  uint64_t devices() const;
  int give_access(uint64_t address, uint64_t bytes, uint64_t given) const;
  CUresult set_access(uint64_t address, uint64_t bytes, uint64_t with, uint64_t without) const;
  void note_mapped(uint64_t address, uint32_t count) const;
  static void note_unmapped(uint64_t address, uint64_t bytes, uint32_t count);

  Owner owner_;
  std::atomic<uint64_t> unit_bytes_;  // read for units of contexts that ended, too
  std::atomic<uint8_t> abilities_;
  std::atomic<bool> created_;  // a unit with these abilities
  std::atomic<bool> gone_;
  std::atomic<uint32_t> stuck_{0};  // mappings that failed, and could not be undone yet
};

}  // namespace cistern::shim
